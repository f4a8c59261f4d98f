#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "kernels/core/checked_math.h"
#include "kernels/core/status.h"
#include "proto/wire/call_parts.h"

namespace rlk::wire {
namespace {

std::string Sub(std::string_view name, std::string_view part) {
  std::string text(name);
  return text.append(part);
}

std::string Element(std::string_view name, std::string_view part, int index) {
  return Sub(name, part).append("[").append(std::to_string(index)).append("]");
}

template <typename Values>
std::string ListText(const Values& values) {
  return absl::StrCat("[", absl::StrJoin(values, ", "), "]");
}

std::string DTypeNames(const TensorSpec& spec) {
  std::string names;
  for (DType dtype : spec.dtypes) {
    if (!names.empty()) names += ", ";
    names += DTypeName(dtype);
  }
  return names;
}

absl::Status DtypeNotAllowed(const TensorSpec& spec, std::string_view name, DType dtype) {
  return InvalidArgument(Reason::kDtypeNotAllowed, name, DTypeName(dtype), DTypeNames(spec),
                         Sub("dtype ", DTypeName(dtype)).append(" is not allowed"));
}

// Rank, sizes, strides, and the elements that the source must hold (*span, from 0).
absl::Status DecodeLayout(std::string_view name, const TensorHead& head, const Limits& limits,
                          TensorArg* arg, int64_t* span) {
  const auto rank = static_cast<int>(head.shape.size());
  const auto rank_max = static_cast<int>(std::min<int64_t>(kMaxRank, limits.rank_max));
  if (rank > rank_max) {
    return InvalidArgument(Reason::kRankTooLarge, Sub(name, ".shape"), std::to_string(rank),
                           absl::StrCat("at most ", rank_max, " (rank_max)"),
                           absl::StrCat("rank ", rank, " is too large"));
  }
  const bool strided = !head.strides.empty();
  if (strided && head.strides.size() != head.shape.size()) {
    return InvalidArgument(Reason::kInvalidStrides, Sub(name, ".strides"),
                           std::to_string(head.strides.size()),
                           absl::StrCat("none, or ", rank, ", one for each dimension of the shape"),
                           absl::StrCat(head.strides.size(), " strides for rank ", rank));
  }
  // Sizes multiply with a 0 taken as 1: strides and row counts of empty tensors stay in range too.
  int64_t product = DTypeSize(arg->dtype);
  arg->shape = Dims(head.shape);
  arg->strides = arg->shape;
  int64_t step = 1;
  bool empty = false;
  for (int i = rank - 1; i >= 0; --i) {
    const int64_t size = arg->shape[i];
    if (size < 0) {
      return InvalidArgument(Reason::kShapeMismatch, Element(name, ".shape", i),
                             std::to_string(size), "at least 0", "the size is negative");
    }
    empty = empty || size == 0;
    const std::optional<int64_t> next = CheckedMul(product, std::max<int64_t>(size, 1));
    if (!next.has_value()) {
      return InvalidArgument(
          Reason::kLimitExceeded, Sub(name, ".shape"), ListText(head.shape),
          absl::StrCat("at most ", limits.call_bytes_max, " bytes (call_bytes_max)"),
          "the shape's size in bytes is beyond 64 bits");
    }
    product = *next;
    arg->strides[i] = step;
    step *= size;
  }
  *span = step;
  if (!strided) return absl::OkStatus();

  std::optional<int64_t> last = 0;
  for (int i = 0; i < rank; ++i) {
    const int64_t stride = head.strides[static_cast<size_t>(i)];
    if (stride < 0) {
      return InvalidArgument(Reason::kInvalidStrides, Element(name, ".strides", i),
                             std::to_string(stride), "at least 0", "the stride is negative");
    }
    arg->strides[i] = stride;
    if (empty || !last.has_value()) continue;
    const std::optional<int64_t> reach = CheckedMul(arg->shape[i] - 1, stride);
    last = reach.has_value() ? CheckedAdd(*last, *reach) : std::nullopt;
  }
  const std::optional<int64_t> count =
      empty ? 0 : (last.has_value() ? CheckedAdd(*last, 1) : std::nullopt);
  if (!count.has_value() || !CheckedMul(*count, DTypeSize(arg->dtype)).has_value()) {
    return InvalidArgument(Reason::kInvalidStrides, Sub(name, ".strides"), ListText(head.strides),
                           "a span within 64 bits", "the strides reach too far");
  }
  *span = *count;
  return absl::OkStatus();
}

absl::Status CheckPayload(const TensorSpec& spec, std::string_view name, const TensorHead& head,
                          const TensorArg& arg, int64_t span) {
  const int64_t needed = span * DTypeSize(arg.dtype);
  if (arg.data.size == needed) return absl::OkStatus();
  // A dtype that the method does not take explains the length better than the length does.
  if (spec.same_dtype_as < 0 &&
      std::find(spec.dtypes.begin(), spec.dtypes.end(), arg.dtype) == spec.dtypes.end()) {
    return DtypeNotAllowed(spec, name, arg.dtype);
  }
  std::string layout = absl::StrCat("shape ", ListText(head.shape));
  if (!head.strides.empty()) absl::StrAppend(&layout, " with strides ", ListText(head.strides));
  const std::string dtype(DTypeName(arg.dtype));
  return InvalidArgument(Reason::kPayloadSizeMismatch, Sub(name, ".data"),
                         absl::StrCat(arg.data.size, " bytes"), absl::StrCat(needed, " bytes"),
                         absl::StrCat("data has ", arg.data.size, " bytes, but ", layout, " of ",
                                      dtype, " takes ", needed));
}

// Dtype and layout: what every source needs first.
absl::StatusOr<TensorArg> DecodeHead(const TensorSpec& spec, std::string_view name,
                                     const TensorHead& head, const Limits& limits, int64_t* span) {
  TensorArg arg;
  arg.dtype = head.dtype;
  // Without an element size nothing else can be checked.
  if (DTypeSize(arg.dtype) == 0) return DtypeNotAllowed(spec, name, arg.dtype);
  RLK_RETURN_IF_ERROR(DecodeLayout(name, head, limits, &arg, span));
  return arg;
}

// Of a text that came with the source.
absl::Status CheckPart(std::string_view name, std::string_view part, std::string_view text,
                       const Limits& limits) {
  if (static_cast<int64_t>(text.size()) <= limits.attribute_text_bytes_max) return absl::OkStatus();
  return CheckText(Sub(name, part), text, limits);
}

template <typename Values>
std::span<const int64_t> AsSpan(const Values& values) {
  return {values.data(), static_cast<size_t>(values.size())};
}

}  // namespace

TensorHandle DecodeHandle(const rlk::v1::TensorHandle& handle) {
  return {handle.id(), handle.server_id(), handle.generation(), handle.offset()};
}

ArenaSlot DecodeArena(const rlk::v1::ArenaRef& arena) {
  return {arena.arena(), arena.generation(), arena.offset()};
}

absl::StatusOr<TensorArg> CheckTensor(const TensorSpec& spec, std::string_view name,
                                      const TensorHead& head, GivenSource source,
                                      const Limits& limits) {
  // The server knows the header of a resident tensor that is taken whole.
  const bool whole = source.kind == TensorSource::kResident && head.dtype == DType::kUnspecified &&
                     head.shape.empty() && head.strides.empty();
  int64_t span = 0;
  TensorArg arg;
  if (!whole) {
    RLK_ASSIGN_OR_RETURN(arg, DecodeHead(spec, name, head, limits, &span));
  }
  arg.source = source.kind;
  switch (source.kind) {
    case TensorSource::kInline:
      arg.data = std::move(source.payload);
      RLK_RETURN_IF_ERROR(CheckPayload(spec, name, head, arg, span));
      break;
    case TensorSource::kResident:
      RLK_RETURN_IF_ERROR(CheckPart(name, ".resident.id", source.resident.id, limits));
      RLK_RETURN_IF_ERROR(
          CheckPart(name, ".resident.server_id", source.resident.server_id, limits));
      arg.resident = std::move(source.resident);
      break;
    case TensorSource::kArena:
      RLK_RETURN_IF_ERROR(CheckPart(name, ".arena.arena", source.arena.arena, limits));
      arg.arena = std::move(source.arena);
      break;
  }
  return arg;
}

absl::StatusOr<TensorArg> DecodeTensor(const TensorSpec& spec, std::string_view name,
                                       const rlk::v1::Tensor& tensor, HostBytes* payload,
                                       const Limits& limits) {
  const TensorHead head{static_cast<DType>(tensor.dtype()), AsSpan(tensor.shape()),
                        AsSpan(tensor.strides())};
  GivenSource source;
  switch (tensor.source_case()) {
    case rlk::v1::Tensor::kData:
      source.payload = std::move(*payload);
      break;
    case rlk::v1::Tensor::kResident:
      source.kind = TensorSource::kResident;
      source.resident = DecodeHandle(tensor.resident());
      break;
    case rlk::v1::Tensor::kArena:
      source.kind = TensorSource::kArena;
      source.arena = DecodeArena(tensor.arena());
      break;
    case rlk::v1::Tensor::SOURCE_NOT_SET: {
      int64_t span = 0;
      RLK_RETURN_IF_ERROR(DecodeHead(spec, name, head, limits, &span).status());
      return InvalidArgument(Reason::kMissingTensor, name, "", "data, resident, arena",
                             "the tensor has no source");
    }
  }
  return CheckTensor(spec, name, head, std::move(source), limits);
}

}  // namespace rlk::wire
