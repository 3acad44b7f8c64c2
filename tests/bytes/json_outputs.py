#!/usr/bin/env python3
"""docs/json.md and docs/schemas against what the commands print: every command that has --json has a
section, and no output has a key, or lacks one, that its tables do not say. Ends with
`N passed, N failed`.
"""
import json
import os
import re
import subprocess
import sys

import jsonschema

import lib_path  # noqa: F401  pylint: disable=unused-import
import tool

Q = "model.layers.0.self_attn.q_proj"
E = "model.layers.0.block_sparse_moe.experts.w2"
# Words of command lines, in this order: what one writes, others read.
RUNS = f"""
convert moe -o w4a8 --to w4a8-cutlass
convert moe -o w4a8 --to w4a8-cutlass
convert moe -o w4a8 --to awq
convert moe -o w4a8 --to awq --if-exists skip
convert moe -o none --to no-such-format
convert moe
convert none -o x --to fp8-ct
convert dense -o ct --to w4a8-ct --search mse --signed --digest sha256
convert dense -o fp8 --to fp8-deepseek
convert dense -o one.safetensors --to fp8-ct
convert fp8 -o again --to fp8-ct --requantize
convert ct -o cut --to w4a8-cutlass --requantize
convert dense -o mx --to mxfp4-ct
convert mx -o nv --to nvfp4-ct --weights-only
convert mx -o mx8 --to mxfp8-ct
convert nv -o inverted --to nvfp4-blocked --weights-only
convert moe -o some --to fp8-ct --include experts[.]0
convert moe -o unread --to w4a16-machete
convert dense -o parts --to fp8-ct --part 1/2
convert dense -o parts --to fp8-ct --part 2/2
convert dense -o parts --to fp8-ct --part 2/2
merge parts
merge parts
merge none
plan moe --to w4a8-cutlass
plan moe --to w4a16-machete
plan moe --to fp8-ct --include experts[.]0
plan dense --to w4a8-ct --search mse
plan dense --to fp8-ct --search mse
plan mx --to mxfp8-ct
plan fp8 --to mxfp8-ct
plan ct --to w4a8-cutlass
plan dense
verify w4a8
verify w4a8 --against moe
verify w4a8 --against dense
verify ct --against dense
verify moe
verify edited
verify edited --strict
verify damaged
verify none
compare moe --to fp8-ct --to nvfp4-cutlass-moe --to w4a16-ct --to w4a16-machete
compare dense
compare moe --to none
diff moe w4a8
diff moe dense
diff w4a8 unread
diff moe moe
diff w4a8 damaged
diff moe none
dump w4a8
dump moe
dump w4a8 {Q}
dump w4a8 {E}
dump moe lm_head.weight
dump w4a8 {Q} --at 3,5
dump w4a8 {E} --at 1,3,5
dump moe lm_head.weight --at 3,5
dump w4a8 {Q}.weight_packed --offset 77
dump w4a8 {E}_weight_group_scale --offset 77
dump w4a8 {E}_weight_layout --offset 5
dump moe lm_head.weight --offset 77
dump w4a8 {Q} --values 0:2,0:3
dump w4a8 none
formats
formats w4a8-cutlass
formats none
formats --gpu h100
formats --gpu a100 --engine vllm
formats --gpu none
models
models mixtral
models none
engines
engines vllm
engines none
quantizers
quantizers gptq
quantizers none
recipe moe --bits 5 --formats w4a16-ct,w8a16-ct,bf16 -o recipe.json
recipe dense --bits 9 --formats fp8-ct,mxfp8-ct,bf16,w4a16-marlin -o recipe.json
recipe ct --bits 5 --formats w4a16-ct -o recipe.json
suggest moe --gpu h100
suggest dense --gpu a100 --gpus 2
suggest w4a8 --gpu b200 --no-sample
suggest moe --gpu none
schedule w4a8 --m 1,64 --tp 2
schedule --shape 7168,2048 --m 4096 --kernel deepgemm --why --gpu h100
schedule --shape 4,7168,2048 --m 4096 --kernel w4a8-cutlass --why --gpu h100
schedule --shape 4,7168,2048 --m 64 --kernel deepgemm --groups masked --gpu h100
schedule --shape 100,77 --m 4 --kernel deepgemm --gpu h100
schedule none --m 1
unpack w4a8 -o plain
unpack w4a8 -o plain
unpack w4a8 -o plain --dtype f32
unpack w4a8 -o ct2 --to w4a8-ct
unpack none -o y
digest w4a8
digest none
bench --format w4a8-ct --shape 1,256,256
bench --format w4a8-ct --shape 1,256,256 --search mse
bench --format none
prove w4a8
"""


def prepared(words, work):
    """What a command line needs that no command makes."""
    if words[1] in ("edited", "damaged") and not os.path.exists(work.at(words[1])):
        subprocess.run(["cp", "-r", work.at("w4a8"), work.at(words[1])], check=True)
        if words[1] == "edited":
            with open(work.at("edited/README.md"), "a", encoding="utf-8") as file:
                file.write("mine\n")
        else:
            with open(work.at("damaged/model.safetensors"), "r+b") as file:
                file.seek(-100000, 2)
                file.write(b"\xff\x00\xff")


def told(schema, output):
    """What no way of the schema says of it: of the way that is nearest. Empty: one says all."""
    ways = schema.get("anyOf", [schema])
    found = [[f"{'/'.join(map(str, e.absolute_path))}: {e.message[:200]}"
              for e in jsonschema.Draft202012Validator(way).iter_errors(output)] for way in ways]
    return min(found, key=len)


def members(t, command, output, readme):
    """Members of files are those that the folder's README defines."""
    for file in output.get(command, []):
        unknown = [key for key in file if f"`{key}`" not in readme and f'"{key}"' not in readme]
        t.check(not unknown, f"{command}/README.md says what {unknown} of {file['name']} are")


def main():
    t = tool.Tally()
    folder = os.path.join(tool.REPO, "docs", "schemas")
    page = os.path.join(tool.REPO, "docs", "json.md")
    done = subprocess.run([sys.executable, os.path.join(tool.REPO, "scripts", "json_schemas.py"), page,
                           folder, "--check"], capture_output=True, text=True, check=False)
    t.check(done.returncode == 0, f"docs/schemas are those of docs/json.md {done.stdout}{done.stderr}")
    schemas = {}
    for name in os.listdir(folder):
        with open(os.path.join(folder, name), encoding="utf-8") as file:
            schemas[name.removesuffix(".json")] = json.load(file)
    for name, schema in schemas.items():
        jsonschema.Draft202012Validator.check_schema(schema)
        t.check(not told(schema, {"version": 1, "error": {"code": 2, "kind": "usage", "message": "x"}})
                and told(schema, {"version": 1, "surprise": 1}), f"{name}: errors, and nothing else")
    commands = set(re.findall(r"^  ([a-z]+) +\S", tool.run("--help").stdout, re.M))
    have = {command for command in commands if "--json" in tool.run("help", command).stdout}
    t.check(have and have == schemas.keys() - {"error"}, f"a section each {have ^ schemas.keys()}")
    readmes = {}
    for command in "formats", "models", "engines", "quantizers":
        with open(os.path.join(tool.REPO, command, "README.md"), encoding="utf-8") as file:
            readmes[command] = file.read()
    seen, failed = set(), set()
    with tool.Workdir() as work:
        for name, preset in (("moe", "tiny-mixtral"), ("dense", "tiny-llama")):
            subprocess.run([sys.executable, os.path.join(tool.REPO, "samples", "gen_checkpoint.py"),
                            work.at(name), "--preset", preset, "--quiet"], check=True)
        for line in RUNS.strip().split("\n"):
            words = line.split()
            prepared(words + [""], work)
            done = subprocess.run([tool.binary(), words[0], "--json", *words[1:]], cwd=work.at(""),
                                  capture_output=True, text=True, check=False)
            output = json.loads(done.stdout)
            unknown = told(schemas[words[0]], output)
            t.check(not unknown, f"{line}: {unknown[:3]}")
            if "error" in output:
                failed.add(words[0])
                t.check(output["error"]["code"] == done.returncode > 1, f"{line}: its status")
            else:
                seen.add(words[0])
                t.check(done.returncode < 2, f"{line}: ends with {done.returncode}")
                if words[0] in readmes:
                    members(t, words[0], output, readmes[words[0]])
    t.check(have - seen <= {"prove"}, f"an output of each {have - seen}")
    t.check(len(failed) > 12, f"and errors of most {failed}")
    return t.finish()


if __name__ == "__main__":
    sys.exit(main())
