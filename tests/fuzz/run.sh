#!/bin/sh
# run.sh FOLDER CORPUS SECONDS [TARGET ...]
#
# Runs the fuzz targets of FOLDER (its programs fuzz_*), all or those named, for SECONDS each,
# in EACH processes (1), as many at a time as there are processors (JOBS), with the inputs
# CORPUS/TARGET and found/TARGET beside CORPUS. What is new goes to FOLDER/new/TARGET, where the
# processes of a target find each other's, findings to FOLDER/findings/TARGET. Prints for each
# target its runs, runs a second, processor seconds and findings; exit status 1 if there is a
# finding. FOLDER/report holds the same while they run, with runs as far as they were told.
# Libraries in FOLDER/lib are found there.
#
# A target goes on after a finding until its time is over, so that one does not hide others. What
# does not end 15 seconds after its time is killed.
set -u
if [ $# -lt 3 ]; then
    sed -n '2,14p' "$0"
    exit 2
fi
folder=$(cd "$1" && pwd) && corpus=$(cd "$2" && pwd) || exit 2
seconds=$3
shift 3
jobs=${JOBS:-$(nproc)} each=${EACH:-1}
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
mkdir -p "$folder/logs"
rm -f "$folder/logs/"*

# One process after the other; logs/TARGET.N.pid is there as long, and holds its number.
one() { # target number
    mkdir -p "$folder/new/$1" "$folder/findings/$1"
    target=$1 log=$folder/logs/$1.$2
    set -- "$folder/new/$1"
    for known in "$corpus/$target" "$corpus/../found/$target"; do
        [ ! -d "$known" ] || set -- "$@" "$known"
    done
    while left=$((end - $(date +%s))) && [ "$left" -gt 0 ]; do
        "$folder/fuzz_$target" -max_total_time="$left" -timeout=60 -rss_limit_mb=4096 \
            -print_final_stats=1 -artifact_prefix="$folder/findings/$target/" "$@" \
            >>"$log.out" 2>&1 &
        echo $! >"$log.pid"
        wait $! && break
        sleep 1 # a program that cannot start must not spin
    done
    times >"$log.times" # of this shell, and of its children
    rm -f "$log.pid"
}

# The numbers of all rounds of all processes: after a finding there is more than one. A round
# that died has no final line of its runs, but says how far it came.
report() { # target
    {
        cat "$folder/logs/$1".*.out 2>/dev/null
        cat "$folder/logs/$1".*.times 2>/dev/null
        for pid in "$folder/logs/$1".*.pid; do # still running: clock ticks of user and system
            [ ! -f "$pid" ] || sed 's/.*) /stat /' "/proc/$(cat "$pid")/stat" 2>/dev/null
        done
    } | awk -v target="$1" -v seconds="$seconds" -v ticks="$(getconf CLK_TCK)" \
        -v findings="$(find "$folder/findings/$1" -type f 2>/dev/null | wc -l)" '
        function of(text, part) { split(text, part, "[ms]"); return part[1] * 60 + part[2] }
        /^#[0-9]+/ { last = substr($1, 2) + 0 }
        /^INFO: Running with/ { runs += last; last = 0 }
        /^stat::number_of_executed_units:/ { last = $2 }
        /^Done [0-9]+ runs/ { last = $2 }
        /^[0-9]+m[0-9.]+s [0-9]+m/ { used += of($1) + of($2) }
        /^stat / { used += ($13 + $14) / ticks }
        END {
            runs += last
            printf "%-12s %12d runs %10.0f a second %7.0f processor seconds %4d findings\n",
                target, runs, runs / seconds, used, findings
        }'
}

# All that were started have ended, or are killed.
ended() { # target ...
    while ls "$folder/logs/"*.pid >/dev/null 2>&1; do
        [ "$(date +%s)" -lt $((end + 15)) ] || cat "$folder/logs/"*.pid | xargs -r kill -9
        sleep 2
        for each_target; do # `target` is the caller's, who goes on with the next
            report "$each_target"
        done >"$folder/report.new" && mv "$folder/report.new" "$folder/report"
    done 2>/dev/null
    wait
    running=0
}

running=0
for target; do
    for number in $(seq "$each"); do
        [ "$running" -lt "$jobs" ] || ended "$@"
        [ "$running" -gt 0 ] || end=$(($(date +%s) + seconds))
        : >"$folder/logs/$target.$number.pid"
        one "$target" "$number" &
        running=$((running + 1))
    done
done
ended "$@"
for target; do
    report "$target"
done | tee "$folder/report"
awk '{ runs += $2; used += $7; findings += $10 }
    END { printf "%d targets, %d runs, %.0f processor seconds, %d findings\n", NR, runs, used, findings
    exit findings > 0 }' "$folder/report"
