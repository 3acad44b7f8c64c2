#!/bin/sh
# Patterns of strangers and of users: hostile ones end at once and small, with their place,
# by whatever way they come in; a match that costs too much is an error, never "no match";
# globs; and the meaning of Python's `re`, for thousands of pairs (patterns_pairs.py).
set -u
# shellcheck source=tests/lib/preamble.sh
. "$(dirname "$0")/../lib/preamble.sh"
build=${BUILD:-$TESTS/../build}

cat >"$work/make.py" <<'EOF'
# make.py FOLDER ENTRY NAME ...: a checkpoint of these weights, whose config ignores the entry.
import json, os, struct, sys
folder, entry, names = sys.argv[1], sys.argv[2], sys.argv[3:]
os.makedirs(folder)
header = {n + ".weight": {"dtype": "BF16", "shape": [16, 256],
                          "data_offsets": [i * 8192, i * 8192 + 8192]} for i, n in enumerate(names)}
text = json.dumps(header).encode()
with open(folder + "/model.safetensors", "wb") as f:
    f.write(struct.pack("<Q", len(text)) + text + bytes(8192 * len(names)))
with open(folder + "/config.json", "w") as f:
    json.dump({"quantization_config": {"ignore": ["x", entry]}}, f)
EOF
source_of() { "$PYTHON" "$work/make.py" "$work/$1" "$2" l.0.up_proj l.0.o_proj "l.$long"; }

cat >"$work/bounded.py" <<'EOF'
# bounded.py STATUS TEXT COMMAND ...: ends so and says so, within a second and 64 MiB.
import os, resource, subprocess, sys
status, text, command = int(sys.argv[1]), sys.argv[2], sys.argv[3:]
done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=100)
used = resource.getrusage(resource.RUSAGE_CHILDREN)
seconds, size = used.ru_utime + used.ru_stime, used.ru_maxrss / 1024
print(done.stdout.decode(errors="replace")[-2000:])
print(f"status {done.returncode}, {seconds:.2f} s, {size:.0f} MiB; expected {status} and: {text}")
sanitized = os.environ.get("BUILD", "").endswith(("/asan", "/tsan"))
small = sanitized or (seconds < 1 and size < 64)
sys.exit(not (done.returncode == status and text.encode() in done.stdout and small))
EOF
bounded() { # name, status, text, command ...
    title=$1
    shift
    check "$title" "$PYTHON" "$work/bounded.py" "$@"
}

long=$(printf 'a%.0s' $(seq 1 100))y
parens=$(printf '(%.0s' $(seq 1 20000))
source_of plain x
"$TILEPACK" convert "$work/plain" -o "$work/packed" --to mxfp8-ct -q || bad "convert"

# In config.json: the place, and the reason.
n=0
hostile() { # reason, entry behind "re:"
    n=$((n + 1))
    source_of "hostile$n" "re:$2"
    bounded "config.json: $1" 3 "$1" "$TILEPACK" plan "$work/hostile$n" --to mxfp8-ct
    bounded "the place of: $1" 3 "quantization_config: \"ignore\"[1]: '" \
        "$TILEPACK" convert "$work/hostile$n" -o "$work/made" --to mxfp8-ct
}
hostile 'it is longer than 4096 bytes, at offset 4096' "$parens"
hostile 'parentheses are too deeply nested, at offset 51' "$(echo "$parens" | cut -c 1-3000)"
hostile 'quantifier does not follow a repeatable item' '(.*){200}{200}{200}'
hostile 'quantifier does not follow a repeatable item' 'a{200}{200}{200}{50}'
hostile 'too large' '((((a{200}){200}){200}){50})'
hostile 'too large' '(((.*){200}){200}){200}'
hostile 'it takes more than 125000 steps for this name' 'l.(a+a+)+[yz]y{2}'
hostile 'steps for this name' '.*(a+a+)+[yz]y{2}'
check "nothing is written" test ! -e "$work/made"

# Entries that are no expressions are never too much: long names, long entries, many '.' and '*'.
cat >"$work/long.py" <<'EOF'
import os, subprocess, sys
make, work = sys.argv[1:]
for folder, entry, name in (
        ("dots", "a." * 20000 + "b", "a." * 20000 + "q_proj"),
        ("stars", "*" + "a" * 50000 + "b", "a" * 100000 + ".q_proj"),
        ("pieces", "*a*" + "aa*" * 20000 + "b", "a" * 100000 + ".q_proj")):
    subprocess.run([sys.executable, make, os.path.join(work, folder), entry, name], check=True)
EOF
"$PYTHON" "$work/long.py" "$work/make.py" "$work"
for folder in dots stars pieces; do
    bounded "a long name and a long entry: $folder" 4 "at most 2047 are read" "$TILEPACK" plan "$work/$folder" \
        --to mxfp8-ct
done

# By the options, by a recipe, and by the request that a packed file records.
for option in --include --exclude; do
    bounded "$option: nesting" 2 "at offset 51" "$TILEPACK" plan "$work/plain" --to mxfp8-ct \
        "$option" "$(echo "$parens" | cut -c 1-3000)"
    bounded "$option: length" 2 "longer than 4096 bytes" "$TILEPACK" plan "$work/plain" \
        --to mxfp8-ct "$option=$parens"
    bounded "$option: steps" 2 "steps for this name" "$TILEPACK" plan "$work/plain" \
        --to mxfp8-ct "$option" '(a+a+)+[yz]y{2}'
done
printf '{"rules": [{"match": "%s", "to": "mxfp8-ct"}]}' "$parens" >"$work/r.json"
bounded "a recipe" 2 "r.json: rule 1: pattern '(((" "$TILEPACK" plan "$work/plain" \
    --recipe "$work/r.json"
echo '{"rules": [{"match": "(a+a+)+[yz]y{2}", "to": "mxfp8-ct"}]}' >"$work/r.json"
bounded "a recipe: steps" 2 "steps for this name" "$TILEPACK" plan "$work/plain" \
    --recipe "$work/r.json"
cat >"$work/change.py" <<'EOF'
# change.py FROM TO KEY PATTERN: puts the pattern into the recorded request.
import json, struct, sys
source, target, key, pattern = sys.argv[1:]
data = open(source, "rb").read()
size = struct.unpack("<Q", data[:8])[0]
header = json.loads(data[8:8 + size])
request = json.loads(header["__metadata__"]["tilepack.request"])
if key == "rules":
    request["rules"][0]["match"] = pattern
else:
    request[key] = [pattern]
header["__metadata__"]["tilepack.request"] = json.dumps(request)
text = json.dumps(header).encode()
text += b" " * (-len(text) % 8)
open(target, "wb").write(struct.pack("<Q", len(text)) + text + data[8 + size:])
EOF
"$TILEPACK" convert "$work/plain/model.safetensors" -o "$work/packed.safetensors" --to mxfp8-ct \
    --include l -q || bad "convert"
for key in include exclude rules; do
    "$PYTHON" "$work/change.py" "$work/packed.safetensors" "$work/changed.safetensors" "$key" \
        "$(echo "$parens" | cut -c 1-3000)"
    bounded "the recorded request: $key" 3 \
        "changed.safetensors: the recorded request: \"$key\"[0]: '((((" \
        "$TILEPACK" verify "$work/changed.safetensors" --against "$work/plain/model.safetensors"
done
"$PYTHON" "$work/change.py" "$work/packed.safetensors" "$work/changed.safetensors" exclude \
    '(a+a+)+[yz]y{2}'
bounded "the recorded request: steps" 3 "steps for this name" \
    "$TILEPACK" verify "$work/changed.safetensors" --against "$work/plain/model.safetensors"

# Lists mean what Python's re.match() makes of them; --include is searched for.
units() { # arguments of plan
    "$TILEPACK" plan "$@" --to mxfp8-ct --json |
        "$PYTHON" -c 'import json, sys; print(*[u["name"] for u in json.load(sys.stdin)["units"]])'
}
same() { # name, expected, arguments of plan ...
    title=$1 expected=$2
    shift 2
    check "$title" test "$(units "$@")" = "$expected"
}
source_of ahead 're:(?!.*up_proj)'
same "a look-ahead in ignore" l.0.up_proj "$work/ahead"
source_of start 're:up_proj|l\.\d\.o_.*j$'
same "re.match begins with the name" "l.0.up_proj l.$long" "$work/start"
same "--include is found anywhere" l.0.up_proj "$work/plain" --include 'up_|x'
same "--exclude with a POSIX class" "l.$long" "$work/plain" --exclude 'l\.[[:digit:]]\.'
same "--include glob:" l.0.up_proj "$work/plain" --include 'glob:*.up_proj.weight'
same "--exclude glob:" l.0.up_proj "$work/plain" --exclude 'glob:l.[0-9].o_*' --exclude 'glob:l.a*'
echo '{"rules": [{"match": "glob:l.?.o_*", "to": "mxfp8-ct"}]}' >"$work/r.json"
"$TILEPACK" plan "$work/plain" --recipe "$work/r.json" --json >"$work/plan.json"
check "a glob in a recipe" grep -q '"name": "l.0.o_proj"' "$work/plan.json"
bounded "a glob without glob:" 2 "not a glob; use 'glob:*.up_proj.weight'" \
    "$TILEPACK" plan "$work/plain" --to mxfp8-ct --include '*.up_proj.weight'

# Many of them count against --max-memory: never is more taken than was allowed.
cat >"$work/many.py" <<'EOF'
# many.py FOLDER RECIPE: a config that ignores 200,000 modules, a recipe of 30,000 rules.
import json, sys
with open(sys.argv[1] + "/config.json", "w") as f:
    json.dump({"ignore": ["layers.%d" % i for i in range(200000)]}, f)
rules = [{"match": "layers.%d" % i, "keep": True, "optional": True} for i in range(30000)]
with open(sys.argv[2], "w") as f:
    json.dump({"rules": rules + [{"match": ".", "to": "mxfp8-ct"}]}, f)
EOF
limited() { # name, MiB that are enough, option of plan ...
    many=$1
    most=$2
    shift 2
    fails "$many do not fit" 6 "more memory is needed: --max-memory" "$PYTHON" \
        "$work/within.py" 32 "$TILEPACK" plan "$@" --max-memory 32MiB
    check "$many fit into $most MiB" "$PYTHON" "$work/within.py" "$most" \
        "$TILEPACK" plan "$@" --max-memory "${most}MiB"
}
cat >"$work/within.py" <<'EOF'
# within.py MIB COMMAND ...: the status of the command; 99 if it took more memory.
import resource, subprocess, sys
status = subprocess.run(sys.argv[2:]).returncode
used = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss >> 10
sys.exit(status if used <= int(sys.argv[1]) else 99)
EOF
cp -r "$work/plain" "$work/many"
"$PYTHON" "$work/many.py" "$work/many" "$work/rules.json"
case ${BUILD:-} in
    */asan | */tsan) ;; # what a sanitizer takes counts as the program's memory
    *)
        limited "the rules of a recipe" 64 "$work/plain" --recipe "$work/rules.json"
        limited "the entries of a config" 64 "$work/many" --to mxfp8-ct
        ;;
esac

# Python's re agrees.
"$PYTHON" "$TESTS/cli/patterns_pairs.py" "$build/unit/test_pattern" >"$work/log" 2>&1
line=$(tail -n 1 "$work/log")
good=$(echo "$line" | sed -n 's/^\([0-9]*\) passed, [0-9]* failed$/\1/p')
wrong=$(echo "$line" | sed -n 's/^[0-9]* passed, \([0-9]*\) failed$/\1/p')
[ "${wrong:-1}" -eq 0 ] || grep -v '^ok ' "$work/log"
passed=$((passed + ${good:-0}))
failed=$((failed + ${wrong:-1}))

finish
