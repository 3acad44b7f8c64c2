"""XXH3-128, and JSON texts that hold their own hash of that kind."""
import ctypes
import ctypes.util
import json


class Canonical(ctypes.Structure):
    _fields_ = [("low", ctypes.c_uint64), ("high", ctypes.c_uint64)]


def xxh3(data):
    """XXH3-128 as the xxhash library has it, through its shared object."""
    library = ctypes.CDLL(ctypes.util.find_library("xxhash") or "libxxhash.so.0")
    library.XXH3_128bits.restype = Canonical
    library.XXH3_128bits.argtypes = [ctypes.c_char_p, ctypes.c_size_t]
    value = library.XXH3_128bits(data, len(data))
    return f"{value.high:016x}{value.low:016x}"


def sign(text):
    """The text, which has "xxh3" near its beginning, with the right digits."""
    at = text.index(b'"xxh3": "') + 9
    assert at < 256
    begin, end = text[:at], text[at + 32:]
    return begin + xxh3(begin + b"0" * 32 + end).encode() + end


def signed(info):
    """The same of a dict."""
    return sign((json.dumps({**info, "xxh3": "0" * 32}, indent=1, ensure_ascii=False) +
                 "\n").encode())
