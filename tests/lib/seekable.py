"""Seekable zstd archives for the tests: frames by the zstd command, or stored plain, and the table
behind them. Own code on purpose, as what tilepack writes and reads is judged by it."""
import struct
import subprocess

TABLE, END = 0x184D2A5E, 0x8F92EAB1


def packed(plain):
    """One frame of these bytes, whose header says how many they are."""
    return subprocess.run(["zstd", "-q", "-1", "-c", f"--stream-size={len(plain)}"], input=plain,
                          stdout=subprocess.PIPE, check=True).stdout


def stored(plain):
    """A frame of one block of less than 128 KiB, stored plain."""
    return bytes.fromhex("28b52ffda0") + len(plain).to_bytes(4, "little") + (
        len(plain) << 3 | 1).to_bytes(3, "little") + plain


def table(*frames):
    """The seek table of frames of (stored, plain) bytes each."""
    rows = b"".join(struct.pack("<II", *frame) for frame in frames)
    end = struct.pack("<IBI", len(frames), 0, END)
    return struct.pack("<II", TABLE, len(rows) + len(end)) + rows + end


def archive(plain, frame_size):
    """All of it, in frames of so many plain bytes."""
    parts = [plain[at:at + frame_size] for at in range(0, len(plain), frame_size)]
    frames = [packed(part) for part in parts]
    return b"".join(frames) + table(*((len(f), len(p)) for f, p in zip(frames, parts)))
