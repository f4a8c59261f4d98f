// Messages as pieces of bytes. A transport gives and takes pieces; payloads are never copied here.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace rlk::wire {

// A received message: pieces in order, kept alive by `owner`.
struct InputBytes {
  std::vector<std::span<const std::byte>> pieces;
  std::shared_ptr<const void> owner;
};

// A piece of a message to send: either `text`, or `payload` kept alive by `owner`.
struct OutputPiece {
  std::string text;
  std::span<const std::byte> payload;
  std::shared_ptr<const void> owner;
};

using OutputBytes = std::vector<OutputPiece>;

}  // namespace rlk::wire
