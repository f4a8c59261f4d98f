// Reads across the pieces of a received message without joining them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "proto/wire/bytes.h"

namespace rlk::wire {

// Looks at pieces that outlive it. Empty pieces are allowed anywhere. A copy stays where it was
// made.
class PieceReader {
 public:
  explicit PieceReader(const std::vector<std::span<const std::byte>>& pieces) : pieces_(&pieces) {
    for (const auto& piece : pieces) remaining_ += static_cast<int64_t>(piece.size());
    NextPiece();
  }

  // Bytes up to the end of the message, or of the part that Enter opened.
  int64_t remaining() const { return remaining_; }

  // Confines reading to the next `size` bytes (at most remaining()) until Leave, which takes what
  // Enter returned.
  int64_t Enter(int64_t size) {
    const int64_t rest = remaining_ - size;
    remaining_ = size;
    return rest;
  }
  // The part has been read to its end.
  void Leave(int64_t rest) { remaining_ = rest; }

  bool ReadByte(uint8_t* byte) {
    if (remaining_ == 0) return false;
    *byte = static_cast<uint8_t>(*next_);
    Advance(1);
    return true;
  }

  // Appends the next `size` bytes.
  bool Append(int64_t size, std::string& out) {
    return Take(size, [&out](std::span<const std::byte> bytes) {
      out.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    });
  }

  // Passes over `size` bytes and lists where they are.
  bool Reference(int64_t size, std::vector<std::span<const std::byte>>& out) {
    return Take(size, [&out](std::span<const std::byte> bytes) { out.push_back(bytes); });
  }

 private:
  template <typename Sink>
  bool Take(int64_t size, Sink sink) {
    if (size > remaining_) return false;
    while (size > 0) {
      const int64_t here = end_ - next_ < size ? end_ - next_ : size;
      sink(std::span<const std::byte>(next_, static_cast<size_t>(here)));
      size -= here;
      Advance(here);
    }
    return true;
  }

  // Keeps the invariant next_ < end_ while pieces are left.
  void Advance(int64_t size) {
    next_ += size;
    remaining_ -= size;
    if (next_ == end_) NextPiece();
  }

  void NextPiece() {
    while (index_ < pieces_->size()) {
      const auto piece = (*pieces_)[index_++];
      if (piece.empty()) continue;
      next_ = piece.data();
      end_ = next_ + piece.size();
      return;
    }
  }

  const std::vector<std::span<const std::byte>>* pieces_;
  size_t index_ = 0;
  const std::byte* next_ = nullptr;
  const std::byte* end_ = nullptr;
  int64_t remaining_ = 0;
};

}  // namespace rlk::wire
