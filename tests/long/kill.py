#!/usr/bin/env python3
"""kill.py [--count N] [--megabytes M]

Kills conversions at random moments (SIGKILL), interrupts some (SIGINT, SIGTERM), and
starts them again with the same command. Whenever one ends, the output's name is
absent, or holds what was there before, or all of the new; in the end every file
equals that of a conversion that nobody disturbed. The last line is the result.
"""
import argparse
import hashlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time

import numpy as np

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
import stfile  # noqa: E402
import tool  # noqa: E402

JOURNAL = ".tilepack-journal"
REPLACES = ".tilepack-replaces"  # beside the journal, until what --force replaced is gone


def make_source(path, megabytes):
    """A sharded mixture of experts of about that size; the same for each run."""
    generator = np.random.default_rng(1)
    hidden, inner, experts = 1024, 512, 8
    layers = max(1, round(megabytes * 1e6 / (experts * 3 * hidden * inner * 2)))
    os.makedirs(path)
    weight_map = {}
    for layer in range(layers):
        tensors = {}
        for e in range(experts):
            for part, shape in (("gate", (inner, hidden)), ("up", (inner, hidden)),
                                ("down", (hidden, inner))):
                values = generator.standard_normal(shape, dtype=np.float32) * 0.02
                name = f"model.layers.{layer}.mlp.experts.{e}.{part}_proj.weight"
                tensors[name] = stfile.from_f32("BF16", values)
        shard = f"model-{layer + 1:05}-of-{layers:05}.safetensors"
        stfile.save(os.path.join(path, shard), tensors)
        weight_map.update((name, shard) for name in tensors)
    with open(os.path.join(path, "model.safetensors.index.json"), "w", encoding="utf-8") as f:
        json.dump({"weight_map": weight_map}, f)
    for name, text in (("config.json", '{"model_type": "mixtral"}'), ("tokenizer.json", "{}")):
        with open(os.path.join(path, name), "w", encoding="utf-8") as f:
            f.write(text)


def contents(path):
    """{name: hash} of a directory or of one file; None when there is nothing."""
    if os.path.isfile(path):
        with open(path, "rb") as f:
            return {"": hashlib.file_digest(f, "sha256").hexdigest()}
    if not os.path.isdir(path):
        return None
    found = {}
    for name in os.listdir(path):
        if name not in (JOURNAL, REPLACES):
            with open(os.path.join(path, name), "rb") as f:
                found[name] = hashlib.file_digest(f, "sha256").hexdigest()
    return found


class Scenario:
    """One command, run in a directory of its own."""

    def __init__(self, work, name, output, words, old=False):
        self.name, self.words = name, words
        self.root = os.path.join(work, name.replace(" ", "-"))
        self.output = os.path.join(self.root, output)
        self.source = os.path.join(work, "source")
        self.old = old
        self.previous = os.path.join(work, self.name + "-previous" + os.path.splitext(output)[1])
        os.mkdir(self.root)
        if old:  # what --force removes is what the program wrote
            tool.run("convert", self.source, "-o", self.previous, "--quiet", "--to", "fp8-ct")
        began = time.monotonic()
        tool.run(*self.command())
        self.seconds = time.monotonic() - began
        self.wanted = contents(self.output)
        self.reset()

    def command(self):
        force = ["--force"] if self.old else []
        return ["convert", self.source, "-o", self.output, "--quiet"] + self.words + force

    def reset(self):
        shutil.rmtree(self.root)
        os.mkdir(self.root)
        if self.old and self.output.endswith(".safetensors"):
            shutil.copy(self.previous, self.output)
        elif self.old:
            shutil.copytree(self.previous, self.output)
        self.before = contents(self.output)

    def strike(self, after, number):
        """Starts the command, sends the signal, and returns the exit status."""
        child = subprocess.Popen([tool.binary()] + self.command(), stdin=subprocess.DEVNULL,
                                 stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        time.sleep(after)
        child.send_signal(number)
        _, errors = child.communicate()
        return child.returncode, errors.decode()

    def problem(self, status, errors, number):
        """What is wrong after a strike, or None."""
        now = contents(self.output)
        if now not in (self.before, self.wanted):
            return f"torn: {sorted(now) if now else now}"
        if status == 0:
            return None if now == self.wanted else "exit status 0 without the result"
        if number == signal.SIGKILL:
            return None if status == -signal.SIGKILL else f"exit status {status}: {errors}"
        # A signal before the handler is there ends the process as it always does.
        good = {signal.SIGINT: (130, -signal.SIGINT), signal.SIGTERM: (143, -signal.SIGTERM)}
        if status not in good[number]:
            return f"exit status {status}: {errors}"
        if status > 0 and "hint: " not in errors:
            return f"no hint how to go on: {errors}"
        return None

    def finish(self):
        """The same command to its end; what is wrong then, or None."""
        done = tool.run(*self.command(), check=False)
        complete = os.path.isfile(self.output) and contents(self.output) == self.wanted
        if done.returncode and not complete:
            return f"it does not go on: {done.stderr}"
        if contents(self.output) != self.wanted:
            return "the bytes differ from those of an undisturbed run"
        left = sorted(set(os.listdir(self.root)) - {os.path.basename(self.output)})
        if os.path.isdir(self.output):
            left += [n for n in os.listdir(self.output) if n in (JOURNAL, REPLACES)]
        # A single file is made anew; what a killed run left beside it, the next one took.
        return f"left behind: {left}" if left and done.returncode == 0 else None


def one(scenario, random_source):
    """One run that is struck up to three times; what went wrong, or None."""
    scenario.reset()
    for _ in range(random_source.choice((1, 1, 2, 3))):
        number = random_source.choice((signal.SIGKILL,) * 4 + (signal.SIGINT, signal.SIGTERM))
        status, errors = scenario.strike(random_source.uniform(0, scenario.seconds * 1.1), number)
        problem = scenario.problem(status, errors, number)
        if problem:
            return problem
        if status == 0:
            break
    return scenario.finish()


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--count", type=int, default=24)
    parser.add_argument("--megabytes", type=float, default=24)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    random_source = random.Random(options.seed)
    passed = failed = 0
    with tempfile.TemporaryDirectory(prefix="tilepack-kill-") as work:
        make_source(os.path.join(work, "source"), options.megabytes)
        shard = ["--shard-size", "2MB"]
        scenarios = [Scenario(work, "directory", "out", ["--to", "w4a8-cutlass"] + shard),
                     Scenario(work, "replaced", "out", ["--to", "mxfp8-blocked"] + shard, True),
                     Scenario(work, "many shards", "out", ["--to", "fp8-deepseek"] + shard),
                     Scenario(work, "file", "o.safetensors", ["--to", "w4a8-ct"], True)]
        for number in range(options.count):
            scenario = scenarios[number % len(scenarios)]
            problem = one(scenario, random_source)
            passed += not problem
            failed += bool(problem)
            if problem:
                print(f"not ok {scenario.name}, run {number}: {problem}")
    print(f"{passed} passed, {failed} failed")
    return 1 if failed or not passed else 0


if __name__ == "__main__":
    sys.exit(main())
