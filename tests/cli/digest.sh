#!/bin/sh
# SHA-256: `convert --digest sha256` and `digest`, against Python's hashlib (lib/digests.py);
# what `verify` finds by it; parts, archives; and that a line can be signed.
set -u
# shellcheck source=tests/lib/preamble.sh
. "${TESTS:-$(cd "$(dirname "$0")/.." && pwd)}/lib/preamble.sh"
root=$(dirname "$TESTS")
cd "$work" || exit 1
"$PYTHON" "$root/samples/gen_checkpoint.py" src --preset tiny-mixtral --quiet
echo '{"a": 1}' >src/config.json
echo 'a readme' >src/README.md
oracle() { "$PYTHON" "$TESTS/lib/digests.py" "$@"; }
convert() { "$TILEPACK" convert src --to w4a8-cutlass --quiet "$@"; }
none() { ! "$@"; }

# ---------------------------------------------------------------------- convert --
check 'convert' convert -o plain
check 'convert --digest sha256' convert -o packed --digest sha256
check 'every file has its SHA-256' oracle manifest packed
check 'without, there is none' none grep -q sha256 plain/tilepack.json
check 'shards are the same' cmp plain/model.safetensors packed/model.safetensors
answers 'verify compares them' 0 '; SHA-256 of 7 files compared; ' "$TILEPACK" verify packed
answers 'and says so in JSON' 0 '"digests": 7' "$TILEPACK" verify packed --json
"$TILEPACK" verify plain --json >plain.json
check 'but not where there are none' none grep digests plain.json
answers 'verify --against' 0 '; SHA-256 of 7 files compared; ' \
    "$TILEPACK" verify packed --against src
answers 'the same command again finds it done' 0 'is complete already' \
    "$TILEPACK" convert src --to w4a8-cutlass -o packed --digest sha256
fails 'an output without them is not what --digest asks for' 7 'made with other options' \
    convert -o plain --digest sha256
check 'and one with them is more than is asked for' convert -o packed
fails 'a single file has no manifest' 2 'a single file has no manifest to hold --digest' \
    convert -o one.safetensors --digest sha256
fails 'there is only one' 2 "'md5'" convert -o other --digest md5

# ------------------------------------------------------------- what verify finds --
# Another text with right XXH3 hashes everywhere: only SHA-256 tells.
cp -r packed forged
echo 'b readme' >forged/README.md
check 'README and its XXH3 are changed' oracle forge forged README.md
answers 'SHA-256 finds it' 1 'README.md: its SHA-256 is ' "$TILEPACK" verify forged --strict
answers 'and names it' 0 'README.md has changed' "$TILEPACK" verify forged
answers 'which is none of those that are equal' 0 '; SHA-256 of 6 files compared; ' \
    "$TILEPACK" verify forged
cp -r packed stripped
check 'one file loses its SHA-256' oracle strip stripped README.md
answers 'that is a difference' 1 'has no SHA-256 in the manifest, other files have' \
    "$TILEPACK" verify stripped
cp -r packed spoiled
check 'digits that are none' oracle spoil spoiled README.md
answers 'are an error of the manifest' 1 'is not 64 hexadecimal digits' "$TILEPACK" verify spoiled
cp -r packed gone
rm gone/README.md
answers 'a file that is gone' 1 'its SHA-256 cannot be checked' "$TILEPACK" verify gone

# -------------------------------------------------------------- parts, archives --
for part in 1/2 2/2; do
    check "part $part" convert -o parts --digest sha256 --shard-size 1MB --part "$part"
done
check 'whole' convert -o whole --digest sha256 --shard-size 1MB
check 'merge' "$TILEPACK" merge parts --quiet
check 'gives the manifest of one process' cmp parts/tilepack.json whole/tilepack.json
check 'with the digests' oracle manifest parts
convert -o mixed --digest sha256 --shard-size 1MB --part 1/2
convert -o mixed --shard-size 1MB --part 2/2
fails 'a part without them is of another plan' 3 'their options differ' "$TILEPACK" merge mixed
check '--zstd' convert -o zst --digest sha256 --zstd
check 'its archives are hashed as they lie there' oracle manifest zst
answers 'and verified' 0 '; SHA-256 of 7 files compared; ' "$TILEPACK" verify zst
# Bit 4 of byte 4 is of no meaning to zstd: the file inside is the same.
printf '\164' | dd of=zst/model.safetensors.zst bs=1 seek=4 conv=notrunc status=none
check 'the archive unpacks to the same bytes' \
    sh -c 'zstd -dc zst/*.zst | cmp - packed/*.safetensors'
answers 'and is not as it was written' 1 'SHA-256' "$TILEPACK" verify zst

# ----------------------------------------------------------------------- digest --
same() { test "$("$TILEPACK" digest "$1")" = "$(oracle path "$1")"; } # path
for path in packed packed/ plain src parts zst packed/tilepack.json src/README.md; do
    check "digest $path" same "$path"
done
check 'sha256sum says the same of a file' test "$("$TILEPACK" digest src/README.md)" = \
    "sha256:$(sha256sum <src/README.md | cut -d ' ' -f 1)"
list() {
    cd "$1" && find -L . -type f ! -path '*/.*' | sed 's:^\./::' | LC_ALL=C sort |
        tr '\n' '\0' | xargs -0 sha256sum -- | sha256sum | cut -d ' ' -f 1
}
check 'and of a directory, as the manual page has it' test "$("$TILEPACK" digest parts)" = \
    "sha256:$(list parts)"
check 'any number of jobs' test "$("$TILEPACK" digest parts -j 1)" = "$("$TILEPACK" digest parts -j 7)"
cp -r packed dashed
echo >dashed/-c.txt
check 'of names like options, too' test "$("$TILEPACK" digest dashed)" = "sha256:$(list dashed)"
"$TILEPACK" digest packed >packed.digest
cp -r packed copy
echo >copy/.hidden
check 'hidden files do not count' test "$("$TILEPACK" digest copy)" = "$(cat packed.digest)"
echo >copy/more.txt
check 'all others do' test "$("$TILEPACK" digest copy)" != "$(cat packed.digest)"
answers 'JSON' 0 "\"sha256\": \"$(cut -d : -f 2 packed.digest)\"" \
    "$TILEPACK" digest packed --json
mkdir empty loop
fails 'no file' 3 'there is no file in it' "$TILEPACK" digest empty
fails 'a file of size 0 that cannot be read' 5 'Input/output error' \
    "$TILEPACK" digest /proc/self/mem
fails 'one that holds more than its size' 3 'it holds more than the 0 bytes' \
    "$TILEPACK" digest /proc/self/status
fails 'no such path' 5 'No such file' "$TILEPACK" digest nothing
ln -s . loop/again
fails 'a link into itself' 3 'folders are deeper than 16' "$TILEPACK" digest loop
# A tree of links: few entries, 10^13 files. Long names reach the limit the sooner.
long=$(printf '%0230d' 0)
mkdir -p bomb/.hidden/14
echo >bomb/.hidden/14/f
for i in 13 12 11 10 9 8 7 6 5 4 3 2 1 0; do
    mkdir bomb/.hidden/$i
    for j in 0 1 2 3 4 5 6 7 8 9; do ln -s ../$((i + 1)) "bomb/.hidden/$i/$j$long"; done
done
ln -s .hidden/14 bomb/a
check 'hidden folders do not count' same bomb
ln -s .hidden/13 bomb/b
check 'links to folders do' same bomb
ln -s .hidden/0 bomb/c
fails 'and are not followed without end' 3 'the list of all files is longer than 256 MiB' \
    timeout -s KILL 60 "$TILEPACK" digest bomb
touch 'empty/a
b'
fails 'a name with a newline' 3 'an end of line or a backslash' "$TILEPACK" digest empty
rm empty/*
touch "empty/a$(printf '\r')b" # some versions of sha256sum escape it
fails 'one with a carriage return' 3 'an end of line or a backslash' "$TILEPACK" digest empty
rm -rf empty/*
echo x >empty/-
fails 'one that is the standard input' 3 "named '-'" "$TILEPACK" digest empty
mkdir empty/sub
mv empty/- empty/sub/
answers 'and not so in a folder' 0 '' "$TILEPACK" digest empty
rm -r empty/*
mkfifo empty/pipe
fails 'a pipe' 3 'pipe' "$TILEPACK" digest empty

if command -v ssh-keygen >/dev/null; then
    ssh-keygen -q -t ed25519 -N '' -f key -C me
    printf 'me %s\n' "$(cut -d ' ' -f 1,2 key.pub)" >signers
    check 'the line is signed' ssh-keygen -Y sign -f key -n tilepack packed.digest
    proven() {
        ssh-keygen -Y verify -f signers -I me -n tilepack -s packed.digest.sig <packed.digest &&
            "$TILEPACK" digest "$1" | cmp - packed.digest
    }
    check 'signature and line are checked' proven packed
    check 'and are not those of another directory' none proven copy
else
    echo 'digest: skipped, there is no ssh-keygen'
fi
finish
