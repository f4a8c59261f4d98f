#include <cinttypes>
#include <cstdio>
#include <string>

#include "absl/strings/str_cat.h"
#include "proto/wire/signatures.h"

namespace rlk::wire {
namespace {

std::string_view Name(Direction direction) {
  switch (direction) {
    case Direction::kForward:
      return "forward";
    case Direction::kBackward:
      return "backward";
    case Direction::kUpdate:
      return "update";
  }
  return "?";
}

std::string_view Name(OpClass op_class) {
  switch (op_class) {
    case OpClass::kElementwise:
      return "elementwise";
    case OpClass::kReduction:
      return "reduction";
    case OpClass::kLogprob:
      return "logprob";
    case OpClass::kAttention:
      return "attention";
  }
  return "?";
}

std::string_view Name(AttributeKind kind) {
  switch (kind) {
    case AttributeKind::kF32:
      return "f32";
    case AttributeKind::kF64:
      return "f64";
    case AttributeKind::kI64:
      return "i64";
    case AttributeKind::kBool:
      return "bool";
    case AttributeKind::kDType:
      return "dtype";
    case AttributeKind::kEnum:
      return "enum";
  }
  return "?";
}

// 17 digits tell every double from every other.
std::string Text(double value) {
  char text[32];
  snprintf(text, sizeof(text), "%.17g", value);
  return text;
}

std::string DtypesText(const std::vector<DType>& dtypes) {
  std::string text;
  for (const DType dtype : dtypes) {
    absl::StrAppend(&text, text.empty() ? "" : ",", std::string(DTypeName(dtype)));
  }
  return text;
}

void DumpTensor(std::string_view role, const TensorSpec& spec, const MethodSignature& signature,
                std::string* out) {
  absl::StrAppend(out, "  ", std::string(role), " ", spec.name, " = ", spec.field_number, " [",
                  spec.dims_text, "]");
  if (!spec.dtypes.empty()) absl::StrAppend(out, " dtypes=", DtypesText(spec.dtypes));
  if (spec.same_dtype_as >= 0) {
    absl::StrAppend(
        out, " same_dtype_as=", signature.inputs[static_cast<size_t>(spec.same_dtype_as)].name);
  }
  if (spec.dtype_attribute >= 0) {
    absl::StrAppend(out, " dtype_attribute=",
                    signature.attributes[static_cast<size_t>(spec.dtype_attribute)].name);
  }
  if (spec.optional) absl::StrAppend(out, " optional");
  if (spec.on_request) absl::StrAppend(out, " on_request");
  if (spec.contiguous) absl::StrAppend(out, " contiguous");
  if (spec.alignment != 0) absl::StrAppend(out, " alignment=", spec.alignment);
  if (spec.repeated) absl::StrAppend(out, " repeated max_count=", spec.max_count);
  absl::StrAppend(out, "\n");
}

void DumpAttribute(const AttributeSpec& spec, const MethodSignature& signature, std::string* out) {
  absl::StrAppend(out, "  attribute ", spec.name, " = ", spec.field_number, " ",
                  std::string(Name(spec.kind)));
  if (spec.default_number.has_value()) {
    absl::StrAppend(out, " default=", Text(*spec.default_number));
  }
  if (spec.default_integer.has_value()) {
    if (spec.kind == AttributeKind::kDType) {
      absl::StrAppend(
          out, " default=", std::string(DTypeName(static_cast<DType>(*spec.default_integer))));
    } else {
      absl::StrAppend(out, " default=", *spec.default_integer);
    }
  }
  if (spec.finite) absl::StrAppend(out, " finite");
  if (spec.greater_than.has_value()) absl::StrAppend(out, " >", Text(*spec.greater_than));
  if (spec.at_least.has_value()) absl::StrAppend(out, " >=", Text(*spec.at_least));
  if (spec.less_than.has_value()) absl::StrAppend(out, " <", Text(*spec.less_than));
  if (spec.at_most.has_value()) absl::StrAppend(out, " <=", Text(*spec.at_most));
  if (spec.multiple_of != 0) absl::StrAppend(out, " multiple_of=", spec.multiple_of);
  if (!spec.dtypes.empty()) absl::StrAppend(out, " dtypes=", DtypesText(spec.dtypes));
  if (spec.same_dtype_as >= 0) {
    absl::StrAppend(
        out, " same_dtype_as=", signature.inputs[static_cast<size_t>(spec.same_dtype_as)].name);
    if (spec.default_same_dtype) absl::StrAppend(out, " (default)");
  }
  for (const auto& [number, name] : spec.enumerators) {
    absl::StrAppend(out, " ", name, "=", number);
  }
  absl::StrAppend(out, "\n");
}

}  // namespace

std::string DumpSignatures(const std::vector<MethodBinding>& bindings) {
  std::string out;
  for (const MethodBinding& binding : bindings) {
    const MethodSignature& signature = binding.signature;
    absl::StrAppend(&out, signature.method, " ", signature.rpc, " ",
                    std::string(Name(signature.direction)), " ",
                    std::string(Name(signature.op_class)), "\n");
    for (const TensorSpec& spec : signature.inputs) DumpTensor("input", spec, signature, &out);
    for (const AttributeSpec& spec : signature.attributes) DumpAttribute(spec, signature, &out);
    for (const TensorSpec& spec : signature.outputs) DumpTensor("output", spec, signature, &out);
  }
  return out;
}

}  // namespace rlk::wire
