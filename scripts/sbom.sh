#!/bin/sh
# sbom.sh ARCHIVE VERSION LIBRARY ...
#
# Prints the bill of materials of a source archive: SPDX 2.3 as JSON, with the libraries that
# the program links (as the linker is told: -lNAME) in the versions that pkg-config knows
# here. The time is that of the commit, or SOURCE_DATE_EPOCH: the same commit and libraries
# give the same bytes. A library that it does not know is an error: a row is missing below.
set -eu
archive=$1
version=$2
shift 2

# name for pkg-config, package, licence
about() {
    case $1 in
    -ljansson) echo 'jansson jansson MIT' ;;
    -lpcre2-8) echo 'libpcre2-8 pcre2 BSD-3-Clause' ;;
    -lzstd) echo 'libzstd zstd BSD-3-Clause OR GPL-2.0-only' ;;
    -lxxhash) echo 'libxxhash xxhash BSD-2-Clause' ;;
    -lnettle) echo 'nettle nettle LGPL-3.0-or-later OR GPL-2.0-or-later' ;;
    *)
        echo "sbom.sh: no licence is known for $1; add a row to scripts/sbom.sh" >&2
        return 1
        ;;
    esac
}

commit=$(git rev-parse HEAD)
created=$(date -u -d "@${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)}" +%Y-%m-%dT%H:%M:%SZ)
sum=$(sha256sum <"$archive" | cut -d ' ' -f 1)
packages=
relations=
for library; do
    row=$(about "$library")
    read -r module name licence <<EOF
$row
EOF
    if ! found=$(pkg-config --modversion "$module"); then
        echo "sbom.sh: the version of $name is not known; pkg-config has no $module" >&2
        exit 1
    fi
    packages=$packages$(printf ',
    {
      "SPDXID": "SPDXRef-Package-%s",
      "name": "%s",
      "versionInfo": "%s",
      "downloadLocation": "NOASSERTION",
      "filesAnalyzed": false,
      "licenseConcluded": "NOASSERTION",
      "licenseDeclared": "%s",
      "copyrightText": "NOASSERTION",
      "externalRefs": [
        {
          "referenceCategory": "PACKAGE-MANAGER",
          "referenceType": "purl",
          "referenceLocator": "pkg:generic/%s@%s"
        }
      ]
    }' "$name" "$name" "$found" "$licence" "$name" "$found")
    relations=$relations$(printf ',
    {
      "spdxElementId": "SPDXRef-Package-tilepack",
      "relationshipType": "DYNAMIC_LINK",
      "relatedSpdxElement": "SPDXRef-Package-%s"
    }' "$name")
done

cat <<EOF
{
  "spdxVersion": "SPDX-2.3",
  "dataLicense": "CC0-1.0",
  "SPDXID": "SPDXRef-DOCUMENT",
  "name": "tilepack-$version",
  "documentNamespace": "https://spdx.org/spdxdocs/tilepack-$version-$commit-$sum",
  "creationInfo": {
    "created": "$created",
    "creators": ["Tool: tilepack-sbom.sh-$version"]
  },
  "packages": [
    {
      "SPDXID": "SPDXRef-Package-tilepack",
      "name": "tilepack",
      "versionInfo": "$version",
      "packageFileName": "${archive##*/}",
      "downloadLocation": "NOASSERTION",
      "filesAnalyzed": false,
      "checksums": [{"algorithm": "SHA256", "checksumValue": "$sum"}],
      "sourceInfo": "commit $commit",
      "licenseConcluded": "Apache-2.0",
      "licenseDeclared": "Apache-2.0",
      "copyrightText": "NOASSERTION",
      "primaryPackagePurpose": "SOURCE"
    }$packages
  ],
  "relationships": [
    {
      "spdxElementId": "SPDXRef-DOCUMENT",
      "relationshipType": "DESCRIBES",
      "relatedSpdxElement": "SPDXRef-Package-tilepack"
    }$relations
  ]
}
EOF
