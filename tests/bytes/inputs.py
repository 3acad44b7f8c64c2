#!/usr/bin/env python3
"""Packed checkpoints of other tools as input, and the FP4 formats.

    inputs.py [NAME ...]      only cases whose name contains one of the words

Golden files of the original libraries where there are some; else files made here,
word by word from their descriptions, in numpy code of its own. What is taken over
must have equal codes and scales (0 bytes may differ); what is decoded must equal
refquant.py applied to the decoded values; what is refused must be refused in these
words. Ends with `N passed, N failed`. The command is TILEPACK, else build/tilepack.
"""
import sys

import lib_path  # noqa: F401  pylint: disable=unused-import
import oracle
import tool
from golden import Mismatch, Report
from input_cases import activations, divisors, engine_humming, engine_moe, engine_rest, engine_zeros, engines, factors, fp4, fp8, ignored, int4, interchange, measured, mxfp4_to_nvfp4, refusals  # noqa: F401  pylint: disable=unused-import
from input_cases.common import CASES


def main():
    wanted = sys.argv[1:]
    passed = failed = 0
    for name, function in CASES if wanted else tool.share(CASES):
        if wanted and not any(word in name for word in wanted):
            continue
        report = Report()
        try:
            function(report)
            if not report.bytes:
                raise Mismatch("nothing was compared")
        except (Mismatch, tool.ToolError, oracle.Wrong, KeyError, ValueError) as error:
            failed += 1
            print(f"FAIL {name}: {type(error).__name__}: {error}", flush=True)
        else:
            passed += 1
            print(f"ok   {name} {report.bytes} bytes", flush=True)
    print(f"{passed} passed, {failed} failed")
    return 1 if failed or not passed else 0


if __name__ == "__main__":
    sys.exit(main())
