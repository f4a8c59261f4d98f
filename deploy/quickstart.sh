#!/usr/bin/env bash
# From a clean clone to a softcap computed by the server. See usage below.
set -euo pipefail

usage() {
  cat <<'TEXT'
usage: deploy/quickstart.sh [--softcap C] [--repeat N] [--no-install] [FILE#KEY]

Installs what is missing (apt, Debian 12 or Ubuntu 24.04), builds the server and the command in
build/quickstart, starts the server on free ports and a Unix socket, and calls
final_logit_softcap.forward and .backward on real logits. Shows the contract, the backend, digests,
the error against FP64, whether repeated calls give the same bits, the time of each phase, and some
metrics. Then stops the server.

  FILE#KEY       tensor KEY of your own safetensors file, or FILE.npy: FP32, FP16 or BF16, at most
                 1 MiB less 1 KiB; the default is the logits in tests/data
  --softcap C    the cap (30)
  --repeat N     how often each call is repeated and its bits compared (3)
  --no-install   never call apt
TEXT
}

main() {
  parse_arguments "$@"
  root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
  # shellcheck source=deploy/build_env.sh
  source "$root/deploy/build_env.sh"
  build=$root/build/quickstart
  # Objects are shared between build folders and clones.
  export CCACHE_BASEDIR=$root
  mkdir -p "$build"
  server_pid=
  work=$(mktemp -d "${TMPDIR:-/tmp}/rlk.XXXXXX")
  trap cleanup EXIT
  trap 'exit 130' INT
  trap 'exit 143' TERM

  SECONDS=0
  say "1/5 Packages"
  if ((install)); then
    install_packages "$build/apt.log" "${RLK_BUILD_PACKAGES[@]}"
  else
    note "not looked at (--no-install)"
  fi
  build_all
  start_server
  call_operator
  show_metrics
  stop_server
  say "Done in $SECONDS s. Both programs are in build/quickstart; next:"
  note "build/quickstart/server/rlk-server &"
  note "build/quickstart/client/rlk call final_logit_softcap.forward x=random:4x1000:bf16:1:30 softcap=20"
}

parse_arguments() {
  softcap=30
  repeat=3
  install=1
  input=
  while (($#)); do
    case $1 in
      --softcap) softcap=${2:?"--softcap needs a value"} && shift ;;
      --repeat) repeat=${2:?"--repeat needs a value"} && shift ;;
      --no-install) install=0 ;;
      -h | --help) usage && exit 0 ;;
      -*) usage >&2 && exit 2 ;;
      *) input=$1 ;;
    esac
    shift
  done
}

cleanup() {
  local status=$?
  trap - EXIT
  stop_running
  if [[ -n "$server_pid" ]]; then
    kill "$server_pid" 2>/dev/null || true
    wait "$server_pid" 2>/dev/null || true
  fi
  rm -rf "$work"
  exit "$status"
}

build_all() {
  local nvcc architectures configure=(-DRLK_CUDA=OFF)
  if nvcc=$(find_nvcc) && architectures=$(gpu_architectures); then
    configure=(-DRLK_CUDA=ON "-DRLK_CUDA_ARCHITECTURES=$architectures"
      "-DCMAKE_CUDA_COMPILER=$nvcc")
    say "2/5 Build with CUDA for $architectures (build/quickstart)"
  else
    say "2/5 Build for the CPU: nvcc and a GPU are not both here (build/quickstart)"
  fi
  cd "$root"
  run_logged "$build/configure.log" cmake --preset quickstart "${configure[@]}" ||
    die "CMake could not configure; the log is $build/configure.log"
  run_logged "$build/build.log" cmake --build --preset quickstart --target server/rlk-server client/rlk ||
    die "the build failed; the log is $build/build.log"
  rlk=$build/client/rlk
  note "built after $SECONDS s"
}

start_server() {
  say "3/5 Server"
  "$build/server/rlk-server" --listen 127.0.0.1:0 --unix "$work/rlk.sock" --metrics 127.0.0.1:0 \
    </dev/null >"$work/server.out" 2>"$work/server.log" &
  server_pid=$!
  # The first line of stdout says that the server serves, and where.
  local tries=0
  until [[ -s "$work/server.out" && "$(wc -l <"$work/server.out")" -ge 1 ]]; do
    if ! kill -0 "$server_pid" 2>/dev/null || ((++tries > 600)); then
      tail -n 20 "$work/server.log" >&2
      die "the server did not start; its log is above"
    fi
    sleep 0.1
  done
  note "$(head -n 1 "$work/server.out")"
  metrics=$(json_string metrics "$work/server.out")
  [[ -n "$metrics" ]] || die "no metrics address in the server's first line"
}

call_operator() {
  local x grad files_from=$root extra=(--repeat "$repeat" --verify reference)
  if [[ -n "$input" ]]; then
    x=$input
    files_from=$called_from
    # Any gradient of the right shape shows the backward: here that of sum(x * y).
    grad=$input
  else
    x=tests/data/minilm_logits.safetensors#logits
    grad=tests/data/minilm_logits.safetensors#grad_y
  fi
  say "4/5 Calls through $work/rlk.sock"
  run_call call final_logit_softcap.forward "x=$x" "softcap=$softcap" "${extra[@]}"
  run_call call final_logit_softcap.backward "x=$x" "grad_y=$grad" "softcap=$softcap" "${extra[@]}"
}

run_call() {
  printf '\n$ rlk %s\n' "$*"
  # The user's FILE is relative to the folder that the script was called from.
  (cd "$files_from" && "$rlk" "$@" --server "unix:$work/rlk.sock") || {
    tail -n 5 "$work/server.log" >&2
    die "the call failed"
  }
}

show_metrics() {
  say "5/5 Metrics, from http://$metrics/metrics"
  local host=${metrics%:*} port=${metrics##*:}
  # HTTP without curl, which a fresh system may not have.
  exec 3<>"/dev/tcp/$host/$port" || die "cannot connect to the metrics port $metrics"
  printf 'GET /metrics HTTP/1.0\r\nHost: %s\r\n\r\n' "$metrics" >&3
  tr -d '\r' <&3 >"$work/metrics"
  exec 3>&-
  grep -E '^rlk_(requests_total|replays_total|replay_mismatches_total|verifications_total|selftest_total|phase_duration_seconds_(sum|count)|transport_bytes_total)' \
    "$work/metrics" | grep -v ' 0$' | sed 's/^/    /' || die "the server exports no metrics"
}

stop_server() {
  local status=0
  kill -TERM "$server_pid"
  wait "$server_pid" || status=$?
  server_pid=
  ((status == 0)) || die "the server ended with status $status on SIGTERM"
  note "the server drained and stopped"
}

called_from=$PWD
main "$@"
