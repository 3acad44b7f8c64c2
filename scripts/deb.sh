#!/bin/sh
# deb.sh BUILD VERSION
#
# Makes BUILD/tilepack_VERSION_ARCH.deb of what `make install` gives, without the library and its
# headers: the program, its pages, completions, samples and documents. What it depends on is found
# by dpkg-shlibdeps. The same source gives the same bytes (SOURCE_DATE_EPOCH, else the commit's
# time). DEBFULLNAME and DEBEMAIL name who makes it.
set -eu
umask 022
build=$1 version=$2
for tool in dpkg-deb dpkg-shlibdeps strip; do
    command -v $tool >/dev/null || {
        echo "deb.sh: $tool is missing: it makes packages on Debian and Ubuntu (dpkg-dev)" >&2
        exit 1
    }
done
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || echo 0)}
export SOURCE_DATE_EPOCH
arch=$(dpkg --print-architecture)
maintainer="${DEBFULLNAME:-tilepack} <${DEBEMAIL:-tilepack@example.org}>"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
root=$work/root

# What the make that runs this has built is taken as it is.
${MAKE:-make} -s BUILD="$build" -o "$build/config" DESTDIR="$root" PREFIX=/usr install-program
strip --strip-unneeded --remove-section=.comment --remove-section=.note "$root/usr/bin/tilepack"
mkdir -p "$root/usr/share/zsh/vendor-completions" "$root/DEBIAN"
mv "$root/usr/share/zsh/site-functions/_tilepack" "$root/usr/share/zsh/vendor-completions/"
rmdir "$root/usr/share/zsh/site-functions"

# Pages and the changes are packed, links to pages follow them.
find "$root/usr/share/man" -type f -exec gzip -9n {} +
ln -s tilepack-convert.1.gz "$root/usr/share/man/man1/tilepack-plan.1.gz"
rm "$root/usr/share/man/man1/tilepack-plan.1"
doc=$root/usr/share/doc/tilepack
mv "$doc/CHANGELOG.md" "$doc/NEWS"
cat >"$doc/changelog" <<END
tilepack ($version) unstable; urgency=medium

  * NEWS.gz says what has changed.

 -- $maintainer  $(LC_ALL=C date -u -d "@$SOURCE_DATE_EPOCH" '+%a, %d %b %Y %T +0000')
END
gzip -9n "$doc/NEWS" "$doc/changelog"
rm "$doc/LICENSE"
cat >"$doc/copyright" <<END
Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/
Upstream-Name: tilepack

Files: *
Copyright: $(date -u -d "@$SOURCE_DATE_EPOCH" +%Y) the tilepack authors
License: Apache-2.0
 On Debian systems the text of this licence is in
 /usr/share/common-licenses/Apache-2.0.
END

mv "$root/usr/share/tilepack/samples" "$doc/examples"
rmdir "$root/usr/share/tilepack"

mkdir "$work/debian"
printf 'Source: tilepack\n\nPackage: tilepack\nArchitecture: any\n' >"$work/debian/control"
depends=$(cd "$work" && dpkg-shlibdeps -O -e"$root/usr/bin/tilepack" | sed 's/^shlibs:Depends=//')
cat >"$root/DEBIAN/control" <<END
Package: tilepack
Version: $version
Architecture: $arch
Maintainer: $maintainer
Depends: $depends
Installed-Size: $(du -sk "$root/usr" | cut -f 1)
Section: science
Priority: optional
Description: quantize and repack model weights for GPU kernels
 tilepack reads safetensors and Hugging Face checkpoints and writes them in
 exactly the bytes that the kernels of serving engines read: int4, FP8, MXFP8,
 MXFP4 and NVFP4. It proves every byte that it wrote, and works without a
 network.
END
(cd "$root" && find usr -type f -exec md5sum {} + | LC_ALL=C sort -k 2 >DEBIAN/md5sums)
find "$root" -exec touch -h -d "@$SOURCE_DATE_EPOCH" {} +
dpkg-deb --root-owner-group --build "$root" "$build/tilepack_${version}_$arch.deb" >/dev/null
echo "$build/tilepack_${version}_$arch.deb"
