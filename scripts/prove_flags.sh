#!/bin/sh
# prove_flags.sh NAME
#
# What to compile for one schedule of W4A8 of `tilepack prove`: prints its source and the definitions
# that make it that one. NAME is what `tilepack schedule` and the plug-in call it:
#   Kernel_128x16_2x1x1_Coop   W4A8, grouped: rows of W x rows of X, cluster
#   128x16_1x1x1               W4A8, dense
set -eu

name=$1
numbers() { echo "$name" | sed 's/^Kernel_//; s/[^0-9]/ /g'; }
define() {
    echo "$@" "-DNAME='\"$name\"'" "-DROW=tilepack_prove_$name"
}

# shellcheck disable=SC2046 # three or four numbers
set -- $(numbers)
case $name in
Kernel_*x*_?x1x1_Coop)
    define plugin/prove_w4a8.cu -DGROUPED=1 "-DTILE_N=$1 -DTILE_M=$2 -DCLUSTER=$3" ;;
*x*_?x1x1) define plugin/prove_w4a8.cu -DGROUPED=0 "-DTILE_N=$1 -DTILE_M=$2 -DCLUSTER=$3" ;;
*)
    echo "prove_flags.sh: '$name' is no schedule" >&2
    exit 2
    ;;
esac
