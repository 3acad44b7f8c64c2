#!/usr/bin/env python3
"""golden_errors.py [--update] [NAME ...]

Builds each broken input of tests/errors/, runs its command line on it and compares
exit status and message with tests/errors/golden-errors/NAME.txt, to the letter. Besides,
whatever the error: every message carries a hint, standard output is empty (but for
--json), and no file changes or appears except NAME.partial.

--update writes the expectations anew: read the difference before you keep it.
"""
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.dirname(HERE), os.path.join(os.path.dirname(HERE), "lib")]
import tool  # noqa: E402
from errors import header, importance, index, output, read, request  # noqa: E402,F401  pylint: disable=unused-import
from errors.common import CASES, Command, Skip  # noqa: E402

EXPECTED = os.path.join(HERE, "golden-errors")


def snapshot():
    """{path: what is there} of the current directory, without partial outputs."""
    found = {}
    for folder, folders, files in os.walk("."):
        folders[:] = [f for f in folders if not f.endswith(".partial")]
        for name in folders + files:
            path = os.path.join(folder, name)
            info = os.lstat(path)
            if name.endswith(".partial") or name == "image":  # a mounted disk's own file
                continue
            if not os.path.isfile(path) or os.path.islink(path) or info.st_size > 1 << 20:
                found[path] = (info.st_mode, info.st_size if os.path.isfile(path) else 0)
                continue
            with open(path, "rb") as f:
                found[path] = (info.st_mode, hashlib.sha256(f.read()).hexdigest())
    return found


def execute(command):
    """The stored form of what the command did, and the run itself."""
    out = open(command.stdout, "wb") if command.stdout else subprocess.PIPE
    # The program is opened here: a case may take away the right to reach its directory.
    program = os.open(tool.binary(), os.O_RDONLY)
    try:
        done = subprocess.run([f"/proc/self/fd/{program}"] + command.argv, stdin=subprocess.DEVNULL,
                              stdout=out, stderr=subprocess.PIPE, preexec_fn=command.preexec,
                              pass_fds=(program,), timeout=tool.TIMEOUT, check=False,
                              env={**os.environ, "LC_ALL": "C", "TILEPACK_JOBS": "2",
                                   **command.env})
    finally:
        os.close(program)
        if command.stdout:
            out.close()
    here = os.path.realpath(".")
    shown = " ".join(word if word and not set(word) & set(" |()[]{}*'\"") else json.dumps(word)
                     for word in command.argv)
    text = f"$ tilepack {shown}\nexit status {done.returncode}\n"
    text += done.stderr.decode("utf-8", "backslashreplace").replace(here, "DIR")
    if done.stdout:
        text += "--- standard output\n" + re.sub(
            r"\b[0-9.]+ m?s$", "TIME", done.stdout.decode("utf-8", "backslashreplace"), flags=re.M)
    return text, done


def complaints(command, text, done, before, after):
    """What every failure owes its user, whatever the message."""
    finding = command.argv[0] == "verify" and done.returncode == 1
    if done.returncode in (0, 1) and not finding or done.returncode < 0:
        yield f"the command ended with {done.returncode}"
    if "  hint: " not in text and not finding:
        yield "the message does not say what to do (no hint)"
    if len(text.split("\n", 2)[2]) > 1600:
        yield "the message is longer than a screen"
    if done.stdout and "--json" not in command.argv and not finding:
        yield "a refused command printed a result"
    for path in sorted(set(before) | set(after)):
        if before.get(path) != after.get(path):
            yield f"{path} changed or appeared"


def run_case(name, build, update):
    """None, or what is wrong."""
    folder = tempfile.mkdtemp(prefix="tilepack-error-")
    os.chdir(folder)
    command = None
    try:
        made = build()
        command = made if isinstance(made, Command) else Command(made)
        before = snapshot()
        text, done = execute(command)
        problems = list(complaints(command, text, done, before, snapshot()))
    finally:
        if command and command.after:
            command.after()
        os.chdir(HERE)
        subprocess.run(["chmod", "-R", "u+rwx", folder], check=False, stderr=subprocess.DEVNULL)
        shutil.rmtree(folder, ignore_errors=True)
    path = os.path.join(EXPECTED, name + ".txt")
    if update:
        with open(path, "w", encoding="utf-8") as f:
            f.write(text)
    elif not os.path.exists(path):
        problems.append("there is no expectation; --update writes it")
    else:
        with open(path, encoding="utf-8") as f:
            wanted = f.read()
        if wanted != text:
            problems.append(f"wanted:\n{wanted}got:\n{text}")
    return problems


def main():
    words = sys.argv[1:]
    update = "--update" in words
    names = [w for w in words if not w.startswith("-")] or tool.share(sorted(CASES))
    os.makedirs(EXPECTED, exist_ok=True)
    passed = failed = skipped = 0
    for name in names:
        try:
            problems = run_case(name, CASES[name], update)
        except Skip as why:
            skipped += 1
            print(f"skip {name}: {why}")
            continue
        failed += bool(problems)
        passed += not problems
        print("\n".join([f"not ok {name}: {p}" for p in problems] or [f"ok {name}"]))
    if not [w for w in words if not w.startswith("-")]:
        stored = {n[:-4] for n in os.listdir(EXPECTED) if n.endswith(".txt")}
        for name in sorted(stored - set(CASES)):
            failed += 1
            print(f"not ok {name}: an expectation without a case")
    if skipped:
        print(f"{skipped} cases cannot be made on this machine")
    print(f"{passed} passed, {failed} failed")
    return 1 if failed or not passed else 0


if __name__ == "__main__":
    sys.exit(main())
