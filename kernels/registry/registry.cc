#include "kernels/registry/registry.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "kernels/core/status.h"

namespace rlk {
namespace {

[[noreturn]] void Bug(const std::string& what) {
  fprintf(stderr, "rlk: %s\n", what.c_str());
  abort();
}

std::string List(const std::vector<std::string>& names) {
  return absl::StrCat("[", absl::StrJoin(names, ", "), "]");
}

template <typename Spec>
std::vector<std::string> Names(const std::vector<Spec>& specs) {
  std::vector<std::string> names;
  for (const Spec& spec : specs) names.push_back(spec.name);
  return names;
}

// The names must agree in number and order; the message shows both lists.
template <typename Spec>
void CompareNames(const std::string& method, const char* kind,
                  const std::vector<std::string>& declared, const std::vector<Spec>& specs,
                  std::vector<std::string>& disagreements) {
  const std::vector<std::string> in_proto = Names(specs);
  if (declared == in_proto) return;
  disagreements.push_back(absl::StrCat(method, ": ", kind, " are ", List(declared),
                                       " in the registry and ", List(in_proto), " in the proto"));
}

// What a declaration must satisfy by itself.
void CheckDecl(const MethodDecl& decl, std::vector<std::string>& disagreements) {
  const auto say = [&](const auto&... what) {
    disagreements.push_back(absl::StrCat(decl.method, ": ", what...));
  };
  if (decl.contracts.empty()) say("the registry declares no contract");
  const std::string prefix = decl.method.substr(0, decl.method.find('.')) + "/";
  for (size_t i = 0; i < decl.contracts.size(); ++i) {
    const std::string& id = decl.contracts[i].id;
    if (id.compare(0, prefix.size(), prefix) != 0) {
      say("contract ", id, " does not begin with ", prefix);
    }
    const bool names_input = std::find(decl.inputs.begin(), decl.inputs.end(),
                                       decl.contracts[i].dtype_of) != decl.inputs.end();
    if (!decl.contracts[i].dtypes.empty() && !names_input) {
      say("contract ", id, " depends on the dtype of ", decl.contracts[i].dtype_of,
          ", which is no input");
    }
    for (size_t j = 0; j < i; ++j) {
      if (decl.contracts[j].id == id) say("contract ", id, " is declared twice");
    }
  }
  const bool names_attribute = std::find(decl.attributes.begin(), decl.attributes.end(),
                                         decl.resolved_attribute) != decl.attributes.end();
  if (decl.resolve != nullptr && !names_attribute) {
    say("resolves ", decl.resolved_attribute, ", which is no attribute");
  }
  for (const Variant& variant : decl.variants) {
    if (variant.launch == nullptr) say("variant ", variant.kernel, " has no launch function");
    for (const ContractClaim& claim : variant.contracts) {
      const bool declared =
          std::any_of(decl.contracts.begin(), decl.contracts.end(),
                      [&](const Contract& contract) { return contract.id == claim.contract; });
      if (!declared) {
        say("variant ", variant.kernel, " offers ", claim.contract,
            ", which the method does not declare");
      }
    }
  }
}

}  // namespace

std::string WhyUnfit(const Variant& variant, const DeviceTraits& device) {
  if (device.compute_capability < variant.capability_min) {
    return absl::StrCat("needs compute capability ", variant.capability_min,
                        " or more, the device has ", device.compute_capability);
  }
  if (device.compute_capability > variant.capability_max) {
    return absl::StrCat("needs compute capability ", variant.capability_max,
                        " or less, the device has ", device.compute_capability);
  }
  if (device.shared_bytes_per_block < variant.shared_bytes_per_block) {
    return absl::StrCat("needs ", variant.shared_bytes_per_block,
                        " bytes of shared memory a block, the device has ",
                        device.shared_bytes_per_block);
  }
  return "";
}

bool Method::HasContract(std::string_view id) const {
  return std::any_of(decl.contracts.begin(), decl.contracts.end(),
                     [&](const Contract& contract) { return contract.id == id; });
}

void Registry::Add(MethodDecl decl) {
  if (frozen_) Bug("a method was added to a frozen registry: " + decl.method);
  auto method = std::make_unique<Method>();
  method->decl = std::move(decl);
  methods_.push_back(std::move(method));
}

void Registry::SetBackend(Backend backend, BackendState state) {
  if (frozen_) Bug("a backend was set in a frozen registry");
  backends_[static_cast<size_t>(backend)] = std::move(state);
}

absl::Status Registry::Bind(std::vector<MethodSignature> signatures) {
  if (frozen_) Bug("the registry was bound twice");
  std::vector<std::string> disagreements;
  std::map<std::string, MethodSignature*, std::less<>> by_name;
  for (MethodSignature& signature : signatures) {
    if (!by_name.emplace(signature.method, &signature).second) {
      disagreements.push_back(absl::StrCat(signature.method, ": twice in the proto"));
    }
  }
  for (const std::unique_ptr<Method>& method : methods_) {
    const MethodDecl& decl = method->decl;
    CheckDecl(decl, disagreements);
    if (!by_method_.emplace(decl.method, method.get()).second) {
      disagreements.push_back(absl::StrCat(decl.method, ": twice in the registry"));
      continue;
    }
    const auto found = by_name.find(decl.method);
    if (found == by_name.end()) {
      disagreements.push_back(
          absl::StrCat(decl.method, ": in the registry, but no RPC of the proto"));
      continue;
    }
    MethodSignature& signature = *found->second;
    CompareNames(decl.method, "inputs", decl.inputs, signature.inputs, disagreements);
    CompareNames(decl.method, "attributes", decl.attributes, signature.attributes, disagreements);
    CompareNames(decl.method, "outputs", decl.outputs, signature.outputs, disagreements);
    by_name.erase(found);
    method->signature = std::move(signature);
    if (!by_rpc_.emplace(method->signature.rpc, method.get()).second) {
      disagreements.push_back(
          absl::StrCat(decl.method, ": its RPC ", method->signature.rpc, " has two methods"));
    }
  }
  for (const auto& [name, signature] : by_name) {
    disagreements.push_back(absl::StrCat(name, ": an RPC of the proto (", signature->rpc,
                                         "), but not in the registry"));
  }
  if (!disagreements.empty()) {
    by_method_.clear();
    by_rpc_.clear();
    return MakeError(
        absl::StatusCode::kInternal, {Reason::kInternal, "", "", ""},
        absl::StrCat("registry and proto disagree: ", absl::StrJoin(disagreements, "; ")));
  }
  frozen_ = true;
  return absl::OkStatus();
}

const Method* Registry::Find(std::string_view method) const {
  const auto found = by_method_.find(method);
  return found == by_method_.end() ? nullptr : found->second;
}

const Method* Registry::FindRpc(std::string_view rpc_path) const {
  const auto found = by_rpc_.find(rpc_path);
  return found == by_rpc_.end() ? nullptr : found->second;
}

}  // namespace rlk
