#!/bin/sh
# release.sh BUILD VERSION
#
# Makes every file of a release from a clone of the commit that is checked out, into BUILD/release:
# wheels for x86-64 and aarch64, the static program, the Debian package, the source with its bill of
# materials, and SHA256SUMS. Refuses a tree with changes, and a version that the CHANGELOG does not
# have. The same commit gives the same bytes with the same compilers.
set -eu
umask 022
case $1 in /*) build=$1 ;; *) build=$PWD/$1 ;; esac
version=$2 out=$build/release
fail() {
    echo "release.sh: $*" >&2
    exit 1
}
[ -z "$(git status --porcelain)" ] || fail "the tree has changes; commit them, or put them away"
grep -q "^## $version\$" CHANGELOG.md || fail "CHANGELOG.md has no section '## $version'"

rm -rf "$out" "$build/release-source"
git clone -q . "$build/release-source"
SOURCE_DATE_EPOCH=$(git log -1 --format=%ct)
export SOURCE_DATE_EPOCH
(cd "$build/release-source" && ${MAKE:-make} BUILD=build wheel wheel-arm static deb dist)
mkdir "$out"
cd "$build/release-source/build"
cp dist/*.whl dist/*.tar.gz tilepack-"$version".tar.gz tilepack-"$version".spdx.json "$out"
find . -maxdepth 2 -name '*.deb' -exec cp {} "$out" \;
rm -rf "$build/release-source"
cd "$out"
sha256sum -- * >SHA256SUMS.new
mv SHA256SUMS.new SHA256SUMS
cat SHA256SUMS
echo "$out holds $(wc -l <SHA256SUMS) files of tilepack $version; to check them: sha256sum -c SHA256SUMS"
