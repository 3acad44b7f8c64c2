# Sourced by the tests of `engines`, `models` and `quantizers`; needs preamble.sh and $root.
# shellcheck shell=sh disable=SC2154

# `tilepack COMMAND` lists every file of its folder, in order, shows each, prints them as they are, and
# refuses other names.
shows_files() { # command, what one is called
    for file in "$root/$1"/*.json; do basename "$file" .json; done | LC_ALL=C sort >"$work/files"
    "$TILEPACK" "$1" | sed '1d; /^$/,$d; s/ .*//' >"$work/listed"
    check 'the list has every file' cmp "$work/files" "$work/listed"
    while read -r name; do
        "$TILEPACK" "$1" "$name" >"$work/text" || bad "$1 $name"
        grep -q "^$name: " "$work/text" || bad "$name is shown otherwise"
    done <"$work/files"
    "$TILEPACK" "$1" --json >"$work/all.json"
    check 'their JSON is their files' "$PYTHON" -c '
import glob, json, sys
there = json.load(open(sys.argv[1]))[sys.argv[3]]
files = [json.load(open(path)) for path in sorted(glob.glob(f"{sys.argv[2]}/{sys.argv[3]}/*.json"))]
sys.exit(there != sorted(files, key=lambda one: one["name"]))' "$work/all.json" "$root" "$1"
    fails 'an unknown name' 2 "there is no $2 'nobody'" "$TILEPACK" "$1" nobody
}
