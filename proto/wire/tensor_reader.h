// Reads a tensor field as messages usually carry it, without a message object.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <utility>

#include "kernels/core/tensor_view.h"
#include "kernels/registry/call.h"
#include "proto/wire/piece_reader.h"
#include "proto/wire/wire_format.h"
#include "rlk/v1/tensor.pb.h"

namespace rlk::wire {

// Sizes or strides as they were given.
struct GivenDims {
  std::array<int64_t, kMaxRank> values = {};
  size_t count = 0;

  std::span<const int64_t> span() const { return {values.data(), count}; }
};

struct InlineTensor {
  DType dtype = DType::kUnspecified;
  GivenDims shape, strides;
  // Where the elements are; its owner is the caller's to set.
  HostBytes payload;
};

// Packed integers, at most kMaxRank, in one piece of the field.
inline bool ReadDims(PieceReader& reader, GivenDims* dims) {
  int64_t length = 0;
  if (dims->count > 0 || !ReadLength(reader, &length)) return false;
  const int64_t rest = reader.Enter(length);
  while (reader.remaining() > 0) {
    uint64_t value = 0;
    if (dims->count == kMaxRank || !ReadVarint(reader, kVarintBytesMax, &value)) return false;
    dims->values[dims->count++] = static_cast<int64_t>(value);
  }
  reader.Leave(rest);
  return true;
}

// Reads a tensor, from its length on: a dtype that exists, sizes and strides up to rank kMaxRank,
// and inline elements, each once. Anything else, legal or not, is false, with `reader` somewhere
// inside.
inline bool ReadInlineTensor(PieceReader& reader, InlineTensor* tensor) {
  using Tensor = rlk::v1::Tensor;
  int64_t length = 0;
  if (!ReadLength(reader, &length)) return false;
  const int64_t rest = reader.Enter(length);
  bool has_dtype = false, has_data = false;
  while (reader.remaining() > 0) {
    uint32_t tag = 0;
    uint64_t value = 0;
    if (!ReadTag(reader, &tag)) return false;
    switch (tag) {
      case MakeTag(Tensor::kDtypeFieldNumber, WireType::kVarint):
        if (std::exchange(has_dtype, true) || !ReadVarint(reader, kVarintBytesMax, &value) ||
            value >= kDTypeCount) {
          return false;
        }
        tensor->dtype = static_cast<DType>(value);
        break;
      case MakeTag(Tensor::kShapeFieldNumber, WireType::kBytes):
        if (!ReadDims(reader, &tensor->shape)) return false;
        break;
      case MakeTag(Tensor::kStridesFieldNumber, WireType::kBytes):
        if (!ReadDims(reader, &tensor->strides)) return false;
        break;
      case MakeTag(Tensor::kDataFieldNumber, WireType::kBytes):
        if (std::exchange(has_data, true) || !ReadLength(reader, &tensor->payload.size) ||
            !reader.Reference(tensor->payload.size, tensor->payload.pieces)) {
          return false;
        }
        break;
      default:
        return false;
    }
  }
  reader.Leave(rest);
  return has_data;
}

}  // namespace rlk::wire
