# A further make inside a test, on its own: nothing of the make that may run the tests gets
# into it, but the compilers are those of $BUILD. Not a test itself.
# shellcheck shell=sh
plain_make() { # arguments of make ...
    (
        unset MAKEFLAGS MAKELEVEL MFLAGS MAKEOVERRIDES
        # "CC flags | NVCC chips | formats", as the Makefile writes it
        cc=$(sed 's/ -.*//' "$BUILD/config") || exit 1
        nvcc=$(sed 's/^[^|]*| \([^ ]*\) .*/\1/' "$BUILD/config")
        exec make CC="$cc" NVCC="$nvcc" "$@"
    )
}
