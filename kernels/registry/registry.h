// Operators, their contracts and the variants that implement them. Filled once by
// kernels/builtin.cc, bound to the compiled signatures, then read-only.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/registry/contract.h"
#include "kernels/registry/kernel_args.h"
#include "kernels/registry/signature.h"

namespace rlk {

using LaunchFn = absl::Status (*)(const KernelArgs&);

// What a CUDA device has that a variant can need.
struct DeviceTraits {
  int compute_capability = 0;          // 10 * major + minor; 0 for the host
  int64_t shared_bytes_per_block = 0;  // the most that a block can be given
};

// One implementation of one method on one backend.
struct Variant {
  Backend backend = Backend::kCpu;
  std::string kernel;  // "softcap_forward_cpu"
  std::vector<ContractClaim> contracts;
  // CUDA: compute capability as 10 * major + minor, inclusive bounds.
  int capability_min = 0;
  int capability_max = 1 << 20;
  // CUDA: shared memory that a block of its kernels takes, at most.
  int64_t shared_bytes_per_block = 0;
  // Runs only where the tensor core follows the law t25x16: BackendState::step_law_reason.
  bool needs_step_law = false;
  // Shape, stride and alignment limits; null takes everything the signature allows. Depends on
  // dtypes and shapes only, never on data.
  absl::Status (*applicable)(const KernelArgs&) = nullptr;
  // Null needs none.
  int64_t (*workspace_bytes)(const KernelArgs&) = nullptr;
  // Enqueues on args.stream (CUDA) or computes (host). Every element of every present output is
  // written. Inputs are never written.
  LaunchFn launch = nullptr;
};

// Why a device with these traits cannot run the variant of a CUDA backend; empty where it can.
std::string WhyUnfit(const Variant& variant, const DeviceTraits& device);

// One method of an operator: what the proto cannot say.
struct MethodDecl {
  std::string method;  // "final_logit_softcap.forward"
  // Names as the proto must have them, in order; wire refuses to start where they differ.
  std::vector<std::string> inputs, attributes, outputs;
  // The first that takes the call's dtypes is the default.
  std::vector<Contract> contracts;
  std::vector<Variant> variants;
  // Checks that descriptors cannot express; null for none. Sees host copies of nothing: shapes,
  // dtypes, attributes and the selected contract only.
  absl::Status (*validate)(const KernelArgs&) = nullptr;
  // The integer attribute that can leave a choice to the contract, and the value that it has for a
  // call that `validate` let pass: kernels and the report see that one. Empty and null for none.
  std::string resolved_attribute;
  int64_t (*resolve)(const KernelArgs&) = nullptr;
  // Checks of values: the inputs that `validate_values` reads, for which its arguments have host
  // data that nobody else can write. Null and empty for none.
  std::vector<std::string> checked_inputs;
  absl::Status (*validate_values)(const KernelArgs&) = nullptr;
  // FP64 reference: same inputs (host memory), every output present as F64. Shares no code with
  // the kernels. args.contract names the contract whose declared casts it follows.
  LaunchFn golden = nullptr;
};

// Known-answer result of a backend; one that failed or has no device is listed with its reason.
struct BackendState {
  bool available = false;
  // The backend's device exists but the backend did not load: passing over it is a fallback.
  bool failed_to_load = false;
  std::string reason;
  int known_answers_passed = 0;
  // Why variants that need the tensor-core law t25x16 cannot run here; empty where they can.
  std::string step_law_reason = {};
};

// A declared method with its signature.
struct Method {
  MethodDecl decl;
  MethodSignature signature;

  bool HasContract(std::string_view id) const;
};

class Registry {
 public:
  // Registration; the order of methods is the order of ListOperators.
  void Add(MethodDecl decl);
  void SetBackend(Backend backend, BackendState state);

  // Joins declarations and signatures and freezes. INTERNAL, naming both sides, where a method, an
  // input, an attribute or an output exists on one side only.
  absl::Status Bind(std::vector<MethodSignature> signatures);

  const Method* Find(std::string_view method) const;       // "final_logit_softcap.forward"
  const Method* FindRpc(std::string_view rpc_path) const;  // "/rlk.v1.X/Y"
  std::span<const std::unique_ptr<Method>> methods() const { return methods_; }
  const BackendState& backend(Backend backend) const {
    return backends_[static_cast<size_t>(backend)];
  }

 private:
  bool frozen_ = false;
  std::vector<std::unique_ptr<Method>> methods_;
  std::map<std::string, const Method*, std::less<>> by_method_, by_rpc_;
  std::array<BackendState, kBackendCount> backends_;
};

}  // namespace rlk
