#!/usr/bin/env python3
"""tp_flips.py [--count N] [--seed S]

Flips single bits anywhere in what `convert --tp` wrote, half of them in tilepack-tp.json. `join`
may refuse, or give the very bytes of the conversion without --tp: never others. `verify` of the
whole finds each of them, and other versions in its place. Then the same output as 0.1.0 wrote
it, without a checksum."""
import argparse
import json
import os
import random
import shutil
import sys

import lib_path  # noqa: F401  pylint: disable=unused-import
import tool  # noqa: E402

tally = tool.Tally()


def make(work):
    """A conversion to two ranks, and the same without ranks."""
    tool.make_source(work.at("src"))
    options = ("--to", "w4a8-ct", "--shard-size", "400kB", "--quiet")
    tool.run("convert", work.at("src"), "-o", work.at("whole"), *options)
    tool.run("convert", work.at("src"), "-o", work.at("ranks"), "--tp", "2", *options)


def files(folder):
    return sorted(os.path.relpath(os.path.join(at, name), folder)
                  for at, _, names in os.walk(folder) for name in names)


def read(path):
    with open(path, "rb") as f:
        return f.read()


def same(a, b):
    return files(a) == files(b) and all(read(os.path.join(a, name)) == read(os.path.join(b, name))
                                        for name in files(a))


def join(work):
    for name in ("joined", "joined.partial"):
        shutil.rmtree(work.at(name), ignore_errors=True)
    return tool.run("join", work.at("ranks"), "-o", work.at("joined"), "--quiet", check=False)


def verify(work):
    return tool.run("verify", work.at("ranks"), "--quiet", "--strict", check=False)


def flips(work, count, seed):
    dice = random.Random(seed)
    names = files(work.at("ranks"))
    wrong, unseen, joined, odd = [], [], 0, []
    for _ in range(count):
        name = "tilepack-tp.json" if dice.random() < 0.5 else dice.choice(names)
        path = work.at("ranks", name)
        data = bytearray(read(path))
        bit = dice.randrange(8 * len(data))
        data[bit // 8] ^= 1 << bit % 8
        what = f"bit {bit % 8} of byte {bit // 8} of {name}"
        with open(path, "r+b") as f:
            f.seek(bit // 8)
            f.write(data[bit // 8:bit // 8 + 1])
        done = join(work)
        if done.returncode == 0:
            joined += 1
            if not same(work.at("joined"), work.at("whole")):
                wrong.append(what)
        elif done.returncode != 3:
            odd.append(f"{what}: join ended with {done.returncode}: {done.stderr}")
        done = verify(work)
        if done.returncode == 0:
            unseen.append(what)
        elif done.returncode not in (1, 3):
            odd.append(f"{what}: verify ended with {done.returncode}: {done.stderr}")
        data[bit // 8] ^= 1 << bit % 8
        with open(path, "r+b") as f:
            f.seek(bit // 8)
            f.write(data[bit // 8:bit // 8 + 1])
    print(f"{count} flips: {joined} joined all the same")
    tally.check(not wrong, f"no wrong output at exit 0: {wrong[:5]}")
    tally.check(not unseen, f"verify of the whole finds every flip: {unseen[:5]}")
    tally.check(not odd, f"what is wrong is status 3 (verify: 1 or 3): {odd[:3]}")


def versions(work):
    """Another version in its place does not switch the checksum off."""
    path = work.at("ranks", "tilepack-tp.json")
    text = read(path)
    for version in b"01345679":
        with open(path, "wb") as f:
            f.write(text.replace(b'"tilepack_tp": 2', b'"tilepack_tp": %c' % version))
        done = join(work), verify(work)
        tally.check(done[0].returncode == 3 and done[1].returncode in (1, 3) and
                    "its own hash is wrong" in done[0].stderr,
                    f"version {version - 48}: {done[0].stderr} {done[1].stderr}")
    with open(path, "wb") as f:
        f.write(text)


def old(work):
    """As 0.1.0 wrote it: version 1, no checksum, no hashes of the ranks' files."""
    path = work.at("ranks", "tilepack-tp.json")
    info = json.loads(read(path))
    tally.check(info.pop("xxh3", None) is not None and info["tilepack_tp"] == 2, "a checksum")
    del info["rank_files"]
    info["tilepack_tp"] = 1
    with open(path, "w", encoding="utf-8") as f:
        json.dump(info, f, indent=1)
    done = tool.run("join", work.at("ranks"), "-o", work.at("joined3"), check=False)
    tally.check(done.returncode == 0 and "no checksum" in done.stderr and
                same(work.at("joined3"), work.at("whole")), f"0.1.0's is joined: {done.stderr}")
    done = tool.run("verify", work.at("ranks"), check=False)
    tally.check(done.returncode == 0 and "no checksum" in done.stderr,
                f"0.1.0's is verified: {done.stderr}")
    info["config"] = info["config"].replace("quantization_status", "puantization_status")
    with open(path, "w", encoding="utf-8") as f:
        json.dump(info, f, indent=1)
    done = join(work)
    tally.check(done.returncode == 3 and "config.json" in done.stderr,
                f"and its config is compared with the manifest: {done.stderr}")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--count", type=int, default=int(os.environ.get("TILEPACK_TEST_FLIPS",
                                                                        "80")))
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    with tool.Workdir() as work:
        make(work)
        tally.check(join(work).returncode == 0 and same(work.at("joined"), work.at("whole")),
                    "what is whole is joined")
        tally.check(verify(work).returncode == 0, "and verified as a whole")
        flips(work, options.count, options.seed)
        versions(work)
        old(work)
    return tally.finish()


if __name__ == "__main__":
    sys.exit(main())
