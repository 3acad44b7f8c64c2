#!/bin/sh
# Runs vLLM with packed checkpoints on a machine with a GPU, out of the pieces that pieces.py made.
#
#     on_gpu.sh unpack FOLDER        what a folder holds; after the last one the pieces are whole
#     on_gpu.sh run OUT [GROUP...]   makes models, runs the jobs of plan.py and compares them
#
# Environment: WORK (/tmp/serve), where the pieces and what vLLM keeps lie; PYTHON, which has torch; MODELS (in
# /dev/shm), 60 GB; KINDS (mixture dense few small) of them, none where they are there already;
# SECONDS_FOR_JOBS (600), after which no job is begun. OUT gets a log of each step and one file of each
# job. A step that fails or hangs costs no other.
set -u
work=${WORK:-/tmp/serve} python=${PYTHON:-python3} models=${MODELS:-/dev/shm/tilepack-serve}

unzstd_to() { # piece, result
    if command -v zstd >/dev/null; then
        zstd -dqf --long=27 "$1" -o "$2"
        return
    fi
    "$python" -c 'import pyarrow, shutil, sys
with pyarrow.input_stream(sys.argv[1], compression="zstd") as piece, open(sys.argv[2], "wb") as out:
    shutil.copyfileobj(piece, out, 1 << 22)' "$1" "$2"
}
unpack_one() { # a piece that is whole
    name=$(basename "$1" .zst)
    case $name in
    *.tar)
        mkdir -p "$work/${name%.tar}"
        unzstd_to "$1" "$work/$name" && tar -C "$work/${name%.tar}" -xf "$work/$name"
        ;;
    *)
        mkdir -p "$work/site/vllm"
        unzstd_to "$1" "$work/site/vllm/$name"
        ;;
    esac || echo "FAIL: $1"
    rm -f "$1" "$work/$name"
}
unpack() {
    mkdir -p "$work"
    for part in "$1"/*.zst.*; do
        name=$(basename "${part%.end}")
        cat "$part" >>"$work/${name%.*}"
        case $part in *.end) unpack_one "$work/${name%.*}" & ;; esac
    done
    wait
}
environment() {
    export PYTHONPATH="$work/site:$work/tilepack" LD_LIBRARY_PATH="$work/tilepack:${LD_LIBRARY_PATH:-}"
    export TILEPACK="$work/tilepack/tilepack" TILEPACK_PROGRAM="$work/tilepack/tilepack"
    export TILEPACK_LIBRARY="$work/tilepack/libtilepack.so"
    export GGUF="$work/smollm2/model.gguf"
    export HF_HUB_OFFLINE=1 VLLM_NO_USAGE_STATS=1 VLLM_DO_NOT_TRACK=1 PYTHONUNBUFFERED=1
    export VLLM_CACHE_ROOT="$work/cache" TOKENIZERS_PARALLELISM=false
    # Neither is among the pieces.
    export VLLM_USE_FLASHINFER_SAMPLER=0 VLLM_USE_DEEP_GEMM=0
    export VLLM_ALLOW_INSECURE_SERIALIZATION=1 # a function of jobs.py looks at the model
}
run() {
    out=$1
    shift
    environment
    mkdir -p "$out" "$models"
    rm -f "$work/jobs.json"
    rm -rf "$work/results"
    "$python" "$work/tilepack/jobs.py" "$work/jobs.json" "$work/results" "${SECONDS_FOR_JOBS:-600}" \
        >"$out/jobs.log" 2>&1 &
    runner=$!
    made=''
    for kind in ${KINDS-mixture dense few small}; do
        sh "$work/tilepack/models.sh" "$models" "$kind" >"$out/models-$kind.log" 2>&1 &
        made="$made $!"
    done
    for one in $made; do wait "$one"; done
    "$python" "$work/tilepack/plan.py" "$models" "$work/jobs.json" "$@"
    wait $runner
    "$python" "$work/tilepack/show.py" "$work/results" >"$out/results.txt" 2>&1
    status=$?
    tar -C "$work" -czf "$out/results.tgz" results
    cat "$out"/*.log "$out/results.txt"
    return $status
}
case ${1:-} in
unpack) unpack "$2" ;;
run)
    shift
    run "$@"
    ;;
*) sed -n '2,/^set/p' "$0" | sed '/^set/d; s/^# \{0,1\}//' && exit 2 ;;
esac
