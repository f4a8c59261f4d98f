// The parts of CompileSignatures: one file for tensors, one for attributes. Names of other fields
// are resolved when all of a method's fields are known.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "google/protobuf/descriptor.h"
#include "google/protobuf/repeated_field.h"
#include "kernels/registry/signature.h"

namespace rlk::wire {

enum class Role : uint8_t { kInput, kOutput };

// INTERNAL, naming what is wrong in the API itself.
absl::Status BadApi(std::string_view full_name, std::string_view what);

// The spec of a field with rlk.v1.tensor; names stay unresolved.
absl::StatusOr<TensorSpec> CompileTensor(const google::protobuf::FieldDescriptor& field, Role role);

// Resolves same_dtype_as and dtype_attribute of `spec`, which is of `field`.
absl::Status LinkTensor(const google::protobuf::FieldDescriptor& field, Role role,
                        const MethodSignature& signature, TensorSpec* spec);

// What only all tensors together tell: circles of same_dtype_as, and sizes of outputs that no
// input gives.
absl::Status CheckTensors(const google::protobuf::MethodDescriptor& method,
                          const MethodSignature& signature);

// The spec of a field with rlk.v1.attribute; same_dtype_as stays unresolved.
absl::StatusOr<AttributeSpec> CompileAttribute(const google::protobuf::FieldDescriptor& field);
absl::Status LinkAttribute(const google::protobuf::FieldDescriptor& field,
                           const MethodSignature& signature, AttributeSpec* spec);

// DataType numbers of an option, without UNSPECIFIED and repetitions.
absl::StatusOr<std::vector<DType>> CompileDtypes(
    const google::protobuf::FieldDescriptor& field,
    const google::protobuf::RepeatedField<int>& dtypes);

// Index of the input that same_dtype_as names: one that is always there exactly once.
absl::StatusOr<int> FindDtypeInput(const google::protobuf::FieldDescriptor& field,
                                   const std::string& name, const MethodSignature& signature);

// "FinalLogitSoftcap" of "final_logit_softcap", and back.
std::string CamelCase(std::string_view snake);
std::string SnakeCase(std::string_view camel);

}  // namespace rlk::wire
