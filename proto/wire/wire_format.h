// The protobuf wire format: varints, tags, and a reader over one block of bytes.
//
// Tags and lengths take at most 5 bytes, as in protobuf's own parser; a longer spelling than needed
// is legal within that.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "google/protobuf/descriptor.h"

namespace rlk::wire {

enum class WireType : uint8_t {
  kVarint = 0,
  kFixed64 = 1,
  kBytes = 2,
  kGroupStart = 3,
  kGroupEnd = 4,
  kFixed32 = 5,
};

// Messages inside messages; rlk's own go 3 deep. Bounds the recursion of the validator.
inline constexpr int kNestingMax = 32;

inline constexpr size_t kVarintBytesMax = 10;
inline constexpr int kTagBytesMax = 5;

inline constexpr uint32_t MakeTag(int field_number, WireType type) {
  return static_cast<uint32_t>(field_number) << 3 | static_cast<uint32_t>(type);
}
inline constexpr int TagFieldNumber(uint32_t tag) { return static_cast<int>(tag >> 3); }
inline constexpr WireType TagWireType(uint32_t tag) { return static_cast<WireType>(tag & 7); }

// Writes at most kVarintBytesMax bytes; returns their end.
inline char* PutVarint(uint64_t value, char* to) {
  while (value >= 0x80) {
    *to++ = static_cast<char>(value | 0x80);
    value >>= 7;
  }
  *to++ = static_cast<char>(value);
  return to;
}

inline void AppendVarint(uint64_t value, std::string& out) {
  char bytes[kVarintBytesMax];
  out.append(bytes, static_cast<size_t>(PutVarint(value, bytes) - bytes));
}

inline constexpr size_t VarintSize(uint64_t value) {
  size_t size = 1;
  for (; value >= 0x80; value >>= 7) ++size;
  return size;
}

// Reads a varint of at most `bytes_max` bytes from a source with `bool ReadByte(uint8_t*)`. False
// where the bytes end early, go on too long, or do not fit in 64 bits.
template <typename Source>
inline bool ReadVarint(Source& source, int bytes_max, uint64_t* value) {
  uint8_t byte;
  if (!source.ReadByte(&byte)) return false;
  if (byte < 0x80) {
    *value = byte;
    return true;
  }
  uint64_t result = byte & 0x7f;
  for (int i = 1; i < bytes_max; ++i) {
    if (!source.ReadByte(&byte)) return false;
    if (i == 9 && byte > 1) return false;
    result |= static_cast<uint64_t>(byte & 0x7f) << (7 * i);
    if (byte < 0x80) {
      *value = result;
      return true;
    }
  }
  return false;
}

// A tag with a field number of at least 1 and a wire type that exists.
template <typename Source>
inline bool ReadTag(Source& source, uint32_t* tag) {
  uint64_t value;
  if (!ReadVarint(source, kTagBytesMax, &value) || value > UINT32_MAX) return false;
  *tag = static_cast<uint32_t>(value);
  return TagFieldNumber(*tag) != 0 && (value & 7) <= static_cast<uint32_t>(WireType::kFixed32);
}

// A length; what is left in the source bounds it.
template <typename Source>
inline bool ReadLength(Source& source, int64_t* length) {
  uint64_t value;
  if (!ReadVarint(source, kTagBytesMax, &value)) return false;
  if (value > static_cast<uint64_t>(source.remaining())) return false;
  *length = static_cast<int64_t>(value);
  return true;
}

// One block of bytes.
class BlockReader {
 public:
  explicit BlockReader(std::string_view bytes)
      : next_(bytes.data()), end_(bytes.data() + bytes.size()) {}

  int64_t remaining() const { return end_ - next_; }
  const char* position() const { return next_; }

  bool ReadByte(uint8_t* byte) {
    if (next_ == end_) return false;
    *byte = static_cast<uint8_t>(*next_++);
    return true;
  }
  bool Read(int64_t size, std::string_view* bytes) {
    if (size > remaining()) return false;
    *bytes = std::string_view(next_, static_cast<size_t>(size));
    next_ += size;
    return true;
  }

 private:
  const char* next_;
  const char* end_;
};

// How a single value of `field` is written; packed repeated fields are kBytes.
WireType FieldWireType(const google::protobuf::FieldDescriptor& field);

// True for rlk.v1.Tensor.
bool IsTensor(const google::protobuf::Descriptor* descriptor);
inline bool IsTensorField(const google::protobuf::FieldDescriptor* field) {
  return field != nullptr && field->type() == google::protobuf::FieldDescriptor::TYPE_MESSAGE &&
         IsTensor(field->message_type());
}

}  // namespace rlk::wire
