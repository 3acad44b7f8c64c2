#!/bin/sh
# A real Slurm on this machine: munge, slurmctld and slurmd from the distribution, with
# a configuration of their own in a temporary directory, on 127.0.0.1 only, without
# systemd. Submits samples/slurm/ with an array of 4; one task is requeued by the
# controller in the middle of its work, one more is killed with SIGKILL; the merged
# output must equal that of one process in every file. All daemons end with this
# script. Needs root (slurmd starts jobs). Last line: `N passed, N failed`.
set -u

cd "$(dirname "$0")/../.." || exit 1
root=$PWD
BUILD=${BUILD:-build}
TILEPACK=${TILEPACK:-$BUILD/tilepack}
case $TILEPACK in /*) ;; *) TILEPACK=$root/$TILEPACK ;; esac
PYTHON=${PYTHON:-python3}
PATH=$PATH:/usr/sbin:/sbin
passed=0
failed=0

fail() {
    echo "slurm.sh: $*" >&2
    echo "$passed passed, $((failed + 1)) failed"
    exit 1
}
[ "$(id -u)" = 0 ] || fail "must run as root: slurmd starts jobs as their owners"
[ -x "$TILEPACK" ] || fail "there is no $TILEPACK; build it with: make"

work=$(mktemp -d /tmp/tilepack-slurm.XXXXXX) || exit 1
munge_pid='' ctld_pid='' slurmd_pid=''
stop() { # what this script started, by process id; slurmd's jobs first
    if [ -n "$ctld_pid" ]; then
        scancel --user="$(id -un)" >/dev/null 2>&1
        sleep 1
    fi
    for pid in $slurmd_pid $ctld_pid $munge_pid; do
        kill "$pid" 2>/dev/null
        wait "$pid" 2>/dev/null
    done
    rm -rf "$work"
}
trap stop EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

ok() { passed=$((passed + 1)); echo "ok $*"; }
bad() { failed=$((failed + 1)); echo "not ok $*"; }
wait_for() { # seconds, command ...: until it succeeds
    tries=$(($1 * 10))
    shift
    while ! "$@" >/dev/null 2>&1; do
        tries=$((tries - 1))
        [ $tries -gt 0 ] || return 1
        sleep 0.1
    done
}

# ------------------------------------------------------------------ Slurm --
chmod 755 "$work"
mkdir -m 700 "$work/munge" "$work/state" "$work/spool"
mkdir "$work/run" "$work/log" "$work/data"
dd if=/dev/urandom of="$work/munge/key" bs=1 count=1024 2>/dev/null
chmod 600 "$work/munge/key"
host=$(hostname -s)
# Two ports that nothing listens on.
ports=$("$PYTHON" -c 'import socket
s = [socket.socket() for _ in range(2)]
for x in s: x.bind(("127.0.0.1", 0))
print(*[x.getsockname()[1] for x in s])') || fail "python3 is missing"
cat >"$work/slurm.conf" <<CONF
ClusterName=tilepack
SlurmctldHost=$host(127.0.0.1)
SlurmctldPort=${ports% *}
SlurmdPort=${ports#* }
CommunicationParameters=NoCtldInAddrAny,NoInAddrAny
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket=$work/run/munge.socket,cred_expire=2
CredType=cred/munge
StateSaveLocation=$work/state
SlurmdSpoolDir=$work/spool
SlurmctldPidFile=$work/run/slurmctld.pid
SlurmdPidFile=$work/run/slurmd.pid
SlurmctldLogFile=$work/log/slurmctld.log
SlurmdLogFile=$work/log/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
ReturnToService=2
JobRequeue=1
KillWait=2
MinJobAge=3600
SchedulerType=sched/builtin
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
AccountingStorageType=accounting_storage/none
JobAcctGatherType=jobacct_gather/none
JobCompType=jobcomp/none
SwitchType=switch/none
SlurmdParameters=config_overrides
NodeName=$host NodeAddr=127.0.0.1 CPUs=32 RealMemory=65536 State=UNKNOWN
PartitionName=all Nodes=$host Default=YES MaxTime=INFINITE State=UP
CONF
SLURM_CONF=$work/slurm.conf
export SLURM_CONF

munged --foreground --force --key-file="$work/munge/key" --socket="$work/run/munge.socket" \
    --pid-file="$work/run/munged.pid" --log-file="$work/log/munged.log" \
    --seed-file="$work/munge/seed" --num-threads=2 >"$work/log/munged.out" 2>&1 &
munge_pid=$!
wait_for 20 munge -n -S "$work/run/munge.socket" || {
    cat "$work/log/"munged.* >&2
    fail "munged does not answer"
}
slurmctld -D >"$work/log/slurmctld.out" 2>&1 &
ctld_pid=$!
wait_for 30 scontrol ping || {
    tail -n 20 "$work/log/slurmctld".* >&2
    fail "slurmctld does not answer"
}
slurmd -D -N "$host" >"$work/log/slurmd.out" 2>&1 &
slurmd_pid=$!
idle() { sinfo -h -o %T | grep -q '^idle$'; }
wait_for 30 idle || {
    sinfo >&2
    tail -n 20 "$work/log/slurmd".* "$work/log/slurmctld.log" >&2
    fail "the node does not come up"
}
ok "munge, slurmctld and slurmd are up"

# ------------------------------------------------------------- conversion --
"$PYTHON" samples/gen_checkpoint.py "$work/data/src" --preset tiny-mixtral --layers 16 \
    >/dev/null || fail "cannot make a checkpoint"
options="--shard-size 1MB --device cpu"
# shellcheck disable=SC2086
"$TILEPACK" convert "$work/data/src" -o "$work/data/one" --to w4a8-cutlass $options -q ||
    fail "the conversion by one process failed"

# The work is slowed down, so that there is time to interrupt it: a program of the same
# name that lets two tasks sleep, once, after they have journaled a shard.
mkdir "$work/bin"
cat >"$work/bin/tilepack" <<SLOW
#!/bin/sh
once=$work/run/slow.\${SLURM_ARRAY_TASK_ID:-merge}
case \${SLURM_ARRAY_TASK_ID:-} in
2 | 3) [ -e "\$once" ] || {
    : >"\$once"
    exec env TILEPACK_SLOW=1 sh "$work/bin/slow.sh" "$TILEPACK" "\$@"
} ;;
esac
exec "$TILEPACK" "\$@"
SLOW
# Stops the real program when its journal names a shard, for as long as nobody comes.
cat >"$work/bin/slow.sh" <<'SLOW'
program=$1
shift
"$program" "$@" -j 1 &
pid=$!
trap 'kill -TERM $pid; kill -CONT $pid; wait $pid; exit $?' TERM
journal=$DST.part-$SLURM_ARRAY_TASK_ID-of-4.partial/.tilepack-journal
while kill -0 $pid 2>/dev/null && ! grep -q model- "$journal" 2>/dev/null; do :; done
kill -STOP $pid
echo $pid >"$PIDS/pid.$SLURM_ARRAY_TASK_ID"
wait $pid
SLOW
chmod +x "$work/bin/tilepack"

PIDS=$work/run
TILEPACK_ARRAY=$TILEPACK
TILEPACK=$work/bin/tilepack
SBATCH_OPTIONS="--output=$work/log/job-%A-%a.out --chdir=$work/data --cpus-per-task=2"
export PIDS TILEPACK SBATCH_OPTIONS
# shellcheck disable=SC2086
jobs=$(sh samples/slurm/submit.sh 4 "$work/data/src" "$work/data/four" w4a8-cutlass $options) ||
    fail "cannot submit"
echo "submitted: $jobs"
array=$(echo "$jobs" | cut -d' ' -f2)
merge=$(echo "$jobs" | cut -d' ' -f4)
TILEPACK=$TILEPACK_ARRAY

journal() { echo "$work/data/four.part-$1-of-4.partial/.tilepack-journal"; }
shards() { grep -c model- "$(journal "$1")"; }
field() { scontrol show job "$1" 2>/dev/null | tr ' ' '\n' | sed -n "s/^$2=//p"; }
wait_for 120 test -s "$work/run/pid.3" || fail "task 3 did not begin"
before3=$(shards 3)
scontrol requeue "${array}_3" || bad "scontrol requeue"
wait_for 120 test -s "$work/run/pid.2" || fail "task 2 did not begin"
before2=$(shards 2)
kill -9 "$(cat "$work/run/pid.2")"
[ "$before3" -ge 1 ] && [ "$before2" -ge 1 ] &&
    ok "two tasks were ended with $before3 and $before2 of their shards done"

# A requeued task would wait some two minutes before it may begin again. It may not at once: a node
# refuses what it is given in the second, by the clock, in which it was told to end the task, which
# may be as late as when the task is no longer COMPLETING.
hurry() { # task
    [ "$(field "${array}_$1" Reason)" = BeginTime ] || return
    [ "$(field "${array}_$1" JobState)" = PENDING ] || return
    over=$work/run/over.$1
    [ -s "$over" ] || date +%s >"$over"
    [ "$(date +%s)" -gt "$(cat "$over")" ] || return
    rm "$over"
    scontrol update JobId="${array}_$1" StartTime=now
}
ended() {
    for task in 2 3; do hurry $task; done
    case $(field "$merge" JobState) in
    COMPLETED | FAILED | CANCELLED | TIMEOUT | NODE_FAIL | OUT_OF_MEMORY) return 0 ;;
    esac
    return 1
}
wait_for 300 ended || {
    squeue >&2
    tail -n 30 "$work/log/slurmctld.log" >&2
}
for task in 2 3; do
    restarts=$(field "${array}_$task" Restarts)
    if [ "${restarts:-0}" -ge 1 ]; then
        ok "task $task ran again (Restarts=$restarts)"
    else
        bad "task $task did not run again (Restarts=$restarts)"
    fi
done
state=$(field "$merge" JobState)
if [ "$state" = COMPLETED ]; then
    ok "the merge job is COMPLETED"
else
    bad "the merge job is $state"
    for log in "$work/log"/job-*; do echo "-- $log"; cat "$log"; done
    tail -n 30 "$work/log/slurmctld.log"
fi
if diff -r "$work/data/one" "$work/data/four" >"$work/diff" 2>&1; then
    ok "the merged output equals that of one process in every file"
else
    bad "the merged output differs"
    head -n 20 "$work/diff"
fi
if "$TILEPACK" verify "$work/data/four" -q; then ok "it verifies"; else bad "it does not verify"; fi

echo "$passed passed, $failed failed"
[ "$failed" = 0 ]
