// Contracts, claim levels and backends.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/core/dtype.h"

namespace rlk {

enum class ClaimLevel : uint8_t {
  kNone = 0,
  kL0Repeatable = 1,
  kL1BatchInvariant = 2,
  kL2Provider = 3,
  kL3Portable = 4,
};

// Whether a claim is enough where `minimum` is asked for. The levels are an order but for L2:
// equality with a named library is a property of its own, and bits that are the same on CPU and GPU
// (L3) need not be that library's.
constexpr bool Satisfies(ClaimLevel claim, ClaimLevel minimum) {
  return minimum == ClaimLevel::kL2Provider ? claim == minimum : claim >= minimum;
}

// kGolden and kCublasLt run where they are asked for by name: the FP64 reference, and a library
// that is a witness in comparisons.
enum class Backend : uint8_t { kCudaSm90 = 0, kCuda = 1, kCpu = 2, kGolden = 3, kCublasLt = 4 };
inline constexpr int kBackendCount = 5;

constexpr std::string_view BackendName(Backend backend) {
  constexpr std::string_view kNames[kBackendCount] = {"cuda_sm90", "cuda", "cpu", "golden",
                                                      "cublaslt"};
  return kNames[static_cast<int>(backend)];
}

enum class DeviceKind : uint8_t { kHost = 0, kCuda = 1 };

constexpr DeviceKind BackendDevice(Backend backend) {
  return backend == Backend::kCpu || backend == Backend::kGolden ? DeviceKind::kHost
                                                                 : DeviceKind::kCuda;
}

// The exact arithmetic of a method, by a versioned id. Its bits never change under one id.
struct Contract {
  std::string id;          // "final_logit_softcap/portable-v1"
  std::string arithmetic;  // in words and formulas, for ListOperators
  // A contract of some dtypes only: the input that decides, and its dtypes. Empty: all.
  std::string dtype_of = {};
  std::vector<DType> dtypes = {};
};

// What a variant claims for a contract. tests/golden/claims.json holds the evidence of each claim,
// by contract, backend and compute capability.
struct ContractClaim {
  std::string contract;
  ClaimLevel claim = ClaimLevel::kNone;
  // CUDA: the compute capabilities (10 * major + minor) of the GPUs that `claim` was measured on,
  // and the claim on others. Empty: `claim` holds wherever the variant runs.
  std::vector<int> measured_on = {};
  ClaimLevel claim_elsewhere = ClaimLevel::kNone;

  ClaimLevel On(int compute_capability) const {
    for (int measured : measured_on) {
      if (measured == compute_capability) return claim;
    }
    return measured_on.empty() ? claim : claim_elsewhere;
  }
};

}  // namespace rlk
