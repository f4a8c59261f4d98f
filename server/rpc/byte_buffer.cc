#include "server/rpc/byte_buffer.h"

#include <grpcpp/support/slice.h>

#include <memory>
#include <utility>
#include <vector>

#include "kernels/core/status.h"

namespace rlk::server {

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

}  // namespace rlk::server
