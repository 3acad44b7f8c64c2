# A bare system of this machine's distribution and release, to install into. It is made once, by
# root with debootstrap and a network, and kept packed in $BUILD. Not a test itself; read after
# preamble.sh.
# shellcheck shell=sh
# shellcheck disable=SC2154 # work is the folder of preamble.sh
bare_release=$(sed -n 's/^VERSION_CODENAME=//p' /etc/os-release 2>/dev/null)
bare_kept=$BUILD/bare-$bare_release-$(uname -m).tar

bare_make() {
    debootstrap --variant=minbase "$bare_release" "$work/bare-made" >"$work/bare.log" 2>&1 &&
        tar -C "$work/bare-made" --exclude=./var/cache/apt/archives/*.deb -cf "$bare_kept.tmp" . &&
        mv "$bare_kept.tmp" "$bare_kept" && rm -rf "$work/bare-made"
}

# Runs a command in that folder as its root, with what the environment says of proxies.
bare() { # folder, command ...
    where=$1
    shift
    env -i PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LC_ALL=C \
        DEBIAN_FRONTEND=noninteractive ${http_proxy:+"http_proxy=$http_proxy"} \
        ${https_proxy:+"https_proxy=$https_proxy"} chroot "$where" "$@"
}

# A bare system in the folder, with fresh lists of packages; otherwise a line says why not.
bare_root() { # folder
    bare_why=
    if [ "$(id -u)" != 0 ]; then
        bare_why='only root can make a bare system'
    elif [ ! -f "$bare_kept" ] && ! command -v debootstrap >/dev/null; then
        bare_why='debootstrap is not installed'
    elif [ ! -f "$bare_kept" ] && ! bare_make; then
        bare_why="debootstrap: $(tail -n 1 "$work/bare.log")"
    elif ! mkdir -p "$1" || ! tar -C "$1" -xpf "$bare_kept"; then
        bare_why='the bare system cannot be unpacked'
    else
        cp /etc/resolv.conf "$1/etc/resolv.conf"
        for file in /etc/apt/apt.conf.d/*proxy*; do
            if [ -f "$file" ]; then cp "$file" "$1/etc/apt/apt.conf.d/"; fi
        done
        bare "$1" apt-get -q -o APT::Update::Error-Mode=any update >"$work/bare.log" 2>&1 ||
            bare_why='no package lists can be fetched'
    fi
    [ -z "$bare_why" ] || echo "skipped, in a bare system: $bare_why"
    [ -z "$bare_why" ]
}
