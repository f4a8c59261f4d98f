// A tensor field of a request or a reply, without a message object.
#pragma once

#include <string>
#include <utility>

#include "kernels/registry/call.h"
#include "proto/wire/bytes.h"
#include "proto/wire/field_writer.h"
#include "rlk/v1/tensor.pb.h"

namespace rlk::wire {

struct TensorHeader {
  DType dtype = DType::kUnspecified;
  const Dims& shape;
  const Dims* strides = nullptr;  // null: C order, not written
};

inline void AppendHeader(const TensorHeader& header, FieldWriter& writer) {
  using Tensor = rlk::v1::Tensor;
  writer.Integer(Tensor::kDtypeFieldNumber, static_cast<int64_t>(header.dtype));
  writer.PackedIntegers(Tensor::kShapeFieldNumber, header.shape);
  if (header.strides != nullptr) {
    writer.PackedIntegers(Tensor::kStridesFieldNumber, *header.strides);
  }
}

// Appends an inline tensor to `text`. Where the payload is not empty, `text` goes to `out` and is
// left empty, and the payload's pieces follow with their owner, never copied.
inline void AppendTensor(int number, const TensorHeader& header, const HostBytes& payload,
                         std::string& text, OutputBytes& out) {
  using Tensor = rlk::v1::Tensor;
  const auto size = static_cast<uint64_t>(payload.size);
  FieldWriter writer(text);
  const size_t begin = writer.Begin(number);
  AppendHeader(header, writer);
  writer.Tag(Tensor::kDataFieldNumber, WireType::kBytes);
  AppendVarint(size, text);
  writer.End(begin, size);
  if (size == 0) return;
  out.push_back({std::move(text), {}, nullptr});
  text.clear();
  for (const auto& piece : payload.pieces) {
    if (!piece.empty()) out.push_back({std::string(), piece, payload.owner});
  }
}

// Appends a tensor that lies in an arena.
inline void AppendInArena(int number, const TensorHeader& header, const ArenaSlot& slot,
                          std::string& text) {
  using Ref = rlk::v1::ArenaRef;
  FieldWriter writer(text);
  const size_t begin = writer.Begin(number);
  AppendHeader(header, writer);
  const size_t source = writer.Begin(rlk::v1::Tensor::kArenaFieldNumber);
  writer.Text(Ref::kArenaFieldNumber, slot.arena);
  writer.Integer(Ref::kGenerationFieldNumber, static_cast<int64_t>(slot.generation));
  writer.Integer(Ref::kOffsetFieldNumber, static_cast<int64_t>(slot.offset));
  writer.End(source);
  writer.End(begin);
}

// Appends a tensor that stays on the server.
inline void AppendResident(int number, const TensorHeader& header, const TensorHandle& handle,
                           std::string& text) {
  using Tensor = rlk::v1::Tensor;
  using Handle = rlk::v1::TensorHandle;
  FieldWriter writer(text);
  const size_t begin = writer.Begin(number);
  AppendHeader(header, writer);
  const size_t source = writer.Begin(Tensor::kResidentFieldNumber);
  writer.Text(Handle::kIdFieldNumber, handle.id);
  writer.Text(Handle::kServerIdFieldNumber, handle.server_id);
  writer.Integer(Handle::kGenerationFieldNumber, static_cast<int64_t>(handle.generation));
  writer.Integer(Handle::kOffsetFieldNumber, static_cast<int64_t>(handle.offset));
  writer.End(source);
  writer.End(begin);
}

}  // namespace rlk::wire
