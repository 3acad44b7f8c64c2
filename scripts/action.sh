#!/bin/bash
# action.sh program|convert|verify|summary
#
# The steps of action.yml, which gives the inputs as variables in capitals: PROGRAM and SHA256;
# SOURCE, OUTPUT, FORMAT, OPTIONS, IMPORTANCE. Between them lie tilepack-convert.json,
# tilepack-verify.json and what they said on standard error in RUNNER_TEMP.
#
# OPTIONS are words as a shell reads them, with quotes, on one line or several: xargs takes them
# apart, so that nothing in them is run, and no pattern in them means files.
# shellcheck disable=SC2016,SC2153 # programs of jq; what action.yml sets
set -euo pipefail
converted=$RUNNER_TEMP/tilepack-convert.json
verified=$RUNNER_TEMP/tilepack-verify.json

# A program that is given: a file, or an archive of `make static`, here or elsewhere.
take_program() {
    local from=$PROGRAM to=$RUNNER_TEMP/tilepack-program
    mkdir -p "$to/bin"
    case $from in
    http://* | https://*)
        from=$RUNNER_TEMP/tilepack-archive.tar.gz
        case $PROGRAM in *.tar.gz) ;; *) from=$to/bin/tilepack ;; esac
        curl --fail --silent --show-error --location --output "$from" "$PROGRAM"
        ;;
    esac
    if [ -n "$SHA256" ] && ! echo "$SHA256  $from" | sha256sum --check --status; then
        echo "tilepack: $PROGRAM: its SHA-256 is $(sha256sum <"$from" | cut -d' ' -f1)," \
            "not $SHA256" >&2
        return 1
    fi
    case $from in
    *.tar.gz) tar -xzf "$from" -C "$to" --strip-components=1 ;;
    "$to/bin/tilepack") ;;
    *) cp "$from" "$to/bin/tilepack" ;;
    esac
    chmod +x "$to/bin/tilepack"
    "$to/bin/tilepack" --version
    echo "$to/bin" >>"$GITHUB_PATH"
}

# The text of a member of a JSON file on one line, empty where there is none.
member() { # file, filter
    jq -r "$2 // empty" "$1" | tr '\r\n' '  ' | sed 's/ *$//'
}

words='map(if test("^[A-Za-z0-9_./:=@%+-]+$") then . else @sh end) | join(" ")'

convert() {
    local status=0 options=()
    printf '%s' "$OPTIONS" | xargs -r printf '%s\0' >"$RUNNER_TEMP/tilepack-options"
    mapfile -d '' -t options <"$RUNNER_TEMP/tilepack-options"
    [ -z "$IMPORTANCE" ] || options+=(--importance "$IMPORTANCE")
    rm -f "$verified"
    tilepack convert "$SOURCE" -o "$OUTPUT" --to "$FORMAT" --json "${options[@]}" \
        >"$converted" || status=$?
    {
        echo "result=$converted"
        echo "done=$(member "$converted" '.already_done | tostring | select(. != "null")')"
        echo "bytes=$(member "$converted" .bytes_out)"
        echo "reason=$(member "$converted" '.reason // .error.reason // .error.kind')"
        echo "serve=$(member "$converted" "(.serve.command // empty) | $words")"
    } >>"$GITHUB_OUTPUT"
    return "$status"
}

verify() {
    local status=0 importance=()
    [ -z "$IMPORTANCE" ] || importance=(--importance "$IMPORTANCE")
    tilepack verify "$OUTPUT" --against "$SOURCE" --json "${importance[@]}" >"$verified" ||
        status=$?
    jq -r '.problems[]? | "tilepack: \(.file // "") \(.tensor // ""): \(.what)"' "$verified" >&2
    return "$status"
}

row() { # name, text: a row of the table, whose separators the text has none of
    [ -z "$2" ] || printf '| %s | %s |\n' "$1" "$(printf '%s' "$2" | sed 's/|/\\|/g')"
}

summary() {
    local against=
    case $CONVERTED in success | failure) [ -s "$converted" ] || return 0 ;; *) return 0 ;; esac
    {
        printf '### tilepack: %s\n\n| | |\n|---|---|\n' "$FORMAT"
        row failed "$(member "$converted" '.error | select(.) |
            "status \(.code) (\(.reason // .kind)): \(.message)\(if .hint then "; \(.hint)" else "" end)"')"
        row output "$(member "$converted" .output)"
        row size "$(member "$converted" 'select(.bytes_out and .bytes_in > 0) |
            "\(.bytes_in) bytes became \(.bytes_out), \(100 * .bytes_out / .bytes_in | round) %"')"
        row 'left as it was' "$(member "$converted" 'select(.kind and .kind != "written") | .reason')"
        if [ -s "$verified" ]; then
            row 'worst weight' "$(member "$verified" '[.weights[]? | select(.sqnr_db)] |
                min_by(.sqnr_db) | select(.) |
                "`\(.name)`: SNR \(.sqnr_db * 10 | round / 10) dB, relative error \(.relative * 1e4 | round / 100) %"')"
            against='every byte is what the source gives'
            row verified "$(member "$verified" "if .error then \"failed: \\(.error.message)\"
                elif .ok then \"$against\"
                else \"**\\(.problems | length) problems**: \\(.problems[0].what)\" end")"
        else
            row verified 'no'
        fi
        row serve "$(member "$converted" "(.serve.command // empty) | \"\`\" + ($words) + \"\`\"")"
        row needs "$(member "$converted" '.serve.install | select(.) | "`\(.)`"')"
        row 'not served' "$(member "$converted" .unserved)"
    } | tee -a "$GITHUB_STEP_SUMMARY"
}

command -v jq >/dev/null || {
    echo "tilepack: the action needs jq, which runners of GitHub have" >&2
    exit 1
}
case $1 in
program) take_program ;;
convert) convert ;;
verify) verify ;;
summary) summary ;;
esac
