#include "server/engine/contract_check.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <optional>
#include <utility>

#include "absl/container/inlined_vector.h"
#include "absl/strings/str_cat.h"
#include "kernels/core/checked_math.h"
#include "kernels/core/status.h"
#include "server/engine/inline_check.h"

namespace rlk::server {

std::string ShapeText(const Dims& shape) {
  std::string text = "[";
  for (int i = 0; i < shape.rank(); ++i) {
    if (i > 0) text += ", ";
    text += std::to_string(shape[i]);
  }
  return text + "]";
}

namespace {

// "at most 2097152 bytes (inline_bytes_max)": the bound and its name, as wire writes them.
std::string AtMostBytes(int64_t bound, std::string_view name) {
  return absl::StrCat("at most ", bound, " bytes (", absl::string_view(name.data(), name.size()),
                      ")");
}

absl::Status Broken(const std::string& field, std::string_view message) {
  return MakeError(absl::StatusCode::kInternal, {Reason::kInternal, field, {}, {}}, message);
}

// One letter, one size; one leading shape: bound by the inputs, read by the outputs.
struct Bindings {
  struct Letter {
    int64_t size = -1;  // -1: not bound
  };
  std::array<Letter, 128> letters;
  std::optional<Dims> leading;
};

struct Tensors {
  const Call& call;
  const MethodSignature& signature;
  std::vector<int32_t> begin;
  absl::InlinedVector<DType, 8> dtypes;  // of the first tensor of each input spec
};

std::string FieldName(const Tensors& tensors, size_t spec, int32_t index) {
  const TensorSpec& input = tensors.signature.inputs[spec];
  if (!input.repeated) return input.name;
  return input.name + "[" + std::to_string(index - tensors.begin[spec]) + "]";
}

// Presence, order and counts; fills begin and dtypes.
absl::Status CheckPresence(const Limits& limits, Tensors& tensors) {
  const std::vector<TensorArg>& inputs = tensors.call.inputs;
  const std::vector<TensorSpec>& specs = tensors.signature.inputs;
  if (static_cast<int64_t>(inputs.size()) > limits.tensors_per_call_max) {
    return InvalidArgument(
        Reason::kLimitExceeded, "request", std::to_string(inputs.size()),
        absl::StrCat("at most ", limits.tensors_per_call_max, " (tensors_per_call_max)"),
        "the call has too many tensors");
  }
  int32_t last = 0;
  for (const TensorArg& input : inputs) {
    if (input.spec < 0 || static_cast<size_t>(input.spec) >= specs.size()) {
      return InvalidArgument(Reason::kUnexpectedTensor, {}, "input " + std::to_string(input.spec),
                             std::to_string(specs.size()) + " inputs",
                             "the method takes no such tensor");
    }
    if (input.spec < last) return Broken(specs[input.spec].name, "inputs are out of order");
    last = input.spec;
  }
  tensors.begin.assign(specs.size() + 1, 0);
  tensors.dtypes.assign(specs.size(), DType::kUnspecified);
  size_t next = 0;
  for (size_t i = 0; i < specs.size(); ++i) {
    const TensorSpec& spec = specs[i];
    const size_t first = next;
    while (next < inputs.size() && static_cast<size_t>(inputs[next].spec) == i) ++next;
    tensors.begin[i + 1] = static_cast<int32_t>(next);
    const size_t count = next - first;
    if (count == 0 && !spec.optional) {
      return InvalidArgument(Reason::kMissingTensor, spec.name, "absent", "a tensor",
                             "the tensor must be given");
    }
    if (count > 1 && !spec.repeated) {
      return InvalidArgument(Reason::kDuplicateTensor, spec.name,
                             std::to_string(count) + " tensors", "one tensor",
                             "the tensor is given more than once");
    }
    if (spec.repeated && count > static_cast<size_t>(spec.max_count)) {
      return InvalidArgument(Reason::kLimitExceeded, spec.name, std::to_string(count) + " tensors",
                             "at most " + std::to_string(spec.max_count),
                             "the list has too many tensors");
    }
    if (count > 0) tensors.dtypes[i] = inputs[first].dtype;
  }
  return absl::OkStatus();
}

absl::Status CheckDType(const Tensors& tensors, size_t spec_index, const TensorArg& input,
                        const std::string& field) {
  const TensorSpec& spec = tensors.signature.inputs[spec_index];
  const auto listed = [&spec](DType dtype) {
    return std::find(spec.dtypes.begin(), spec.dtypes.end(), dtype) != spec.dtypes.end();
  };
  const DType same = spec.same_dtype_as >= 0
                         ? tensors.dtypes[static_cast<size_t>(spec.same_dtype_as)]
                         : DType::kUnspecified;
  const bool as_the_other = same != DType::kUnspecified && same == input.dtype;
  if ((listed(input.dtype) || as_the_other) && DTypeSize(input.dtype) > 0) return absl::OkStatus();
  std::vector<DType> allowed = spec.dtypes;
  if (same != DType::kUnspecified && !listed(same)) allowed.push_back(same);
  return InvalidArgument(Reason::kDtypeNotAllowed, field, DTypeName(input.dtype),
                         DTypeList(allowed), "the dtype is not allowed");
}

// Bytes of the tensor in C order, and of its storage (smaller where a stride is 0, larger where
// there are gaps).
struct Sizes {
  int64_t elements = 0;
  int64_t logical_bytes = 0;
  int64_t stored_bytes = 0;
};

absl::StatusOr<Sizes> CheckSizes(const TensorArg& input, const Limits& limits,
                                 const std::string& field) {
  const Dims& shape = input.shape;
  if (shape.rank() > limits.rank_max) {
    return InvalidArgument(Reason::kRankTooLarge, field, "rank " + std::to_string(shape.rank()),
                           "rank <= " + std::to_string(limits.rank_max), "the rank is too large");
  }
  bool empty = false;
  // Sizes of 0 count as 1 here: C-order strides are products of them, and those must not overflow
  // either.
  int64_t bound = DTypeSize(input.dtype);
  for (int64_t size : shape) {
    if (size < 0) {
      return InvalidArgument(Reason::kShapeMismatch, field, ShapeText(shape), "sizes >= 0",
                             "the shape has a negative size");
    }
    if (size == 0) empty = true;
    const std::optional<int64_t> product = CheckedMul(bound, std::max<int64_t>(size, 1));
    if (!product) {
      return InvalidArgument(Reason::kLimitExceeded, field, ShapeText(shape),
                             AtMostBytes(limits.call_bytes_max, "call_bytes_max"),
                             "the tensor is too large");
    }
    bound = *product;
  }
  if (input.strides.rank() != shape.rank()) {
    return InvalidArgument(Reason::kInvalidStrides, field, ShapeText(input.strides),
                           std::to_string(shape.rank()) + " strides or none",
                           "the strides do not match the rank");
  }
  // 1 + sum((shape[i] - 1) * strides[i]).
  std::optional<int64_t> extent = 1;
  for (int i = 0; i < shape.rank(); ++i) {
    if (input.strides[i] < 0) {
      return InvalidArgument(Reason::kInvalidStrides, field, ShapeText(input.strides),
                             "strides >= 0", "a stride is negative");
    }
    if (empty) continue;
    const std::optional<int64_t> reach = CheckedMul(shape[i] - 1, input.strides[i]);
    extent = extent && reach ? CheckedAdd(*extent, *reach) : std::nullopt;
  }
  const std::optional<int64_t> stored =
      extent ? CheckedMul(*extent, DTypeSize(input.dtype)) : std::nullopt;
  if (!stored) {
    return InvalidArgument(Reason::kInvalidStrides, field, ShapeText(input.strides),
                           "an extent that fits in 63 bits", "the strides reach too far");
  }
  if (empty) return Sizes{};
  return Sizes{bound / DTypeSize(input.dtype), bound, *stored};
}

absl::Status CheckLayout(const TensorSpec& spec, const TensorArg& input, const Sizes& sizes,
                         const std::string& field) {
  if (spec.contiguous && !IsContiguous(input.shape, input.strides)) {
    return InvalidArgument(Reason::kInvalidStrides, field, ShapeText(input.strides),
                           ShapeText(ContiguousStrides(input.shape)),
                           "the tensor must be contiguous in C order");
  }
  if (input.data.size != sizes.stored_bytes) {
    return InvalidArgument(Reason::kPayloadSizeMismatch, field,
                           std::to_string(input.data.size) + " bytes",
                           std::to_string(sizes.stored_bytes) + " bytes",
                           "the payload does not have the size of the tensor");
  }
  // The bytes of a device have no pieces.
  if (input.memory == nullptr || input.memory->device().kind == DeviceKind::kHost) {
    int64_t pieces = 0;
    for (const auto& piece : input.data.pieces) pieces += static_cast<int64_t>(piece.size());
    if (pieces != input.data.size) return Broken(field, "the pieces do not add up to the payload");
  }
  // Inline bytes are staged to any alignment; a place in memory that stays is used as it is.
  const int64_t alignment = std::max<int64_t>(spec.alignment, DTypeSize(input.dtype));
  const uint64_t offset =
      input.source == TensorSource::kResident ? input.resident.offset : input.arena.offset;
  if (input.source != TensorSource::kInline && offset % static_cast<uint64_t>(alignment) != 0) {
    return InvalidArgument(Reason::kMisaligned, field, "offset " + std::to_string(offset),
                           "a multiple of " + std::to_string(alignment),
                           "the tensor is not aligned");
  }
  return absl::OkStatus();
}

absl::Status DimsMismatch(const TensorSpec& spec, const Dims& shape, const std::string& field,
                          const std::string& why) {
  return InvalidArgument(Reason::kShapeMismatch, field, ShapeText(shape),
                         "[" + spec.dims_text + "]" + why, "the shape does not match");
}

absl::Status BindDims(const TensorSpec& spec, const Dims& shape, const std::string& field,
                      Bindings& bindings) {
  const auto fixed = static_cast<int>(spec.dims.dims.size());
  const int lead = shape.rank() - fixed;
  if (lead < 0 || (lead > 0 && !spec.dims.leading)) return DimsMismatch(spec, shape, field, "");
  if (spec.dims.leading) {
    const Dims leading(shape.span().first(static_cast<size_t>(lead)));
    if (!bindings.leading) bindings.leading = leading;
    if (!(*bindings.leading == leading)) {
      return DimsMismatch(spec, shape, field, " with ... = " + ShapeText(*bindings.leading));
    }
  }
  for (int i = 0; i < fixed; ++i) {
    const DimPattern& pattern = spec.dims.dims[static_cast<size_t>(i)];
    const int64_t size = shape[lead + i];
    if (pattern.letter == 0) {
      if (size != pattern.factor) return DimsMismatch(spec, shape, field, "");
      continue;
    }
    const std::string name(1, pattern.letter);
    if (pattern.factor <= 0) return Broken(field, "a dim's factor is not positive");
    if (size % pattern.factor != 0) {
      return DimsMismatch(spec, shape, field,
                          " with a size divisible by " + std::to_string(pattern.factor));
    }
    int64_t& bound = bindings.letters[static_cast<unsigned char>(pattern.letter) & 127].size;
    if (bound < 0) bound = size / pattern.factor;
    if (bound != size / pattern.factor) {
      return DimsMismatch(spec, shape, field, " with " + name + " = " + std::to_string(bound));
    }
  }
  return absl::OkStatus();
}

absl::Status CheckInputs(const Tensors& tensors, const Limits& limits, CheckedCall& checked,
                         Bindings& bindings, int64_t& logical_bytes) {
  for (size_t i = 0; i < tensors.signature.inputs.size(); ++i) {
    const TensorSpec& spec = tensors.signature.inputs[i];
    for (int32_t j = tensors.begin[i]; j < tensors.begin[i + 1]; ++j) {
      const TensorArg& input = tensors.call.inputs[static_cast<size_t>(j)];
      const std::string field = FieldName(tensors, i, j);
      RLK_RETURN_IF_ERROR(CheckDType(tensors, i, input, field));
      RLK_ASSIGN_OR_RETURN(const Sizes sizes, CheckSizes(input, limits, field));
      RLK_RETURN_IF_ERROR(BindDims(spec, input.shape, field, bindings));
      RLK_RETURN_IF_ERROR(CheckLayout(spec, input, sizes, field));
      checked.input_views.push_back({input.dtype, input.shape, input.strides, nullptr});
      checked.elements_max = std::max(checked.elements_max, sizes.elements);
      // A stride of 0 makes much work of few bytes, so the larger of the two counts.
      const int64_t counted = std::max(sizes.logical_bytes, sizes.stored_bytes);
      const std::optional<int64_t> logical = CheckedAdd(logical_bytes, counted);
      if (!logical || *logical > limits.call_bytes_max) {
        return InvalidArgument(Reason::kLimitExceeded, field,
                               logical ? std::to_string(*logical) + " bytes" : "too many bytes",
                               AtMostBytes(limits.call_bytes_max, "call_bytes_max"),
                               "the call's tensors are too large");
      }
      logical_bytes = *logical;
      checked.input_bytes += sizes.stored_bytes;
      if (input.source == TensorSource::kInline) checked.inline_bytes += sizes.stored_bytes;
    }
  }
  return absl::OkStatus();
}

std::string OutputNames(const MethodSignature& signature) {
  std::string names;
  for (const TensorSpec& output : signature.outputs) {
    if (!names.empty()) names += ", ";
    names += output.name;
  }
  return names;
}

absl::StatusOr<size_t> FindOutput(const MethodSignature& signature, const std::string& name,
                                  std::string_view field) {
  for (size_t i = 0; i < signature.outputs.size(); ++i) {
    if (signature.outputs[i].name == name) return i;
  }
  return InvalidArgument(Reason::kUnknownOutput, field, name, OutputNames(signature),
                         "the method has no such output");
}

absl::Status CheckPlacement(const std::string& name, const Placement& placement,
                            const ContractCheckOptions& options) {
  if (placement.kind == PlacementKind::kInline) return absl::OkStatus();
  const bool resident = placement.kind == PlacementKind::kResident;
  const ContractCheckOptions::Residents residents = options.residents;
  using Residents = ContractCheckOptions::Residents;
  const bool offered = resident || options.arenas;
  if (offered && residents == Residents::kAvailable) return absl::OkStatus();
  const std::string field = "options.outputs." + name;
  if (offered && residents == Residents::kNeedSession) {
    return MakeError(absl::StatusCode::kUnauthenticated,
                     {Reason::kUnauthenticated, field, resident ? "resident" : "arena",
                      "inline; all with a session"},
                     "only a session can keep tensors on the server");
  }
  return MakeError(absl::StatusCode::kFailedPrecondition,
                   {Reason::kPlacementUnavailable, field, resident ? "resident" : "arena",
                    residents == Residents::kUnavailable ? "inline" : "inline, resident"},
                   "the placement is not available on this server");
}

// By output spec index.
using Wanted = absl::InlinedVector<bool, 8>;

absl::StatusOr<Wanted> WantedOutputs(const MethodSignature& signature, const CallOptions& options,
                                     const ContractCheckOptions& check) {
  Wanted wanted(signature.outputs.size(), false);
  for (const std::string& name : options.wanted_outputs) {
    RLK_ASSIGN_OR_RETURN(const size_t index, FindOutput(signature, name, "options.wanted_outputs"));
    wanted[index] = true;
  }
  if (options.wanted_outputs.empty()) {
    for (size_t i = 0; i < wanted.size(); ++i) wanted[i] = !signature.outputs[i].on_request;
  }
  for (const auto& [name, placement] : options.outputs) {
    RLK_ASSIGN_OR_RETURN(const size_t index, FindOutput(signature, name, "options.outputs"));
    if (!wanted[index]) {
      return InvalidArgument(Reason::kUnknownOutput, "options.outputs", name,
                             "outputs that the call computes", "the output is not computed");
    }
    RLK_RETURN_IF_ERROR(CheckPlacement(name, placement, check));
  }
  return wanted;
}

DType OutputDType(const TensorSpec& spec, const Tensors& tensors,
                  const std::vector<AttributeValue>& attributes) {
  if (spec.dtype_attribute >= 0) {
    return static_cast<DType>(attributes[static_cast<size_t>(spec.dtype_attribute)].integer);
  }
  if (spec.same_dtype_as >= 0) {
    const DType same = tensors.dtypes[static_cast<size_t>(spec.same_dtype_as)];
    if (same != DType::kUnspecified) return same;
  }
  return spec.dtypes.empty() ? DType::kUnspecified : spec.dtypes.front();
}

absl::StatusOr<Dims> OutputShape(const TensorSpec& spec, const Bindings& bindings,
                                 const std::vector<AttributeValue>& attributes,
                                 const Limits& limits) {
  if (spec.dims.leading && !bindings.leading) {
    return Broken(spec.name, "no input binds the output's leading shape");
  }
  Dims shape = spec.dims.leading ? *bindings.leading : Dims();
  if (static_cast<int64_t>(shape.rank()) + static_cast<int64_t>(spec.dims.dims.size()) >
      std::min<int64_t>(limits.rank_max, kMaxRank)) {
    return InvalidArgument(Reason::kRankTooLarge, spec.name,
                           "rank " + std::to_string(shape.rank() + spec.dims.dims.size()),
                           "rank <= " + std::to_string(limits.rank_max),
                           "the output's rank is too large");
  }
  for (const DimPattern& pattern : spec.dims.dims) {
    int64_t size = 1;
    if (pattern.letter != 0) {
      size = bindings.letters[static_cast<unsigned char>(pattern.letter) & 127].size;
      if (size < 0) return Broken(spec.name, "no input binds a letter of the output's dims");
    } else if (pattern.attribute >= 0) {
      size = attributes[static_cast<size_t>(pattern.attribute)].integer;
      if (size < 0) return Broken(spec.name, "the attribute of an output's size is negative");
    }
    const std::optional<int64_t> product = CheckedMul(size, pattern.factor);
    if (!product) {
      return InvalidArgument(Reason::kLimitExceeded, spec.name, std::to_string(size),
                             AtMostBytes(limits.call_bytes_max, "call_bytes_max"),
                             "the output is too large");
    }
    shape.push_back(*product);
  }
  return shape;
}

absl::Status PlanOutputs(const Tensors& tensors, const ContractCheckOptions& options,
                         const Bindings& bindings, int64_t call_bytes, CheckedCall& checked) {
  const Limits& limits = options.limits;
  const MethodSignature& signature = tensors.signature;
  const CallOptions& asked = tensors.call.options;
  RLK_ASSIGN_OR_RETURN(const Wanted wanted, WantedOutputs(signature, asked, options));
  checked.outputs.resize(signature.outputs.size());
  for (size_t i = 0; i < signature.outputs.size(); ++i) {
    if (!wanted[i]) continue;
    const TensorSpec& spec = signature.outputs[i];
    PlannedOutput& output = checked.outputs[i];
    output.dtype = OutputDType(spec, tensors, checked.attributes);
    if (DTypeSize(output.dtype) == 0) return Broken(spec.name, "the output has no dtype");
    if (!asked.outputs.empty()) {
      const auto placement = asked.outputs.find(spec.name);
      output.resident =
          placement != asked.outputs.end() && placement->second.kind != PlacementKind::kInline;
    }
    RLK_ASSIGN_OR_RETURN(output.shape, OutputShape(spec, bindings, checked.attributes, limits));
    std::optional<int64_t> bytes = DTypeSize(output.dtype);
    bool empty = false;
    for (int64_t size : output.shape) {
      empty = empty || size == 0;
      if (bytes) bytes = CheckedMul(*bytes, std::max<int64_t>(size, 1));
    }
    const std::optional<int64_t> total =
        bytes ? CheckedAdd(checked.output_bytes, empty ? 0 : *bytes) : std::nullopt;
    const std::optional<int64_t> call = total ? CheckedAdd(call_bytes, *total) : std::nullopt;
    if (!call || *call > limits.call_bytes_max) {
      return InvalidArgument(Reason::kLimitExceeded, spec.name, ShapeText(output.shape),
                             AtMostBytes(limits.call_bytes_max, "call_bytes_max"),
                             "the call's tensors are too large");
    }
    checked.output_bytes = *total;
    checked.elements_max =
        std::max(checked.elements_max, empty ? 0 : *bytes / DTypeSize(output.dtype));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<CheckedCall> CheckCall(const Call& call, const ContractCheckOptions& options) {
  const Limits& limits = options.limits;
  Tensors tensors{call, call.method->signature, {}, {}};
  CheckedCall checked;
  Bindings bindings;
  int64_t logical_bytes = 0;
  RLK_RETURN_IF_ERROR(CheckPresence(limits, tensors));
  checked.input_views.reserve(call.inputs.size());
  RLK_RETURN_IF_ERROR(CheckInputs(tensors, limits, checked, bindings, logical_bytes));
  RLK_ASSIGN_OR_RETURN(checked.attributes,
                       CheckAttributes(tensors.signature, call.attributes, tensors.dtypes));
  RLK_RETURN_IF_ERROR(PlanOutputs(tensors, options, bindings, logical_bytes, checked));
  checked.input_begin = std::move(tensors.begin);
  RLK_RETURN_IF_ERROR(CheckInlineBytes(call, options, checked));
  return checked;
}

}  // namespace rlk::server
