#!/bin/sh
# run.sh FOLDER CORPUS SECONDS [TARGET ...]
#
# Runs the fuzz targets of FOLDER (its programs fuzz_*), all or those named, for SECONDS each,
# as many at a time as there are processors (JOBS), each in one process with the inputs
# CORPUS/TARGET and found/TARGET beside CORPUS. What is new goes to FOLDER/new/TARGET, findings
# to FOLDER/findings/TARGET. Prints for each target its runs, runs a second and findings; exit
# status 1 if there is a finding. Libraries in FOLDER/lib are found there.
#
# A target goes on after a finding until its time is over, so that one does not hide others.
set -u
if [ $# -lt 3 ]; then
    sed -n '2,10p' "$0"
    exit 2
fi
folder=$(cd "$1" && pwd) && corpus=$(cd "$2" && pwd) || exit 2
seconds=$3
shift 3
jobs=${JOBS:-$(nproc)}
# What a target that dies leaves of its own folder goes at the end.
FUZZ_TMPDIR=$(mktemp -d /dev/shm/fuzz.XXXXXX 2>/dev/null || mktemp -d) || exit 1
export FUZZ_TMPDIR
trap 'rm -rf "$FUZZ_TMPDIR"' EXIT
LD_LIBRARY_PATH=$folder/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
export LD_LIBRARY_PATH
ASAN_OPTIONS=allocator_may_return_null=1:detect_stack_use_after_return=0${ASAN_OPTIONS:+:$ASAN_OPTIONS}
export ASAN_OPTIONS
if [ $# -eq 0 ]; then
    for program in "$folder"/fuzz_*; do
        [ ! -x "$program" ] || [ -d "$program" ] || set -- "$@" "${program##*/fuzz_}"
    done
fi
[ $# -gt 0 ] || { echo "run.sh: there are no fuzz_* in $folder" >&2; exit 2; }

one() { # target
    mkdir -p "$folder/new/$1" "$folder/findings/$1" "$folder/logs"
    end=$(($(date +%s) + seconds))
    : >"$folder/logs/$1"
    set -- "$1" "$folder/new/$1"
    for known in "$corpus/$1" "$corpus/../found/$1"; do
        [ ! -d "$known" ] || set -- "$@" "$known"
    done
    target=$1
    shift
    while left=$((end - $(date +%s))) && [ "$left" -gt 0 ]; do
        "$folder/fuzz_$target" -max_total_time="$left" -timeout=60 -rss_limit_mb=4096 \
            -print_final_stats=1 -artifact_prefix="$folder/findings/$target/" "$@" \
            >>"$folder/logs/$target" 2>&1 && break
        sleep 1 # a program that cannot start must not spin
    done
}

# The numbers of all rounds: after a finding there is more than one. A round that died has
# no final line of its runs, but says how far it came.
report() { # target
    awk -v target="$1" -v seconds="$seconds" -v findings="$(find "$folder/findings/$1" -type f | wc -l)" '
        /^#[0-9]+/ { last = substr($1, 2) + 0 }
        /^INFO: Running with/ { runs += last; last = 0 }
        /^stat::number_of_executed_units:/ { last = $2 }
        /^Done [0-9]+ runs/ { last = $2 }
        END {
            runs += last
            printf "%-12s %12d runs %10.0f a second %4d findings\n", target, runs, runs / seconds, findings
        }' "$folder/logs/$1"
}

running=0
for target; do
    one "$target" &
    running=$((running + 1))
    if [ "$running" -ge "$jobs" ]; then
        wait
        running=0
    fi
done
wait
for target; do
    report "$target"
done | tee "$folder/report"
awk '{ runs += $2; findings += $7 } END { printf "%d targets, %d runs, %d findings\n", NR, runs, findings
    exit findings > 0 }' "$folder/report"
