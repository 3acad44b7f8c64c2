#!/usr/bin/env python3
"""Packs what a machine without network needs to run vLLM 0.33 with the plug-in, in folders small
enough to carry one by one.

    pieces.py OUT [MIB]       OUT/1, OUT/2 ...: each of at most MIB (64)
    pieces.py --here WORK     for this machine: WORK/tilepack and WORK/smollm2 alone

Runs in an environment that has vLLM (tests/other/vllm/lib.sh makes one), pip, readelf and zstd.
The other machine has torch 2.11 with CUDA 13, triton, transformers and PYTHON there; it gets
vLLM's Python files as they are, its libraries made small by slim_library.py, the distributions of
DISTRIBUTIONS in the versions of this environment, tilepack's program, library and package, and
SmolLM2 as scripts/model.sh gets it. Environment: TILEPACK, BUILD.
"""
import importlib.metadata
import importlib.util
import os
import shutil
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(os.path.dirname(HERE)))
BUILD = os.environ.get("BUILD", os.path.join(ROOT, "build"))
TILEPACK = os.environ.get("TILEPACK", os.path.join(BUILD, "tilepack"))
PYTHON = "3.12"
LIBRARIES = ("_C_stable_libtorch.abi3.so", "_moe_C_stable_libtorch.abi3.so")
# What vLLM imports and the other machine lacks.
DISTRIBUTIONS = [
    "agent-detector", "annotated-types", "cachetools", "cbor2", "compressed-tensors", "dill",
    "email-validator", "dnspython", "fastapi", "httpx2", "httpcore2", "humming-kernels",
    "llguidance", "loguru", "msgspec", "openai", "oss-harmony", "orjson", "opentelemetry-api",
    "opentelemetry-sdk", "opentelemetry-semantic-conventions",
    "opentelemetry-semantic-conventions-ai", "opentelemetry-proto", "partial-json-parser",
    "pybase64", "pydantic", "pydantic_core", "pydantic-extra-types", "pydantic-settings",
    "python-multipart", "sniffio", "starlette", "uvicorn", "watchfiles", "xgrammar", "pyzmq",
    "apache-tvm-ffi", "jsonschema", "jsonschema-specifications", "referencing", "rpds-py",
    "lark", "lm-format-enforcer", "outlines_core", "prometheus-fastapi-instrumentator",
    "setproctitle", "python-json-logger", "ijson", "model-hosting-container-standards",
    "supervisor", "jmespath", "sse-starlette", "astor", "depyf", "blake3", "interegular",
    "python-dotenv", "httptools", "websockets", "docstring_parser", "jiter", "truststore",
    "PyJWT", "typing-inspection",
]
PINNED = ["gguf==0.19.0"]  # which transformers reads SmolLM2's file with; vLLM does not need it
# Of vLLM what no dense or mixture model on Hopper imports.
NOT_CARRIED = ("third_party/deep_gemm", "third_party/fmha_sm100", "third_party/tml_fa4", "vllm-rs",
               "benchmarks", "vllm_flash_attn/cute")
# vLLM imports one of FlashAttention's two libraries, of 170 and 300 MB; jobs.py runs with Triton's.
NO_ATTENTION = '"""In place of the library, which is not carried."""\n'
UNUSED = ("tests", "test", "include", "bin", "3rdparty")  # folders of distributions
COMPILES = "humming"  # its own sources, when a kernel is first used
CODE = (".py", ".so", ".json", ".jinja", ".typed", ".lark", ".pem", ".txt")
GLIBC = 39  # 2.39, of the other machine
PLATFORMS = [f"manylinux_2_{minor}_x86_64" for minor in range(GLIBC, 16, -1)]
PLATFORMS += ["manylinux2014_x86_64", "manylinux1_x86_64"]


def copy_vllm(site):
    source = importlib.util.find_spec("vllm").submodule_search_locations[0]
    for folder, folders, files in os.walk(source):
        at = os.path.relpath(folder, source)
        if at in NOT_CARRIED:
            folders.clear()
            continue
        folders[:] = [one for one in folders if one not in ("__pycache__", "include")]
        for file in files:
            small = os.path.getsize(os.path.join(folder, file)) < 1 << 20
            tuned = "device_name=" in file and "H200" not in file
            if file.endswith(CODE) and (small or not file.endswith(".so")) and not tuned:
                os.makedirs(os.path.join(site, "vllm", at), exist_ok=True)
                shutil.copyfile(os.path.join(folder, file), os.path.join(site, "vllm", at, file))
    with open(os.path.join(site, "vllm", "vllm_flash_attn", "_vllm_fa3_C.py"), "w",
              encoding="utf-8") as file:
        file.write(NO_ATTENTION)
    found = importlib.metadata.distribution("vllm")._path
    os.makedirs(os.path.join(site, found.name))
    for name in ("METADATA", "entry_points.txt"):
        shutil.copyfile(found / name, os.path.join(site, found.name, name))


def install(site):
    versions = [f"{name}=={importlib.metadata.version(name)}" for name in DISTRIBUTIONS] + PINNED
    platforms = [word for name in PLATFORMS for word in ("--platform", name)]
    subprocess.run([sys.executable, "-m", "pip", "install", "-q", "--disable-pip-version-check",
                    "--no-deps", "--no-compile", "--only-binary=:all:", "--implementation", "cp",
                    "--python-version", PYTHON, *platforms, "--target", site, *versions],
                   check=True)
    for folder, folders, files in os.walk(site):
        if folder == site:
            folders.remove(COMPILES)
        for one in [one for one in folders if one in UNUSED]:
            shutil.rmtree(os.path.join(folder, one))
            folders.remove(one)
        for file in files:
            if file.endswith((".pyi", ".h", ".hpp", ".a", ".c", ".pyx", ".md", "RECORD")):
                os.remove(os.path.join(folder, file))


def copy_tilepack(folder):
    """The program, the library, the package, and the libraries that both are linked to."""
    os.makedirs(folder)
    library = os.path.join(BUILD, "libtilepack.so")
    listed = subprocess.run(["ldd", TILEPACK, library], check=True, capture_output=True, text=True)
    paths = {line.split()[2] for line in listed.stdout.splitlines() if "=> /" in line}
    wanted = ("libjansson", "libpcre2", "libxxhash", "libnettle", "libzstd")
    for path in [TILEPACK, library, *(p for p in paths if os.path.basename(p).startswith(wanted))]:
        shutil.copy(path, folder)
    subprocess.run(["strip", "--strip-unneeded", *(os.path.join(folder, name)
                                                   for name in os.listdir(folder))], check=True)
    package = os.path.join("python", "tilepack_llm")
    shutil.copytree(os.path.join(ROOT, package), os.path.join(folder, "tilepack_llm"),
                    ignore=shutil.ignore_patterns("__pycache__"))
    info = os.path.join(folder, "tilepack_llm-0.dist-info")
    os.makedirs(info)
    with open(os.path.join(info, "METADATA"), "w", encoding="utf-8") as file:
        file.write("Metadata-Version: 2.1\nName: tilepack-llm\nVersion: 0\n")
    with open(os.path.join(info, "entry_points.txt"), "w", encoding="utf-8") as file:
        file.write("[vllm.general_plugins]\ntilepack = tilepack_llm.vllm:register\n")
    for name in os.listdir(HERE):
        if name.endswith((".py", ".sh")):
            shutil.copy(os.path.join(HERE, name), folder)


def copy_model(folder):
    subprocess.run(["sh", os.path.join(ROOT, "scripts", "model.sh"), BUILD, "smollm2"], check=True)
    os.makedirs(folder, exist_ok=True)
    shutil.copy(os.path.join(BUILD, "models", "smollm2", "model.gguf"), folder)


def compress(path):
    subprocess.run(["zstd", "-q", "-f", "-12", "--long=27", path], check=True)
    os.remove(path)
    return path + ".zst"


def archive(out, name):
    tar = os.path.join(out, name + ".tar")
    subprocess.run(["tar", "--format=ustar", "-C", os.path.join(out, name), "-cf", tar, "."],
                   check=True)
    return compress(tar)


def share_out(pieces, out, limit):
    """One piece behind the other into folders, cut where a folder is full; `.end` ends the name
    of a piece's last part."""
    number, room = 1, limit
    for piece in pieces:
        part, left = 0, os.path.getsize(piece)
        with open(piece, "rb") as whole:
            while left:
                number, room = (number, room) if room else (number + 1, limit)
                folder, size = os.path.join(out, str(number)), min(left, room)
                if not os.path.isdir(folder):
                    os.makedirs(folder)
                    shutil.copy(os.path.join(HERE, "on_gpu.sh"), folder)
                part, left, room = part + 1, left - size, room - size
                name = f"{os.path.basename(piece)}.{part}{'' if left else '.end'}"
                with open(os.path.join(folder, name), "wb") as file:
                    file.write(whole.read(size))
        os.remove(piece)
    print(f"{number} folders in {out}", flush=True)


def main(out, mib="64"):
    shutil.rmtree(out, ignore_errors=True)
    site = os.path.join(out, "site")
    os.makedirs(site)
    install(site)
    copy_vllm(site)
    copy_tilepack(os.path.join(out, "tilepack"))
    copy_model(os.path.join(out, "smollm2"))
    pieces = [archive(out, name) for name in ("tilepack", "site", "smollm2")]
    vllm = importlib.util.find_spec("vllm").submodule_search_locations[0]
    for name in LIBRARIES:
        subprocess.run([sys.executable, os.path.join(HERE, "..", "slim_library.py"),
                        os.path.join(vllm, name), os.path.join(out, name)], check=True)
        pieces.append(compress(os.path.join(out, name)))
    share_out(pieces, out, int(mib) << 20)


if __name__ == "__main__":
    if not 2 <= len(sys.argv) <= 3:
        sys.exit(__doc__.strip())
    if sys.argv[1] == "--here":
        shutil.rmtree(os.path.join(sys.argv[2], "tilepack"), ignore_errors=True)
        copy_tilepack(os.path.join(sys.argv[2], "tilepack"))
        copy_model(os.path.join(sys.argv[2], "smollm2"))
    else:
        main(*sys.argv[1:])
