#!/bin/sh
# buf_check.sh SOURCE_DIR lint|breaking: runs the real buf on the API. Exits with 77, saying why,
# where there is no buf; RLK_BUF names one that is not on PATH.
set -eu
buf=${RLK_BUF:-buf}
if ! command -v "$buf" >/dev/null 2>&1; then
  echo "skipped: no buf (set RLK_BUF, or put buf on PATH)"
  exit 77
fi
cd "$1"
case $2 in
  lint) exec "$buf" lint ;;
  # Imports are the protobuf installation's, and its versions differ.
  breaking) exec "$buf" breaking --against tests/golden/api.binpb --exclude-imports ;;
esac
echo "unknown check $2" >&2
exit 2
