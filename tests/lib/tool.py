"""Runs the tilepack command for the tests (TILEPACK, or build/tilepack), and counts what
they check."""
import functools
import json
import os
import shutil
import subprocess
import sys
import tempfile

import stfile

REPO = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
TIMEOUT = float(os.environ.get("TILEPACK_TEST_TIMEOUT", "120"))
SHARE = int(os.environ.get("TILEPACK_TEST_SHARE", "1"))


def binary():
    return os.path.abspath(os.environ.get("TILEPACK") or os.path.join(REPO, "build", "tilepack"))


def share(cases):
    """All cases; every third where run.sh --quick says so in TILEPACK_TEST_SHARE."""
    return list(cases)[SHARE // 2::SHARE]


class Tally:
    """Outcomes, as run.sh reads them."""

    def __init__(self):
        self.passed = self.failed = 0

    def check(self, good, text):
        self.passed += bool(good)
        self.failed += not good
        print(f"{'ok' if good else 'FAIL'} {text}")

    def finish(self):
        """The last line; returns the exit status."""
        print(f"{self.passed} passed, {self.failed} failed")
        return 1 if self.failed else 0


def raised(kind, function, *args, **options):
    """The exception of that kind, or None."""
    try:
        function(*args, **options)
    except kind as error:
        return error
    return None


class ToolError(Exception):
    """The command ended with another status than 0."""

    def __init__(self, args, done):
        self.status, self.stderr = done.returncode, done.stderr
        super().__init__(f"exit {done.returncode} of tilepack {' '.join(args)}: "
                         f"{done.stderr.strip() or done.stdout.strip()}")


def run(*args, check=True, env=None, cwd=None):
    """CompletedProcess of `tilepack args`, output as text."""
    args = [str(a) for a in args]
    if not os.access(binary(), os.X_OK):
        raise SystemExit(f"there is no {binary()}; build it, or set TILEPACK")
    done = subprocess.run([binary()] + args, capture_output=True, text=True, timeout=TIMEOUT,
                          stdin=subprocess.DEVNULL, check=False, cwd=cwd,
                          env=None if env is None else {**os.environ, **env})
    if check and done.returncode != 0:
        raise ToolError(args, done)
    return done


class Workdir:
    """A directory for one comparison; removed afterwards."""

    def __enter__(self):
        self.path = tempfile.mkdtemp(prefix="tilepack-test-")
        return self

    def __exit__(self, *_):
        shutil.rmtree(self.path, ignore_errors=True)

    def at(self, *names):
        return os.path.join(self.path, *names)


def make_source(path):
    """A checkpoint of one small layer, and a file beside its weights that is copied."""
    generator = os.path.join(REPO, "samples", "gen_checkpoint.py")
    subprocess.run([sys.executable, generator, path, "--layers", "1", "--hidden", "256",
                    "--inter", "512", "--heads", "8", "--kv-heads", "4", "--head-dim", "32",
                    "--vocab", "64", "--quiet"], check=True, stdout=subprocess.DEVNULL)
    with open(os.path.join(path, "tokenizer.json"), "w", encoding="utf-8") as f:
        f.write('{"tokens": 1}\n')


def settings(sets):
    return [word for key, value in sets.items() for word in ("--set", f"{key}={value}")]


@functools.cache
def weights_only(to):
    """The option for formats that want activation scales, of sources that have none."""
    listed = json.loads(run("formats", to, "--json").stdout)["formats"][0]
    return ("--weights-only",) if "why" in listed.get("inputs", {}) else ()


def convert(src, dst, to, sets=None, extra=()):
    """Converts and returns ({name: Tensor}, metadata) of a single-file result, its weights alone
    where the format wants activation scales; without a search, as the original libraries do, unless
    `extra` names one."""
    search = () if "--search" in extra else ("--search", "none")
    run("convert", src, "-o", dst, "--to", to, "--quiet", *settings(sets or {}), *weights_only(to),
        *search, *extra)
    return load(dst)


def convert_tensors(tensors, to, sets=None, extra=()):
    """Converts a file of these tensors, every one of them included by name."""
    with Workdir() as work:
        stfile.save(work.at("in.safetensors"), tensors)
        return convert(work.at("in.safetensors"), work.at("out.safetensors"), to, sets,
                       ("--include", ".", *extra))


def shards(path):
    """The safetensors files of a checkpoint directory, or the one file."""
    if os.path.isfile(path):
        return [path]
    return sorted(os.path.join(path, n) for n in os.listdir(path) if n.endswith(".safetensors"))


def load(path):
    """({name: Tensor}, metadata of the last file) of a file or directory; checks what
    the safetensors library makes of every file."""
    out, meta = {}, {}
    for shard in shards(path):
        tensors, meta = stfile.load(shard)
        stfile.check_with_library(shard, tensors)
        if set(tensors) & set(out):
            raise ValueError(f"{shard}: tensors are in two shards")
        out.update(tensors)
    return out, meta
