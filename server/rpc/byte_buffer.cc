#include "server/rpc/byte_buffer.h"

#include <grpcpp/support/slice.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "kernels/core/status.h"

namespace rlk::server {
namespace {

void ReleaseOwner(void* owner) { delete static_cast<std::shared_ptr<const void>*>(owner); }

// From here on a payload is referred to; what is shorter costs less to copy than a slice.
constexpr size_t kReferenceBytesMin = 1024;

bool ByReference(const wire::OutputPiece& piece) {
  return piece.payload.size() >= kReferenceBytesMin;
}

// Copies [begin, end) into one slice.
template <typename Pieces>
grpc::Slice Copy(Pieces begin, Pieces end) {
  size_t size = 0;
  for (auto piece = begin; piece != end; ++piece)
    size += piece->text.size() + piece->payload.size();
  grpc::Slice slice(size);
  auto* to = const_cast<uint8_t*>(slice.begin());
  for (auto piece = begin; piece != end; ++piece) {
    to = std::copy(piece->text.begin(), piece->text.end(), to);
    const auto* payload = reinterpret_cast<const uint8_t*>(piece->payload.data());
    to = std::copy(payload, payload + piece->payload.size(), to);
  }
  return slice;
}

}  // namespace

// Short slices lie inside the slice object itself, so the pieces are taken from the vector that
// keeps them.
absl::StatusOr<wire::InputBytes> TakeSlices(const grpc::ByteBuffer& buffer) {
  auto slices = std::make_shared<std::vector<grpc::Slice>>();
  if (!buffer.Valid() || !buffer.Dump(slices.get()).ok()) {
    return InvalidArgument(Reason::kMalformedMessage, "", "", "an uncompressed message",
                           "the message cannot be read");
  }
  wire::InputBytes bytes;
  bytes.pieces.reserve(slices->size());
  for (const grpc::Slice& slice : *slices) {
    bytes.pieces.emplace_back(reinterpret_cast<const std::byte*>(slice.begin()), slice.size());
  }
  bytes.owner = std::move(slices);
  return bytes;
}

void FillBuffer(wire::OutputBytes pieces, grpc::ByteBuffer* buffer) {
  absl::InlinedVector<grpc::Slice, 4> slices;
  for (auto piece = pieces.begin(); piece != pieces.end();) {
    if (ByReference(*piece)) {
      auto* owner = new std::shared_ptr<const void>(std::move(piece->owner));
      slices.emplace_back(const_cast<std::byte*>(piece->payload.data()), piece->payload.size(),
                          ReleaseOwner, owner);
      ++piece;
      continue;
    }
    const auto end = std::find_if(piece, pieces.end(), ByReference);
    slices.push_back(Copy(piece, end));
    piece = end;
  }
  grpc::ByteBuffer filled(slices.data(), slices.size());
  buffer->Swap(&filled);
}

}  // namespace rlk::server
