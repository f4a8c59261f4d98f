#include <cmath>
#include <optional>
#include <string>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "kernels/core/status.h"
#include "proto/wire/compile_parts.h"
#include "rlk/v1/contract.pb.h"
#include "rlk/v1/tensor.pb.h"

namespace rlk::wire {
namespace {

using google::protobuf::EnumDescriptor;
using google::protobuf::FieldDescriptor;
using rlk::v1::AttributeOptions;

bool HasRange(const AttributeOptions& options) {
  return options.has_greater_than() || options.has_at_least() || options.has_less_than() ||
         options.has_at_most();
}

absl::StatusOr<AttributeKind> KindOf(const FieldDescriptor& field,
                                     const AttributeOptions& options) {
  switch (field.type()) {
    case FieldDescriptor::TYPE_DOUBLE:
      switch (options.arithmetic()) {
        case rlk::v1::DATA_TYPE_UNSPECIFIED:
        case rlk::v1::DATA_TYPE_F32:
          return AttributeKind::kF32;
        case rlk::v1::DATA_TYPE_F64:
          return AttributeKind::kF64;
        default:
          return BadApi(field.full_name(), "arithmetic is F32 or F64");
      }
    case FieldDescriptor::TYPE_INT64:
      return AttributeKind::kI64;
    case FieldDescriptor::TYPE_BOOL:
      return AttributeKind::kBool;
    case FieldDescriptor::TYPE_ENUM:
      return field.enum_type() == rlk::v1::DataType_descriptor() ? AttributeKind::kDType
                                                                 : AttributeKind::kEnum;
    default:
      return BadApi(field.full_name(),
                    absl::StrCat("an attribute cannot be of type ", field.type_name(),
                                 "; double, int64, bool and enums can"));
  }
}

// An option of another kind of attribute would be read by nobody.
absl::Status CheckOptionsFit(const FieldDescriptor& field, const AttributeOptions& options,
                             AttributeKind kind) {
  const bool number = kind == AttributeKind::kF32 || kind == AttributeKind::kF64;
  const bool integer = kind == AttributeKind::kI64;
  const bool dtype = kind == AttributeKind::kDType;
  const struct {
    std::string_view name;
    bool given, fits;
  } checks[] = {
      {"arithmetic", options.arithmetic() != rlk::v1::DATA_TYPE_UNSPECIFIED, number},
      {"default_value", options.has_default_value(), number},
      {"finite", options.finite(), number},
      {"a range", HasRange(options), number || integer},
      {"default_integer", options.has_default_integer(), integer},
      {"multiple_of", options.multiple_of() != 0, integer},
      {"default_enum", !options.default_enum().empty(), kind == AttributeKind::kEnum},
      {"dtypes", options.dtypes_size() > 0, dtype},
      {"same_dtype_as", !options.same_dtype_as().empty(), dtype},
      {"default_bool", options.default_bool(), kind == AttributeKind::kBool},
      {"default_same_dtype", options.default_same_dtype(), dtype},
  };
  for (const auto& check : checks) {
    if (check.given && !check.fits) {
      return BadApi(field.full_name(),
                    absl::StrCat(std::string(check.name), " says nothing of a field of type ",
                                 field.type_name()));
    }
  }
  return absl::OkStatus();
}

absl::Status CompileRange(const FieldDescriptor& field, const AttributeOptions& options,
                          AttributeSpec* spec) {
  spec->finite = options.finite();
  if (options.has_greater_than()) spec->greater_than = options.greater_than();
  if (options.has_at_least()) spec->at_least = options.at_least();
  if (options.has_less_than()) spec->less_than = options.less_than();
  if (options.has_at_most()) spec->at_most = options.at_most();
  for (const auto& bound : {spec->greater_than, spec->at_least, spec->less_than, spec->at_most}) {
    if (!bound.has_value()) continue;
    if (!std::isfinite(*bound)) return BadApi(field.full_name(), "a bound is not finite");
    if (spec->kind == AttributeKind::kI64 && *bound != std::trunc(*bound)) {
      return BadApi(field.full_name(), "a bound of an int64 field is not an integer");
    }
  }
  if (spec->greater_than.has_value() && spec->at_least.has_value()) {
    return BadApi(field.full_name(), "greater_than and at_least are given");
  }
  if (spec->less_than.has_value() && spec->at_most.has_value()) {
    return BadApi(field.full_name(), "less_than and at_most are given");
  }
  const std::optional<double> low =
      spec->greater_than.has_value() ? spec->greater_than : spec->at_least;
  const std::optional<double> high = spec->less_than.has_value() ? spec->less_than : spec->at_most;
  const bool closed = spec->at_least.has_value() && spec->at_most.has_value();
  if (low.has_value() && high.has_value() && (closed ? *low > *high : *low >= *high)) {
    return BadApi(field.full_name(), "the range is empty");
  }
  return absl::OkStatus();
}

bool InRange(const AttributeSpec& spec, double value) {
  if (spec.finite && !std::isfinite(value)) return false;
  if (spec.greater_than.has_value() && !(value > *spec.greater_than)) return false;
  if (spec.at_least.has_value() && !(value >= *spec.at_least)) return false;
  if (spec.less_than.has_value() && !(value < *spec.less_than)) return false;
  if (spec.at_most.has_value() && !(value <= *spec.at_most)) return false;
  return true;
}

absl::Status CompileNumber(const FieldDescriptor& field, const AttributeOptions& options,
                           AttributeSpec* spec) {
  RLK_RETURN_IF_ERROR(CompileRange(field, options, spec));
  if (options.has_default_value()) {
    spec->default_number = options.default_value();
    const double effective = spec->kind == AttributeKind::kF32
                                 ? static_cast<double>(static_cast<float>(*spec->default_number))
                                 : *spec->default_number;
    if (!InRange(*spec, effective)) {
      return BadApi(field.full_name(), "the default is out of range");
    }
  }
  spec->multiple_of = options.multiple_of();
  if (spec->multiple_of < 0) return BadApi(field.full_name(), "multiple_of is negative");
  if (options.has_default_integer()) {
    const int64_t value = options.default_integer();
    spec->default_integer = value;
    if (!InRange(*spec, static_cast<double>(value)) ||
        (spec->multiple_of > 0 && value % spec->multiple_of != 0)) {
      return BadApi(field.full_name(), "the default is out of range");
    }
  }
  return absl::OkStatus();
}

absl::Status CompileEnum(const FieldDescriptor& field, const AttributeOptions& options,
                         AttributeSpec* spec) {
  const EnumDescriptor& type = *field.enum_type();
  const std::string prefix = absl::StrCat(absl::AsciiStrToUpper(SnakeCase(type.name())), "_");
  for (int i = 0; i < type.value_count(); ++i) {
    const auto& value = *type.value(i);
    if (!absl::StartsWith(value.name(), prefix)) {
      return BadApi(value.full_name(), absl::StrCat("the name does not begin with ", prefix));
    }
    // Zero means that nothing was said.
    if (value.number() == 0) continue;
    spec->enumerators.emplace_back(value.number(),
                                   absl::AsciiStrToLower(value.name().substr(prefix.size())));
  }
  if (spec->enumerators.empty()) return BadApi(field.full_name(), "the enum has no values");
  if (options.default_enum().empty()) return absl::OkStatus();
  const auto* value = type.FindValueByName(options.default_enum());
  if (value == nullptr || value->number() == 0) {
    return BadApi(field.full_name(), absl::StrCat("default_enum \"", options.default_enum(),
                                                  "\" is no value of ", type.full_name()));
  }
  spec->default_integer = value->number();
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<AttributeSpec> CompileAttribute(const FieldDescriptor& field) {
  const AttributeOptions& options = field.options().GetExtension(rlk::v1::attribute);
  if (field.is_repeated() || !field.has_optional_keyword()) {
    return BadApi(field.full_name(), "an attribute must be declared optional");
  }
  AttributeSpec spec;
  spec.name = field.name();
  spec.field_number = field.number();
  RLK_ASSIGN_OR_RETURN(spec.kind, KindOf(field, options));
  RLK_RETURN_IF_ERROR(CheckOptionsFit(field, options, spec.kind));
  switch (spec.kind) {
    case AttributeKind::kF32:
    case AttributeKind::kF64:
    case AttributeKind::kI64:
      RLK_RETURN_IF_ERROR(CompileNumber(field, options, &spec));
      break;
    case AttributeKind::kBool:
      spec.default_integer = options.default_bool() ? 1 : 0;
      break;
    case AttributeKind::kDType: {
      RLK_ASSIGN_OR_RETURN(spec.dtypes, CompileDtypes(field, options.dtypes()));
      if (spec.dtypes.empty() && options.same_dtype_as().empty()) {
        return BadApi(field.full_name(), "a DataType attribute needs dtypes or same_dtype_as");
      }
      if (options.default_same_dtype() && options.same_dtype_as().empty()) {
        return BadApi(field.full_name(), "default_same_dtype needs same_dtype_as");
      }
      spec.default_same_dtype = options.default_same_dtype();
      if (!spec.default_same_dtype && !spec.dtypes.empty()) {
        spec.default_integer = static_cast<int64_t>(spec.dtypes[0]);
      }
      break;
    }
    case AttributeKind::kEnum:
      RLK_RETURN_IF_ERROR(CompileEnum(field, options, &spec));
      break;
  }
  return spec;
}

absl::Status LinkAttribute(const FieldDescriptor& field, const MethodSignature& signature,
                           AttributeSpec* spec) {
  const AttributeOptions& options = field.options().GetExtension(rlk::v1::attribute);
  if (options.same_dtype_as().empty()) return absl::OkStatus();
  RLK_ASSIGN_OR_RETURN(spec->same_dtype_as,
                       FindDtypeInput(field, options.same_dtype_as(), signature));
  return absl::OkStatus();
}

}  // namespace rlk::wire
