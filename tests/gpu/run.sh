#!/usr/bin/env bash
# Proves the CUDA backend on a machine with a GPU. Runs from a bundle (deploy/bundle.sh).
#
#   tests/gpu/run.sh [--out DIR] [SECTION...]
#
#   portable    the bits of cuda are those of cpu, for all inputs where that can be tried (110 s)
#   norm        the same for the RMSNorm family, and its stored digests (180 s)
#   conditioning  the same for det_linear, the timestep MLP and the sinusoid (180 s)
#   law         the tensor core's step against its law as integer code, 1.0e10 outputs (120 s)
#   bf16        the BF16 linear and what is built on it: the bits of cuda are those of cpu (300 s)
#   bf16_full   the same contracts at 2048 rows of AdaLN's size: stored digests of whole outputs, and
#               rows and channels of them against cpu (300 s)
#   compare     comparisons and row digests on the GPU: the numbers of the host, and timings beside a
#               read of the same bytes (120 s)
#   resident    tensors that stay in device memory, and the ways of tensors to the server (150 s)
#   arena       tensors in memory that the server shares, with torch; costs beside an empty call and
#               torch's copies (300 s)
#   rest        functions, fast forms, casts, digest, invariance, engine (120 s)
#   sanitizer   compute-sanitizer memcheck and racecheck on small cases (150 s)
#   server      rlk-server with CUDA, called by the command and by the Python client (40 s)
#   checks      the checks of ParityService on cuda: against golden and cpu, and rows in other layouts (180 s)
#   replay      every call of a load run twice and recorded, then replayed on cpu: the same bits (200 s)
#   torch       the norms beside transformers' modules, and a tiny Qwen3-Next of transformers whose
#               norms run on the server, trained: the losses and log-probabilities of cpu; skipped
#               without transformers (300 s)
#   chain       MiniMax-H3's timestep conditioning stage by stage, against cpu and golden (300 s)
#   bench       timings beside torch.compile, Triton and a copy (180 s)
#   linear_bench  the BF16 linear of AdaLN beside cuBLAS and a read of its weights (180 s)
#   norm_bench  the same for the RMSNorm family, beside torch.compile and F.rms_norm (180 s)
#   conditioning_bench  the linear, the timestep MLP and the sinusoid beside torch with cuBLAS in
#               FP32, and the bits of h3-v1 and silu_cuda beside torch's (180 s)
#
# All sections without an argument. Each has the time limit above. Fails, rather than tests the
# CPU, where there is no GPU or the CUDA backend does not load. Prints one table and writes one
# JSON, results.json, beside the logs in DIR (default: $OUT, or gpu-results).
# Sections are called by name.
# shellcheck disable=SC2317
set -uo pipefail

here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
root="$(cd "$here/../.." && pwd)"
out="${OUT:-gpu-results}"
sections=()
while (($# > 0)); do
  case "$1" in
    --out) out="${2:?--out needs a folder}"; shift ;;
    portable | norm | compare | resident | arena | conditioning | law | bf16 | bf16_full | rest | sanitizer | server | checks | replay | torch | chain | bench | norm_bench | \
      conditioning_bench | linear_bench) sections+=("$1") ;;
    -h | --help) sed -n '2,35s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"; exit 0 ;;
    *) echo "run.sh: unknown section or option $1" >&2; exit 2 ;;
  esac
  shift
done
((${#sections[@]} > 0)) || sections=(portable norm compare resident arena conditioning law bf16 bf16_full rest sanitizer server checks replay torch chain bench
  norm_bench conditioning_bench linear_bench)
mkdir -p "$out" || exit 2
export RLK_GOLDEN_DIR="$root/tests/golden"
RLK_COMMIT="$(sed -n 's/^commit //p' "$root/BUNDLE" 2>/dev/null)"
export RLK_COMMIT="${RLK_COMMIT:-unknown}"
export PYTHONDONTWRITEBYTECODE=1
tests="$root/bin/rlk_gpu_test"
[[ -x "$tests" ]] || { echo "run.sh: $tests is missing: this bundle has no CUDA backend" >&2; exit 1; }

declare -A result seconds
failed=0

# run SECTION LIMIT COMMAND...: output in SECTION.log, its end on failure.
run() {
  local name=$1 limit=$2
  shift 2
  local begin=$SECONDS code=0
  timeout --kill-after=10 "$limit" "$@" >"$out/$name.log" 2>&1 || code=$?
  seconds[$name]=$((SECONDS - begin))
  if ((code == 0)); then
    result[$name]=passed
  elif ((code == 124 || code == 137)); then
    result[$name]="failed: over its limit of $limit s"
  else
    result[$name]="failed: exit code $code"
  fi
  if ((code != 0)); then
    failed=1
    grep -E '^\[  FAILED  \]|Failure$|^ *Expected|^ *Actual|element|differs' "$out/$name.log" | head -n 40
    tail -n 30 "$out/$name.log"
  else
    grep -E '^(ok|skipped|\[  PASSED|forward|backward|grad_|digest|timestep|det_linear|h3-v1|silu|    )' \
      "$out/$name.log" | tail -n 120
  fi
}

section_portable() {
  run portable 110 "$tests" --gtest_filter='*SoftcapPortable*:*SoftcapAllF32*:SoftcapStored*'
}
section_norm() {
  run norm 180 "$tests" --gtest_filter='*Norm*'
}
section_compare() {
  # shellcheck disable=SC2016
  run compare 120 bash -c '
    set -e
    "$1" --gtest_filter="GpuCompare.*:GpuRowDigests.*"
    "$2/bin/rlk_compare_bench"' _ "$tests" "$root"
}
section_resident() {
  # shellcheck disable=SC2016
  run resident 150 bash -c '
    set -e
    "$1" --gtest_filter="GpuResident*"
    python3 "$2/resident_check.py" --bin "$3/bin" --python "$3/python" --out "$4"' \
    _ "$tests" "$here" "$root" "$out/resident.json"
}
section_arena() {
  run arena 300 python3 -u "$here/arena_check.py" --bin "$root/bin" --python "$root/python" \
    --out "$out/arena.json"
}
section_conditioning() {
  run conditioning 180 "$tests" --gtest_filter='*Linear*:*Mlp*:*Sinusoid*-*Bf16Gpu*'
}
section_law() {
  run law 120 "$tests" --gtest_filter='*StepLaw*'
}
section_bf16() {
  run bf16 300 "$tests" --gtest_filter='*Bf16Gpu*'
}
section_bf16_full() {
  run bf16_full 300 "$tests" --gtest_filter='Bf16FullGpu.*'
}
section_rest() {
  local others='*SoftcapPortable*:*SoftcapAllF32*:SoftcapStored*:*Norm*:*Linear*:*Mlp*:*Sinusoid*'
  run rest 120 "$tests" --gtest_filter="-$others:*StepLaw*:*Bf16Gpu*:Bf16FullGpu*:GpuResident*:GpuCompare*:GpuRowDigests*"
}
section_sanitizer() {
  local tool
  tool="$(command -v compute-sanitizer || echo /usr/local/cuda/bin/compute-sanitizer)"
  if [[ ! -x "$tool" ]]; then
    result[sanitizer]="failed: compute-sanitizer is not here"
    seconds[sanitizer]=0
    failed=1
    return
  fi
  local small='SoftcapInvariance.Strided*:SoftcapInvariance.Neighbours*'
  small+=':DeviceDigest.EqualsHostForEvery*:DeviceDigest.EqualsHostAtUnaligned*:KnownAnswers.*'
  small+=':Dtypes/SoftcapPortable.NanIsCanonical/BF16*:GpuEngine.Takes*:GpuEngine.Reports*'
  small+=':*Linear.Extreme*:LinearFold.*:Mlp.WantedOutputs*:Sinusoid.Strides*'
  small+=':Bf16GpuLaw.*:Bf16GpuSmall.*'
  small+=':GpuCompare.EqualsHostAt*:GpuRowDigests.*'
  small+=':Vectors/NormLengths.CudaEqualsCpu/?:NormRows.AGiven*'
  # shellcheck disable=SC2016
  run sanitizer 150 bash -c '
    set -e
    "$1" --tool memcheck --leak-check no --error-exitcode 9 "$2" --gtest_filter="$3"
    "$1" --tool racecheck --error-exitcode 9 "$2" --gtest_filter="$3"
    echo "ok  memcheck and racecheck are clean"' _ "$tool" "$tests" "$small"
}
section_server() {
  run server 40 python3 "$here/server_check.py" --bin "$root/bin" --python "$root/python" \
    --out "$out/server.json"
}
section_checks() {
  run checks 180 python3 "$here/parity_checks.py" --bin "$root/bin" --out "$out/checks.json"
}
section_replay() {
  run replay 200 python3 -u "$here/replay_check.py" --bin "$root/bin" --out "$out/replay.json"
}
section_torch() {
  # shellcheck disable=SC2016
  run torch 300 bash -c '
    set -e
    python3 -u "$1/transformers_check.py" --bin "$2/bin" --python "$2/python" --out "$3/transformers.json"
    python3 -u "$1/torch_check.py" --bin "$2/bin" --python "$2/python" \
      --example "$2/examples/tiny_qwen3_next.py" --out "$3/torch.json"' _ "$here" "$root" "$out"
}
section_chain() {
  run chain 300 python3 -u "$here/chain_check.py" --bin "$root/bin" --out "$out/chain.json"
}
section_bench() {
  run bench 180 python3 -u "$here/bench.py" --library "$root/lib/librlk_gpu_bench.so" \
    --out "$out/bench.json"
}
section_norm_bench() {
  run norm_bench 180 python3 -u "$here/norm_bench.py" --library "$root/lib/librlk_gpu_bench.so" \
    --out "$out/norm_bench.json"
}
section_conditioning_bench() {
  run conditioning_bench 180 python3 -u "$here/conditioning_bench.py" \
    --library "$root/lib/librlk_gpu_bench.so" --out "$out/conditioning_bench.json"
}
section_linear_bench() {
  run linear_bench 180 python3 -u "$here/linear_bench.py" \
    --library "$root/lib/librlk_gpu_bench.so" --out "$out/linear_bench.json"
}

for section in "${sections[@]}"; do
  echo "==> $section"
  "section_$section"
done

echo
printf '%-18s %6s  %s\n' section s result
for section in "${sections[@]}"; do
  printf '%-18s %6s  %s\n' "$section" "${seconds[$section]}" "${result[$section]}"
done

{
  for section in "${sections[@]}"; do
    printf '%s\t%s\t%s\n' "$section" "${seconds[$section]}" "${result[$section]}"
  done
} | python3 -c '
import json, os, shutil, subprocess, sys, time
out, commit = sys.argv[1:3]
query = ["nvidia-smi", "--query-gpu=name,driver_version,uuid", "--format=csv,noheader"]
gpu = "unknown"
if shutil.which(query[0]):
    gpu = subprocess.run(query,
                         capture_output=True, text=True, check=False).stdout.strip()
results = {"commit": commit, "date": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
           "gpu": gpu, "sections": {}}
for line in sys.stdin:
    name, seconds, result = line.rstrip("\n").split("\t")
    results["sections"][name] = {"seconds": int(seconds), "result": result}
for name in ("bench", "norm_bench", "conditioning_bench", "linear_bench", "resident", "arena",
             "server", "replay", "torch", "transformers", "chain"):
    path = os.path.join(out, name + ".json")
    section = "torch" if name == "transformers" else name
    if section in results["sections"] and os.path.exists(path):
        with open(path, encoding="utf-8") as file:
            results[name] = json.load(file)
with open(os.path.join(out, "results.json"), "w", encoding="utf-8") as file:
    json.dump(results, file, indent=1)
' "$out" "$RLK_COMMIT"
exit "$failed"
