#!/bin/sh
# The image of samples/Containerfile, which samples/kubernetes names: buildah builds it, with
# chroot isolation and without a registry, on a bare system in the place of the image that it
# begins with; it runs as its user and converts in a volume to the bytes of the program here.
set -u
# shellcheck source=tests/lib/preamble.sh
. "${TESTS:-$(cd "$(dirname "$0")/.." && pwd)}/lib/preamble.sh"
root=$(dirname "$TESTS")
BUILD=${BUILD:-$root/build}
# shellcheck source=tests/lib/bare.sh
. "$TESTS/lib/bare.sh"
skip() {
    ok "skipped: $*"
    finish
    exit
}
build() { buildah --root "$work/store" --runroot "$work/run" --log-level error "$@"; }

base=$(sed -n 's/^FROM \([^ ]*\)$/\1/p' "$root/samples/Containerfile")
command -v buildah >/dev/null || skip 'buildah is not installed'
[ "$base" = "debian:$bare_release-slim" ] || skip "the image begins with $base, and this is no such"
bare_root "$work/bare" || skip 'there is no bare system'
stand_in() {
    empty=$(build from scratch) && build add --quiet "$empty" "$work/bare" / >/dev/null &&
        build commit --quiet --rm "$empty" "$base" >/dev/null
}
stand_in || skip 'buildah makes no image here'

# Compiled fast, without warnings: what is looked at is the image.
check 'the image is built' build bud --isolation chroot --pull-never --build-arg CFLAGS='-O1 -w' \
    -f "$root/samples/Containerfile" -t tilepack:latest "$root"
for file in "$root"/samples/kubernetes/*.yaml; do
    check "${file##*/} names it" grep -q 'image: tilepack:latest' "$file"
done
answers 'it runs tilepack as a user of its own' 0 '[tilepack] tilepack' build inspect \
    --type image --format '{{.OCIv1.Config.Entrypoint}} {{.OCIv1.Config.User}}' tilepack:latest

mkdir "$work/volume"
"$PYTHON" "$root/samples/gen_checkpoint.py" "$work/volume/tiny" --preset tiny-llama --quiet ||
    exit 1
chown -R 10001 "$work/volume"
made=$(build from --pull-never tilepack:latest)
inside() { build run --isolation chroot --volume "$work/volume:/data" "$made" -- "$@"; }
answers 'who runs in it is uid 10001' 0 10001 inside id -u
check 'it converts' inside tilepack convert /data/tiny -o /data/made --to w4a8-cutlass --quiet
"$TILEPACK" convert "$work/volume/tiny" -o "$work/made" --to w4a8-cutlass --quiet
check 'to the bytes of the program here' diff -r "$work/made" "$work/volume/made"
fails 'the source is not in it' 1 '' inside test -e /src
build rm --all >/dev/null
build rmi --all --force >/dev/null
finish
