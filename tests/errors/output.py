"""Outputs that are in the way, cannot be written, or belong to another run."""
import ctypes
import fcntl
import json
import os
import resource
import shutil
import struct
import subprocess
import time

import own_hash
import tool
from errors.common import (CONVERT, CONVERT_DIR, Command, Skip, case, linear, one_shard, raw,
                           tensors, two_shards)

LIBC = ctypes.CDLL(None, use_errno=True)
DROP_BOUNDING, DAC_OVERRIDE, DAC_READ_SEARCH = 24, 1, 2
F_OFD_SETLK = 37

# --------------------------------------------------- the source as output -- #


@case("output-is-the-source-file")
def output_is_the_source_file():
    tensors(linear())
    return "convert", "in.safetensors", "-o", "in.safetensors", "--to", "w4a8-ct", "--force"


@case("output-is-a-link-to-the-source")
def output_links_to_the_source():
    tensors(linear())
    os.symlink("in.safetensors", "out.safetensors")
    return CONVERT + ("--force",)


@case("output-is-a-hard-link-of-the-source")
def output_is_the_same_inode():
    tensors(linear())
    os.link("in.safetensors", "out.safetensors")
    return CONVERT + ("--force",)


@case("output-is-the-source-directory")
def output_is_the_source_directory():
    one_shard()
    return "convert", "src", "-o", "./src/", "--to", "w4a8-ct", "--force"


@case("output-links-to-the-source-directory")
def output_links_to_the_source_directory():
    one_shard()
    os.symlink("src", "out")
    return CONVERT_DIR + ("--force",)


@case("output-is-a-shard-of-the-source")
def output_is_a_shard():
    two_shards()
    return ("convert", "src", "-o", "src/model-00001-of-00002.safetensors", "--to", "w4a8-ct",
            "--force")


@case("output-holds-a-shard-of-the-source")
def output_holds_a_shard():
    two_shards()
    os.mkdir("out")
    os.rename("src/model-00001-of-00002.safetensors", "out/model-00001-of-00002.safetensors")
    os.symlink("../out/model-00001-of-00002.safetensors",
               "src/model-00001-of-00002.safetensors")
    return CONVERT_DIR + ("--force",)


# ------------------------------------------------------------- in the way -- #


@case("output-file-exists")
def output_file_exists():
    tensors(linear())
    raw("out.safetensors", b"precious")
    return CONVERT


@case("output-file-exists-and-is-of-tilepack")
def output_file_is_ours():
    tensors(linear())
    made(*CONVERT)
    return CONVERT


@case("output-directory-exists")
def output_directory_exists():
    one_shard()
    raw("out/notes.txt", b"precious")
    return CONVERT_DIR


def made(*argv):
    """What an earlier command has left."""
    subprocess.run([tool.binary(), *argv, "--quiet"], check=True)


def later(path, data=b"\1"):
    """Its last byte, another one since the output was written; its own times are set back."""
    was = os.stat(path)
    time.sleep(0.05)  # longer than the steps of a file system's clock
    with open(path, "r+b") as f:
        f.seek(-1, os.SEEK_END)
        f.write(data)
    os.utime(path, ns=(was.st_atime_ns, was.st_mtime_ns))


def change_manifest(change):
    """The output's manifest, changed and signed again, at the time that it has."""
    was = os.stat("out/tilepack.json")
    with open("out/tilepack.json", encoding="utf-8") as f:
        info = json.load(f)
    version = info.pop("tilepack")
    change(info)
    with open("out/tilepack.json", "wb") as f:
        f.write(own_hash.signed({"tilepack": version, "xxh3": "", **info}))
    os.utime("out/tilepack.json", ns=(was.st_atime_ns, was.st_mtime_ns))


@case("output-exists-and-is-this-one")
def output_exists_and_is_this_one():
    one_shard()
    made(*CONVERT_DIR)
    return CONVERT_DIR + ("--if-exists", "fail")


@case("output-exists-in-another-format")
def output_exists_in_another_format():
    one_shard()
    made("convert", "src", "-o", "out", "--to", "mxfp8-ct")
    return CONVERT_DIR


@case("output-exists-in-another-format-json")
def output_exists_in_another_format_json():
    one_shard()
    made("convert", "src", "-o", "out", "--to", "mxfp8-ct")
    return CONVERT_DIR + ("--json",)


@case("output-exists-with-other-options")
def output_exists_with_other_options():
    one_shard()
    made(*CONVERT_DIR, "--set", "quotient=bf16")
    return CONVERT_DIR


@case("output-exists-of-a-source-that-has-changed")
def output_exists_of_a_source_that_has_changed():
    two_shards()
    made(*CONVERT_DIR)
    later("src/model-00002-of-00002.safetensors")
    return CONVERT_DIR


@case("output-exists-of-a-source-that-may-have-changed")
def output_exists_of_a_source_that_may_have_changed():
    two_shards()
    made(*CONVERT_DIR)
    change_manifest(lambda info: [source.pop("data", None) for source in info["source"]])
    later("src/model-00002-of-00002.safetensors", b"\0")
    return CONVERT_DIR


@case("output-exists-of-a-newer-source-that-is-not-read")
def output_exists_of_a_newer_source():
    two_shards()
    made(*CONVERT_DIR)
    os.chmod("src/model-00002-of-00002.safetensors", 0o600)
    return (*CONVERT_DIR, "--if-exists", "fail")


@case("output-exists-and-lacks-a-file")
def output_exists_and_lacks_a_file():
    one_shard()
    made(*CONVERT_DIR)
    os.remove("out/model.safetensors")
    return CONVERT_DIR


@case("output-exists-with-a-changed-manifest")
def output_exists_with_a_changed_manifest():
    one_shard()
    made(*CONVERT_DIR)
    with open("out/tilepack.json", "a", encoding="utf-8") as f:
        f.write("\n")
    return CONVERT_DIR


@case("output-old-exists")
def output_old_exists():
    one_shard()
    made(*CONVERT_DIR)
    raw("out.old/thesis.tex", b"precious")
    return CONVERT_DIR + ("--force",)


@case("output-old-of-a-file-exists")
def output_old_of_a_file_exists():
    tensors(linear())
    raw("out.safetensors", b"precious words")
    raw("out.safetensors.old", b"more of them")
    return CONVERT + ("--force",)


@case("output-force-and-if-exists")
def output_force_and_if_exists():
    one_shard()
    return CONVERT_DIR + ("--force", "--if-exists", "skip")


@case("output-if-exists-of-no-word")
def output_if_exists_of_no_word():
    one_shard()
    return CONVERT_DIR + ("--if-exists", "perhaps")


@case("output-directory-is-a-file")
def output_directory_is_a_file():
    one_shard()
    raw("out", b"precious")
    return CONVERT_DIR + ("--force",)


@case("output-file-is-a-directory")
def output_file_is_a_directory():
    tensors(linear())
    os.mkdir("out.safetensors")
    return CONVERT + ("--force",)


@case("output-is-the-current-directory")
def output_is_the_current_directory():
    one_shard()
    return "convert", "src", "-o", ".", "--to", "w4a8-ct", "--force"


@case("output-is-a-device")
def output_is_a_device():
    one_shard()
    return "convert", "src", "-o", "/dev/null", "--to", "w4a8-ct", "--force"


@case("output-in-a-missing-directory")
def output_in_a_missing_directory():
    tensors(linear())
    return "convert", "in.safetensors", "-o", "no/out.safetensors", "--to", "w4a8-ct"


@case("output-directory-in-a-missing-directory")
def output_directory_in_a_missing_directory():
    one_shard()
    return "convert", "src", "-o", "no/out", "--to", "w4a8-ct"


@case("output-behind-a-file")
def output_behind_a_file():
    tensors(linear())
    raw("plain", b"x")
    return "convert", "in.safetensors", "-o", "plain/out.safetensors", "--to", "w4a8-ct"


@case("output-name-too-long")
def output_name_too_long():
    one_shard()
    return "convert", "src", "-o", "x" * 256, "--to", "w4a8-ct"


@case("output-partial-is-a-file")
def output_partial_is_a_file():
    one_shard()
    raw("out.partial", b"precious")
    return CONVERT_DIR


@case("output-partial-is-not-of-tilepack")
def output_partial_is_not_ours():
    one_shard()
    raw("out.partial/notes.txt", b"precious")
    return CONVERT_DIR


@case("output-partial-of-another-conversion")
def output_partial_of_another():
    one_shard()
    raw("out.partial/.tilepack-journal", b"tilepack-journal 1 " + b"0" * 32 + b"\n"
        b"model.safetensors " + b"0" * 32 + b"\n")
    return CONVERT_DIR


@case("output-partial-says-its-command")
def output_partial_says_its_command():
    one_shard()
    raw("out.partial/.tilepack-journal", b"tilepack-journal 1 " + b"0" * 32 + b"\n"
        b"# tilepack convert src -o out --to fp8-ct --zstd=1\nmodel.safetensors " + b"0" * 32 +
        b"\n")
    return CONVERT_DIR


@case("output-partial-of-this-command-and-a-source-that-has-changed")
def output_partial_of_a_changed_source():
    one_shard()
    raw("out.partial/.tilepack-journal", b"tilepack-journal 1 " + b"0" * 32 + b"\n"
        b"# tilepack convert src -o out --to w4a8-ct --set quotient=fp32 --shard-size 5000000000\n"
        b"model.safetensors " + b"0" * 32 + b"\n")
    return CONVERT_DIR


@case("output-partial-of-other-options")
def output_partial_of_other_options():
    one_shard({**linear("a.weight"), **linear("b.weight", 1024, 1024)})
    limit = (200_000, 200_000)  # of a file: the second shard is not finished
    unfinished = subprocess.run(
        [tool.binary(), *CONVERT_DIR, "--set", "quotient=bf16", "--shard-size", "64K", "--include",
         "[ab]", "-j", "1"], capture_output=True, check=False,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, limit))
    if unfinished.returncode != 5:
        raise RuntimeError(f"status {unfinished.returncode}: {unfinished.stderr.decode()}")
    return CONVERT_DIR


@case("output-partial-is-the-source")
def output_partial_is_the_source():
    one_shard()
    os.rename("src", "out.partial")
    return "convert", "out.partial", "-o", "out", "--to", "w4a8-ct", "--force"


@case("output-partial-file-is-the-source")
def output_partial_file_is_the_source():
    tensors(linear(), ".out.safetensors.tilepack.partial")
    return "convert", ".out.safetensors.tilepack.partial", "-o", "out.safetensors", "--to", "w4a8-ct"


@case("output-partial-holds-directories")
def output_partial_holds_directories():
    one_shard()
    raw("out.partial/important/thesis.tex", b"precious")
    return CONVERT_DIR + ("--force",)


# ------------------------------------------------------------------ locks -- #


def hold_lock(path):
    """Opens and locks as tilepack does; the lock lives until after()."""
    fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
    fcntl.fcntl(fd, F_OFD_SETLK, struct.pack("hhqqi4x", fcntl.F_WRLCK, 0, 0, 0, 0))
    return lambda: os.close(fd)


@case("output-directory-is-being-written")
def output_directory_is_locked():
    one_shard()
    os.mkdir("out.partial")
    return Command(CONVERT_DIR, after=hold_lock("out.partial/.tilepack-journal"))


@case("output-file-is-being-written")
def output_file_is_locked():
    tensors(linear())
    return Command(CONVERT, after=hold_lock(".out.safetensors.tilepack.partial"))


# ----------------------------------------------------- the system refuses -- #


def without_override():
    """Makes root obey permissions, before the command starts."""
    for capability in (DAC_OVERRIDE, DAC_READ_SEARCH):
        LIBC.prctl(DROP_BOUNDING, capability, 0, 0, 0)


def obeying(argv):
    """The command as somebody whom permissions stop; skipped where that fails."""
    if os.geteuid():
        return Command(argv)
    os.mkdir("probe", 0o555)
    probe = subprocess.run(["sh", "-c", ": > probe/x"], preexec_fn=without_override, check=False,
                           stderr=subprocess.DEVNULL)
    shutil.rmtree("probe")
    if probe.returncode == 0:
        raise Skip("root cannot give up its override of permissions here")
    return Command(argv, preexec=without_override)


@case("output-in-a-read-only-directory")
def output_read_only():
    tensors(linear())
    os.mkdir("locked", 0o555)
    return obeying(("convert", "in.safetensors", "-o", "locked/out.safetensors", "--to",
                    "w4a8-ct"))


@case("output-directory-in-a-read-only-directory")
def output_directory_read_only():
    one_shard()
    os.mkdir("locked", 0o555)
    return obeying(("convert", "src", "-o", "locked/out", "--to", "w4a8-ct"))


@case("output-partial-holds-an-unknown-file")
def output_partial_holds_an_unknown_file():
    one_shard()
    raw("out.partial/results.csv", b"precious")
    return CONVERT_DIR + ("--force",)


@case("output-partial-is-a-link")
def output_partial_is_a_link():
    one_shard()
    os.mkdir("elsewhere")
    os.symlink("elsewhere", "out.partial")
    return CONVERT_DIR


@case("output-partial-has-a-linked-journal")
def output_partial_has_a_linked_journal():
    one_shard()
    raw("precious", b"precious")
    os.mkdir("out.partial")
    os.symlink("../precious", "out.partial/.tilepack-journal")
    return CONVERT_DIR


@case("output-partial-file-is-a-link")
def output_partial_file_is_a_link():
    tensors(linear())
    raw("precious", b"precious")
    os.symlink("precious", ".out.safetensors.tilepack.partial")
    return CONVERT


@case("output-partial-is-read-only")
def output_partial_read_only():
    one_shard()
    os.mkdir("out.partial", 0o555)
    return obeying(CONVERT_DIR)


@case("source-file-unreadable")
def source_unreadable():
    tensors(linear())
    os.chmod("in.safetensors", 0)
    return obeying(CONVERT)


@case("source-directory-unreadable")
def source_directory_unreadable():
    one_shard()
    os.chmod("src", 0o300)
    return obeying(CONVERT_DIR)


@case("config-unreadable")
def config_unreadable():
    one_shard(config={})
    os.chmod("src/config.json", 0)
    return obeying(CONVERT_DIR)


@case("tokenizer-unreadable")
def tokenizer_unreadable():
    one_shard(config={})
    raw("src/tokenizer.json", b"{}")
    os.chmod("src/tokenizer.json", 0)
    return obeying(CONVERT_DIR)


def small_disk(kilobytes, where="disk"):
    """Mounts a file system of that size there; returns what takes it away."""
    os.mkdir(where)
    done = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={kilobytes}k", "tilepack-test",
                           where], capture_output=True, check=False)
    if done.returncode:
        raise Skip("no right to mount a small file system")
    return lambda: subprocess.run(["umount", where], check=True)


def reserving_disk():
    """The same, of 256 KiB, with a file system that can reserve space."""
    raw("image", b"", 256 << 10)
    os.mkdir("disk")
    for words in (["mkfs.ext4", "-q", "-O", "^has_journal", "image"],
                  ["mount", "-o", "loop", "image", "disk"]):
        try:
            done = subprocess.run(words, capture_output=True, check=False)
        except FileNotFoundError as missing:
            raise Skip(f"there is no {words[0]}") from missing
        if done.returncode:
            raise Skip(f"{words[0]} of a small file system fails")
    shutil.rmtree("disk/lost+found")
    return lambda: subprocess.run(["umount", "disk"], check=True)


@case("output-is-a-mount-point")
def output_is_a_mount_point():
    one_shard()
    return Command(("convert", "src", "-o", "disk", "--to", "w4a8-ct"), after=small_disk(4096))


@case("output-is-mounted-from-the-same-disk")
def output_is_mounted_from_the_same_disk():
    tensors(linear())
    raw("image", b"")
    raw("out.safetensors", b"")
    done = subprocess.run(["mount", "--bind", "image", "out.safetensors"], capture_output=True,
                          check=False)
    if done.returncode:
        raise Skip("no right to mount a file")
    return Command((*CONVERT, "--force"),
                   after=lambda: subprocess.run(["umount", "out.safetensors"], check=True))


@case("output-partial-is-a-mount-point")
def output_partial_is_a_mount_point():
    one_shard()
    return Command((*CONVERT_DIR, "--part", "1/1"), after=small_disk(4096, "out.part-1-of-1.partial"))


@case("disk-full-for-a-file")
def disk_full_file():
    tensors(linear(n=1024, k=1024))
    return Command(("convert", "in.safetensors", "-o", "disk/out.safetensors", "--to", "w4a8-ct"),
                   after=reserving_disk())


@case("disk-full-for-a-directory")
def disk_full_directory():
    one_shard(linear(n=1024, k=1024))
    return Command(("convert", "src", "-o", "disk/out", "--to", "w4a8-ct"),
                   after=reserving_disk())


@case("disk-full-on-the-way")
def disk_full_on_the_way():
    tensors(linear(n=1024, k=1024))
    return Command(("convert", "in.safetensors", "-o", "disk/out.safetensors", "--to", "w4a8-ct",
                    "--jobs", "1"), after=small_disk(64))


@case("disk-full-for-a-copied-file")
def disk_full_copy():
    one_shard()
    raw("src/tokenizer.json", b"x" * 100_000)
    return Command(("convert", "src", "-o", "disk/out", "--to", "w4a8-ct"), after=small_disk(64))


@case("disk-full-for-an-archive")
def disk_full_archive():
    one_shard(linear(n=1024, k=1024))
    return Command(("convert", "src", "-o", "disk/out", "--to", "w4a8-ct", "--zstd"),
                   after=small_disk(64))


@case("disk-full-for-unpacked-weights")
def disk_full_unpacked():
    one_shard(linear(n=1024, k=1024), b"{}")
    made(*CONVERT_DIR)
    return Command(("unpack", "out", "-o", "disk/plain"), after=small_disk(64))


@case("disk-full-for-merged-parts")
def disk_full_merged():
    two_shards()
    raw("src/tokenizer.json", b"x" * 100_000)
    after = small_disk(96)
    for part in ("1/2", "2/2"):
        made("convert", "src", "-o", "disk/out", "--to", "w4a8-ct", "--part", part)
    return Command(("merge", "disk/out"), after=after)


@case("file-size-limit")
def file_size_limit():
    tensors(linear(n=1024, k=1024))
    return Command(CONVERT, preexec=lambda: resource.setrlimit(resource.RLIMIT_FSIZE,
                                                               (65536, 65536)))


@case("standard-output-full")
def stdout_full():
    tensors(linear())
    return Command(("plan", "in.safetensors", "--to", "w4a8-ct"), stdout="/dev/full")
