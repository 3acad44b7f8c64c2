#!/bin/sh
# submit.sh PARTS SRC DST FORMAT [options of `tilepack convert`]
#
# Submits a conversion in PARTS parts and, after all of them have succeeded, its
# merge; prints the numbers of the two jobs. Run it again if a part has failed for
# good: what was finished is not done twice. SBATCH_OPTIONS goes to both sbatch calls
# (account, partition, ...). Options with blanks in them are better written into
# convert.sbatch.
set -eu

if [ $# -lt 4 ]; then
    echo "usage: $0 PARTS SRC DST FORMAT [options]" >&2
    exit 2
fi
parts=$1
SRC=$(realpath "$2")
DST=$(realpath -m "$3")
FORMAT=$4
shift 4
OPTIONS=$*
export SRC DST FORMAT OPTIONS
here=$(cd "$(dirname "$0")" && pwd)

# shellcheck disable=SC2086
convert=$(sbatch --parsable ${SBATCH_OPTIONS:-} --array="1-$parts" "$here/convert.sbatch")
# shellcheck disable=SC2086
merge=$(sbatch --parsable ${SBATCH_OPTIONS:-} --dependency="afterok:${convert%%;*}" \
    --kill-on-invalid-dep=yes "$here/merge.sbatch")
echo "convert ${convert%%;*} merge ${merge%%;*}"
