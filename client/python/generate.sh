#!/usr/bin/env bash
# Regenerates rlk/_proto from proto/. With an argument, writes into that folder instead.
#
# Only protoc 3.21 will do: its code runs with protobuf 4.21 and everything after it, while code of
# a newer protoc refuses older runtimes. google/rpc is not generated: a second copy of those
# messages cannot live in the descriptor pool beside that of googleapis-common-protos.
set -euo pipefail

here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
proto="$(cd "$here/../../proto" && pwd)"
out="${1:-$here/rlk/_proto}"
protoc="${PROTOC:-protoc}"

version="$("$protoc" --version)"
case "$version" in
  "libprotoc 3.21."*) ;;
  *)
    echo "generate.sh: protoc 3.21 is needed, found: $version" >&2
    exit 1
    ;;
esac

work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT
"$protoc" -I "$proto" --python_out="$work" --pyi_out="$work" "$proto"/rlk/v1/*.proto

mkdir -p "$out"
rm -f "$out"/*_pb2.py "$out"/*_pb2.pyi
for file in "$work"/rlk/v1/*_pb2.py "$work"/rlk/v1/*_pb2.pyi; do
  # The modules live inside the package, so they import each other from there.
  sed -e 's/^from rlk\.v1 import /from rlk._proto import /' "$file" > "$out/$(basename "$file")"
done
