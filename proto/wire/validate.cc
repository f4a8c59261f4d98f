#include "proto/wire/validate.h"

#include <cstdint>
#include <limits>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "absl/container/inlined_vector.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "google/protobuf/descriptor.pb.h"
#include "kernels/core/status.h"
#include "proto/wire/path.h"
#include "proto/wire/utf8.h"
#include "proto/wire/wire_format.h"

namespace rlk::wire {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::EnumDescriptor;
using google::protobuf::FieldDescriptor;

absl::Status Malformed(const Path& path, std::string_view what) {
  return InvalidArgument(Reason::kMalformedMessage, path.Text(), "", "", what);
}

std::string FieldNames(const Descriptor& descriptor) {
  if (descriptor.field_count() == 0) return "no fields";
  std::string names;
  for (int i = 0; i < descriptor.field_count(); ++i) {
    absl::StrAppend(&names, i == 0 ? "" : ", ", descriptor.field(i)->name());
  }
  return names;
}

absl::Status UnknownField(const Descriptor& descriptor, const Path& path, int number) {
  const std::string parent = path.Text();
  return InvalidArgument(
      Reason::kUnknownField, absl::StrCat(parent, parent.empty() ? "" : ".", number),
      std::to_string(number), FieldNames(descriptor),
      absl::StrCat("field number ", number, " is unknown in ", descriptor.full_name()));
}

std::string EnumNames(const EnumDescriptor& type) {
  std::string names;
  for (int i = 0; i < type.value_count(); ++i) {
    absl::StrAppend(&names, i == 0 ? "" : ", ", type.value(i)->name());
  }
  return names;
}

// The 32-bit value that a varint stands for: sign-extended, or a negative number that was written
// in 5 bytes.
std::optional<int32_t> AsInt32(uint64_t value) {
  const auto number = static_cast<int64_t>(value);
  if (number >= std::numeric_limits<int32_t>::min() &&
      number <= int64_t{std::numeric_limits<uint32_t>::max()}) {
    return static_cast<int32_t>(static_cast<uint32_t>(value));
  }
  return std::nullopt;
}

absl::Status CheckVarint(const FieldDescriptor& field, uint64_t value, const Path& path) {
  switch (field.type()) {
    case FieldDescriptor::TYPE_ENUM: {
      const EnumDescriptor& type = *field.enum_type();
      const std::optional<int32_t> number = AsInt32(value);
      if (number.has_value() && type.FindValueByNumber(*number) != nullptr) break;
      const auto given = static_cast<int64_t>(value);
      return InvalidArgument(
          Reason::kUnknownEnumValue, path.Text(), std::to_string(given), EnumNames(type),
          absl::StrCat("enum value ", given, " is unknown in ", type.full_name()));
    }
    case FieldDescriptor::TYPE_INT32:
      if (!AsInt32(value).has_value()) return Malformed(path, "integer does not fit in 32 bits");
      break;
    case FieldDescriptor::TYPE_UINT32:
    case FieldDescriptor::TYPE_SINT32:
      if (value > std::numeric_limits<uint32_t>::max()) {
        return Malformed(path, "integer does not fit in 32 bits");
      }
      break;
    default:
      break;
  }
  return absl::OkStatus();
}

// Keys of one map are compared as text, in which equal keys are equal however they were written.
std::string KeyText(const FieldDescriptor& field, uint64_t value) {
  if (field.type() == FieldDescriptor::TYPE_BOOL) return value != 0 ? "1" : "0";
  if (field.type() == FieldDescriptor::TYPE_INT32) return std::to_string(*AsInt32(value));
  return std::to_string(value);
}

std::string HexText(std::string_view bytes) {
  return absl::BytesToHexString(absl::string_view(bytes.data(), bytes.size()));
}

// Of an entry without a key.
std::string DefaultKeyText(const FieldDescriptor& field) {
  switch (FieldWireType(field)) {
    case WireType::kVarint:
      return "0";
    case WireType::kFixed32:
      return HexText(std::string(4, '\0'));
    case WireType::kFixed64:
      return HexText(std::string(8, '\0'));
    default:
      return "";
  }
}

// Checks one message; a level of recursion is a level of nesting.
class Validator {
 public:
  Validator(const Descriptor& descriptor, std::string_view bytes, const Path& path, int depth)
      : descriptor_(descriptor),
        reader_(bytes),
        path_(path),
        depth_(depth),
        is_map_entry_(descriptor.options().map_entry()) {
    counts_.resize(static_cast<size_t>(descriptor.field_count()));
    oneofs_.resize(static_cast<size_t>(descriptor.real_oneof_decl_count()));
    if (is_map_entry_) key_ = DefaultKeyText(*descriptor.map_key());
  }

  absl::Status Run() {
    while (reader_.remaining() > 0) {
      uint32_t tag = 0;
      if (!ReadTag(reader_, &tag)) return Malformed(path_, "a tag is malformed or cut short");
      const FieldDescriptor* field = descriptor_.FindFieldByNumber(TagFieldNumber(tag));
      if (field == nullptr) return UnknownField(descriptor_, path_, TagFieldNumber(tag));
      RLK_RETURN_IF_ERROR(CheckField(*field, TagWireType(tag)));
    }
    return absl::OkStatus();
  }

  // The key, where this message is a map entry.
  std::string TakeKey() { return std::move(key_); }

 private:
  absl::Status CheckField(const FieldDescriptor& field, WireType type) {
    int& count = counts_[static_cast<size_t>(field.index())];
    const Path path{&path_, &field, field.is_repeated() && !field.is_map() ? count : -1};
    RLK_RETURN_IF_ERROR(Count(field, path, count));
    const WireType expected = FieldWireType(field);
    if (type != expected) {
      if (type == WireType::kBytes && field.is_packable()) return CheckPacked(field, path);
      return Malformed(path, absl::StrCat("wire type ", static_cast<int>(type),
                                          " does not fit the field's type ", field.type_name()));
    }
    switch (type) {
      case WireType::kVarint:
        return CheckOneVarint(reader_, field, path);
      case WireType::kFixed64:
        return Skip(8, path);
      case WireType::kFixed32:
        return Skip(4, path);
      case WireType::kBytes:
        return CheckBytes(field, path);
      default:
        return Malformed(path, "groups are not supported");
    }
  }

  // A second value of a singular field or a oneof would silently replace the first.
  absl::Status Count(const FieldDescriptor& field, const Path& path, int& count) {
    ++count;
    const auto* oneof = field.real_containing_oneof();
    const bool source = oneof != nullptr && IsTensor(&descriptor_);
    const Reason reason =
        source || IsTensorField(&field) ? Reason::kDuplicateTensor : Reason::kMalformedMessage;
    if (!field.is_repeated() && count > 1) {
      return InvalidArgument(reason, path.Text(), "", "", "the field is given more than once");
    }
    if (oneof == nullptr) return absl::OkStatus();
    bool& given = oneofs_[static_cast<size_t>(oneof->index())];
    if (given) {
      return InvalidArgument(reason, path.Text(), "", "",
                             absl::StrCat("more than one ", oneof->name(), " is given"));
    }
    given = true;
    return absl::OkStatus();
  }

  template <typename Reader>
  absl::Status CheckOneVarint(Reader& reader, const FieldDescriptor& field, const Path& path) {
    uint64_t value = 0;
    if (!ReadVarint(reader, kVarintBytesMax, &value)) {
      return Malformed(path, "an integer is malformed or cut short");
    }
    RLK_RETURN_IF_ERROR(CheckVarint(field, value, path));
    if (IsKey(field)) key_ = KeyText(field, value);
    return absl::OkStatus();
  }

  absl::Status Skip(int64_t size, const Path& path) {
    std::string_view bytes;
    if (!reader_.Read(size, &bytes)) return Malformed(path, "the value is cut short");
    if (IsKey(*path.field)) key_ = HexText(bytes);
    return absl::OkStatus();
  }

  absl::Status ReadBytes(const Path& path, std::string_view* bytes) {
    int64_t length = 0;
    if (!ReadLength(reader_, &length) || !reader_.Read(length, bytes)) {
      return Malformed(path, "the length is malformed or goes beyond the message");
    }
    return absl::OkStatus();
  }

  absl::Status CheckPacked(const FieldDescriptor& field, const Path& path) {
    std::string_view bytes;
    RLK_RETURN_IF_ERROR(ReadBytes(path, &bytes));
    switch (FieldWireType(field)) {
      case WireType::kFixed64:
      case WireType::kFixed32: {
        const size_t size = FieldWireType(field) == WireType::kFixed64 ? 8 : 4;
        if (bytes.size() % size != 0) return Malformed(path, "a packed value is cut short");
        return absl::OkStatus();
      }
      default: {
        BlockReader values(bytes);
        while (values.remaining() > 0) {
          RLK_RETURN_IF_ERROR(CheckOneVarint(values, field, path));
        }
        return absl::OkStatus();
      }
    }
  }

  absl::Status CheckBytes(const FieldDescriptor& field, const Path& path) {
    std::string_view bytes;
    RLK_RETURN_IF_ERROR(ReadBytes(path, &bytes));
    if (field.type() == FieldDescriptor::TYPE_MESSAGE) return CheckMessage(field, bytes, path);
    if (field.type() == FieldDescriptor::TYPE_STRING && !IsUtf8(bytes)) {
      return Malformed(path, "the text is not UTF-8");
    }
    if (IsKey(field)) key_ = std::string(bytes);
    return absl::OkStatus();
  }

  absl::Status CheckMessage(const FieldDescriptor& field, std::string_view bytes,
                            const Path& path) {
    if (depth_ >= kNestingMax) {
      return InvalidArgument(Reason::kLimitExceeded, path.Text(), "",
                             absl::StrCat("at most ", kNestingMax, " levels"),
                             "messages are nested too deeply");
    }
    Validator nested(*field.message_type(), bytes, path, depth_ + 1);
    RLK_RETURN_IF_ERROR(nested.Run());
    if (field.is_map()) {
      std::string key = nested.TakeKey();
      if (!map_keys_.emplace(field.number(), key).second) {
        return InvalidArgument(Reason::kMalformedMessage, path.Text(), key, "",
                               "a map key is given more than once");
      }
    }
    return absl::OkStatus();
  }

  bool IsKey(const FieldDescriptor& field) const { return is_map_entry_ && field.number() == 1; }

  const Descriptor& descriptor_;
  BlockReader reader_;
  const Path& path_;
  int depth_;
  // By field index: how often it was given.
  absl::InlinedVector<int, 16> counts_;
  absl::InlinedVector<bool, 4> oneofs_;
  std::set<std::pair<int, std::string>> map_keys_;
  bool is_map_entry_;
  std::string key_;
};

}  // namespace

absl::Status ValidateMessage(const Descriptor& descriptor, std::string_view bytes) {
  const Path root;
  return Validator(descriptor, bytes, root, 0).Run();
}

}  // namespace rlk::wire
