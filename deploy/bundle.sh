#!/usr/bin/env bash
# Makes a self-contained folder: server, command, GPU tests and benchmarks, Python package, test
# data, and the shared libraries that they need. It runs on x86-64 Linux with this or a newer glibc
# and libstdc++, without development packages.
#
#   deploy/bundle.sh DIR [--build BUILD_DIR] [--cuda ON|OFF|AUTO] [--arch LIST] [--jobs N]
#                    [--no-build] [--wheel FILE]...
#
#   --build  where to build; an existing build directory is used again (default: build-bundle)
#   --no-build  takes what the build directory holds; it was configured as build_all does below
#   --arch   GPU architectures, a semicolon list such as 90a (default: those of the project)
#   --wheel  a pure Python wheel to unpack beside the rlk package, for hosts that lack one that
#            the package needs (googleapis-common-protos is one that many lack)
#
# The folder must not exist, or must be an older bundle. Libraries are found by DT_RPATH, which,
# unlike RUNPATH, holds for the libraries of libraries too; libc and libstdc++ are the system's.
set -euo pipefail

source_dir="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
# For one architecture the kernels take about 20 MiB in each of three binaries; xz makes it a third.
size_max_kib=$((256 * 1024))

die() {
  printf 'bundle.sh: %s\n' "$*" >&2
  exit 1
}
usage() {
  sed -n '2,17s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"
  exit "${1:-2}"
}

out=""
build="$source_dir/build-bundle"
cuda="AUTO"
arch=""
jobs="$(nproc)"
wheels=()
builds=1
while (($# > 0)); do
  case "$1" in
    --build) build="${2:?--build needs a folder}"; shift ;;
    --cuda) cuda="${2:?--cuda needs ON, OFF or AUTO}"; shift ;;
    --arch) arch="${2:?--arch needs a list}"; shift ;;
    --no-build) builds=0 ;;
    --wheel) wheels+=("${2:?--wheel needs a file}"); shift ;;
    --jobs) jobs="${2:?--jobs needs a number}"; shift ;;
    -h | --help) usage 0 ;;
    -*) die "unknown option $1" ;;
    *) [[ -z "$out" ]] || die "one folder, please: $out and $1"; out="$1" ;;
  esac
  shift
done
[[ -n "$out" ]] || usage
if [[ -e "$out" && ! -f "$out/BUNDLE" ]]; then
  die "$out exists and is no bundle; name another folder"
fi

# Part of glibc, or of the compiler's runtime: always the system's own.
is_system_library() {
  case "$1" in
    linux-vdso.so.* | ld-linux*.so.* | libc.so.* | libm.so.* | libpthread.so.* | libdl.so.* | \
      librt.so.* | libresolv.so.* | libutil.so.* | libanl.so.* | libnsl.so.* | libnss_*.so.* | \
      libstdc++.so.* | libgcc_s.so.* | libcuda.so.*) return 0 ;;
  esac
  return 1
}

build_all() {
  # $ORIGIN is the loader's word.
  # shellcheck disable=SC2016,SC2054
  local options=(-G Ninja -S "$source_dir" -B "$build" -DCMAKE_BUILD_TYPE=Release
    "-DRLK_CUDA=$cuda" '-DCMAKE_BUILD_RPATH=$ORIGIN;$ORIGIN/../lib'
    -DCMAKE_EXE_LINKER_FLAGS=-Wl,--disable-new-dtags
    -DCMAKE_SHARED_LINKER_FLAGS=-Wl,--disable-new-dtags)
  [[ -z "$arch" ]] || options+=("-DRLK_CUDA_ARCHITECTURES=$arch")
  cmake "${options[@]}"
  targets=(rlk-server rlk)
  grep -q '^CMAKE_CUDA_COMPILER:' "$build/CMakeCache.txt" && targets+=(rlk_gpu_test rlk_gpu_bench rlk_compare_bench)
  local ninja_targets=()
  local target
  for target in "${targets[@]}"; do
    case "$target" in
      rlk-server) ninja_targets+=(server/rlk-server) ;;
      rlk) ninja_targets+=(client/rlk) ;;
      *) ninja_targets+=("$target") ;;
    esac
  done
  ninja -C "$build" -j "$jobs" "${ninja_targets[@]}"
}

# copy_libraries FILE...: what the files need, but for the system's own.
copy_libraries() {
  local file name arrow path rest
  for file in "$@"; do
    # Read from the original, whose libraries the system finds.
    while read -r name arrow path rest; do
      [[ "$name" == /* || "$name" == statically ]] && continue
      is_system_library "$name" && continue
      [[ "$arrow" == "=>" && "$path" == /* ]] || die "$file needs $name, which is not found"
      [[ -e "$out/lib/$name" ]] || install -m 755 "$path" "$out/lib/$name"
    done < <(ldd "$file")
  done
}

copy_files() {
  rm -rf "$out"
  mkdir -p "$out"/{bin,lib,python,examples,tests/gpu}
  local binaries=("$build/server/rlk-server" "$build/client/rlk")
  [[ ! -x "$build/tests/gpu/rlk_compare_bench" ]] || binaries+=("$build/tests/gpu/rlk_compare_bench")
  [[ ! -x "$build/tests/gpu/rlk_gpu_test" ]] || binaries+=("$build/tests/gpu/rlk_gpu_test")
  install -m 755 "${binaries[@]}" "$out/bin/"
  copy_libraries "${binaries[@]}"
  if [[ -e "$build/tests/gpu/librlk_gpu_bench.so" ]]; then
    copy_libraries "$build/tests/gpu/librlk_gpu_bench.so"
    install -m 755 "$build/tests/gpu/librlk_gpu_bench.so" "$out/lib/"
  fi
  strip --strip-unneeded "$out"/bin/* "$out"/lib/*

  cp -r "$source_dir/client/python/rlk" "$out/python/"
  cp "$source_dir"/client/python/examples/*.py "$out/examples/"
  local wheel
  for wheel in "${wheels[@]}"; do
    [[ "$wheel" == *-none-any.whl ]] || die "$wheel is no pure Python wheel"
    python3 -m zipfile -e "$wheel" "$out/python/"
  done
  cp -r "$source_dir/tests/data" "$source_dir/tests/golden" "$out/tests/"
  cp "$source_dir"/tests/gpu/{run.sh,bench.py,conditioning_bench.py,linear_bench.py,norm_bench.py} \
    "$source_dir"/tests/gpu/{server_check.py,arena_check.py,resident_check.py,parity_checks.py,replay_check.py,torch_check.py,transformers_check.py,chain_check.py} "$out/tests/gpu/"
  find "$out" -name __pycache__ -prune -exec rm -rf {} +
  cp "$source_dir/LICENSE" "$out/"
  {
    echo "commit $(git -C "$source_dir" rev-parse HEAD 2>/dev/null || echo unknown)"
    echo "changed $(git -C "$source_dir" status --porcelain 2>/dev/null | wc -l)"
    echo "built $(date -u +%Y-%m-%dT%H:%M:%SZ)"
  } >"$out/BUNDLE"
}

# Nothing but the system's own may be found outside the bundle, and its files must be small enough.
check() {
  local file name arrow path rest wrong=0
  for file in "$out"/bin/* "$out"/lib/*; do
    while read -r name arrow path rest; do
      [[ "$name" == /* || "$name" == statically ]] && continue
      is_system_library "$name" && continue
      # A library is loaded by a program of the bundle, whose DT_RPATH it inherits.
      [[ "$file" == "$out"/lib/* && -e "$out/lib/$name" ]] && continue
      path="$(readlink -f "${path:-/nowhere}")"
      if [[ "$path" != "$(readlink -f "$out")"/* ]]; then
        printf 'bundle.sh: %s takes %s from %s\n' "$file" "$name" "$path" >&2
        wrong=1
      fi
    done < <(env -i ldd "$file")
  done
  for file in "$out"/bin/* "$out"/lib/librlk_gpu_bench.so; do
    [[ -e "$file" ]] || continue
    if readelf -d "$file" | grep -q RUNPATH || ! readelf -d "$file" | grep -q 'RPATH.*ORIGIN'; then
      printf 'bundle.sh: %s has no DT_RPATH\n' "$file" >&2
      wrong=1
    fi
    if readelf -d "$file" | grep -q 'NEEDED.*libcuda'; then
      printf 'bundle.sh: %s links the driver\n' "$file" >&2
      wrong=1
    fi
  done
  local size
  size="$(du -sk "$out" | cut -f1)"
  ((size <= size_max_kib)) || die "the bundle has $size KiB, more than $size_max_kib"
  ((wrong == 0)) || die "the bundle is not self-contained"
  env -i "$out/bin/rlk-server" --help >/dev/null || [[ $? -eq 1 ]] || die "rlk-server does not start"
  printf 'bundle: %s, %s KiB, glibc %s or newer\n' "$out" "$size" "$(newest_glibc)"
}

newest_glibc() {
  objdump -T "$out"/bin/* "$out"/lib/* 2>/dev/null |
    sed -n 's/.*GLIBC_\([0-9.]*\).*/\1/p' | sort -V | tail -n 1
}

((builds == 0)) || build_all
copy_files
check
