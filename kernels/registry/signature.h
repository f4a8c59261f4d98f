// What a method takes and gives, as plain structs. `proto/wire` compiles the descriptors into
// these at start; the generic validator, selection and the kernels read nothing else.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "kernels/core/dtype.h"

namespace rlk {

enum class Direction : uint8_t { kForward = 1, kBackward = 2, kUpdate = 3 };
enum class OpClass : uint8_t { kElementwise = 1, kReduction = 2, kLogprob = 3, kAttention = 4 };

// One entry of a dims pattern: "128", "H", "3*T", "num_channels".
struct DimPattern {
  int64_t factor = 1;
  // 0 for a plain integer, whose value is `factor`.
  char letter = 0;
  // Outputs: index of the attribute whose value is the size; -1 for none.
  int attribute = -1;
  std::string attribute_name = {};
};

struct DimsPattern {
  // A leading "...": the same leading shape throughout the message.
  bool leading = false;
  std::vector<DimPattern> dims;
};

struct TensorSpec {
  std::string name;
  int field_number = 0;
  std::vector<DType> dtypes;
  // Index of the input whose dtype is allowed too; -1 for none.
  int same_dtype_as = -1;
  // Outputs: index of the attribute that holds the dtype; -1 for none.
  int dtype_attribute = -1;
  DimsPattern dims;
  std::string dims_text;
  bool optional = false;
  bool on_request = false;
  bool contiguous = false;
  int alignment = 0;
  bool repeated = false;
  int max_count = 1;
};

enum class AttributeKind : uint8_t { kF32, kF64, kI64, kBool, kDType, kEnum };

// An attribute as the arithmetic uses it.
struct AttributeValue {
  AttributeKind kind = AttributeKind::kF32;
  double number = 0;    // kF32 (already rounded to FP32), kF64
  int64_t integer = 0;  // kI64, kBool, kDType (a DType), kEnum (the proto enum number)
};

struct AttributeSpec {
  std::string name;
  int field_number = 0;
  AttributeKind kind = AttributeKind::kF32;
  // Absent: the attribute must be given, except that a dtype attribute defaults to its first dtype.
  std::optional<double> default_number;
  std::optional<int64_t> default_integer;
  bool finite = false;
  std::optional<double> greater_than, at_least, less_than, at_most;
  int64_t multiple_of = 0;
  // kDType. With default_same_dtype the default is the dtype of input same_dtype_as.
  std::vector<DType> dtypes;
  int same_dtype_as = -1;
  bool default_same_dtype = false;
  // kEnum: allowed numbers and their names without the enum's prefix, in lower case.
  std::vector<std::pair<int64_t, std::string>> enumerators;
};

struct MethodSignature {
  std::string method;         // "final_logit_softcap.forward"
  std::string operator_name;  // "final_logit_softcap"
  std::string rpc;            // "/rlk.v1.ActivationService/FinalLogitSoftcapForward"
  Direction direction = Direction::kForward;
  OpClass op_class = OpClass::kElementwise;
  std::vector<TensorSpec> inputs;
  std::vector<AttributeSpec> attributes;
  std::vector<TensorSpec> outputs;
};

}  // namespace rlk
