#include "proto/wire/tensor_reader.h"

#include <algorithm>
#include <utility>

#include "proto/wire/field_reader.h"
#include "proto/wire/wire_format.h"
#include "rlk/v1/tensor.pb.h"

namespace rlk::wire {
namespace {

// ReadFields of a message whose fields, numbered below 8, are there once at most.
template <typename Field>
bool ReadDistinctFields(PieceReader& reader, Field field) {
  std::array<bool, 8> seen = {};
  return ReadFields(reader, [&](uint32_t tag) {
    const auto number = static_cast<size_t>(TagFieldNumber(tag));
    return number < seen.size() && !std::exchange(seen[number], true) && field(tag);
  });
}

// Packed integers, at most kMaxRank, in one piece of the field.
bool ReadDims(PieceReader& reader, GivenDims* dims) {
  int64_t length = 0;
  if (!ReadLength(reader, &length)) return false;
  const int64_t rest = reader.Enter(length);
  while (reader.remaining() > 0) {
    uint64_t value = 0;
    if (dims->count == kMaxRank || !ReadVarint(reader, kVarintBytesMax, &value)) return false;
    dims->values[dims->count++] = static_cast<int64_t>(value);
  }
  reader.Leave(rest);
  return true;
}

}  // namespace

bool ReadBytes(PieceReader& reader, std::string* text) {
  int64_t length = 0;
  return ReadLength(reader, &length) && reader.Append(length, *text);
}

bool ReadAscii(PieceReader& reader, std::string* text) {
  return ReadBytes(reader, text) && std::all_of(text->begin(), text->end(), [](char c) {
           return static_cast<unsigned char>(c) < 0x80;
         });
}

bool ReadHandle(PieceReader& reader, TensorHandle* handle) {
  using Handle = rlk::v1::TensorHandle;
  return ReadDistinctFields(reader, [&](uint32_t tag) {
    switch (tag) {
      case MakeTag(Handle::kIdFieldNumber, WireType::kBytes):
        return ReadBytes(reader, &handle->id);
      case MakeTag(Handle::kServerIdFieldNumber, WireType::kBytes):
        return ReadAscii(reader, &handle->server_id);
      case MakeTag(Handle::kGenerationFieldNumber, WireType::kVarint):
        return ReadVarint(reader, kVarintBytesMax, &handle->generation);
      case MakeTag(Handle::kOffsetFieldNumber, WireType::kVarint):
        return ReadVarint(reader, kVarintBytesMax, &handle->offset);
      default:
        return false;
    }
  });
}

bool ReadArena(PieceReader& reader, ArenaSlot* place) {
  using Arena = rlk::v1::ArenaRef;
  return ReadDistinctFields(reader, [&](uint32_t tag) {
    switch (tag) {
      case MakeTag(Arena::kArenaFieldNumber, WireType::kBytes):
        return ReadBytes(reader, &place->arena);
      case MakeTag(Arena::kGenerationFieldNumber, WireType::kVarint):
        return ReadVarint(reader, kVarintBytesMax, &place->generation);
      case MakeTag(Arena::kOffsetFieldNumber, WireType::kVarint):
        return ReadVarint(reader, kVarintBytesMax, &place->offset);
      default:
        return false;
    }
  });
}

bool ReadTensor(PieceReader& reader, GivenTensor* tensor) {
  using Tensor = rlk::v1::Tensor;
  bool has_source = false;
  const auto source = [&](TensorSource kind) {
    tensor->source.kind = kind;
    return !std::exchange(has_source, true);
  };
  const bool read = ReadDistinctFields(reader, [&](uint32_t tag) {
    uint64_t value = 0;
    HostBytes& payload = tensor->source.payload;
    switch (tag) {
      case MakeTag(Tensor::kDtypeFieldNumber, WireType::kVarint):
        if (!ReadVarint(reader, kVarintBytesMax, &value) || value >= kDTypeCount) return false;
        tensor->dtype = static_cast<DType>(value);
        return true;
      case MakeTag(Tensor::kShapeFieldNumber, WireType::kBytes):
        return ReadDims(reader, &tensor->shape);
      case MakeTag(Tensor::kStridesFieldNumber, WireType::kBytes):
        return ReadDims(reader, &tensor->strides);
      case MakeTag(Tensor::kDataFieldNumber, WireType::kBytes):
        return source(TensorSource::kInline) && ReadLength(reader, &payload.size) &&
               reader.Reference(payload.size, payload.pieces);
      case MakeTag(Tensor::kResidentFieldNumber, WireType::kBytes):
        return source(TensorSource::kResident) && ReadHandle(reader, &tensor->source.resident);
      case MakeTag(Tensor::kArenaFieldNumber, WireType::kBytes):
        return source(TensorSource::kArena) && ReadArena(reader, &tensor->source.arena);
      default:
        return false;
    }
  });
  return read && has_source;
}

}  // namespace rlk::wire
