# shellcheck shell=bash
# Sourced by deploy/quickstart.sh and tests/run.sh: packages, compiler choice, a build that shows
# its progress, and start and stop of a server. Needs bash 5 and `set -euo pipefail` in the caller.

# What building and running need on Debian 12 and Ubuntu 24.04 (the names are the same on both).
# shellcheck disable=SC2034
RLK_BUILD_PACKAGES=(
  g++ cmake ninja-build pkg-config protobuf-compiler protobuf-compiler-grpc libprotobuf-dev
  libprotoc-dev libgrpc++-dev libabsl-dev prometheus-cpp-dev libxxhash-dev nlohmann-json3-dev
  libssl-dev
)

say() { printf '\n==> %s\n' "$*"; }
note() { printf '    %s\n' "$*"; }
die() {
  printf '\nerror: %s\n' "$*" >&2
  exit 1
}

# missing_packages NAME...: those of the names that dpkg does not have installed, one a line.
missing_packages() {
  local name
  for name in "$@"; do
    # ${Status} is dpkg's own placeholder.
    # shellcheck disable=SC2016
    [[ "$(dpkg-query -W -f='${Status}' "$name" 2>/dev/null)" == "install ok installed" ]] ||
      echo "$name"
  done
}

# install_packages LOG NAME...: installs what is missing. No apt call when nothing is.
install_packages() {
  local log=$1
  shift
  if ! command -v dpkg-query >/dev/null || ! command -v apt-get >/dev/null; then
    note "this is not Debian or Ubuntu: expecting to find what these packages provide: $*"
    return 0
  fi
  local missing
  mapfile -t missing < <(missing_packages "$@")
  if ((${#missing[@]} == 0)); then
    note "all packages are installed"
    return 0
  fi
  local apt=(env DEBIAN_FRONTEND=noninteractive apt-get -q -o DPkg::Lock::Timeout=120)
  if ((EUID != 0)); then
    command -v sudo >/dev/null ||
      die "packages are missing and sudo is not there; as root run: apt-get install ${missing[*]}"
    apt=(sudo "${apt[@]}")
  fi
  note "installing ${#missing[@]} packages: ${missing[*]} (log: $log)"
  if ! { "${apt[@]}" update && "${apt[@]}" install -y --no-install-recommends "${missing[@]}"; } \
    </dev/null >"$log" 2>&1; then
    tail -n 15 "$log" >&2
    die "apt-get could not install the packages; the whole log is in $log"
  fi
}

# find_nvcc: prints the path of nvcc, fails without one.
find_nvcc() {
  local candidate
  for candidate in "${CUDACXX:-}" "$(command -v nvcc || true)" /usr/local/cuda/bin/nvcc; do
    if [[ -n "$candidate" && -x "$candidate" ]]; then
      echo "$candidate"
      return 0
    fi
  done
  return 1
}

# gpu_architectures: the CMake architectures of the GPUs of this host, such as "90a" or "80;90a".
# Fails without a GPU and a driver that works.
gpu_architectures() {
  local capabilities
  command -v nvidia-smi >/dev/null || return 1
  capabilities=$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader 2>/dev/null) || return 1
  # Tensor-core steps of 9.0 need the architecture-specific target.
  capabilities=$(tr -d '. ' <<<"$capabilities" | sort -u | sed 's/^90$/90a/')
  [[ "$capabilities" =~ ^[0-9]+a?($'\n'[0-9]+a?)*$ ]] || return 1
  tr '\n' ';' <<<"$capabilities" | sed 's/;$//'
}

# run_logged LOG COMMAND...: runs it with its output in LOG, prints the log's last line every ten
# seconds where it changed, and the end of the log on failure. The command leads its own process
# group, whose number is in RLK_RUNNING_GROUP, so that stop_running ends a build with all its
# compilers.
RLK_RUNNING_GROUP=
run_logged() {
  local log=$1
  shift
  setsid "$@" </dev/null >"$log" 2>&1 &
  local pid=$! status=0 ticks=0 last="" line
  RLK_RUNNING_GROUP=$pid
  while kill -0 "$pid" 2>/dev/null; do
    sleep 0.2
    if ((++ticks % 50 == 0)); then
      line=$(tail -n 1 "$log" 2>/dev/null | cut -c1-92)
      [[ "$line" == "$last" ]] || note "$line"
      last=$line
    fi
  done
  wait "$pid" || status=$?
  RLK_RUNNING_GROUP=
  if ((status != 0)); then
    echo "---- end of $log" >&2
    tail -n 30 "$log" >&2
    echo "----" >&2
  fi
  return "$status"
}

# stop_running: ends what run_logged has running; for a trap.
stop_running() {
  [[ -z "$RLK_RUNNING_GROUP" ]] || kill -- "-$RLK_RUNNING_GROUP" 2>/dev/null || true
}

# json_string KEY FILE: the value of "KEY": "..." in the first line of FILE.
json_string() {
  sed -n "1s/.*\"$1\" *: *\"\\([^\"]*\\)\".*/\\1/p" "$2"
}
