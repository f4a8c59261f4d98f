#include "client/cpp/transport.h"

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_replace.h"

namespace rlk::client {
namespace {

constexpr size_t kReferenceBytesMin = size_t{16} << 10;

bool ByReference(const wire::OutputPiece& piece) {
  return piece.owner != nullptr && piece.payload.size() >= kReferenceBytesMin;
}

void Release(void* owner) { delete static_cast<std::shared_ptr<const void>*>(owner); }

}  // namespace

std::string ChannelTarget(const std::string& address) {
  if (address.rfind("unix:", 0) != 0) return address;
  return absl::StrReplaceAll(address, {{"%", "%25"}, {"#", "%23"}, {"?", "%3F"}});
}

grpc::ByteBuffer ToByteBuffer(wire::OutputBytes message) {
  std::vector<grpc::Slice> slices;
  std::string small;
  const auto flush = [&slices, &small] {
    if (!small.empty()) slices.emplace_back(small.data(), small.size());
    small.clear();
  };
  for (wire::OutputPiece& piece : message) {
    small.append(piece.text);
    if (piece.payload.empty()) continue;
    if (ByReference(piece)) {
      flush();
      auto* owner = new std::shared_ptr<const void>(std::move(piece.owner));
      slices.emplace_back(const_cast<std::byte*>(piece.payload.data()), piece.payload.size(),
                          Release, owner);
    } else if (piece.payload.size() >= kReferenceBytesMin) {
      flush();
      slices.emplace_back(piece.payload.data(), piece.payload.size());
    } else {
      small.append(reinterpret_cast<const char*>(piece.payload.data()), piece.payload.size());
    }
  }
  flush();
  if (slices.empty()) slices.emplace_back();
  return grpc::ByteBuffer(slices.data(), slices.size());
}

absl::StatusOr<wire::InputBytes> FromByteBuffer(grpc::ByteBuffer* buffer) {
  auto slices = std::make_shared<std::vector<grpc::Slice>>();
  if (buffer->Valid()) {
    const grpc::Status dumped = buffer->Dump(slices.get());
    if (!dumped.ok()) return absl::InternalError("a reply could not be read");
  }
  wire::InputBytes bytes;
  for (const grpc::Slice& slice : *slices) {
    if (slice.size() == 0) continue;
    bytes.pieces.push_back({reinterpret_cast<const std::byte*>(slice.begin()), slice.size()});
  }
  bytes.owner = std::move(slices);
  return bytes;
}

}  // namespace rlk::client
