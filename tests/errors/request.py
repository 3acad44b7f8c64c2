"""Requests that mean nothing, and weights that a request does not fit."""
import json
import os
import struct

from errors.common import (CONVERT, PLAN, PLAN_DIR, Command, case, linear, one_shard, raw,
                           tensors)

SMALL = {"a.weight": ("BF16", (128, 128)), "b.weight": ("BF16", (128, 128))}


def words(name, *argv):
    """A case that is a command line over one good file."""
    @case(name)
    def build():
        tensors(linear())
        return argv


# --------------------------------------------------------------- options -- #

words("format-unknown", "plan", "in.safetensors", "--to", "w4a8-cutlas")
words("format-in-capitals", "plan", "in.safetensors", "--to", "W4A16")
words("format-misspelt", "plan", "in.safetensors", "--to", "fp8-deepsek")
words("format-empty", "plan", "in.safetensors", "--to", "")
words("format-missing", "plan", "in.safetensors")
words("parameter-unknown", *PLAN, "--set", "speed=high")
words("parameter-value-unknown", *PLAN, "--set", "quotient=fp64")
words("parameter-without-value", *PLAN, "--set", "quotient")
words("parameter-of-a-format-without-any", "plan", "in.safetensors", "--to", "fp8-1x128", "--set",
      "a=b")
words("include-bad-regex", *PLAN, "--include", "a(")
words("exclude-bad-regex", *PLAN, "--exclude", "[a")
words("include-looks-like-a-glob", *PLAN, "--include", "*.weight")
words("exclude-bad-glob", *PLAN, "--exclude", "glob:*.[^a].weight")
words("include-matches-nothing", *PLAN, "--include", "l", "--include", "typo")
words("include-too-long", *PLAN, "--include", "a|" * 3000)
words("output-missing", "convert", "in.safetensors", "--to", "w4a8-ct")
words("recipe-and-to", *PLAN, "--recipe", "r.json")
words("recipe-and-set", "plan", "in.safetensors", "--recipe", "r.json", "--set", "quotient=fp32")
words("nonfinite-unknown", *PLAN, "--nonfinite", "zero")
words("shard-size-zero", *PLAN, "--shard-size", "0")
words("shard-size-overflows", *PLAN, "--shard-size", "99999999TB")
words("jobs-too-many", *PLAN, "--jobs", "100000")
words("option-unknown", *PLAN, "--stritc")
words("source-is-empty-text", "plan", "", "--to", "w4a8-ct")


@case("cache-is-no-number")
def cache_is_no_number():
    tensors(linear())
    return Command(PLAN, env={"TILEPACK_CACHE": "half"})


@case("source-without-tensors")
def without_tensors():
    tensors({})
    return "convert", "in.safetensors", "-o", "out", "--to", "w4a8-ct"


@case("source-without-tensors-to-unpack")
def without_tensors_to_unpack():
    tensors({})
    return "unpack", "in.safetensors", "-o", "out"


@case("json-error-is-json-too")
def json_error():
    raw("in.safetensors", b"")
    return PLAN + ("--json",)


# --------------------------------------------------------------- recipes -- #


def recipe(name, content):
    @case(name)
    def build():
        tensors(SMALL)
        raw("r.json", content if isinstance(content, bytes) else json.dumps(content).encode())
        return "plan", "in.safetensors", "--recipe", "r.json"


def rule(name, *rules):
    recipe(name, {"rules": list(rules)})


ALL = {"match": ".", "to": "w4a8-ct"}

recipe("recipe-empty", b"")
recipe("recipe-not-json", b"rules:\n- match: .\n")
recipe("recipe-cut-off", b'{"rules": [\n  {"match": "."')
recipe("recipe-key-twice", b'{"rules": [],\n "rules": []}')
recipe("recipe-is-a-list", [ALL])
recipe("recipe-without-rules", {"comment": "none"})
recipe("recipe-with-an-unknown-key", {"rules": [ALL], "defaults": {}})
recipe("recipe-rules-empty", {"rules": []})
recipe("recipe-rules-is-an-object", {"rules": ALL})
rule("rule-is-a-string", "w4a8-ct")
rule("rule-without-match", {"to": "w4a8-ct"})
rule("rule-without-to", {"match": "."})
rule("rule-with-to-and-keep", {**ALL, "keep": True})
rule("rule-with-an-unknown-key", {**ALL, "sett": {}})
rule("rule-match-is-a-number", {**ALL, "match": 1})
rule("rule-match-is-empty", ALL, {"match": "", "keep": True})
rule("rule-match-is-a-bad-regex", ALL, {"match": "a{2,1}", "keep": True})
rule("rule-keep-is-a-string", {"match": ".", "keep": "yes"})
rule("rule-optional-is-a-string", {**ALL, "optional": "yes"})
rule("rule-of-unknown-format", {"match": ".", "to": "w4a8"})
rule("rule-set-is-a-list", {**ALL, "set": ["quotient=fp32"]})
rule("rule-set-is-a-number", {**ALL, "set": {"quotient": 32}})
rule("rule-set-unknown", {**ALL, "set": {"speed": "high"}})
rule("rule-set-of-a-kept-weight", {"match": ".", "keep": True, "set": {"quotient": "fp32"}})
rule("rule-matches-nothing", ALL, {"match": "^lm_head", "to": "fp8-ct"})
rule("rule-is-never-reached", ALL, {"match": "^a", "to": "fp8-ct"})


def ignoring_what(name, what):
    """A checkpoint whose config has this for the list of what is not quantized."""
    @case(name)
    def build():
        one_shard(linear("a" * 40 + "9.weight"), {"quantization_config": {"ignore": what}})
        return PLAN_DIR


def ignoring(name, *entries):
    ignoring_what(name, entries)


ignoring_what("ignored-is-text", "q_proj")
ignoring_what("ignored-is-false", False)
ignoring("ignored-list-has-a-number", "lm_head", 7)
ignoring("ignored-bad-regex", "lm_head", "re:.*mlp\\.(gate")
ignoring("ignored-glob-as-regex", "re:*.gate")
ignoring("ignored-nested-too-deep", "re:" + "(" * 20000)
ignoring("ignored-too-large", "re:(((a{200}){200}){200})")
ignoring("ignored-too-costly", "re:(([a-z]+)*)*[0-9]{3}")


@case("include-too-costly")
def include_too_costly():
    tensors(linear("a" * 40 + "9.weight"))
    return PLAN + ("--include", "(([a-z]+)*)*[0-9]{3}")


@case("recipe-missing")
def recipe_missing():
    tensors(linear())
    return "plan", "in.safetensors", "--recipe", "r.json"


@case("recipe-is-a-directory")
def recipe_is_a_directory():
    tensors(linear())
    os.mkdir("r.json")
    return "plan", "in.safetensors", "--recipe", "r.json"


@case("recipe-mixes-what-no-reader-takes")
def recipe_mixes():
    one_shard(SMALL, {"model_type": "llama"})
    raw("r.json", json.dumps({"rules": [{"match": "^a", "to": "w4a8-ct"},
                                        {"match": "^b", "to": "fp8-deepseek"}]}).encode())
    return "convert", "src", "-o", "out", "--recipe", "r.json"


@case("recipe-mixes-two-kinds-of-one-method")
def recipe_mixes_kinds():
    one_shard(SMALL, {"model_type": "llama"})
    raw("r.json", json.dumps({"rules": [
        {"match": "^a", "to": "fp8-deepseek"},
        {"match": "^b", "to": "fp8-deepseek", "set": {"scale": "ue8m0"}}]}).encode())
    return "convert", "src", "-o", "out", "--recipe", "r.json"


# --------------------------------------------------------------- weights -- #

STACKED = ("plan", "in.safetensors", "--to", "w4a8-cutlass")


def experts(skip=(), change=None):
    """Two experts of gate, up and down projections, less some, with changes."""
    made = {}
    for e in range(3):
        for part, shape in (("gate", (256, 128)), ("up", (256, 128)), ("down", (128, 256))):
            name = f"model.layers.0.mlp.experts.{e}.{part}_proj.weight"
            if (e, part) not in skip:
                made[name] = (change or {}).get((e, part), ("BF16", shape))
    tensors(made)


@case("stack-lacks-an-expert")
def stack_lacks_an_expert():
    experts([(1, "gate"), (1, "up"), (1, "down")])
    return STACKED


@case("stack-lacks-an-up-projection")
def stack_lacks_up():
    experts([(1, "up")])
    return STACKED


@case("stack-lacks-the-last-up-projection")
def stack_lacks_the_last_up():
    experts([(2, "up")])
    return STACKED


@case("stack-of-different-shapes")
def stack_of_shapes():
    experts(change={(1, "down"): ("BF16", (128, 384))})
    return STACKED


@case("stack-of-different-dtypes")
def stack_of_dtypes():
    experts(change={(2, "gate"): ("F16", (256, 128))})
    return STACKED


@case("stack-of-which-the-last-expert-is-excluded")
def stack_without_the_last():
    experts()
    return STACKED + ("--exclude", "experts[.]2[.]")


@case("stack-of-which-the-gates-are-excluded")
def stack_without_gates():
    experts()
    return STACKED + ("--exclude", "gate_proj")


@case("stack-of-which-one-expert-is-included")
def stack_of_one():
    experts()
    return STACKED + ("--include", "experts[.]1[.]")


@case("stack-by-two-rules")
def stack_by_two_rules():
    experts()
    raw("r.json", json.dumps({"rules": [{"match": "experts[.]1[.]", "to": "fp8-ct"},
                                        {"match": ".", "to": "w4a8-cutlass"}]}).encode())
    return "plan", "in.safetensors", "--recipe", "r.json"


@case("strict-shape-does-not-suit")
def strict_shape():
    tensors({"l.weight": ("BF16", (128, 100))})
    return PLAN + ("--strict",)


@case("strict-fused-set-does-not-suit")
def strict_fused():
    tensors({"m.self_attn.q_proj.weight": ("BF16", (128, 128)),
             "m.self_attn.k_proj.weight": ("BF16", (128, 100)),
             "m.self_attn.v_proj.weight": ("BF16", (128, 128))})
    return PLAN + ("--strict",)


@case("strict-transposed-experts")
def strict_transposed():
    one_shard({"model.layers.0.mlp.experts.gate_up_proj": ("BF16", (2, 256, 128))},
              {"model_type": "gpt_oss"})
    return PLAN_DIR + ("--strict",)


@case("strict-int4-source-requantized")
def strict_int4():
    tensors({"l.weight_packed": ("I32", (128, 16)), "l.weight_scale": ("BF16", (128, 1))})
    return "plan", "in.safetensors", "--to", "fp8-deepseek", "--strict"


@case("two-outputs-of-one-name")
def two_outputs():
    tensors({"l": ("BF16", (128, 128)), "l.weight": ("BF16", (128, 128))})
    return PLAN + ("--include", ".")


@case("two-packed-weights-of-one-name")
def two_packed_weights():
    """A stack's tensors and a matrix's differ by '_' and '.', the weights' names do not."""
    at = "model.layers.0.mlp.experts"
    tensors({**{f"{at}.0.{p}_proj.weight": ("BF16", (128, 128)) for p in ("gate", "up", "down")},
             f"{at}.w13.weight": ("BF16", (128, 128))})
    return "plan", "in.safetensors", "--to", "w4a8-cutlass"


# ---------------------------------------------------- values not finite -- #


def values(name, dtype, patterns, argv=CONVERT):
    """A [128,128] weight with these bit patterns at these indices."""
    @case(name)
    def build():
        width = {"BF16": 2, "F16": 2, "F32": 4}[dtype]
        data = bytearray(128 * 128 * width)
        for at, bits in patterns.items():
            struct.pack_into("<H" if width == 2 else "<I", data, at * width, bits)
        tensors({"l.weight": (dtype, (128, 128), bytes(data))})
        return argv


values("value-nan-in-bf16", "BF16", {0: 0x7FC0})
values("value-infinite-in-bf16", "BF16", {128 * 5 + 7: 0x7F80, 128 * 90: 0xFF80})
values("value-nan-in-f16", "F16", {128 * 128 - 1: 0x7E00})
values("value-nan-in-f32", "F32", {1: 0x7F800001, 2: 0x7F800000, 3: 0xFFC00000})
values("value-nan-in-fp8-deepseek", "F32", {129: 0x7FC00000},
       ("convert", "in.safetensors", "-o", "out.safetensors", "--to", "fp8-deepseek"))
values("value-nan-in-mxfp8-torchao3d", "BF16", {300: 0x7FC0},
       ("convert", "in.safetensors", "-o", "out.safetensors", "--to", "mxfp8-torchao3d"))


@case("value-nan-in-an-expert")
def value_nan_in_an_expert():
    named = {}
    for e in range(2):
        for part, shape in (("gate", (128, 128)), ("up", (128, 128)), ("down", (128, 128))):
            data = bytes(32768) if (e, part) != (1, "up") else bytes(512) + b"\xc0\x7f" * 2 + \
                bytes(32768 - 516)
            named[f"model.layers.0.mlp.experts.{e}.{part}_proj.weight"] = ("BF16", shape, data)
    tensors(named)
    return "convert", "in.safetensors", "-o", "out.safetensors", "--to", "w4a8-cutlass"
