#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "kernels/core/status.h"
#include "server/engine/contract_check.h"

namespace rlk::server {

std::string NumberText(double value) {
  char buffer[32];
  const auto result = std::to_chars(buffer, buffer + sizeof(buffer), value);
  return std::string(buffer, result.ptr);
}

std::string DTypeList(const std::vector<DType>& dtypes) {
  std::string text;
  for (DType dtype : dtypes) {
    if (!text.empty()) text += ", ";
    text += DTypeName(dtype);
  }
  return text;
}

namespace {

// "finite, > 0, after rounding to FP32".
std::string AllowedText(const AttributeSpec& spec) {
  std::string text;
  const auto add = [&text](const std::string& part) {
    if (!text.empty()) text += ", ";
    text += part;
  };
  if (spec.finite) add("finite");
  if (spec.greater_than) add("> " + NumberText(*spec.greater_than));
  if (spec.at_least) add(">= " + NumberText(*spec.at_least));
  if (spec.less_than) add("< " + NumberText(*spec.less_than));
  if (spec.at_most) add("<= " + NumberText(*spec.at_most));
  if (spec.multiple_of != 0) add("a multiple of " + std::to_string(spec.multiple_of));
  if (text.empty()) text = "any";
  if (spec.kind == AttributeKind::kF32) text += "; checked after rounding to FP32";
  return text;
}

// Holds for no NaN, whatever the bounds: each comparison must be true, not merely not false. The
// type is one that holds every int64 and every double exactly enough to compare them.
bool InRange(const AttributeSpec& spec, long double value) {
  if (spec.greater_than && !(value > static_cast<long double>(*spec.greater_than))) return false;
  if (spec.at_least && !(value >= static_cast<long double>(*spec.at_least))) return false;
  if (spec.less_than && !(value < static_cast<long double>(*spec.less_than))) return false;
  if (spec.at_most && !(value <= static_cast<long double>(*spec.at_most))) return false;
  return true;
}

absl::Status OutOfRange(const AttributeSpec& spec, const std::string& value) {
  return InvalidArgument(Reason::kAttributeOutOfRange, spec.name, value, AllowedText(spec),
                         "the value is out of range");
}

absl::StatusOr<AttributeValue> CheckNumber(const AttributeSpec& spec, double given) {
  AttributeValue value{.kind = spec.kind, .number = given};
  // The one conversion. What is out of FP32's range becomes infinite or zero, and then the range
  // decides: 1e39 is not finite, 1e-46 is not above 0.
  if (spec.kind == AttributeKind::kF32) value.number = static_cast<float>(given);
  if (spec.finite && !std::isfinite(value.number)) return OutOfRange(spec, NumberText(given));
  if (!InRange(spec, value.number)) return OutOfRange(spec, NumberText(given));
  return value;
}

absl::StatusOr<AttributeValue> CheckInteger(const AttributeSpec& spec, int64_t given) {
  const bool multiple = spec.multiple_of == 0 || given % spec.multiple_of == 0;
  if (!multiple || !InRange(spec, given)) return OutOfRange(spec, std::to_string(given));
  return AttributeValue{.kind = spec.kind, .integer = given};
}

std::vector<DType> AllowedDTypes(const AttributeSpec& spec, std::span<const DType> input_dtypes) {
  std::vector<DType> allowed = spec.dtypes;
  if (spec.same_dtype_as >= 0) {
    const DType same = input_dtypes[static_cast<size_t>(spec.same_dtype_as)];
    const bool known = std::find(allowed.begin(), allowed.end(), same) != allowed.end();
    if (same != DType::kUnspecified && !known) allowed.push_back(same);
  }
  return allowed;
}

absl::StatusOr<AttributeValue> CheckDType(const AttributeSpec& spec, int64_t given,
                                          std::span<const DType> input_dtypes) {
  const std::vector<DType> allowed = AllowedDTypes(spec, input_dtypes);
  for (DType dtype : allowed) {
    if (static_cast<int64_t>(dtype) == given) {
      return AttributeValue{.kind = spec.kind, .integer = given};
    }
  }
  const bool known = given >= 0 && given < kDTypeCount;
  const std::string value =
      known ? std::string(DTypeName(static_cast<DType>(given))) : std::to_string(given);
  return InvalidArgument(Reason::kDtypeNotAllowed, spec.name, value, DTypeList(allowed),
                         "the dtype is not allowed");
}

absl::StatusOr<AttributeValue> CheckEnum(const AttributeSpec& spec, int64_t given) {
  std::string allowed;
  for (const auto& [number, name] : spec.enumerators) {
    if (number == given) return AttributeValue{.kind = spec.kind, .integer = given};
    if (!allowed.empty()) allowed += ", ";
    allowed += name;
  }
  return InvalidArgument(Reason::kAttributeOutOfRange, spec.name, std::to_string(given), allowed,
                         "the enumerator is not allowed");
}

absl::StatusOr<AttributeValue> CheckGiven(const AttributeSpec& spec,
                                          const Call::GivenAttribute& given,
                                          std::span<const DType> input_dtypes) {
  switch (spec.kind) {
    case AttributeKind::kF32:
    case AttributeKind::kF64:
      return CheckNumber(spec, given.number);
    case AttributeKind::kI64:
      return CheckInteger(spec, given.integer);
    case AttributeKind::kBool:
      if (given.integer == 0 || given.integer == 1) {
        return AttributeValue{.kind = spec.kind, .integer = given.integer};
      }
      return InvalidArgument(Reason::kAttributeOutOfRange, spec.name, std::to_string(given.integer),
                             "false, true", "no boolean");
    case AttributeKind::kDType:
      return CheckDType(spec, given.integer, input_dtypes);
    case AttributeKind::kEnum:
      return CheckEnum(spec, given.integer);
  }
  return MakeError(absl::StatusCode::kInternal, {Reason::kInternal, spec.name, {}, {}},
                   "the attribute's kind is unknown");
}

// The default goes through the same checks as a value: a signature whose default is out of its own
// range must not compute.
absl::StatusOr<AttributeValue> Default(const AttributeSpec& spec,
                                       std::span<const DType> input_dtypes) {
  Call::GivenAttribute given;
  const bool number = spec.kind == AttributeKind::kF32 || spec.kind == AttributeKind::kF64;
  if (number && spec.default_number) {
    given.number = *spec.default_number;
  } else if (!number && spec.default_integer) {
    given.integer = *spec.default_integer;
  } else if (spec.kind == AttributeKind::kDType && spec.default_same_dtype) {
    given.integer = static_cast<int64_t>(input_dtypes[static_cast<size_t>(spec.same_dtype_as)]);
  } else if (spec.kind == AttributeKind::kDType) {
    const std::vector<DType> allowed = AllowedDTypes(spec, input_dtypes);
    if (!allowed.empty()) given.integer = static_cast<int64_t>(allowed.front());
  } else {
    return InvalidArgument(Reason::kAttributeOutOfRange, spec.name, "absent", AllowedText(spec),
                           "the attribute must be given");
  }
  return CheckGiven(spec, given, input_dtypes);
}

}  // namespace

absl::StatusOr<std::vector<AttributeValue>> CheckAttributes(
    const MethodSignature& signature, const std::vector<Call::GivenAttribute>& given,
    std::span<const DType> input_dtypes) {
  const auto count = static_cast<int32_t>(signature.attributes.size());
  for (const Call::GivenAttribute& attribute : given) {
    if (attribute.spec < 0 || attribute.spec >= count) {
      return MakeError(absl::StatusCode::kInternal,
                       {Reason::kInternal, {}, std::to_string(attribute.spec), {}},
                       "a given attribute is not in the signature");
    }
  }
  std::vector<AttributeValue> values;
  values.reserve(signature.attributes.size());
  for (int32_t i = 0; i < count; ++i) {
    const AttributeSpec& spec = signature.attributes[static_cast<size_t>(i)];
    // As in protobuf, the last of several values counts.
    const Call::GivenAttribute* last = nullptr;
    for (const Call::GivenAttribute& attribute : given) {
      if (attribute.spec == i) last = &attribute;
    }
    absl::StatusOr<AttributeValue> value =
        last != nullptr ? CheckGiven(spec, *last, input_dtypes) : Default(spec, input_dtypes);
    if (!value.ok()) return value.status();
    values.push_back(*value);
  }
  return values;
}

}  // namespace rlk::server
