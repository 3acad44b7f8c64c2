# A further make inside a test, on its own: nothing of the make that may run the tests gets
# into it, but the compilers are those of $BUILD. Not a test itself.
# shellcheck shell=sh

# What must not be made anew (`-o`), spelled as the Makefile spells it.
# shellcheck disable=SC2034
built_config=${BUILD#"$(dirname "$TESTS")/"}/config

plain_make() { # arguments of make ...
    (
        unset MAKEFLAGS MAKELEVEL MFLAGS MAKEOVERRIDES
        # "CC flags | NVCC chips", as the Makefile writes it
        cc=$(sed 's/ -.*//' "$BUILD/config") || exit 1
        nvcc=$(sed 's/^[^|]*| \([^ ]*\) .*/\1/' "$BUILD/config")
        exec make CC="$cc" NVCC="$nvcc" "$@"
    )
}
