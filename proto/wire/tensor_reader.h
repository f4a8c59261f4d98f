// Reads tensors, and references to tensors, as messages usually carry them, without a message
// object. Every function returns false for anything else, legal or not: a field that is unknown,
// given twice or spelled in another way than protobuf writes it. `reader` is somewhere inside then.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>

#include "kernels/core/tensor_view.h"
#include "kernels/registry/call.h"
#include "proto/wire/piece_reader.h"

namespace rlk::wire {

// Sizes or strides as they were given.
struct GivenDims {
  std::array<int64_t, kMaxRank> values = {};
  size_t count = 0;

  std::span<const int64_t> span() const { return {values.data(), count}; }
};

// Where elements are: of the three, the one that `kind` names.
struct GivenSource {
  TensorSource kind = TensorSource::kInline;
  HostBytes payload;  // its owner is the caller's to set
  TensorHandle resident;
  ArenaSlot arena;
};

struct GivenTensor {
  DType dtype = DType::kUnspecified;
  GivenDims shape, strides;
  GivenSource source;
};

// From the length on: a dtype that exists, sizes and strides up to rank kMaxRank, and a source.
bool ReadTensor(PieceReader& reader, GivenTensor* tensor);

// From the length on.
bool ReadHandle(PieceReader& reader, TensorHandle* handle);
bool ReadArena(PieceReader& reader, ArenaSlot* place);

// Bytes, from the length on. ReadAscii is for strings: it leaves other characters to those that
// know UTF-8.
bool ReadBytes(PieceReader& reader, std::string* text);
bool ReadAscii(PieceReader& reader, std::string* text);

}  // namespace rlk::wire
