#include <algorithm>
#include <climits>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "absl/container/inlined_vector.h"
#include "absl/strings/str_cat.h"
#include "kernels/core/status.h"
#include "proto/wire/check.h"
#include "proto/wire/codec.h"
#include "proto/wire/path.h"
#include "proto/wire/piece_reader.h"
#include "proto/wire/validate.h"
#include "proto/wire/wire_format.h"
#include "rlk/v1/tensor.pb.h"

namespace rlk::wire {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;

constexpr uint32_t kDataTag = MakeTag(rlk::v1::Tensor::kDataFieldNumber, WireType::kBytes);

absl::Status Malformed(std::string_view field, std::string_view what) {
  return InvalidArgument(Reason::kMalformedMessage, field, "", "", what);
}

// One pass over the pieces: top-level fields and the fields of tensors are looked at, payloads
// are passed over, and everything else is gathered into `rest` for the validator. `rest` is a
// message of the same type, with empty payloads.
class Splitter {
 public:
  Splitter(const Descriptor& descriptor, const InputBytes& bytes, int64_t tensors_max)
      : descriptor_(descriptor),
        owner_(bytes.owner),
        reader_(bytes.pieces),
        tensors_max_(tensors_max) {}

  absl::Status Run() {
    rest_.reserve(static_cast<size_t>(std::min<int64_t>(reader_.remaining(), 512)));
    while (reader_.remaining() > 0) {
      uint32_t tag = 0;
      if (!ReadTag(reader_, &tag)) return Malformed("", "a tag is malformed or cut short");
      const FieldDescriptor* field = descriptor_.FindFieldByNumber(TagFieldNumber(tag));
      if (TagWireType(tag) == WireType::kBytes && IsTensorField(field)) {
        RLK_RETURN_IF_ERROR(SplitTensor(*field, tag));
      } else {
        RLK_RETURN_IF_ERROR(CopyField(tag, field, rest_));
      }
    }
    return absl::OkStatus();
  }

  const std::string& rest() const { return rest_; }
  int64_t payload_bytes() const { return payload_bytes_; }
  std::vector<Payload> TakePayloads() { return std::move(payloads_); }

 private:
  absl::Status SplitTensor(const FieldDescriptor& field, uint32_t tag) {
    if (tensors_ == tensors_max_) {
      return InvalidArgument(Reason::kLimitExceeded, field.name(),
                             absl::StrCat("more than ", tensors_max_, " tensors"),
                             absl::StrCat("at most ", tensors_max_, " (tensors_per_call_max)"),
                             "too many tensors");
    }
    ++tensors_;
    const int index = field.is_repeated() ? NextIndex(field) : 0;
    int64_t length = 0;
    if (!ReadLength(reader_, &length)) return BadLength(field.name());
    const int64_t after = reader_.Enter(length);
    header_.clear();
    bool has_data = false;
    while (reader_.remaining() > 0) {
      uint32_t inner = 0;
      if (!ReadTag(reader_, &inner)) {
        return Malformed(field.name(), "a tag is malformed or cut short");
      }
      if (inner == kDataTag) {
        // Two bytes would make a payload each; the bound on tensors is one on payloads too.
        if (std::exchange(has_data, true)) {
          return InvalidArgument(Reason::kDuplicateTensor, PayloadName(field, index), "", "",
                                 "the field is given more than once");
        }
        RLK_RETURN_IF_ERROR(TakePayload(field, index));
      } else {
        RLK_RETURN_IF_ERROR(CopyField(inner, &field, header_));
      }
    }
    reader_.Leave(after);
    AppendVarint(tag, rest_);
    AppendVarint(header_.size(), rest_);
    rest_.append(header_);
    return absl::OkStatus();
  }

  absl::Status TakePayload(const FieldDescriptor& field, int index) {
    int64_t length = 0;
    Payload payload{field.number(), index, {}};
    if (!ReadLength(reader_, &length) || !reader_.Reference(length, payload.bytes.pieces)) {
      return BadLength(field.name() + ".data");
    }
    payload.bytes.size = length;
    payload_bytes_ += length;
    payload.bytes.owner = owner_;
    payloads_.push_back(std::move(payload));
    AppendVarint(kDataTag, header_);
    header_.push_back('\0');
    return absl::OkStatus();
  }

  // Copies a field as it is; the validator looks at it. `field` names the place for errors and may
  // be null.
  absl::Status CopyField(uint32_t tag, const FieldDescriptor* field, std::string& out) {
    AppendVarint(tag, out);
    uint64_t value = 0;
    int64_t length = 0;
    switch (TagWireType(tag)) {
      case WireType::kVarint:
        if (!ReadVarint(reader_, kVarintBytesMax, &value)) break;
        AppendVarint(value, out);
        return absl::OkStatus();
      case WireType::kFixed64:
        if (!reader_.Append(8, out)) break;
        return absl::OkStatus();
      case WireType::kFixed32:
        if (!reader_.Append(4, out)) break;
        return absl::OkStatus();
      case WireType::kBytes:
        if (!ReadLength(reader_, &length)) return BadLength(Name(field));
        AppendVarint(static_cast<uint64_t>(length), out);
        reader_.Append(length, out);
        return absl::OkStatus();
      default:
        return Malformed(Name(field), "groups are not supported");
    }
    return Malformed(Name(field), "a value is malformed or cut short");
  }

  static std::string Name(const FieldDescriptor* field) {
    return field == nullptr ? std::string() : field->name();
  }
  static std::string PayloadName(const FieldDescriptor& field, int index) {
    return field.is_repeated() ? absl::StrCat(field.name(), "[", index, "].data")
                               : absl::StrCat(field.name(), ".data");
  }
  static absl::Status BadLength(std::string_view field) {
    return Malformed(field, "the length is malformed or goes beyond the message");
  }

  int NextIndex(const FieldDescriptor& field) {
    for (auto& [number, count] : counts_) {
      if (number == field.number()) return count++;
    }
    counts_.emplace_back(field.number(), 1);
    return 0;
  }

  const Descriptor& descriptor_;
  const std::shared_ptr<const void>& owner_;
  PieceReader reader_;
  int64_t tensors_max_;
  int64_t tensors_ = 0, payload_bytes_ = 0;
  std::string rest_, header_;
  std::vector<Payload> payloads_;
  // Of repeated tensor fields: number and how many came so far.
  absl::InlinedVector<std::pair<int, int>, 4> counts_;
};

}  // namespace

absl::StatusOr<SplitMessage> Split(const Descriptor* descriptor, const InputBytes& bytes,
                                   int64_t tensors_max, int64_t header_bytes_max) {
  SplitMessage result;
  for (const auto& piece : bytes.pieces) result.message_bytes += static_cast<int64_t>(piece.size());
  if (result.message_bytes > INT_MAX) {
    return InvalidArgument(Reason::kLimitExceeded, "", std::to_string(result.message_bytes),
                           "at most 2 GiB - 1 a message", "the message is too large");
  }
  Splitter splitter(*descriptor, bytes, tensors_max);
  RLK_RETURN_IF_ERROR(splitter.Run());
  // Before anything that costs more than passing over the bytes.
  const int64_t header_bytes = result.message_bytes - splitter.payload_bytes();
  if (header_bytes > header_bytes_max) {
    return InvalidArgument(Reason::kLimitExceeded, "request",
                           absl::StrCat(header_bytes, " bytes beside the tensors' elements"),
                           absl::StrCat("at most ", header_bytes_max, " bytes (header_bytes_max)"),
                           "the message has too much beside its tensors");
  }
  RLK_RETURN_IF_ERROR(ValidateMessage(*descriptor, splitter.rest()));

  const google::protobuf::Message* prototype =
      google::protobuf::MessageFactory::generated_factory()->GetPrototype(descriptor);
  Check(prototype != nullptr, "is not generated code", descriptor->full_name());
  result.message.reset(prototype->New());
  const std::string& rest = splitter.rest();
  if (!result.message->ParsePartialFromArray(rest.data(), static_cast<int>(rest.size()))) {
    return Malformed("", absl::StrCat("not a valid ", descriptor->full_name()));
  }
  result.payloads = splitter.TakePayloads();
  return result;
}

}  // namespace rlk::wire
