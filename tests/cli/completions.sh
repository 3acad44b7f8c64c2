#!/bin/bash
# Loads the generated completion scripts into the real shells and asks them to
# complete. Usage: completions.sh [PROGRAM]; a shell that is missing is skipped,
# aloud. Exit status 1 when an answer is wrong.
set -u
program=$(realpath "${1:-${TILEPACK:-build/tilepack}}")
root=$(realpath "$(dirname "$0")/../..")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir "$work/bin" "$work/data" "$work/data/checkpoints"
ln -s "$program" "$work/bin/tilepack"
touch "$work/data/chair.safetensors" "$work/data/recipe.json" "$work/data/with space.json"
PATH="$work/bin:$PATH"
export PATH
# Two weights and what is kept beside them, plain and packed.
mkdir "$work/data/plain"
header='{"l.0.q_proj.weight":{"dtype":"BF16","shape":[32,128],"data_offsets":[0,8192]},'
header+='"l.0.up_proj.weight":{"dtype":"BF16","shape":[32,128],"data_offsets":[8192,16384]},'
header+='"l.0.norm.weight":{"dtype":"BF16","shape":[128],"data_offsets":[16384,16640]}}'
# shellcheck disable=SC2059 # the size in octal
{ printf "\\$(printf %03o $((${#header} % 256)))\\$(printf %03o $((${#header} / 256)))"
  printf '\0\0\0\0\0\0%s' "$header"
  head -c 16640 /dev/zero; } >"$work/data/plain/model.safetensors"
tilepack convert "$work/data/plain" -o "$work/data/packed" --to fp8-dynamic-ct --quiet || exit 1
failed=0 checked=0

# expect SHELL LINE WANTED GOT: lists of words, one per line, sorted
expect() {
    checked=$((checked + 1))
    if [[ "$3" != "$4" ]]; then
        failed=1
        printf 'FAIL %s: %s\n  wanted: %s\n  got:    %s\n' "$1" "$2" "${3//$'\n'/ | }" \
            "${4//$'\n'/ | }"
    fi
}

# one_tensor PATH NAME: a file with one tensor
one_tensor() {
    local LC_ALL=C text='{"'$2'":{"dtype":"BF16","shape":[2,2],"data_offsets":[0,8]}}'
    # shellcheck disable=SC2059 # the size in octal
    { printf "\\$(printf %03o ${#text})"'\0\0\0\0\0\0\0%s' "$text"
      head -c 8 /dev/zero; } >"$1"
}
export -f one_tensor

# The questions: what is on the line, and the words that must be offered. They
# are the words bash inserts, that is, behind the last = or : on the line.
commands=$(printf '%s\n' bench compare convert diff digest dump engines formats merge models plan prove quantizers recipe schedule suggest unpack verify)
formats() { jq -r 'select(.input_only | not) | .name' "$root"/formats/*.json | LC_ALL=C sort; }
questions() { # ask COMMAND: called as: ask LINE WANTED
    "$1" 'tilepack con' convert
    "$1" 'tilepack v' verify
    "$1" 'tilepack convert --nonf' --nonfinite
    "$1" 'tilepack convert --nonfinite ' $'keep\nrefuse'
    "$1" 'tilepack convert SRC --set quot' $'quotient=bf16\nquotient=fp32'
    "$1" 'tilepack convert SRC --to nvfp4-ct --set quot' ''
    "$1" 'tilepack convert SRC --to w4a16-ct --set gr' \
        $'group=128\ngroup=32\ngroup=64\ngroup=channel'
    "$1" 'tilepack plan SRC --to=w4a16-marlin --set gr' $'group=128\ngroup=32\ngroup=64'
    "$1" 'tilepack convert SRC --to w4a8-c' $'w4a8-ct\nw4a8-cutlass'
    "$1" 'tilepack convert SRC --to=w4a8-cu' w4a8-cutlass
    "$1" 'tilepack formats mxfp8-to' mxfp8-torchao3d
    "$1" 'tilepack unpack data --dtype ' $'bf16\nf32'
    "$1" 'tilepack schedule data --kernel deepgemm-' deepgemm-2025
    "$1" 'tilepack schedule data --gpu h2' $'h20\nh200'
    "$1" 'tilepack convert rec' recipe.json
    "$1" 'tilepack dump ch' $'chair.safetensors\ncheckpoints'
    "$1" 'tilepack dump plain l.0.' $'l.0.norm.weight\nl.0.q_proj.weight\nl.0.up_proj.weight'
    "$1" 'tilepack dump --json packed l.0.q' \
        $'l.0.q_proj\nl.0.q_proj.weight\nl.0.q_proj.weight_scale'
    "$1" 'tilepack dump packed recipe' ''
    "$1" 'tilepack dump chair.safetensors l' ''
    "$1" 'tilepack verify checkpoints --against ch' $'chair.safetensors\ncheckpoints'
    "$1" 'tilepack bench --disc' ''
    "$1" 'tilepack convert --disc' ''
}

# ------------------------------------------------------------------ bash --
ask_bash() {
    expect bash "$1" "$2" "$(cd "$work/data" && bash --norc -c '
        eval "$(tilepack completions bash)"
        COMP_LINE=$1 COMP_POINT=${#1}
        _tilepack 2>/dev/null
        printf "%s\n" "${COMPREPLY[@]}"' bash "$1" | LC_ALL=C sort | sed '/^$/d')"
}
questions ask_bash
ask_bash 'tilepack ' "$commands"
ask_bash 'tilepack --' $'--help\n--version'
ask_bash 'tilepack verify --j' $'--jobs\n--json'
ask_bash 'tilepack help con' convert
ask_bash 'tilepack unpack data -o ch' $'chair.safetensors\ncheckpoints'
ask_bash 'tilepack verify chair.safetensors ' ''
ask_bash 'tilepack convert --to ' "$(formats)"
ask_bash 'tilepack convert --device=cuda:' 'all'
ask_bash 'tilepack convert SRC --set scale=r' $'rceil\nrcp'
ask_bash 'tilepack convert SRC --set scale=g' gpu
ask_bash 'tilepack convert SRC --to w4a8-cutlass --set scale=' $'cpu\ndiv\ngpu\nrcp'
ask_bash 'tilepack convert --recipe with' 'with space.json'
# What strangers call their tensors is put on the line so that a shell takes it as that word.
# shellcheck disable=SC2016 # none of it is to be expanded
strangers() {
    local names=$'m$(touch${IFS}RUN).weight\nm;touch RUN\nm`touch RUN`\nm|touch RUN\nm&touch RUN\nm>RUN'
    names+=$'\nm{a,b}?[c]*\nm\'!n\n~root\n#m\nm\303\251$(touch RUN)\na:b=c.weight'
    expect bash "strangers' tensors" "$names" "$(cd "$work/data" && LC_ALL=C.UTF-8 bash --norc -c '
        eval "$(tilepack completions bash)"
        while IFS= read -r name; do
            one_tensor stranger.safetensors "$name"
            for begin in "" "${name:0:1}"; do
                COMP_LINE="tilepack dump stranger.safetensors $begin" COMP_POINT=99
                _tilepack
                eval "set -- ${COMPREPLY[*]}"
                [[ $# = 1 && $1 = "$name" ]] || printf "%s: " "wrong behind <$begin>" "$@"
            done
            printf "%s\n" "$name"
        done <<<"$1"' bash "$names" 2>&1)"
    expect bash "commands of strangers' tensors" '' "$(compgen -G "$work/data/RUN*")"
    one_tensor "$work/data/stranger.safetensors" 'm;touch${IFS}RUN'
    ask_bash 'tilepack dump stranger.safetensors m\;to' 'm\;touch\$\{IFS\}RUN'
    one_tensor "$work/data/stranger.safetensors" 'a:b=c'
    ask_bash 'tilepack dump stranger.safetensors a:b=' c
    # Neither options nor what would have to be written as $'...'.
    for name in '--output=RUN' 'm\u001b[2J' 'm\"$(touch RUN)' 'm\\n'; do
        one_tensor "$work/data/stranger.safetensors" "$name"
        ask_bash 'tilepack dump stranger.safetensors ' ''
    done
    one_tensor "$work/data/stranger.safetensors" 'mé$(touch RUN)'
    LC_ALL=C ask_bash 'tilepack dump stranger.safetensors "a ' ''
    rm "$work/data/stranger.safetensors"
}
strangers
if command -v shellcheck >/dev/null; then
    expect bash 'shellcheck' '' "$(tilepack completions bash | shellcheck -s bash - 2>&1)"
fi

# ------------------------------------------------------------------ fish --
ask_fish() {
    local line=${1//\\/\\\\}
    expect fish "$1" "$2" "$(cd "$work/data" && HOME=$work XDG_CONFIG_HOME=$work \
        XDG_DATA_HOME=$work fish --no-config -c "
        tilepack completions fish | source
        complete -C'$line'" 2>&1 | cut -f1 | sed -e 's/^--[a-z]*=//' -e 's,/$,,' |
        LC_ALL=C sort)"
}
if command -v fish >/dev/null; then
    questions ask_fish
    ask_fish 'tilepack ' "$commands"
    ask_fish 'tilepack convert --to ' "$(formats)"
    ask_fish 'tilepack convert --device cuda:' 'cuda:all'
else
    echo 'skipped: fish is not installed'
fi

# ------------------------------------------------------------------- zsh --
# A real interactive zsh in a pseudo-terminal; compadd is wrapped so that what it
# adds is written to a file, and a widget says when completion has ended.
cat >"$work/ask.zsh" <<'ZSH'
zmodload zsh/zpty
zpty shell zsh -f -i
ready() { # reads what the shell prints until it prints the marker
    local text
    while zpty -r shell text; do
        [[ $text == *$1* ]] && return 0
    done
    return 1
}
zpty -w shell "PS1='' PS2='' KEYTIMEOUT=1; stty -echo; cd ${(q)WORK}/data; fpath=(${(q)WORK}/zsh \$fpath)"
zpty -w shell "autoload -Uz compinit; compinit -u -d ${(q)WORK}/zcompdump; LISTMAX=10000"
zpty -w shell "zstyle ':completion:*' list-colors ''; unsetopt listbeep; setopt noautomenu"
cat >$WORK/wrap.zsh <<'WRAP'
compadd() {
    if [[ ${@[1,(i)(-|--)]} != *-(O|A|D|[a-zA-Z]#[OAD])\ * ]]; then
        local -a found
        builtin compadd -O found "$@"
        (( $#found )) && print -rl -- $found >>$WORK/answer
    fi
    builtin compadd "$@"
}
ended() { print -r -- done >>$WORK/answer; BUFFER='' ; print 'ANSWER''ED'; }
zle -N ended
bindkey '^I' list-choices
bindkey '^X' ended
WRAP
zpty -w shell "WORK=${(q)WORK}; source ${(q)WORK}/wrap.zsh; print LOAD''ED"
ready LOADED || exit 1
while IFS= read -r line; do
    : >$WORK/answer
    zpty -w -n shell "$line"$'\t\x18'
    ready ANSWERED || exit 1
    print -r -- "Q $line"
    LC_ALL=C sort -u $WORK/answer | grep -v '^done$'
done
zpty -d shell
ZSH
ask_zsh() {
    expect zsh "$1" "$2" "$(awk -v line="Q $1" '$0 == line {on = 1; next} /^Q / {on = 0} on' \
        "$work/zsh.answers")"
}
# shellcheck disable=SC2317 # called through questions()
note_zsh() { printf '%s\n' "$1"; }
if command -v zsh >/dev/null; then
    mkdir "$work/zsh"
    tilepack completions zsh >"$work/zsh/_tilepack"
    { questions note_zsh; echo 'tilepack '; echo 'tilepack convert --to '
      echo 'tilepack convert --device cuda:'; } |
        WORK=$work timeout 60 zsh -f "$work/ask.zsh" >"$work/zsh.answers" 2>"$work/zsh.errors"
    questions ask_zsh
    ask_zsh 'tilepack ' "$commands"
    ask_zsh 'tilepack convert --to ' "$(formats)"
    ask_zsh 'tilepack convert --device cuda:' 'cuda:all'
else
    echo 'skipped: zsh is not installed'
fi

((failed)) || echo "completions: $checked answers right"
exit "$failed"
