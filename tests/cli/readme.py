#!/usr/bin/env python3
"""README against the program: its commands print what it shows, and its table of GPUs and its picture are
those that their scripts make. Times and threads aside, every line of an example must come out; "[...]" stands for
any lines, or for the end of one."""
import os
import re
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
import tool  # noqa: E402

README = os.path.join(tool.REPO, "README.md")
tally = tool.Tally()


def examples():
    """(command, the lines it prints) of every block that holds a command."""
    with open(README, encoding="utf-8") as file:
        blocks = re.findall(r"^```\n(.*?)^```$", file.read(), re.M | re.S)
    for block in blocks:
        for part in re.split(r"^\$ ", block, flags=re.M)[1:]:
            command, _, output = part.partition("\n")
            yield command.partition("  #")[0], output.splitlines()


def same(shown, printed):
    shown = re.escape(shown).replace(re.escape("[...]"), ".*")
    return re.fullmatch(re.sub(r"in\\ [0-9.]+\\ (ms|s)$", r"in [0-9.]+ (ms|s)", shown), printed)


def follows(shown, printed):
    """Whether `printed` is what is shown, line by line, with gaps where it says [...]."""
    at, gap = 0, False
    for line in shown:
        if line == "[...]":
            gap = True
            continue
        while gap and at < len(printed) and not same(line, printed[at]):
            at += 1
        if at == len(printed) or not same(line, printed[at]):
            return f"wanted {line!r}, printed {printed[at:at + 1]}"
        at, gap = at + 1, False
    return "" if gap or at == len(printed) else f"more is printed: {printed[at:]}"


def run_examples(work):
    folder = work.at(".")
    subprocess.run([sys.executable, os.path.join(tool.REPO, "samples", "gen_checkpoint.py"),
                    work.at("tiny-mixtral"), "--preset", "tiny-mixtral"], check=True,
                   stdout=subprocess.DEVNULL)
    count = 0
    for command, shown in examples():
        words = command.split()
        assert words[0] == "tilepack", command
        done = subprocess.run([tool.binary(), *words[1:]], cwd=folder, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, check=False)
        wrong = follows(shown, done.stdout.splitlines())
        tally.check(done.returncode == 0 and not wrong, f"{command}: {done.returncode} {wrong}")
        count += 1
    tally.check(count == 5, f"five commands: {count}")


def made_by(script, *arguments):
    done = subprocess.run([sys.executable, os.path.join(tool.REPO, "scripts", script), tool.binary(),
                           *arguments], check=False)
    tally.check(done.returncode == 0, f"what scripts/{script} makes is what README shows")


def main():
    with tool.Workdir() as work:
        run_examples(work)
    made_by("readme_gpus.py", "--check")
    made_by("readme_picture.py", "--check", os.path.join(tool.REPO, "docs", "layout.svg"))
    with open(README, encoding="utf-8") as file:
        tally.check(len(file.readlines()) <= 110, "a page that one reads: 110 lines")
    return tally.finish()


if __name__ == "__main__":
    sys.exit(main())
