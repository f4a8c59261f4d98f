// Which variant runs a call: a pure function of the registry and the call, with a reason for every
// rejection.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/registry/registry.h"

namespace rlk {

struct SelectionQuery {
  std::string contract;         // empty: the default
  std::string backend;          // empty: by priority
  bool allow_fallback = false;  // AUTO
  ClaimLevel minimum_claim = ClaimLevel::kL1BatchInvariant;
  bool has_cuda = false;  // a healthy CUDA device is there
  DeviceTraits device;    // of that device
};

struct Rejection {
  Backend backend = Backend::kCpu;
  std::string kernel;
  std::string reason;
};

struct FallbackRecord {
  Backend from = Backend::kCuda;
  std::string reason;
};

struct Selection {
  const Variant* variant = nullptr;
  const Contract* contract = nullptr;
  ClaimLevel claim = ClaimLevel::kNone;
  std::vector<Rejection> rejected;
  std::optional<FallbackRecord> fallback;
};

// Priority: cuda_sm90, cuda, cpu; golden only when it is asked for by name.
// Errors: INVALID_ARGUMENT (kUnknownContract, kUnknownBackend with the allowed set);
// FAILED_PRECONDITION (kContractUnavailable, kBackendUnavailable, kClaimTooLow, kFallbackRefused).
// `args` carries shapes, dtypes and attributes; its data pointers are not read.
absl::StatusOr<Selection> Select(const Registry& registry, const Method& method,
                                 const SelectionQuery& query, const KernelArgs& args);

}  // namespace rlk
