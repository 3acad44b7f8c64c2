"""Where the golden files are: tests/golden, with large.tar.xz unpacked beside it.

The whole checkpoints and a few large files are kept in one archive, because their
layers repeat. root() returns a directory that holds all of them in the form
described in golden/README.md: links to the plain files, and the unpacked rest. It
is made once under the build directory and again when the archive changes.
"""
import hashlib
import os
import shutil
import sys
import tarfile
import tempfile

TESTS = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
PLAIN = os.path.join(TESTS, "golden")


def build_dir():
    return os.environ.get("BUILD") or os.path.join(os.path.dirname(TESTS), "build")


def link_plain(into):
    for folder, _, files in os.walk(PLAIN):
        target = os.path.join(into, os.path.relpath(folder, PLAIN))
        os.makedirs(target, exist_ok=True)
        for name in files:
            if name != "large.tar.xz":
                os.symlink(os.path.join(folder, name), os.path.join(target, name))


def root():
    archive = os.path.join(PLAIN, "large.tar.xz")
    digest = hashlib.sha256()
    with open(archive, "rb") as f:
        digest.update(f.read())
    for folder, _, files in sorted(os.walk(PLAIN)):
        digest.update(repr((folder, sorted(files))).encode())
    done = os.path.join(os.path.abspath(build_dir()), "golden-" + digest.hexdigest()[:16])
    if os.path.isdir(done):
        return done
    os.makedirs(os.path.dirname(done), exist_ok=True)
    work = tempfile.mkdtemp(dir=os.path.dirname(done))
    try:
        link_plain(work)
        with tarfile.open(archive) as tar:
            if sys.version_info >= (3, 12):
                tar.extractall(work, filter="data")
            else:
                tar.extractall(work)
        os.rename(work, done)
    except OSError:
        shutil.rmtree(work, ignore_errors=True)
        if not os.path.isdir(done):  # else another process was faster
            raise
    return done
