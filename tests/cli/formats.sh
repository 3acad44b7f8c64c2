#!/bin/bash
# `tilepack formats`: the list, one format in full, and JSON that is the format file.
# Usage: formats.sh [PROGRAM]
set -u
program=$(realpath "${1:-${TILEPACK:-build/tilepack}}")
root=$(realpath "$(dirname "$0")/../..")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
[[ -x $program ]] || { echo "FAIL: there is no $program"; exit 1; }
cd "$work" || exit 1
failed=0 checked=0
fail() {
    failed=1
    printf 'FAIL formats: %s\n' "$1"
}

# Every format file is in the list, in order, and the other way round.
"$program" formats --all >list 2>err || fail "status $?: $(cat err)"
[[ ! -s err ]] || fail "the list prints on stderr: $(cat err)"
sed '1d; /^$/,$d; s/ .*//' list >listed
for file in "$root"/formats/*.json; do basename "$file" .json; done | LC_ALL=C sort >files
cmp -s listed files || fail "listed and there: $(diff listed files)"
[[ $(head -n 1 list) =~ ^'name '+'read by '+'what it is'$ ]] || fail "heading: $(head -n 1 list)"
grep -q '^w4a8-ct   *vLLM, transformers   *int4 weights in groups of 128' list ||
    fail 'w4a8-ct is not described'

# By number format: all that something reads are there once, and what is only read is not.
"$program" formats >groups || fail "groups: status $?"
sed '/^$/,$d; s/^  [a-z-]* *//; /^[a-z]/!s/^ *//' groups | tr -d ' ' | tr ',' '\n' >words
while read -r name; do
    "$program" formats "$name" | grep -q '^read by  *[^ ]' && [[ $("$program" formats "$name") != *'read, not written'* ]] &&
        wanted=1 || wanted=0
    [[ $(grep -cx "$name" words) == "$wanted" ]] || fail "$name is $(grep -cx "$name" words) times in the groups"
done <files
for word in int4 fp8 nvfp4; do grep -qx $word groups || fail "there is no group $word"; done
grep -q 'tilepack suggest SRC --gpu NAME' groups || fail 'the list does not name suggest'
checked=$((checked + 3))

# One format in full.
cat >wanted <<'TEXT'
mxfp8-torchao3d: MXFP8 of (E,N,K) experts in blocks of 32 along N, column-major, scales in 128x4 tiles

torchao's mxfp8_quantize_cuda_3d: codes with strides (N*K,1,N), stored as
[E,K,N]; the scale matrix of an expert has K rows and N/32 columns.

read by       callers of torchao
source        torchao 36027d82
codec         mxfp8, a scale for each block of 32x1 (n x k)
experts       stacked: w13_ = [gate; up] along N, and w2_ (--no-stack: apart)
direction     read and written
needs         N in multiples of 32: a block is 32 output features
              K in multiples of 32 (with block=32x32): a block is 32 input
              features
wants         K in multiples of 32: torchao's GPU kernel takes K in multiples of
              32

parameters
  --set scale=rceil|floor   (default rceil)
              scale rule: rceil never saturates, floor is the OCP rule
  --set block=32x1|32x32   (default 32x1)
              block over which a scale is computed; 32x32 scales are stored for
              each of their 32 columns

outputs, for W[E,N,K]; a 2-D weight has E = 1 and shapes without E;
S is the weight's name without .weight
  with R = align(K,128), C = align(N/32,4)
  S.weight  F8_E4M3 [E, K, N]
    holds     codes: e4m3, one for each element of W
    layout    (E,N,K):(N*K,1,N)
    padding   0x00
  S.weight_scale  U8 [E, R*C]
    holds     scale: e8m0, one for each block of 32x1 (n x k) elements of W
    layout    (E,(4,C/4),(32,4,R/128)):(R*C,(1,512),(16,4,128*C))
    padding   0x00
TEXT
"$program" formats mxfp8-torchao3d >out || fail 'mxfp8-torchao3d'
diff -u wanted out || fail 'mxfp8-torchao3d is described otherwise'
checked=$((checked + 2))

# The table of codes, and constants.
"$program" formats w4a8-cutlass >out || fail 'w4a8-cutlass'
tail -n 3 out >table
diff -u - table <<'TEXT' || fail 'the code table is another one'
code table: the stored nibble of each value
  value   -8  -7  -6  -5  -4  -3  -2  -1   0   1   2   3   4   5   6   7
  stored   8   9   a   b   c   d   e   f   0   7   6   5   4   3   2   1
TEXT
grep -q '^    words     N/16, K/32, 32\*N$' out || fail 'no layout words'

# Choices, the default, and other names of choices.
grep -q '^  --set scale=gpu|cpu|div   (default gpu)$' out || fail 'no channel rules'
grep -q '^              rcp is another name of cpu$' out || fail 'no other name of a choice'

# Every format prints, in lines without blanks at their ends; JSON is the file itself.
while read -r name; do
    "$program" formats "$name" >out 2>err || fail "$name: status $?"
    [[ $(head -n 1 out) == "$name: "* ]] || fail "$name: $(head -n 1 out)"
    ! grep -n ' $' out || fail "$name: blanks at the end of lines"
    "$program" formats "$name" --json >out.json || fail "$name --json"
    if command -v jq >jq.path; then
        [[ $(jq -cS '.formats[0]' out.json) == "$(jq -cS . "$root/formats/$name.json")" ]] ||
            fail "$name --json is not its file"
    fi
    checked=$((checked + 2))
done <files

# A name that begins several lists them, in letters of any case.
"$program" formats FP8 >out || fail 'formats FP8'
sed '1d; /^$/,$d; s/ .*//' out | cmp -s - <(grep '^fp8' files) || fail "FP8 lists $(cat out)"
[[ $("$program" formats fp8 --json | jq -r '.formats[].name') == "$(grep '^fp8' files)" ]] ||
    fail 'fp8 --json lists others'

# What is read where, each format once. The order is by who loads it, bits, speed and name: no figure
# compares the errors of uniform codes with those of floating ones.
cat >wanted <<'TEXT'
format bits speed takes GPUs engines
w4a8-ct 4.125 native linear, experts, head sm90 vllm
fp8-ct 8.001 native linear, experts, head sm89 and later vllm
fp8-deepseek 8.002 native linear, experts, head sm89 and later vllm
fp8-dynamic-ct 8.004 native linear, experts, head sm89 and later vllm
int8-ct 8.004 native linear, experts, head sm80, sm86, sm89, sm90 vllm
TEXT
for gpu in h100 sm90 h20; do
    "$program" formats --gpu $gpu --engine vllm >out || fail "--gpu $gpu"
    grep -E '^(format|fp8-(ct|deepseek|dynamic-ct)|w4a8-ct|int8-ct) ' out | tr -s ' ' |
        diff -u wanted - ||
        fail "what vLLM loads on $gpu is another"
done
for gpu in a100 h100; do # whose int8 needs calibration
    "$program" formats --gpu $gpu --engine vllm | sed -n 2p | grep -q '^int8' && fail "int8 is first on $gpu"
done
"$program" formats w4a8 --gpu l40s >out || fail '--gpu l40s'
[[ $(sed '1d; /^$/,$d; s/ .*//' out | paste -sd' ') == "w4a8-ct w4a8-int8-marlin-channel" ]] ||
    fail "w4a8 on l40s: $(cat out)"
for gpu in a100 l40s h100 b200 5090; do
    "$program" formats --gpu $gpu | sed '1d; /^$/,$d; s/ .*//' | sort | uniq -d >twice
    [[ ! -s twice ]] || fail "twice on $gpu: $(cat twice)"
done
"$program" formats --gpu sm80 --engine trtllm >out && fail 'trtllm loads something on sm80'
grep -q '^no format is known to load there' out || fail "nothing: $(cat out)"
"$program" formats --gpu sm80 --engine trtllm --json >out && fail '--json: status 0'
[[ $(jq -c '[.gpu, .engine, .offers]' out) == '["sm80","trtllm",[]]' ]] || fail "$(cat out)"
for gpu in h101 sm9 sm90+ 'sm90 '; do
    "$program" formats --gpu "$gpu" >out 2>err
    [[ $? == 2 && $(head -n 1 err) == "tilepack formats: --gpu '$gpu': there is no such GPU" ]] ||
        fail "--gpu '$gpu': $(cat out err)"
done
"$program" formats --engine vlm >out 2>err
[[ $? == 2 && $(head -n 1 err) == "tilepack formats: --engine 'vlm': there is no such engine" ]] ||
    fail "--engine vlm: $(cat out err)"
checked=$((checked + 13))

# Bits are those of docs/quality.md, and in every engine a GPU has one row for a format.
"$program" formats --engine vllm --json >/dev/null || fail '--engine vllm --json'
"${PYTHON:-python3}" - "$root" "$program" <<'PYTHON' || fail 'offers contradict other facts'
import json, re, subprocess, sys
root, program = sys.argv[1:]
page = open(f"{root}/docs/quality.md").read().split("## Formats of the same values")[1].split("\n## ")[0]
measured = {}
for line in page.splitlines():
    cells = [cell.strip() for cell in line.split("|")]
    names = re.findall("`([a-z0-9-]+)`(?=,|$)", cells[1]) if len(cells) > 2 else []
    for name in names:  # formats of the same values share a row; its bits are those of the first
        measured[name] = float(cells[2]) if name == names[0] else None
def offers(*words):
    out = subprocess.run([program, "formats", "--json", *words], capture_output=True).stdout
    return json.loads(out)["offers"]
engines = json.loads(subprocess.run([program, "engines", "--json"], capture_output=True).stdout)["engines"]
seen, compared = set(), 0
for gpu in "a100", "l40s", "h100", "b200", "5090":
    rows = offers("--gpu", gpu)
    pairs = [(row["format"], row["engine"]) for row in rows]
    assert len(set(pairs)) == len(pairs), gpu
    seen |= set(pairs)
for engine in engines:
    rows = offers("--engine", engine["name"])
    assert rows, engine["name"]
    for row in rows:
        assert (row["format"], engine["name"]) in seen, row
        assert any(row["format"] in r["formats"] and row["gpus"] == r["gpus"] for r in engine["reads"]), row
        if measured.get(row["format"]) is not None:
            assert abs(row["bits"] - measured[row["format"]]) < 0.002, row
            compared += 1
assert compared > 15, compared
PYTHON
checked=$((checked + 10))

# A name that no format is like; the beginning of several: all of them, what engines load first.
"$program" plan . --to zzz 2>err && fail '--to zzz'
[[ $(cat err) == "tilepack plan: there is no format 'zzz' to convert to
  hint: \`tilepack formats\` lists them" ]] || fail "--to zzz: $(cat err)"
"$program" plan . --to nvfp4 2>err && fail '--to nvfp4'
sed -n 's/^  hint: there are //p' err | sed 's/([^)]*)//g' | tr -d ' ' | tr , '\n' >hinted
"$program" formats --json |
    jq -r '.formats[] | select(.input_only | not) | .name | select(startswith("nvfp4"))' >written
LC_ALL=C sort hinted | cmp -s - written || fail "--to nvfp4 names others: $(cat err)"
for engine in $("$program" engines --json | jq -r '.engines[] | select(.kind != "kernels") | .name'); do
    "$program" formats --engine "$engine" --json | jq -r '.offers[].format'
done | LC_ALL=C sort -u | grep ^nvfp4 >loaded
[[ $(head -n "$(grep -c . loaded)" hinted | LC_ALL=C sort) == "$(cat loaded)" ]] ||
    fail "--to nvfp4 does not name first what engines load: $(cat hinted)"
checked=$((checked + 2))

# On a terminal of 80 columns nothing is cut: long cells go on in the next line.
"${PYTHON:-python3}" - "$program" <<'PYTHON' || fail 'columns are not folded'
import fcntl, os, pty, struct, subprocess, sys, termios
def shown(*words):
    parent, child = pty.openpty()
    fcntl.ioctl(child, termios.TIOCSWINSZ, struct.pack("4H", 25, 80, 0, 0))
    process = subprocess.Popen([sys.argv[1], *words, "--color=never"], stdout=child)
    os.close(child)
    text = b""
    try:
        while part := os.read(parent, 65536):
            text += part
    except OSError:
        pass
    os.close(parent)
    assert process.wait() == 0
    return text.decode().replace("\r", "").split("\n")
plain = subprocess.run([sys.argv[1], "formats", "--all"], capture_output=True, text=True).stdout
lines = shown("formats", "--all")
assert max(map(len, lines)) <= 80 and not any("..." in line for line in lines), lines
at = [lines[0].index(title) for title in ("name", "read by", "what it is")]
def cells(start): # the words of a row's cells, over all its lines
    rows, wide = {}, at + [None]
    for line in lines[1:lines.index("")]:
        name = line[:at[1]].strip() or name
        for i in 1, 2:
            rows.setdefault((name, i), []).extend(line[wide[i]:wide[i + 1]].split())
    return rows
folded = cells(at)
wide = [plain.index("read by"), plain.index("what it is")]
for line in plain.split("\n\n")[0].splitlines()[1:]:
    name = line.split()[0]
    assert folded[name, 1] == line[wide[0]:wide[1]].split(), name
    assert folded[name, 2] == line[wide[1]:].split(), name
PYTHON
checked=$((checked + 1))

"$program" formats mxfp7 >out 2>err
status=$?
[[ $status == 2 && ! -s out ]] || fail "an unknown format: status $status, $(cat out)"
[[ $(cat err) == "tilepack formats: there is no format 'mxfp7'
  hint: 'tilepack formats' lists them" ]] || fail "message: $(cat err)"
"$program" formats nvfp4-tc >out 2>err
[[ $(head -1 err) == *"'nvfp4-tc' (did you mean 'nvfp4-ct'?)" ]] || fail "nearest: $(cat err)"

# docs/formats.md is made from what the program says.
"${PYTHON:-python3}" "$root/scripts/formats_md.py" "$program" --check "$root/docs/formats.md" ||
    fail 'docs/formats.md is another; run: python3 scripts/formats_md.py PROGRAM > docs/formats.md'

# docs/serving.md has every format that stock engines do not load: in the table of those that are
# served, as the plugin's own table says, or in that of those without a path.
"${PYTHON:-python3}" - "$root" <<'PYTHON' || fail 'docs/serving.md or the engine say other than the plugin'
import glob, json, re, sys
root = sys.argv[1]
sys.path.insert(0, f"{root}/python")
from tilepack_llm.vllm.support import SUPPORTED
ready = set()
rows_gpus = {} # {format: compute capabilities of it}
rows_take = {} # {format: what the plugin's engine takes of it}
for path in glob.glob(f"{root}/formats/*.json"):
    with open(path) as f:
        fmt = json.load(f)
    if not fmt.get("config") and not fmt.get("input_only"):
        ready.add(fmt["name"])
with open(f"{root}/engines/vllm-tilepack.json") as f:
    for row in json.load(f)["reads"]:
        for name in row["formats"]:
            was = rows_take.get(name, (False, False))
            rows_take[name] = tuple(a or b in row["takes"] for a, b in zip(was, ("linear", "experts")))
            rows_gpus.setdefault(name, set()).update(
                sm for gpu in row["gpus"] for sm in (80, 86, 89, 90, 100, 103, 120, 121)
                if sm == int(gpu[2:].rstrip("+")) or (gpu.endswith("+") and sm > int(gpu[2:-1])))
def rows(text, names_at): # {format: the cells behind its own}
    cells = [line.split("|")[1:-1] for line in text.splitlines() if line.startswith("| ")]
    return {name: [cell.strip() for cell in row[names_at + 1:]]
            for row in cells[1:] for name in re.findall("`([a-z0-9-]+)`", row[names_at])}
page = open(f"{root}/docs/serving.md").read()
served, without = page.split("\n### Formats without a path\n")
without = rows(without.split("\n### ")[0], 0)
served = rows(served.split("\n| GPU | format |")[1].join(["| GPU | format |", ""]), 1)
yes = {name: tuple(cell.startswith("yes") for cell in cells[:2]) for name, cells in served.items()}
assert {name: said for name, said in yes.items() if any(said)} == {
    name: (support.linear, support.experts) for name, support in SUPPORTED.items()}, yes
assert rows_take == {name: said for name, said in yes.items() if any(said)}, rows_take
for name, support in SUPPORTED.items():
    assert rows_gpus[name] == {sm for sm in (80, 86, 89, 90, 100, 103, 120, 121)
                               if support.first <= sm <= support.last}, name
assert not set(without) & set(served), set(without) & set(served)
assert not ready - set(served) - set(without), ready - set(served) - set(without)
assert set(served) <= ready and len(ready) > 30, set(served) - ready
PYTHON
checked=$((checked + 1))

((failed)) || echo "formats: $((checked + 1)) command lines right"
exit "$failed"
