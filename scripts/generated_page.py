"""A page of docs/ that is made of what the program prints as JSON: the command line that the
scripts for such pages share."""
import argparse
import difflib
import json
import subprocess
import sys


def main(doc, subject, page, *more):
    """doc: the script's own; subject: of `PROGRAM SUBJECT --json`, whose member of that name goes
    to page(), which gives the text, and before it those of `more`, other subjects. Prints it, or with
    --check PAGE how PAGE differs (status 1)."""
    parser = argparse.ArgumentParser(description=doc.splitlines()[0])
    parser.add_argument("program")
    parser.add_argument("--check", metavar="PAGE")
    args = parser.parse_args()
    made = page(*(json.loads(subprocess.check_output([args.program, what, "--json"]))[what]
                  for what in (subject, *more)))
    if not args.check:
        sys.stdout.write(made)
        return 0
    with open(args.check, encoding="utf-8") as file:
        there = file.read()
    sys.stdout.writelines(difflib.unified_diff(there.splitlines(True), made.splitlines(True),
                                               args.check, "the program"))
    return int(there != made)
