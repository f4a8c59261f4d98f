#include "kernels/registry/selector.h"

#include <algorithm>
#include <array>
#include <span>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "kernels/core/status.h"
#include "kernels/registry/named_backends.h"

namespace rlk {
namespace {

constexpr std::array<Backend, kBackendCount> kAllBackends = {
    Backend::kCudaSm90, Backend::kCuda, Backend::kCpu, Backend::kGolden, Backend::kCublasLt};
constexpr std::span<const Backend> kPriority(kAllBackends.data(), 3);
static_assert(std::none_of(kPriority.begin(), kPriority.end(), OnlyByName) &&
              std::all_of(kAllBackends.begin() + 3, kAllBackends.end(), OnlyByName));

std::string Text(std::string_view text) { return std::string(text); }

std::string_view ClaimText(ClaimLevel claim) {
  constexpr std::string_view kNames[] = {"none", "L0", "L1", "L2", "L3"};
  return kNames[static_cast<int>(claim)];
}

const ContractClaim* FindClaim(const Variant& variant, std::string_view contract) {
  for (const ContractClaim& claim : variant.contracts) {
    if (claim.contract == contract) return &claim;
  }
  return nullptr;
}

const Contract* FindContract(const Method& method, std::string_view id) {
  for (const Contract& contract : method.decl.contracts) {
    if (contract.id == id) return &contract;
  }
  return nullptr;
}

bool BackendOffers(const Method& method, Backend backend, std::string_view contract) {
  return std::any_of(method.decl.variants.begin(), method.decl.variants.end(),
                     [&](const Variant& variant) {
                       return variant.backend == backend && FindClaim(variant, contract) != nullptr;
                     });
}

std::string ContractIds(const Method& method) {
  return absl::StrJoin(method.decl.contracts, ", ", [](std::string* out, const Contract& contract) {
    absl::StrAppend(out, contract.id);
  });
}

// Whether the contract is for the dtypes of the call.
bool Takes(const Contract& contract, const KernelArgs& args) {
  if (contract.dtypes.empty()) return true;
  const DType dtype = args.Input(contract.dtype_of).dtype;
  return std::find(contract.dtypes.begin(), contract.dtypes.end(), dtype) != contract.dtypes.end();
}

std::string DTypeNames(const std::vector<DType>& dtypes) {
  return absl::StrJoin(dtypes, ", ", [](std::string* out, DType dtype) {
    absl::StrAppend(out, Text(DTypeName(dtype)));
  });
}

// "cuda: no CUDA device; cpu (softcap_forward_cpu): ..."
std::string RejectionText(const std::vector<Rejection>& rejected) {
  return absl::StrJoin(rejected, "; ", [](std::string* out, const Rejection& rejection) {
    absl::StrAppend(out, Text(BackendName(rejection.backend)));
    if (!rejection.kernel.empty()) absl::StrAppend(out, " (", rejection.kernel, ")");
    absl::StrAppend(out, ": ", rejection.reason);
  });
}

absl::Status Unavailable(Reason reason, std::string_view field, std::string_view value,
                         std::string_view allowed, std::string_view message) {
  return MakeError(absl::StatusCode::kFailedPrecondition,
                   {reason, Text(field), Text(value), Text(allowed)}, message);
}

absl::StatusOr<Backend> ParseBackend(const std::string& name) {
  for (Backend backend : kAllBackends) {
    if (name == BackendName(backend)) return backend;
  }
  return InvalidArgument(Reason::kUnknownBackend, "options.backend", name,
                         absl::StrJoin(kAllBackends, ", ",
                                       [](std::string* out, Backend backend) {
                                         absl::StrAppend(out, Text(BackendName(backend)));
                                       }),
                         absl::StrCat("backend ", name, " is not known"));
}

// One selection in progress.
class Selector {
 public:
  Selector(const Registry& registry, const Method& method, const SelectionQuery& query,
           const KernelArgs& args)
      : registry_(registry), method_(method), query_(query), args_(args) {}

  absl::StatusOr<Selection> Run() {
    RLK_RETURN_IF_ERROR(ResolveNames());
    for (Backend backend : candidates_) {
      if (TryBackend(backend)) return Chosen();
    }
    return NothingFound();
  }

 private:
  // Names that rlk does not know are refused before anything else.
  absl::Status ResolveNames() {
    if (!query_.backend.empty()) {
      RLK_ASSIGN_OR_RETURN(asked_, ParseBackend(query_.backend));
      candidates_ = std::span<const Backend>(&asked_, 1);
    }
    if (!query_.contract.empty()) {
      selection_.contract = FindContract(method_, query_.contract);
      if (selection_.contract == nullptr) {
        return InvalidArgument(
            Reason::kUnknownContract, "options.contract", query_.contract, ContractIds(method_),
            absl::StrCat("contract ", query_.contract, " is not one of ", method_.decl.method));
      }
      if (Takes(*selection_.contract, args_)) return absl::OkStatus();
      return WrongDtype(*selection_.contract, selection_.contract->dtypes);
    }
    return ResolveDefault();
  }

  // The first contract for the call's dtypes; of those that the asked backend offers, if it offers
  // one.
  absl::Status ResolveDefault() {
    std::vector<DType> allowed;
    const Contract* first_of_others = nullptr;
    for (const Contract& contract : method_.decl.contracts) {
      if (!Takes(contract, args_)) {
        if (first_of_others == nullptr) first_of_others = &contract;
        allowed.insert(allowed.end(), contract.dtypes.begin(), contract.dtypes.end());
        continue;
      }
      const bool offered = query_.backend.empty() ? OfferedByPriority(contract.id)
                                                  : BackendOffers(method_, asked_, contract.id);
      if (offered) {
        selection_.contract = &contract;
        return absl::OkStatus();
      }
      if (selection_.contract == nullptr) selection_.contract = &contract;
    }
    if (first_of_others == nullptr || !query_.backend.empty()) return absl::OkStatus();
    return WrongDtype(*first_of_others, allowed);
  }

  // Some backend that can be chosen without being asked for declares the contract.
  bool OfferedByPriority(std::string_view contract) const {
    return std::any_of(kPriority.begin(), kPriority.end(),
                       [&](Backend backend) { return BackendOffers(method_, backend, contract); });
  }

  absl::Status WrongDtype(const Contract& contract, const std::vector<DType>& allowed) const {
    return InvalidArgument(
        Reason::kDtypeNotAllowed, contract.dtype_of,
        DTypeName(args_.Input(contract.dtype_of).dtype), DTypeNames(allowed),
        query_.contract.empty()
            ? absl::StrCat("no contract of ", method_.decl.method, " takes this dtype")
            : absl::StrCat("contract ", contract.id, " does not take it"));
  }

  bool TryBackend(Backend backend) {
    const BackendState& state = registry_.backend(backend);
    if (!state.available && !state.failed_to_load) {
      Reject(backend, "", state.reason.empty() ? "not in this build" : state.reason);
      return false;
    }
    if (BackendDevice(backend) == DeviceKind::kCuda && !query_.has_cuda) {
      Reject(backend, "", "no healthy CUDA device");
      return false;
    }
    for (const Variant& variant : method_.decl.variants) {
      if (variant.backend == backend && TryVariant(variant, state)) return true;
    }
    return false;
  }

  bool TryVariant(const Variant& variant, const BackendState& state) {
    const ContractClaim* claim = FindClaim(variant, selection_.contract->id);
    if (claim == nullptr) {
      Reject(variant.backend, variant.kernel,
             absl::StrCat("does not offer contract ", selection_.contract->id));
      return false;
    }
    if (BackendDevice(variant.backend) == DeviceKind::kCuda) {
      if (std::string why = WhyUnfit(variant, query_.device); !why.empty()) {
        Reject(variant.backend, variant.kernel, std::move(why));
        return false;
      }
    }
    if (variant.needs_step_law && state.available && !state.step_law_reason.empty()) {
      Reject(variant.backend, variant.kernel, state.step_law_reason);
      return false;
    }
    if (variant.applicable != nullptr) {
      if (const absl::Status status = variant.applicable(args_); !status.ok()) {
        Reject(variant.backend, variant.kernel, std::string(status.message()));
        return false;
      }
    }
    const ClaimLevel level = claim->On(query_.device.compute_capability);
    if (!Satisfies(level, query_.minimum_claim)) {
      best_claim_ = std::max(best_claim_, level);
      claim_too_low_ = true;
      Reject(variant.backend, variant.kernel,
             absl::StrCat("claim ", Text(ClaimText(level)),
                          level < query_.minimum_claim ? " is below the minimum "
                                                       : " does not include the minimum ",
                          Text(ClaimText(query_.minimum_claim))));
      return false;
    }
    if (!state.available) {
      // It would have run here: going on is a fallback.
      Reject(variant.backend, variant.kernel, state.reason);
      if (!selection_.fallback) selection_.fallback = {variant.backend, state.reason};
      return false;
    }
    selection_.variant = &variant;
    selection_.claim = level;
    return true;
  }

  void Reject(Backend backend, std::string_view kernel, std::string reason) {
    selection_.rejected.push_back({backend, std::string(kernel), std::move(reason)});
  }

  absl::StatusOr<Selection> Chosen() {
    if (selection_.fallback && !query_.allow_fallback) {
      return Unavailable(Reason::kFallbackRefused, "options.mode", "STRICT", "AUTO",
                         absl::StrCat("backend ", Text(BackendName(selection_.fallback->from)),
                                      " applies but failed to load (", selection_.fallback->reason,
                                      "), and mode STRICT refuses the fallback to ",
                                      Text(BackendName(selection_.variant->backend))));
    }
    return std::move(selection_);
  }

  absl::Status NothingFound() const {
    const std::string& contract = selection_.contract->id;
    const std::string why = RejectionText(selection_.rejected);
    const auto details = [&] { return why.empty() ? std::string() : absl::StrCat(" (", why, ")"); };
    if (!query_.backend.empty() && !registry_.backend(asked_).available) {
      return Unavailable(Reason::kBackendUnavailable, "options.backend", query_.backend,
                         AvailableBackends(),
                         absl::StrCat("backend ", query_.backend, " is not available", details()));
    }
    if (claim_too_low_) {
      return Unavailable(Reason::kClaimTooLow, "options.minimum_claim",
                         ClaimText(query_.minimum_claim),
                         Satisfies(best_claim_, ClaimLevel::kL3Portable)
                             ? "L0, L1, L3"
                             : absl::StrCat("at most ", Text(ClaimText(best_claim_))),
                         absl::StrCat("no variant claims ", Text(ClaimText(query_.minimum_claim)),
                                      " for ", contract, details()));
    }
    const std::string offered = OfferedContracts();
    if (!OfferedHere(contract) && !(query_.contract.empty() && offered.empty())) {
      return Unavailable(Reason::kContractUnavailable, "options.contract", contract, offered,
                         absl::StrCat("contract ", contract, " is not available here", details()));
    }
    return Unavailable(
        Reason::kBackendUnavailable, "options.backend", query_.backend, "",
        absl::StrCat("no backend can run ", method_.decl.method, " under ", contract, details()));
  }

  std::string AvailableBackends() const {
    std::vector<std::string> names;
    for (Backend backend : kAllBackends) {
      if (registry_.backend(backend).available) names.push_back(Text(BackendName(backend)));
    }
    return absl::StrJoin(names, ", ");
  }

  // Some candidate backend that is available offers the contract.
  bool OfferedHere(std::string_view contract) const {
    return std::any_of(candidates_.begin(), candidates_.end(), [&](Backend backend) {
      return registry_.backend(backend).available && BackendOffers(method_, backend, contract);
    });
  }

  std::string OfferedContracts() const {
    std::vector<std::string> ids;
    for (const Contract& contract : method_.decl.contracts) {
      if (OfferedHere(contract.id)) ids.push_back(contract.id);
    }
    return absl::StrJoin(ids, ", ");
  }

  const Registry& registry_;
  const Method& method_;
  const SelectionQuery& query_;
  const KernelArgs& args_;
  Backend asked_ = Backend::kCpu;
  std::span<const Backend> candidates_ = kPriority;
  Selection selection_;
  bool claim_too_low_ = false;
  ClaimLevel best_claim_ = ClaimLevel::kNone;
};

}  // namespace

absl::StatusOr<Selection> Select(const Registry& registry, const Method& method,
                                 const SelectionQuery& query, const KernelArgs& args) {
  return Selector(registry, method, query, args).Run();
}

}  // namespace rlk
