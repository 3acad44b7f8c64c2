#!/bin/sh
# Makes the checkpoints that plan.py names: models.sh OUT KIND...
#
# Environment: TILEPACK; PYTHON, with torch; DEVICE for `convert` (auto). Each kind is made by itself,
# so that several run side by side; a line says how long each step took.
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
one_layer() { step "$python" "$here/models.py" make "$1" "$out/$1-one"; }

# Large: one layer is converted to what stock vLLM reads, and stands for all.
large() {
    one_layer "$1"
    convert "$1-one" "$1-one-ct" --to w4a8-ct
    step "$python" "$here/models.py" grow "$out/$1-one-ct" "$out/$1-w4a8-ct"
    rm -rf "${out:?}/$1-one" "${out:?}/$1-one-ct"
    convert "$1-w4a8-ct" "$1-w4a8-cutlass" --to w4a8-cutlass --set scale=div
}
small() {
    one_layer "$1"
    step "$python" "$here/models.py" grow "$out/$1-one" "$out/$1"
    convert "$1" "$1-w4a8-ct" --to w4a8-ct
    convert "$1-w4a8-ct" "$1-w4a8-cutlass" --to w4a8-cutlass --set scale=div
}

for kind; do
    case $kind in
    mixture | dense) large "$kind" ;;
    few) small few ;;
    small)
        small small
        convert small-w4a8-ct small-w4a8-cutlass-gpu --to w4a8-cutlass
        for format in w4a16-ct mxfp4-ct fp8-dynamic-ct; do
            convert small "small-$format" --to $format
        done
        convert small-w4a16-ct small-w4a16-machete --to w4a16-machete
        convert small-w4a16-ct small-w4a16-marlin --to w4a16-marlin
        convert small-mxfp4-ct small-mxfp4-marlin --to mxfp4-marlin
        convert small-fp8-dynamic-ct small-fp8-marlin --to fp8-marlin-channel
        for format in w4a16-ct w4a16-machete w4a16-marlin w4a8-cutlass; do
            convert small-one "signed-$format" --to $format --search mse --signed
        done
        ;;
    *) echo "there is no kind '$kind'" && exit 2 ;;
    esac
done
exit $failed
