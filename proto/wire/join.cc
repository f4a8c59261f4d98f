#include <cstdint>
#include <string>
#include <utility>

#include "google/protobuf/io/coded_stream.h"
#include "google/protobuf/io/zero_copy_stream_impl_lite.h"
#include "proto/wire/check.h"
#include "proto/wire/codec.h"
#include "proto/wire/wire_format.h"
#include "rlk/v1/tensor.pb.h"

namespace rlk::wire {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;

constexpr char kUnreadable[] = "cannot read back a serialised message";

// Sized once: a string that grows on the way costs a small call more than the writing.
std::string SerializeDeterministic(const google::protobuf::Message& message) {
  std::string bytes(message.ByteSizeLong(), '\0');
  google::protobuf::io::ArrayOutputStream stream(bytes.data(), static_cast<int>(bytes.size()));
  google::protobuf::io::CodedOutputStream coded(&stream);
  coded.SetSerializationDeterministic(true);
  message.SerializeWithCachedSizes(&coded);
  Check(!coded.HadError() && coded.ByteCount() == static_cast<int>(bytes.size()), kUnreadable);
  return bytes;
}

// Passes over the value of a field that protobuf itself has just written.
std::string_view ReadField(BlockReader& reader, uint32_t tag) {
  const char* begin = reader.position();
  std::string_view bytes;
  uint64_t value = 0;
  int64_t length = 0;
  bool ok = false;
  switch (TagWireType(tag)) {
    case WireType::kVarint:
      ok = ReadVarint(reader, kVarintBytesMax, &value);
      break;
    case WireType::kFixed64:
      ok = reader.Read(8, &bytes);
      break;
    case WireType::kFixed32:
      ok = reader.Read(4, &bytes);
      break;
    case WireType::kBytes:
      Check(ReadLength(reader, &length) && reader.Read(length, &bytes), kUnreadable);
      return bytes;
    default:
      break;
  }
  Check(ok, kUnreadable);
  return {begin, static_cast<size_t>(reader.position() - begin)};
}

class Joiner {
 public:
  explicit Joiner(std::vector<Payload> payloads) : payloads_(std::move(payloads)) {}

  OutputBytes Run(const google::protobuf::Message& message) {
    const std::string bytes = SerializeDeterministic(message);
    const Descriptor& descriptor = *message.GetDescriptor();
    BlockReader reader(bytes);
    text_.reserve(bytes.size());
    int number = 0, index = 0;
    while (reader.remaining() > 0) {
      const char* begin = reader.position();
      uint32_t tag = 0;
      Check(ReadTag(reader, &tag), kUnreadable);
      const std::string_view value = ReadField(reader, tag);
      index = TagFieldNumber(tag) == number ? index + 1 : 0;
      number = TagFieldNumber(tag);
      Payload* payload = IsTensorField(descriptor.FindFieldByNumber(number))
                             ? FindPayload(number, index)
                             : nullptr;
      if (payload == nullptr) {
        text_.append(begin, static_cast<size_t>(reader.position() - begin));
      } else {
        AppendTensor(tag, value, std::move(payload->bytes));
        payload->field_number = 0;
        ++used_;
      }
    }
    Check(used_ == payloads_.size(), "a payload without a tensor that takes it");
    if (!text_.empty() || out_.empty()) FlushText();
    return std::move(out_);
  }

 private:
  Payload* FindPayload(int number, int index) {
    for (Payload& payload : payloads_) {
      if (payload.field_number == number && payload.index == index) return &payload;
    }
    return nullptr;
  }

  // `tensor` is the serialised tensor with empty data; the bytes go where that was.
  void AppendTensor(uint32_t tag, std::string_view tensor, HostBytes bytes) {
    std::string_view before = tensor, after;
    BlockReader reader(tensor);
    bool found = false;
    while (reader.remaining() > 0 && !found) {
      const char* begin = reader.position();
      uint32_t inner = 0;
      Check(ReadTag(reader, &inner), kUnreadable);
      const std::string_view value = ReadField(reader, inner);
      if (inner != MakeTag(rlk::v1::Tensor::kDataFieldNumber, WireType::kBytes)) continue;
      Check(value.empty(), "a tensor with a payload has data of its own");
      before = std::string_view(tensor.data(), static_cast<size_t>(begin - tensor.data()));
      after = std::string_view(reader.position(), static_cast<size_t>(reader.remaining()));
      found = true;
    }
    Check(found, "a payload for a tensor whose source is not data");

    const auto size = static_cast<uint64_t>(bytes.size);
    AppendVarint(tag, text_);
    AppendVarint(before.size() + 1 + VarintSize(size) + size + after.size(), text_);
    text_.append(before);
    AppendVarint(MakeTag(rlk::v1::Tensor::kDataFieldNumber, WireType::kBytes), text_);
    AppendVarint(size, text_);
    if (size > 0) {
      FlushText();
      for (const auto& piece : bytes.pieces) {
        if (!piece.empty()) out_.push_back({std::string(), piece, bytes.owner});
      }
    }
    text_.append(after);
  }

  void FlushText() {
    out_.push_back({std::move(text_), {}, nullptr});
    text_.clear();
  }

  std::vector<Payload> payloads_;
  size_t used_ = 0;
  OutputBytes out_;
  std::string text_;
};

}  // namespace

OutputBytes Join(const google::protobuf::Message& message, std::vector<Payload> payloads) {
  return Joiner(std::move(payloads)).Run(message);
}

}  // namespace rlk::wire
