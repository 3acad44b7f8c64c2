#!/bin/sh
# All ranks of a conversion at once: `dump`, in JSON too, and `verify --against` its source.
set -u
# shellcheck source=tests/lib/preamble.sh
. "$(dirname "$0")/../lib/preamble.sh"
convert() { # output, options ...
    to=$1
    shift
    "$TILEPACK" convert "$work/model" -o "$work/$to" -j 2 --device cpu -q "$@" || exit 1
}
lists_each() { # options of dump ...: a list of what each rank gives
    "$TILEPACK" dump "$work/cut" "$@" --json >"$work/all.json" || return 1
    for rank in 0 1; do
        "$TILEPACK" dump "$work/cut/rank_$rank" "$@" --json >"$work/$rank.json" || return 1
    done
    "$PYTHON" -c 'import json, sys
every, *each = [json.load(open(path)) for path in sys.argv[1:]]
assert every == {"version": 1, "ranks": each}' "$work/all.json" "$work/0.json" "$work/1.json"
}
against() { "$TILEPACK" verify "$work/cut" --against "$@"; }

"$PYTHON" "$TESTS/../samples/gen_checkpoint.py" "$work/model" --preset tiny-llama --quiet \
    >/dev/null || exit 1
"$PYTHON" "$TESTS/../samples/gen_checkpoint.py" "$work/other" --layers 3 --hidden 512 \
    --inter 512 --heads 4 --kv-heads 4 --head-dim 128 --vocab 64 --quiet >/dev/null || exit 1
convert cut --to mxfp8-ct --tp 2
weight=model.layers.1.self_attn.q_proj.weight

check "dump: the tables" lists_each
check "one tensor" lists_each $weight
check "one element" lists_each $weight --at 5,64
check "one byte" lists_each $weight --offset 1000
check "values" lists_each $weight --values :2,3:5
fails "what no rank has" 2 "outside of the box" "$TILEPACK" dump "$work/cut" $weight --at 200,0 --json
cp "$work/out" "$work/all.json"
check "is an error in their list" "$PYTHON" -c 'import json, sys
[rank] = json.load(open(sys.argv[1]))["ranks"]
assert rank["error"]["code"] == 2' "$work/all.json"
for rank in 0 1; do
    mv "$work/cut/rank_$rank" "$work/gone"
    fails "dump without rank $rank" 5 "rank_$rank" "$TILEPACK" dump "$work/cut"
    answers "verify --against without it" 1 "rank $rank of 2 is missing" against "$work/model"
    mv "$work/gone" "$work/cut/rank_$rank"
done

for name in rank_2 rank_01; do
    cp -r "$work/cut/rank_0" "$work/cut/$name"
    answers "a directory $name" 1 "$name: is not of the conversion" "$TILEPACK" verify "$work/cut"
    rm -r "$work/cut/$name"
done

answers "verify --against: every rank" 0 "14 weights derived again, 14 tensors compared" \
    against "$work/model"
check "in JSON each weight is listed once" sh -c "
    '$TILEPACK' verify '$work/cut' --against '$work/model' --json | '$PYTHON' -c 'import json, sys
report = json.load(sys.stdin)
names = [weight[\"name\"] for weight in report[\"weights\"]]
assert report[\"ok\"] and len(names) == len(set(names)) == 14, report'"
answers "the source of others" 3 "another model" against "$work/other"
answers "no source" 5 "nowhere" against "$work/nowhere"
answers "what takes no ranks together says what does" 3 "put them together with 'tilepack join'" \
    "$TILEPACK" diff "$work/cut" "$work/model"

fails "a picture of all" 2 "a picture shows one rank" "$TILEPACK" dump "$work/cut" $weight \
    --svg "$work/x.svg"
check "is none" test ! -e "$work/x.svg"

# A rank that cannot be read.
cp "$work/cut/rank_1/model.safetensors" "$work/whole"
truncate -s -1 "$work/cut/rank_1/model.safetensors"
answers "a shard that was cut off is named" 1 "rank_1/model.safetensors: " \
    "$TILEPACK" verify "$work/cut"
check "once" test "$(grep -c "behind the header" "$work/out")" = 1
mv "$work/whole" "$work/cut/rank_1/model.safetensors"

# A changed value of the source: the slice of one rank is another.
cp -r "$work/model" "$work/changed"
"$PYTHON" - "$work/changed" "$weight" <<'EOF' || exit 1
import json, sys
folder, name = sys.argv[1:]
file = folder + "/" + json.load(open(folder + "/model.safetensors.index.json"))["weight_map"][name]
data = bytearray(open(file, "rb").read())
size = int.from_bytes(data[:8], "little")
begin, end = json.loads(data[8:8 + size])[name]["data_offsets"]
data[8 + size + end - 2:8 + size + end] = b"\x80\x3f"
open(file, "wb").write(data)
EOF
answers "is a difference" 1 "rank_1/model.safetensors: tensor '$weight'" against "$work/changed"
against "$work/changed" >"$work/said"
check "of one rank" sh -c "! grep -q rank_0/ '$work/said'"
check "and one weight" test "$(grep -c ' differ$' "$work/said")" = 1

# Ranks of two conversions: each is right by itself.
convert nvfp4 --to nvfp4-ct --tp 2
rm -r "$work/cut/rank_1"
cp -r "$work/nvfp4/rank_1" "$work/cut"
answers "ranks of two conversions" 1 "rank_1: is of another conversion" against "$work/model"
finish
