#!/usr/bin/env bash
# Builds the container image of the Dockerfile, labelled with the version of CMakeLists.txt and the
# commit of this checkout.
#
#   deploy/image.sh [--cuda] [--tool docker|podman|buildah] [--target build|test|runtime] [--tag NAME]
#                   [-- OPTION...]
#
#   --cuda    with the CUDA backend, on Ubuntu 24.04 (default: CPU, on Debian 12)
#   --tool    what builds (default: the first of the three that is installed)
#   --target  test builds and runs tests in the image (default: runtime, the server)
#   --tag     name of the image (default: rlk:VERSION, and -cuda behind it)
#   OPTION    given to the tool as it is, for instance --build-arg RUN_IMAGE=...
set -euo pipefail

die() {
  printf 'image.sh: %s\n' "$*" >&2
  exit 1
}
usage() {
  sed -n '2,14s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"
  exit "${1:-2}"
}

cuda=0
tool=
target=runtime
tag=
while (($# > 0)); do
  case "$1" in
    --cuda) cuda=1 ;;
    --tool) tool=${2:?--tool needs a name} && shift ;;
    --target) target=${2:?--target needs a stage} && shift ;;
    --tag) tag=${2:?--tag needs a name} && shift ;;
    --) shift && break ;;
    -h | --help) usage 0 ;;
    *) usage >&2 ;;
  esac
  shift
done

cd "$(dirname "${BASH_SOURCE[0]}")/.."
for candidate in docker podman buildah; do
  if [[ -z "$tool" ]] && command -v "$candidate" >/dev/null; then
    tool=$candidate
  fi
done
[[ -n "$tool" ]] || die "none of docker, podman and buildah is installed"

version=$(sed -n 's/^project(rlk VERSION \([0-9.]*\).*/\1/p' CMakeLists.txt)
[[ -n "$version" ]] || die "CMakeLists.txt names no version"
arguments=(--build-arg "RLK_VERSION=$version")
if commit=$(git rev-parse HEAD 2>/dev/null); then
  dirty=0
  [[ -z "$(git --no-optional-locks status --porcelain --untracked-files=no)" ]] || dirty=1
  arguments+=(--build-arg "RLK_GIT_COMMIT=$commit" --build-arg "RLK_GIT_DIRTY=$dirty")
fi
if ((cuda)); then
  arguments+=(--build-arg RLK_CUDA=ON
    --build-arg BUILD_IMAGE=docker.io/nvidia/cuda:13.0.0-devel-ubuntu24.04
    --build-arg RUN_IMAGE=docker.io/library/ubuntu:24.04)
  version+=-cuda
fi
# OCI's own image format has no health check.
[[ "$tool" == docker ]] || arguments+=(--format docker)

exec "$tool" build --file Dockerfile --target "$target" --tag "${tag:-rlk:$version}" \
  "${arguments[@]}" "$@" .
