"""Checkpoint directories: the index, its shards, and the files beside them."""
import json
import os

import tool
from errors.common import (CONVERT_DIR, INDEX, PLAN_DIR, case, index, linear, listen, one_shard,
                           raw, st, tensors, two_shards)

FIRST, SECOND = "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"


def text(name, content):
    """A case that is one index text over two good shards."""
    @case(name)
    def build():
        two_shards()
        index(content)
        return PLAN_DIR


def shard(name, value):
    """A case whose weight_map names this shard."""
    text(name, json.dumps({"weight_map": {"a.weight": value}}))


# -------------------------------------------------------- the index text -- #

text("index-empty", "")
text("index-not-json", "weights: 2")
text("index-is-a-list", "[]")
text("index-cut-off", '{"weight_map": {"a.weight": "mod')
text("index-text-behind-the-end", '{"weight_map": {}} {}')
text("index-without-weight-map", '{"metadata": {}}')
text("index-weight-map-twice", '{"weight_map": {}, "weight_map": {}}')
text("index-weight-map-is-a-list", '{"weight_map": []}')
text("index-weight-map-is-empty", '{"weight_map": {}}')
text("index-names-a-tensor-twice",
     f'{{"weight_map": {{"a.weight": "{FIRST}", "a.weight": "{SECOND}"}}}}')
text("index-not-utf8", b'{"weight_map": {"a\xff": "x.safetensors"}}')
text("index-nested-too-deep", '{"metadata": ' + "[" * 40 + "]" * 40 + ', "weight_map": {}}')

# ---------------------------------------------------- hostile shard names -- #

shard("shard-name-climbs-out", "../../etc/model.safetensors")
shard("shard-name-is-absolute", "/etc/model.safetensors")
shard("shard-name-in-a-subdirectory", "sub/model.safetensors")
shard("shard-name-with-a-backslash", "..\\model.safetensors")
shard("shard-name-is-dot-dot", "..")
shard("shard-name-is-empty", "")
shard("shard-name-with-a-newline", "a\nb.safetensors")
shard("shard-name-with-an-escape-sequence", "a\x1b[31m.safetensors")
shard("shard-name-too-long", "a" * 250 + ".safetensors")
shard("shard-name-of-another-kind", "pytorch_model.bin")
shard("shard-name-not-a-string", 1)
shard("shard-name-without-a-stem", ".safetensors")

# ------------------------------------------------ shards that are not so -- #


@case("index-over-256-mib")
def index_too_large():
    two_shards()
    raw(INDEX, b"{", (256 << 20) + 1)
    return PLAN_DIR


@case("index-is-a-directory")
def index_is_a_directory():
    two_shards()
    os.remove(INDEX)
    os.mkdir(INDEX)
    return PLAN_DIR


@case("shard-missing")
def shard_missing():
    two_shards()
    os.remove("src/" + SECOND)
    return PLAN_DIR


@case("shard-is-a-dangling-link")
def shard_is_a_dangling_link():
    two_shards()
    os.remove("src/" + SECOND)
    os.symlink("../blobs/0123", "src/" + SECOND)
    return PLAN_DIR


@case("only-shard-is-a-dangling-link")
def only_shard_is_a_dangling_link():
    os.mkdir("src")
    os.symlink("../blobs/0123", "src/model.safetensors")
    return PLAN_DIR


@case("shard-is-a-directory")
def shard_is_a_directory():
    two_shards()
    os.remove("src/" + SECOND)
    os.mkdir("src/" + SECOND)
    return PLAN_DIR


@case("shard-is-a-pipe")
def shard_is_a_pipe():
    two_shards()
    os.remove("src/" + SECOND)
    os.mkfifo("src/" + SECOND)
    return PLAN_DIR


@case("shard-is-a-socket")
def shard_is_a_socket():
    two_shards()
    os.remove("src/" + SECOND)
    listen("src/" + SECOND)
    return PLAN_DIR


@case("shard-is-broken")
def shard_is_broken():
    two_shards()
    st('{"b.weight":{"dtype":"BF16","shape":[128,128],"data_offsets":[0,32768]}}', bytes(100),
       "src/" + SECOND)
    return PLAN_DIR


@case("shard-links-outside-under-strict")
def shard_links_outside():
    two_shards()
    os.makedirs("blobs")
    os.rename("src/" + SECOND, "blobs/0123")
    os.symlink("../blobs/0123", "src/" + SECOND)
    return PLAN_DIR + ("--strict",)


@case("config-links-outside-under-strict")
def config_links_outside():
    one_shard()
    raw("config.json", b"{}")
    os.symlink("../config.json", "src/config.json")
    return PLAN_DIR + ("--strict",)


@case("tokenizer-links-outside-under-strict")
def tokenizer_links_outside():
    one_shard()
    raw("secret", b"{}")
    os.symlink("../secret", "src/tokenizer.json")
    return PLAN_DIR + ("--strict",)


@case("tokenizer-links-outside")
def tokenizer_links_outside_by_default():
    one_shard()
    raw("secret", b"{}")
    os.symlink("../secret", "src/tokenizer.json")
    return CONVERT_DIR


@case("tokenizer-links-to-no-hash-of-the-hub")
def tokenizer_links_to_no_hash():
    one_shard()
    raw("blobs/secret", b"{}")
    os.makedirs("snapshots")
    os.rename("src", "snapshots/src")
    os.symlink("../../blobs/secret", "snapshots/src/tokenizer.json")
    return "convert", "snapshots/src", "-o", "out", "--to", "w4a8-ct"


@case("shard-doubled-beside-the-index")
def shard_doubled_beside_the_index():
    two_shards()
    third = "model-00003-of-00003.safetensors"
    tensors({**linear("a.weight"), **linear("b.weight")}, "src/" + FIRST)
    tensors(linear("c.weight"), "src/" + third)
    index({"a.weight": FIRST, "b.weight": third, "c.weight": third, "d.weight": SECOND})
    return PLAN_DIR


@case("index-of-another-checkpoint")
def index_of_another_checkpoint():
    two_shards()
    index({"x.weight": FIRST, "y.weight": SECOND})
    return PLAN_DIR


@case("several-indexes")
def several_indexes():
    one_shard()
    os.rename("src/model.safetensors", "src/a.safetensors")
    for variant in ("fp16", "bf16"):
        raw(f"src/a.safetensors.index.{variant}.json", b"{}")
    return PLAN_DIR


@case("tensors-over-two-million-in-all")
def too_many_in_all():
    part = ",".join(f'"{i}":{{"dtype":"U8","shape":[0],"data_offsets":[0,0]}}'
                    for i in range(666_667))
    names = [f"model-{s}-of-3.safetensors" for s in (1, 2, 3)]
    st("{" + part + "}", path="src/" + names[0])
    for name in names[1:]:
        os.link("src/" + names[0], "src/" + name)
    index(dict(zip("abc", names)))
    return PLAN_DIR


# ------------------------------------------------------ without an index -- #


@case("directory-empty")
def directory_empty():
    os.mkdir("src")
    return PLAN_DIR


@case("directory-of-other-weights")
def directory_of_other_weights():
    raw("src/pytorch_model.bin", b"PK\3\4")
    raw("src/config.json", b"{}")
    return PLAN_DIR


@case("directory-of-two-files")
def directory_of_two_files():
    tensors(linear("a.weight"), "src/a.safetensors")
    tensors(linear("b.weight"), "src/b.safetensors")
    return PLAN_DIR


@case("directory-of-a-pipeline")
def directory_of_a_pipeline():
    raw("src/model_index.json", b"{}")
    raw("src/scheduler/scheduler_config.json", b"{}")
    for part in ("transformer", "vae"):
        tensors(linear(), f"src/{part}/diffusion_pytorch_model.safetensors")
    return PLAN_DIR


@case("directory-of-deepseek-ranks")
def directory_of_deepseek_ranks():
    for rank in range(2):
        tensors(linear(), f"src/model{rank}-mp2.safetensors")
    return PLAN_DIR


@case("adapter")
def adapter():
    tensors({**linear("l.lora_A.weight", 16), **linear("l.lora_B.weight", 128, 16)},
            "src/adapter_model.safetensors")
    raw("src/adapter_config.json", b"{}")
    return PLAN_DIR


@case("adapter-not-merged")
def adapter_not_merged():
    one_shard({**linear("l.base_layer.weight"), **linear("l.lora_A.default.weight", 16),
               **linear("l.lora_B.default.weight", 128, 16)}, config=b"{}")
    return "unpack", "src", "-o", "out"


POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:" + b"ab" * 32 + b"\nsize 1\n"


@case("tokenizer-is-a-git-lfs-pointer")
def tokenizer_is_a_git_lfs_pointer():
    one_shard(config=b"{}")
    raw("src/tokenizer/tokenizer.json", POINTER)
    return CONVERT_DIR


@case("config-is-a-git-lfs-pointer")
def config_is_a_git_lfs_pointer():
    one_shard(config=POINTER)
    return PLAN_DIR


@case("index-is-a-git-lfs-pointer")
def index_is_a_git_lfs_pointer():
    two_shards()
    index(POINTER)
    return PLAN_DIR


@case("index-with-a-byte-order-mark")
def index_with_a_byte_order_mark():
    two_shards()
    index(b"\xef\xbb\xbf{}")
    return PLAN_DIR


@case("copy-of-a-name-of-the-output")
def copy_of_a_name_of_the_output():
    one_shard(config=b"{}")
    os.rename("src/model.safetensors", "src/a-00001-of-00001.safetensors")
    index({"l.weight": "a-00001-of-00001.safetensors"})
    tensors(linear("x.weight"), "src/model.safetensors")
    return (*CONVERT_DIR, "--copy", "model*")


@case("directory-of-one-part")
def directory_of_one_part():
    tensors(linear(), "src/" + FIRST)
    return PLAN_DIR


# ---------------------------------------------------------- config, others -- #


def config(name, content):
    @case(name)
    def build():
        one_shard(config=content)
        return "convert", "src", "-o", "out", "--to", "w4a8-ct"


config("config-empty", b"")
config("config-not-json", b"model_type: llama")
config("config-is-a-list", b"[]")
config("config-cut-off", b'{"model_type": "llama", "quantization')
config("config-key-twice", b'{"model_type": "a", "model_type": "b"}')
config("config-not-utf8", b'{"model_type": "\xff"}')
config("config-text-behind-the-end", b'{}{}')
config("config-key-twice-in-text-config", b'{"text_config": {"a": 1, "a": 2}}')
config("config-quantization-is-no-object", b'{"quantization_config": [1]}')
config("config-quant-method-is-no-text", b'{"quantization_config": {"quant_method": 5}}')
config("config-quantization-is-no-object-in-text-config",
       b'{"quantization_config": null, "text_config": {"quantization_config": 1e999}}')


@case("config-not-json-and-nothing-converted")
def config_not_json_and_nothing_converted():
    one_shard(config=b"{,}")
    return (*CONVERT_DIR, "--exclude", ".")


@case("config-not-json-and-verify")
def config_not_json_and_verify():
    one_shard(config=b"{,}")
    return "verify", "src"


@case("copied-file-not-utf8")
def copied_file_not_utf8():
    one_shard(config={})
    os.mkdir("src/assets")
    raw(b"src/assets/a\xff\x1b.txt", b"")
    return CONVERT_DIR


@case("shard-name-not-utf8")
def shard_name_not_utf8():
    one_shard()
    os.rename("src/model.safetensors", b"src/model-\xff.safetensors")
    return (*CONVERT_DIR, "--dry-run")


@case("source-path-not-utf8")
def source_path_not_utf8():
    one_shard()
    os.mkdir(b"\xff")
    os.rename("src", b"\xff/src")
    os.symlink(b"\xff/src", "src")
    tool.run(*CONVERT_DIR, "--part", "1/1", "--quiet")
    return "merge", "out"


@case("values-without-a-global-scale")
def values_without_a_global_scale():
    one_shard({"l.weight": ("F32", (32, 32), (1).to_bytes(4, "little"))}, config={})
    return "convert", "src", "-o", "out", "--to", "nvfp4-comfy", "--include", "."


@case("config-over-64-mib")
def config_too_large():
    one_shard()
    raw("src/config.json", b"{", (64 << 20) + 1)
    return PLAN_DIR


@case("config-would-be-over-64-mib")
def config_would_be_too_large():
    one_shard(config=b"{}" + b" " * ((64 << 20) - 100))
    return CONVERT_DIR


@case("config-is-a-directory")
def config_is_a_directory():
    one_shard()
    os.mkdir("src/config.json")
    return PLAN_DIR


@case("config-is-a-dangling-link")
def config_is_a_dangling_link():
    one_shard()
    os.symlink("nowhere", "src/config.json")
    return PLAN_DIR


@case("tokenizer-is-a-dangling-link")
def tokenizer_is_a_dangling_link():
    one_shard()
    os.symlink("nowhere", "src/tokenizer.json")
    return PLAN_DIR
