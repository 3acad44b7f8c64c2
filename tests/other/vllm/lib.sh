# shellcheck shell=sh disable=SC2154
# What vllm.sh and vllm_loading.sh share: an environment with vLLM, conversions, loads of vLLM and
# comparisons. Sourced behind tests/lib/preamble.sh.
build=${BUILD:-$root/build}
case $build in /*) ;; *) build=$PWD/$build ;; esac
here=$TESTS/other/vllm

environment() { # makes it; vLLM 0.33.0 asks for a certifi that was never published
    venv=$build/venv-vllm
    [ -e "$venv/ready" ] || {
        rm -rf "$venv" && python3 -m venv "$venv" &&
            "$venv/bin/python" -m pip install -q --disable-pip-version-check uv &&
            printf '%s\n' 'certifi>=2026.10.18' 'cuda-python>=13.4' >"$venv/overrides" &&
            "$venv/bin/uv" pip install -q --python "$venv/bin/python" \
                --override "$venv/overrides" vllm==0.33.0 && touch "$venv/ready"
    } || exit 1
    VLLM_PYTHON=$venv/bin/python
}
[ -n "${VLLM_PYTHON:-}" ] || environment
cc -shared -fPIC -O2 -Wl,-soname,libcuda.so.1 -o "$work/libcuda.so.1" "$here/no_driver.c" || exit 1

# vLLM finds the plugin by the entry point of an installed distribution.
mkdir -p "$work/site/tilepack_llm-0.dist-info" "$work/home"
printf 'Metadata-Version: 2.1\nName: tilepack-llm\nVersion: 0\n' \
    >"$work/site/tilepack_llm-0.dist-info/METADATA"
printf '[vllm.general_plugins]\ntilepack = tilepack_llm.vllm:register\n' \
    >"$work/site/tilepack_llm-0.dist-info/entry_points.txt"
export PYTHONPATH="$root/python:$work/site:$here:$TESTS/lib" TILEPACK_LIBRARY="$build/libtilepack.so" \
    TILEPACK_PROGRAM="$TILEPACK" HOME="$work/home" CUDA_VISIBLE_DEVICES='' HF_HUB_OFFLINE=1 \
    HUMMING_DISABLE_PARALLEL_BUILD=1 \
    VLLM_LOGGING_LEVEL=WARNING PYTHONDONTWRITEBYTECODE=1

# A search finds other codes for each format's scales; both sides get those of the original libraries.
convert() { # source, name, arguments ...
    source=$1 name=$2
    shift 2
    case " $* " in *' --recipe '*) ;; *) set -- "$@" --search none ;; esac
    "$TILEPACK" convert "$work/$source" -o "$work/$name" "$@" --quiet || bad "$name"
}
port=$((20000 + $$ % 10000)) # others may run this, too
load() { # capability, ranks, NAME=DIR ...: all ranks at once
    capability=$1 ranks=$2
    shift 2
    port=$((port + 1)) rank=0
    while [ $rank -lt "$ranks" ]; do
        (cd "$work" && "$VLLM_PYTHON" -W ignore "$here/load.py" "$work/libcuda.so.1" \
            "$capability" "$ranks" $rank $port "$work" "$@") >"$work/load.$rank" 2>"$work/log.$rank" &
        rank=$((rank + 1))
    done
    wait
    cat "$work"/load.? >>"$work/said" # its log, too
    cat "$work"/load.? | sed -n 's/^@//p' >>"$work/results"
    rm -f "$work"/load.?
}
result() { # name, filter of jq that must be true
    if jq -se --arg name "$1" "map(select(.name == \$name)) | length > 0 and all($2)" \
        "$work/results" >"$work/out"; then
        ok "$1: $2"
    else
        bad "$1: not $2"
        jq -c --arg name "$1" 'select(.name == $name)' "$work/results"
    fi
}
refused() { # name, text that the one sentence must hold
    result "$1" '.error | test("^Refused: [^\\n]*'"$2"'[^\\n]*$")'
}
equal() { # stock, plugin, rank, [operands and layers that may differ]; for compared
    result "$2" '.ok and .calls == {} and .moved == 0'
    pairs="$pairs $2.$3:$work/$1.$3.pt:$work/$2.$3.pt:${4:-}:${5:-}"
}
compared() { # all pairs at once, as torch takes long to start
    # shellcheck disable=SC2086 # words
    "$VLLM_PYTHON" "$here/compare.py" $pairs >"$work/out" 2>"$work/err" ||
        { bad 'compare.py'; cat "$work/err"; }
    cat "$work/out"
    passed=$((passed + $(grep -c '^ok ' "$work/out")))
    failed=$((failed + $(grep -c '^not ok ' "$work/out")))
}
pairs=
