#include "client/cli/call_arguments.h"

#include "client/cli/value.h"
#include "kernels/core/status.h"
#include "proto/wire/signatures.h"

namespace rlk::cli {
namespace {

template <typename Spec>
const Spec* FindSpec(const std::vector<Spec>& specs, const std::string& name,
                     std::vector<std::string>& names) {
  const Spec* found = nullptr;
  for (const Spec& spec : specs) {
    names.push_back(spec.name);
    if (spec.name == name) found = &spec;
  }
  return found;
}

}  // namespace

absl::Status AddArgument(const MethodSignature& signature, const std::string& argument,
                         CallArguments& call) {
  RLK_ASSIGN_OR_RETURN(const auto name_value, SplitNameValue(argument));
  const auto& [name, text] = name_value;
  std::vector<std::string> names;
  if (const TensorSpec* spec = FindSpec(signature.inputs, name, names)) {
    for (const NamedTensor& input : call.inputs) {
      if (input.name == name && !spec->repeated) {
        return InvalidArgument(Reason::kDuplicateTensor, name, text, "one value",
                               "the tensor is given twice");
      }
    }
    if (IsHandle(text)) {
      client::TensorRef ref;
      RLK_ASSIGN_OR_RETURN(ref.resident, ParseHandle(text));
      call.request.inputs.emplace_back(name, std::move(ref));
      call.handles.emplace_back(name, text);
      return absl::OkStatus();
    }
    RLK_ASSIGN_OR_RETURN(client::Tensor tensor, LoadTensor(text));
    call.request.inputs.emplace_back(name, tensor.ref());
    call.inputs.push_back({name, std::move(tensor)});
    return absl::OkStatus();
  }
  if (const AttributeSpec* spec = FindSpec(signature.attributes, name, names)) {
    RLK_ASSIGN_OR_RETURN(client::Attribute value, ParseAttribute(*spec, text));
    if (!call.request.attributes.emplace(name, std::move(value)).second) {
      return InvalidArgument(Reason::kUnknownOption, name, text, "one value",
                             "the attribute is given twice");
    }
    return absl::OkStatus();
  }
  return InvalidArgument(Reason::kUnknownField, name, text, client::JoinNames(names),
                         signature.method + " takes no input of this name");
}

absl::StatusOr<CallArguments> ParseCallArguments(const std::vector<std::string>& words) {
  if (words.empty()) {
    return absl::InvalidArgumentError("OPERATOR.METHOD is missing; rlk ops lists them");
  }
  CallArguments call;
  call.request.method = words[0];
  RLK_ASSIGN_OR_RETURN(const auto methods, wire::CompileSignatures(wire::OperatorFiles()));
  const MethodSignature* signature = nullptr;
  std::vector<std::string> names;
  for (const wire::MethodBinding& method : methods) {
    names.push_back(method.signature.method);
    if (method.signature.method == call.request.method) signature = &method.signature;
  }
  if (signature == nullptr) {
    return InvalidArgument(Reason::kUnknownOperator, "OPERATOR.METHOD", call.request.method,
                           client::JoinNames(names), "there is no such method");
  }
  for (size_t i = 1; i < words.size(); ++i) {
    RLK_RETURN_IF_ERROR(AddArgument(*signature, words[i], call));
  }
  return call;
}

}  // namespace rlk::cli
