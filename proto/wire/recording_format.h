// Bytes of a recording: internal to this folder.
#pragma once

#include <array>
#include <bit>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>

#include "kernels/digest/digest.h"

namespace rlk::wire::recording {

static_assert(std::endian::native == std::endian::little, "numbers are written as they lie");

inline constexpr std::string_view kMagic("\x89RLKREC\n", 8);
inline constexpr int64_t kFileHeadBytes = 16;
inline constexpr int64_t kRecordHeadBytes = 16;
inline constexpr int64_t kChecksumBytes = 16;

enum Kind : uint32_t { kStart = 1, kTensor = 2, kCall = 3, kEnd = 4 };

using Checksum = std::array<uint8_t, 16>;

struct RecordHead {
  uint32_t kind = 0, zero = 0;
  uint64_t length = 0;
};
static_assert(sizeof(RecordHead) == kRecordHeadBytes);

// The checksum of a record, fed with its bytes.
class ChecksumStream {
 public:
  ChecksumStream(const Checksum& before, const RecordHead& head)
      : stream_(DType::kU8,
                {kChecksumBytes + kRecordHeadBytes + static_cast<int64_t>(head.length)}) {
    Update(std::as_bytes(std::span(before)));
    Update(std::as_bytes(std::span(&head, 1)));
  }
  void Update(std::span<const std::byte> bytes) { stream_.Update(bytes); }
  Checksum Finish() { return stream_.Finish().bytes; }

 private:
  DigestStream stream_;
};

inline std::span<const std::byte> BytesOf(std::string_view text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

}  // namespace rlk::wire::recording
