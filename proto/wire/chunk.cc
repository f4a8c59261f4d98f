#include "proto/wire/chunk.h"

#include <string>
#include <utility>

#include "kernels/core/status.h"
#include "proto/wire/piece_reader.h"
#include "proto/wire/wire_format.h"

namespace rlk::wire {

OutputBytes EncodeChunk(int field_number, const HostBytes& payload) {
  std::string prefix;
  AppendVarint(MakeTag(field_number, WireType::kBytes), prefix);
  AppendVarint(static_cast<uint64_t>(payload.size), prefix);
  OutputBytes out;
  out.reserve(payload.pieces.size() + 1);
  out.push_back({std::move(prefix), {}, nullptr});
  for (const auto& piece : payload.pieces) {
    if (!piece.empty()) out.push_back({std::string(), piece, payload.owner});
  }
  return out;
}

absl::StatusOr<std::optional<HostBytes>> DecodeChunk(int field_number, const InputBytes& bytes) {
  PieceReader reader(bytes.pieces);
  uint32_t tag = 0;
  if (!ReadTag(reader, &tag) || tag != MakeTag(field_number, WireType::kBytes)) {
    return std::optional<HostBytes>();
  }
  HostBytes payload;
  if (!ReadLength(reader, &payload.size) || payload.size != reader.remaining()) {
    return InvalidArgument(Reason::kMalformedMessage, "", "", "one field a message",
                           "the message of the stream is malformed");
  }
  reader.Reference(payload.size, payload.pieces);
  payload.owner = bytes.owner;
  return std::optional<HostBytes>(std::move(payload));
}

}  // namespace rlk::wire
