// Writes fields of the protobuf wire format one behind the other, without a message object: a small
// reply is mostly report, and twenty little objects cost more than their bytes.
//
// Text, Integer and Flag leave out proto3's defaults, as protobuf does.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

#include "kernels/core/tensor_view.h"
#include "proto/wire/wire_format.h"

namespace rlk::wire {

class FieldWriter {
 public:
  explicit FieldWriter(std::string& out) : out_(out) {}

  void Tag(int number, WireType type) { AppendVarint(MakeTag(number, type), out_); }

  // Bytes and text, an empty one included.
  void Bytes(int number, std::string_view bytes) {
    TagAnd(number, WireType::kBytes, bytes.size());
    out_.append(bytes);
  }
  void Text(int number, std::string_view text) {
    if (!text.empty()) Bytes(number, text);
  }

  // Integers, booleans and enums, a zero included.
  void Varint(int number, int64_t value) {
    TagAnd(number, WireType::kVarint, static_cast<uint64_t>(value));
  }
  void Integer(int number, int64_t value) {
    if (value != 0) Varint(number, value);
  }

  // A double, a zero included.
  void Double(int number, double value) {
    static_assert(sizeof(value) == 8);
    char bytes[kTagBytesMax + sizeof(value)];
    char* const to = PutVarint(MakeTag(number, WireType::kFixed64), bytes);
    uint64_t bits = 0;
    std::memcpy(&bits, &value, sizeof(bits));
    for (size_t i = 0; i < sizeof(bits); ++i) to[i] = static_cast<char>(bits >> (8 * i));
    out_.append(bytes, static_cast<size_t>(to - bytes) + sizeof(bits));
  }

  void PackedIntegers(int number, const Dims& values) {
    if (values.rank() == 0) return;
    const size_t begin = Begin(number);
    for (const int64_t value : values) AppendVarint(static_cast<uint64_t>(value), out_);
    End(begin);
  }

  // A message of its own between the two; End takes what Begin returned, and `more` bytes that
  // follow outside this text belong to the message too.
  size_t Begin(int number) {
    Tag(number, WireType::kBytes);
    return out_.size();
  }
  void End(size_t begin, uint64_t more = 0) {
    char length[kVarintBytesMax];
    const char* const end = PutVarint(out_.size() - begin + more, length);
    out_.insert(begin, length, static_cast<size_t>(end - length));
  }

 private:
  void TagAnd(int number, WireType type, uint64_t value) {
    char bytes[kTagBytesMax + kVarintBytesMax];
    const char* const end = PutVarint(value, PutVarint(MakeTag(number, type), bytes));
    out_.append(bytes, static_cast<size_t>(end - bytes));
  }

  std::string& out_;
};

}  // namespace rlk::wire
