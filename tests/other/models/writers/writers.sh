# What other programs write, read by tilepack: a part of models.sh, which names the variables. Each
# writer makes small checkpoints of all its schemes in an environment of its own, and judge.py
# compares what tilepack says of each with expected.py.
# shellcheck shell=sh disable=SC2153,SC2154 # variables of models.sh

writer() { # name, its Python
    mkdir -p "$work/$1"
    "$2" -W ignore "$here/writers/$1.py" "$work/$1" 2>"$work/$1.log" |
        sed -n 's/^@//p' >"$work/$1/made"
    [ -s "$work/$1/made" ] || { bad "$1"; tail -n 5 "$work/$1.log"; return; }
    "$PYTHON" "$here/writers/judge.py" "$1" "$work/$1" >"$work/judged.$1"
    grep -v '^ok ' "$work/judged.$1"
    passed=$((passed + $(grep -c '^ok ' "$work/judged.$1")))
    failed=$((failed + $(grep -c '^FAIL ' "$work/judged.$1")))
}
environment() { # a set of scripts/venv.sh, or what was given
    [ -z "$2" ] || { echo "$2"; return; }
    sh "$root/scripts/venv.sh" "$build" "$1"
}
writers() { # [name ...]
    [ $# -gt 0 ] || set -- llm_compressor autoround nvidia
    for one; do
        case $one in
        llm_compressor) python=$(environment llm-compressor "${LLM_COMPRESSOR_PYTHON:-}") ;;
        autoround) python=$(environment torch "${MODELS_PYTHON:-}") ;;
        nvidia) python=$(environment modelopt "${MODELOPT_PYTHON:-}") ;;
        *) echo "models.sh: writers are llm_compressor, autoround and nvidia, not '$one'" >&2; exit 2 ;;
        esac || exit 1
        writer "$one" "$python"
    done
}
