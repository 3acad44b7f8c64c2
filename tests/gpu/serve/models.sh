#!/bin/sh
# Makes the checkpoints that plan.py names: models.sh OUT KIND...
#
# Environment: TILEPACK; GGUF, the file of SmolLM2; PYTHON, with torch, transformers and gguf; DEVICE for
# `convert` (auto). Each kind is made by itself, so that several run side by side; a line says how long each
# step took.
set -u
here=$(cd "$(dirname "$0")" && pwd)
out=$1
shift
tilepack=${TILEPACK:-tilepack} python=${PYTHON:-python3} device=${DEVICE:-auto}
failed=0

step() {
    begin=$(date +%s.%N)
    "$@" || { failed=1; echo "FAIL: $*"; }
    echo "$(awk -v a="$begin" -v b="$(date +%s.%N)" 'BEGIN { printf "%.1f s", b - a }'): $*" | cut -c1-150
}
convert() { # source, result, arguments ...
    source=$1 made=$2
    shift 2
    step "$tilepack" convert "$out/$source" -o "$out/$made" --device "$device" --search none --quiet "$@"
}
mixed() { # source, result, formats of experts and of linear layers, more words of each rule, of the second
    printf '{"rules": [{"match": "experts", "to": "%s"%s}, {"match": "_proj", "to": "%s"%s}]}\n' \
        "$3" "${5-}" "$4" "${5-}${6-}" >"$out/$2.recipe"
    step "$tilepack" convert "$out/$1" -o "$out/$2" --device "$device" --quiet --recipe "$out/$2.recipe"
}
one_layer() { step "$python" "$here/models.py" make "$1" "$out/$1-one"; }
real() { step "$python" "$here/models.py" smollm2 "$GGUF" "$out/$1" "${2:-0}"; }
# Stock vLLM rounds the scales of W4A8 by division where it runs eagerly, and as a GPU does where it compiles.
w4a8() { # kind
    convert "$1-w4a8-ct" "$1-w4a8-cutlass" --to w4a8-cutlass --set scale=div
    convert "$1-w4a8-ct" "$1-w4a8-cutlass-gpu" --to w4a8-cutlass
}
others='mxfp8-ct nvfp4-ct fp8-deepseek'
to_marlin() { # kind
    convert "$1" "$1-w8a16-ct" --to w8a16-ct --set group=128
    for format in w8a16 mxfp8 nvfp4; do
        convert "$1-$format-ct" "$1-$format-marlin" --to "$format-marlin"
    done
    convert "$1-fp8-deepseek" "$1-fp8-marlin" --to fp8-marlin
}
signed=', "search": "mse", "importance": "magnitude", "signed": true'

# Large: one layer is converted to what stock vLLM reads, and stands for all.
large() {
    one_layer "$1"
    convert "$1-one" "$1-one-ct" --to w4a8-ct
    step "$python" "$here/models.py" grow "$out/$1-one-ct" "$out/$1-w4a8-ct"
    rm -rf "${out:?}/$1-one" "${out:?}/$1-one-ct"
    w4a8 "$1"
}
small() {
    real small
    for format in w4a8-ct w4a16-ct mxfp4-ct fp8-dynamic-ct $others; do
        convert small "small-$format" --to "$format"
    done
    for bits in 4 8; do
        convert small small-w${bits}a16-ct-channel --to w${bits}a16-ct --set group=channel
        convert small-w${bits}a16-ct-channel small-w${bits}a16-marlin-channel --to w${bits}a16-marlin-channel
    done
    to_marlin small
    convert small-w8a16-ct small-w8a16-machete --to w8a16-machete
    w4a8 small
    convert small-w4a16-ct small-w4a16-machete --to w4a16-machete
    convert small-w4a16-ct small-w4a16-marlin --to w4a16-marlin
    convert small-mxfp4-ct small-mxfp4-marlin --to mxfp4-marlin
    convert small-fp8-dynamic-ct small-fp8-marlin-channel --to fp8-marlin-channel
    for format in w4a16-ct gptq awq w4a8-ct w4a16-machete w4a16-marlin w4a8-cutlass; do
        step "$tilepack" convert "$out/small" -o "$out/signed-$format" --device "$device" --quiet \
            --to $format --search mse --importance magnitude --signed
    done
    convert signed-w4a8-ct signed-w4a8-ct-packed --to w4a8-cutlass --set scale=div
}
few() {
    real few 8
    for format in w4a8-ct w4a16-ct mxfp4-ct fp8-dynamic-ct $others; do
        convert few "few-$format" --to "$format"
    done
    w4a8 few
    to_marlin few
    convert few-w4a16-ct few-w4a16-marlin --to w4a16-marlin
    convert few-fp8-dynamic-ct few-fp8-marlin-channel --to fp8-marlin-channel
    convert few-mxfp4-ct few-mxfp4-marlin --to mxfp4-marlin
    mixed few-w4a16-ct few-w4a16-humming w4a16-humming w4a16-machete
    mixed few-mxfp4-ct few-mxfp4-humming mxfp4-humming mxfp4-marlin
    mixed few-w4a8-ct few-w4a8-humming w4a8-humming w4a8-cutlass '' ', "set": {"scale": "div"}'
    for format in w4a8-cutlass w4a16-marlin; do
        mixed few "signed-few-$format" $format $format "$signed"
    done
    mixed few signed-few-w4a16-humming w4a16-humming w4a16-machete "$signed"
    mixed few signed-few-w4a8-humming w4a8-humming w4a8-cutlass "$signed"
}

for kind; do
    case $kind in
    mixture | dense) large "$kind" ;;
    small) small ;;
    few) few ;;
    *) echo "there is no kind '$kind'" && exit 2 ;;
    esac
done
exit $failed
