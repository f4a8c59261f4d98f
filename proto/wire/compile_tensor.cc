#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"
#include "kernels/core/status.h"
#include "proto/wire/compile_parts.h"
#include "proto/wire/dims.h"
#include "rlk/v1/contract.pb.h"
#include "rlk/v1/tensor.pb.h"

namespace rlk::wire {
namespace {

using google::protobuf::FieldDescriptor;

// Rules of outputs: the caller must be able to tell the dtype before the call.
absl::Status CheckOutputOptions(const FieldDescriptor& field,
                                const rlk::v1::TensorOptions& options) {
  const int rules = (options.dtypes_size() > 0 ? 1 : 0) +
                    (options.same_dtype_as().empty() ? 0 : 1) +
                    (options.dtype_attribute().empty() ? 0 : 1);
  if (rules != 1) {
    return BadApi(field.full_name(),
                  "an output needs exactly one of dtypes, same_dtype_as and dtype_attribute");
  }
  if (options.dtypes_size() > 1) {
    return BadApi(field.full_name(), "an output with dtypes needs exactly one");
  }
  if (options.contiguous()) {
    return BadApi(field.full_name(), "contiguous says nothing of an output: all are in C order");
  }
  return absl::OkStatus();
}

absl::Status CheckInputOptions(const FieldDescriptor& field,
                               const rlk::v1::TensorOptions& options) {
  if (!options.dtype_attribute().empty()) {
    return BadApi(field.full_name(), "dtype_attribute is for outputs only");
  }
  if (options.on_request()) return BadApi(field.full_name(), "on_request is for outputs only");
  if (options.dtypes_size() == 0 && options.same_dtype_as().empty()) {
    return BadApi(field.full_name(), "an input needs dtypes or same_dtype_as");
  }
  return absl::OkStatus();
}

absl::Status CheckCount(const FieldDescriptor& field, const rlk::v1::TensorOptions& options) {
  if (field.is_repeated() && options.max_count() < 1) {
    return BadApi(field.full_name(), "a repeated tensor needs max_count of at least 1");
  }
  if (!field.is_repeated() && options.max_count() != 0) {
    return BadApi(field.full_name(), "max_count is for repeated tensors only");
  }
  const int alignment = options.alignment();
  if (alignment < 0 || (alignment & (alignment - 1)) != 0) {
    return BadApi(field.full_name(), "alignment is not a power of two");
  }
  return absl::OkStatus();
}

// An output's size must follow from inputs that are always there.
absl::Status CheckOutputDims(const google::protobuf::MethodDescriptor& method,
                             const MethodSignature& signature, const TensorSpec& output) {
  const auto bound = [&](auto matches) {
    return std::any_of(
        signature.inputs.begin(), signature.inputs.end(), [&](const TensorSpec& input) {
          return (!input.optional || output.optional || output.on_request) && matches(input.dims);
        });
  };
  const std::string name = absl::StrCat(method.output_type()->full_name(), ".", output.name);
  if (output.dims.leading && !bound([](const DimsPattern& dims) { return dims.leading; })) {
    return BadApi(name, "no input gives the leading shape \"...\"");
  }
  for (const DimPattern& dim : output.dims.dims) {
    if (dim.letter == 0) continue;
    const auto has_letter = [&dim](const DimsPattern& dims) {
      return std::any_of(dims.dims.begin(), dims.dims.end(), [&dim](const DimPattern& candidate) {
        return candidate.letter == dim.letter;
      });
    };
    if (!bound(has_letter)) {
      return BadApi(name, absl::StrCat("no input gives the size ", std::string(1, dim.letter)));
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::vector<DType>> CompileDtypes(
    const FieldDescriptor& field, const google::protobuf::RepeatedField<int>& dtypes) {
  std::vector<DType> result;
  for (const int number : dtypes) {
    if (number <= 0 || number >= kDTypeCount) {
      return BadApi(field.full_name(), absl::StrCat("dtypes names the data type ", number));
    }
    const auto dtype = static_cast<DType>(number);
    if (std::find(result.begin(), result.end(), dtype) != result.end()) {
      return BadApi(field.full_name(), "dtypes names a data type twice");
    }
    result.push_back(dtype);
  }
  return result;
}

absl::StatusOr<int> FindDtypeInput(const FieldDescriptor& field, const std::string& name,
                                   const MethodSignature& signature) {
  for (size_t i = 0; i < signature.inputs.size(); ++i) {
    const TensorSpec& input = signature.inputs[i];
    if (input.name != name) continue;
    if (input.optional || input.repeated) {
      return BadApi(field.full_name(), absl::StrCat("same_dtype_as names \"", name,
                                                    "\", which is optional or repeated"));
    }
    return static_cast<int>(i);
  }
  return BadApi(field.full_name(),
                absl::StrCat("same_dtype_as names \"", name, "\", which is no input"));
}

absl::StatusOr<TensorSpec> CompileTensor(const FieldDescriptor& field, Role role) {
  if (field.type() != FieldDescriptor::TYPE_MESSAGE ||
      field.message_type() != rlk::v1::Tensor::descriptor()) {
    return BadApi(field.full_name(), "rlk.v1.tensor is on a field that is no rlk.v1.Tensor");
  }
  if (field.real_containing_oneof() != nullptr) {
    return BadApi(field.full_name(), "a tensor cannot be in a oneof");
  }
  const rlk::v1::TensorOptions& options = field.options().GetExtension(rlk::v1::tensor);
  RLK_RETURN_IF_ERROR(role == Role::kOutput ? CheckOutputOptions(field, options)
                                            : CheckInputOptions(field, options));
  RLK_RETURN_IF_ERROR(CheckCount(field, options));
  TensorSpec spec;
  spec.name = field.name();
  spec.field_number = field.number();
  RLK_ASSIGN_OR_RETURN(spec.dtypes, CompileDtypes(field, options.dtypes()));
  absl::StatusOr<DimsPattern> dims = ParseDims(options.dims());
  if (!dims.ok()) return BadApi(field.full_name(), std::string(dims.status().message()));
  spec.dims = *std::move(dims);
  spec.dims_text = options.dims();
  for (const DimPattern& dim : spec.dims.dims) {
    if (role == Role::kInput && !dim.attribute_name.empty()) {
      return BadApi(field.full_name(), absl::StrCat("dims names the attribute ", dim.attribute_name,
                                                    ": outputs only"));
    }
  }
  spec.optional = options.optional();
  spec.on_request = options.on_request();
  spec.contiguous = options.contiguous();
  spec.alignment = options.alignment();
  spec.repeated = field.is_repeated();
  spec.max_count = field.is_repeated() ? options.max_count() : 1;
  return spec;
}

absl::Status LinkTensor(const FieldDescriptor& field, Role role, const MethodSignature& signature,
                        TensorSpec* spec) {
  const rlk::v1::TensorOptions& options = field.options().GetExtension(rlk::v1::tensor);
  if (!options.same_dtype_as().empty()) {
    RLK_ASSIGN_OR_RETURN(spec->same_dtype_as,
                         FindDtypeInput(field, options.same_dtype_as(), signature));
  }
  for (DimPattern& dim : spec->dims.dims) {
    if (dim.attribute_name.empty()) continue;
    for (size_t i = 0; i < signature.attributes.size(); ++i) {
      const AttributeSpec& attribute = signature.attributes[i];
      if (attribute.name == dim.attribute_name && attribute.kind == AttributeKind::kI64) {
        dim.attribute = static_cast<int>(i);
      }
    }
    if (dim.attribute < 0) {
      return BadApi(field.full_name(), absl::StrCat("dims names \"", dim.attribute_name,
                                                    "\", which is no int64 attribute"));
    }
  }
  if (role == Role::kInput || options.dtype_attribute().empty()) return absl::OkStatus();
  for (size_t i = 0; i < signature.attributes.size(); ++i) {
    if (signature.attributes[i].name != options.dtype_attribute()) continue;
    if (signature.attributes[i].kind != AttributeKind::kDType) break;
    spec->dtype_attribute = static_cast<int>(i);
    return absl::OkStatus();
  }
  return BadApi(field.full_name(),
                absl::StrCat("dtype_attribute names \"", options.dtype_attribute(),
                             "\", which is no DataType attribute"));
}

absl::Status CheckTensors(const google::protobuf::MethodDescriptor& method,
                          const MethodSignature& signature) {
  const size_t inputs = signature.inputs.size();
  for (size_t i = 0; i < inputs; ++i) {
    int next = static_cast<int>(i);
    for (size_t steps = 0; next >= 0; ++steps) {
      if (steps > inputs) {
        return BadApi(absl::StrCat(method.input_type()->full_name(), ".", signature.inputs[i].name),
                      "same_dtype_as goes in a circle");
      }
      next = signature.inputs[static_cast<size_t>(next)].same_dtype_as;
    }
  }
  for (const TensorSpec& output : signature.outputs) {
    RLK_RETURN_IF_ERROR(CheckOutputDims(method, signature, output));
  }
  return absl::OkStatus();
}

}  // namespace rlk::wire
