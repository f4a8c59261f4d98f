#include "client/cpp/message.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <optional>
#include <span>
#include <utility>

#include "kernels/core/status.h"
#include "proto/wire/codec.h"
#include "proto/wire/field_writer.h"
#include "proto/wire/piece_reader.h"
#include "proto/wire/signatures.h"
#include "proto/wire/tensor_reader.h"
#include "proto/wire/tensor_writer.h"
#include "rlk/v1/tensor.pb.h"

namespace rlk::client {
namespace {

template <typename Spec>
std::string Names(const std::vector<Spec>& specs) {
  std::vector<std::string> names;
  for (const Spec& spec : specs) names.push_back(spec.name);
  return names.empty() ? "none" : JoinNames(names);
}

template <typename Spec>
const Spec* FindSpec(const std::vector<Spec>& specs, const std::string& name) {
  for (const Spec& spec : specs) {
    if (spec.name == name) return &spec;
  }
  return nullptr;
}

absl::Status WrongAttribute(const AttributeSpec& spec, Reason reason, const std::string& value,
                            const std::string& allowed) {
  return InvalidArgument(reason, spec.name, value, allowed, "the value is not allowed");
}

std::string AttributeText(const Attribute& value) {
  struct Visitor {
    std::string operator()(double v) const { return std::to_string(v); }
    std::string operator()(int64_t v) const { return std::to_string(v); }
    std::string operator()(bool v) const { return v ? "true" : "false"; }
    std::string operator()(DType v) const { return std::string(DTypeName(v)); }
    std::string operator()(const std::string& v) const { return v; }
  };
  return std::visit(Visitor(), value);
}

absl::Status AppendEnum(const AttributeSpec& spec, const Attribute& value,
                        wire::FieldWriter& writer) {
  if (const auto* name = std::get_if<std::string>(&value)) {
    for (const auto& [number, text] : spec.enumerators) {
      if (text != *name) continue;
      writer.Varint(spec.field_number, number);
      return absl::OkStatus();
    }
  }
  std::vector<std::string> names;
  for (const auto& [number, text] : spec.enumerators) names.push_back(text);
  return WrongAttribute(spec, Reason::kUnknownEnumValue, AttributeText(value), JoinNames(names));
}

// A value that is given is written, a zero too: it is not the default.
absl::Status AppendAttribute(const AttributeSpec& spec, const Attribute& value,
                             wire::FieldWriter& writer) {
  const auto* integer = std::get_if<int64_t>(&value);
  const char* allowed = "a number";
  switch (spec.kind) {
    case AttributeKind::kF32:
    case AttributeKind::kF64:
      if (const auto* number = std::get_if<double>(&value)) {
        writer.Double(spec.field_number, *number);
        return absl::OkStatus();
      }
      if (integer != nullptr) {
        writer.Double(spec.field_number, static_cast<double>(*integer));
        return absl::OkStatus();
      }
      break;
    case AttributeKind::kI64:
      if (integer != nullptr) {
        writer.Varint(spec.field_number, *integer);
        return absl::OkStatus();
      }
      allowed = "an integer";
      break;
    case AttributeKind::kBool:
      if (const auto* boolean = std::get_if<bool>(&value)) {
        writer.Varint(spec.field_number, *boolean ? 1 : 0);
        return absl::OkStatus();
      }
      allowed = "true or false";
      break;
    case AttributeKind::kDType:
      if (const auto* dtype = std::get_if<DType>(&value)) {
        writer.Varint(spec.field_number, static_cast<int64_t>(*dtype));
        return absl::OkStatus();
      }
      allowed = "a dtype";
      break;
    case AttributeKind::kEnum:
      return AppendEnum(spec, value, writer);
  }
  return WrongAttribute(spec, Reason::kAttributeOutOfRange, AttributeText(value), allowed);
}

absl::Status Contradiction(const std::string& name, const std::string& what) {
  return MakeError(absl::StatusCode::kInternal, {Reason::kInternal, name, "", "", 0},
                   "the reply contradicts itself: " + what);
}

absl::StatusOr<Tensor> TakeTensor(const std::string& name, const wire::GivenTensor& given) {
  if (given.strides.count != 0) return Contradiction(name, "it has strides");
  // The size of the shape is compared before memory is taken for it.
  const char somewhere = 0;
  RLK_ASSIGN_OR_RETURN(
      const int64_t expected,
      SourceBytes({.dtype = given.dtype, .shape = Dims(given.shape.span()), .data = &somewhere},
                  name));
  const HostBytes& payload = given.source.payload;
  if (expected != payload.size) {
    return Contradiction(name, std::to_string(payload.size) + " bytes, but its shape has " +
                                   std::to_string(expected));
  }
  RLK_ASSIGN_OR_RETURN(Tensor tensor, Tensor::Allocate(given.dtype, given.shape.span()));
  std::byte* to = tensor.mutable_bytes().data();
  for (const auto& piece : payload.pieces) {
    if (!piece.empty()) std::memcpy(to, piece.data(), piece.size());
    to += piece.size();
  }
  return tensor;
}

ResidentTensor TakeResident(const wire::GivenTensor& given) {
  ResidentTensor tensor;
  const TensorHandle& handle = given.source.resident;
  tensor.handle.set_id(handle.id);
  tensor.handle.set_server_id(handle.server_id);
  tensor.handle.set_generation(handle.generation);
  tensor.handle.set_offset(handle.offset);
  tensor.dtype = given.dtype;
  tensor.shape = Dims(given.shape.span());
  int64_t bytes = DTypeSize(tensor.dtype);
  for (const int64_t size : given.shape.span()) {
    if (__builtin_mul_overflow(bytes, size, &bytes)) bytes = 0;
  }
  tensor.bytes = bytes;
  return tensor;
}

PlacedTensor TakePlaced(const wire::GivenTensor& given) {
  PlacedTensor tensor{given.dtype, Dims(given.shape.span()), {}};
  const rlk::ArenaSlot& place = given.source.arena;
  tensor.place.set_arena(place.arena);
  tensor.place.set_generation(place.generation);
  tensor.place.set_offset(place.offset);
  return tensor;
}

// What ReadTensor gives, of a tensor that it does not take.
absl::StatusOr<wire::GivenTensor> Given(const std::string& name, rlk::v1::Tensor& tensor) {
  wire::GivenTensor given;
  if (tensor.shape_size() > kMaxRank) return Contradiction(name, "its rank is above 8");
  given.dtype = static_cast<DType>(tensor.dtype());
  for (const int64_t size : tensor.shape()) given.shape.values[given.shape.count++] = size;
  given.strides.count = tensor.strides_size() > 0 ? 1 : 0;
  wire::GivenSource& source = given.source;
  switch (tensor.source_case()) {
    case rlk::v1::Tensor::kData: {
      const auto data = std::make_shared<const std::string>(std::move(*tensor.mutable_data()));
      source.payload.size = static_cast<int64_t>(data->size());
      source.payload.pieces = {std::as_bytes(std::span(data->data(), data->size()))};
      source.payload.owner = data;
      break;
    }
    case rlk::v1::Tensor::kResident: {
      const rlk::v1::TensorHandle& handle = tensor.resident();
      source.kind = TensorSource::kResident;
      source.resident = {handle.id(), handle.server_id(), handle.generation(), handle.offset()};
      break;
    }
    case rlk::v1::Tensor::kArena: {
      const rlk::v1::ArenaRef& place = tensor.arena();
      source.kind = TensorSource::kArena;
      source.arena = {place.arena(), place.generation(), place.offset()};
      break;
    }
    case rlk::v1::Tensor::SOURCE_NOT_SET:
      return Contradiction(name, "it is neither inline nor resident nor in an arena");
  }
  return given;
}

// Reads a reply without an object for it: payloads are referenced, the report is taken as it is,
// and what is unknown is passed over: a newer server may say more.
class ReplyReader {
 public:
  ReplyReader(const std::vector<TensorSpec>& specs, const wire::InputBytes& bytes)
      : specs_(specs), reader_(bytes.pieces), outputs_(specs.size()) {}

  // By output spec.
  const std::vector<std::optional<wire::GivenTensor>>& outputs() const { return outputs_; }
  std::string TakeReport() { return std::move(report_); }

  absl::Status Run() {
    while (reader_.remaining() > 0) {
      uint32_t tag = 0;
      if (!wire::ReadTag(reader_, &tag)) return Malformed();
      if (const size_t output = FindOutput(tag); output < specs_.size()) {
        RLK_RETURN_IF_ERROR(ReadOutput(output));
        continue;
      }
      // As in protobuf, a report that is given twice is one of both parts.
      const bool report = tag == wire::MakeTag(wire::kReportFieldNumber, wire::WireType::kBytes);
      if (!CopyValue(tag, report ? &report_ : nullptr)) return Malformed();
    }
    return absl::OkStatus();
  }

 private:
  static absl::Status Malformed() {
    return InvalidArgument(Reason::kMalformedMessage, "", "", "", "the reply is malformed");
  }

  size_t FindOutput(uint32_t tag) const {
    size_t i = 0;
    while (i < specs_.size() &&
           (specs_[i].repeated ||
            tag != wire::MakeTag(specs_[i].field_number, wire::WireType::kBytes))) {
      ++i;
    }
    return i;
  }

  absl::Status ReadOutput(size_t index) {
    const wire::PieceReader begin = reader_;
    std::optional<wire::GivenTensor>& output = outputs_[index];
    if (!output && wire::ReadTensor(reader_, &output.emplace())) return absl::OkStatus();
    // A newer server's, or a reply that is wrong: protobuf knows what may be passed over.
    reader_ = begin;
    std::string text;
    rlk::v1::Tensor tensor;
    if (!CopyValue(wire::MakeTag(1, wire::WireType::kBytes), &text) ||
        !tensor.ParsePartialFromString(text)) {
      return Malformed();
    }
    RLK_ASSIGN_OR_RETURN(output, Given(specs_[index].name, tensor));
    return absl::OkStatus();
  }

  // Appends the bytes of a length-delimited value to `out`, where there is one, and passes over any
  // other.
  bool CopyValue(uint32_t tag, std::string* out) {
    uint64_t value = 0;
    int64_t length = 0;
    std::string ignored;
    std::string& to = out != nullptr ? *out : ignored;
    switch (wire::TagWireType(tag)) {
      case wire::WireType::kVarint:
        return wire::ReadVarint(reader_, wire::kVarintBytesMax, &value);
      case wire::WireType::kFixed64:
        return reader_.Append(8, ignored);
      case wire::WireType::kFixed32:
        return reader_.Append(4, ignored);
      case wire::WireType::kBytes:
        return wire::ReadLength(reader_, &length) && reader_.Append(length, to);
      default:
        return false;
    }
  }

  const std::vector<TensorSpec>& specs_;
  wire::PieceReader reader_;
  std::string report_;
  std::vector<std::optional<wire::GivenTensor>> outputs_;
};

HostBytes Payload(const TensorRef& ref, int64_t bytes) {
  HostBytes payload;
  payload.size = bytes;
  payload.owner = ref.owner;
  if (bytes > 0) {
    payload.pieces.push_back({static_cast<const std::byte*>(ref.data), static_cast<size_t>(bytes)});
  }
  return payload;
}

void AppendPlace(const TensorSpec& spec, const TensorRef& ref, std::string& text) {
  const rlk::v1::ArenaRef& place = *ref.arena;
  const wire::TensorHeader header{ref.dtype, ref.shape, ref.strides ? &*ref.strides : nullptr};
  wire::AppendInArena(spec.field_number, header,
                      {place.arena(), place.generation(), place.offset()}, text);
}

void AppendReference(const TensorSpec& spec, const TensorRef& ref, std::string& text) {
  const rlk::v1::TensorHandle& handle = *ref.resident;
  const wire::TensorHeader header{ref.dtype, ref.shape, ref.strides ? &*ref.strides : nullptr};
  wire::AppendResident(spec.field_number, header,
                       {handle.id(), handle.server_id(), handle.generation(), handle.offset()},
                       text);
}

absl::Status CheckSize(int64_t size, int64_t inline_bytes_max) {
  if (size <= inline_bytes_max) return absl::OkStatus();
  return InvalidArgument(
      Reason::kMessageTooLarge, "request", std::to_string(size) + " bytes",
      "at most " + std::to_string(inline_bytes_max) + " bytes (inline_bytes_max)",
      "the call's message is too large to travel inline");
}

// The server counts the whole message, framing included.
int64_t MessageBytes(const wire::OutputBytes& message) {
  size_t size = 0;
  for (const wire::OutputPiece& piece : message) size += piece.text.size() + piece.payload.size();
  return static_cast<int64_t>(size);
}

}  // namespace

absl::StatusOr<wire::OutputBytes> EncodeRequest(const wire::MethodBinding& method,
                                                const CallRequest& request,
                                                int64_t inline_bytes_max) {
  const MethodSignature& signature = method.signature;
  wire::OutputBytes message;
  message.reserve(2 * request.inputs.size() + 1);
  std::string text;
  wire::FieldWriter writer(text);
  std::vector<const TensorSpec*> given;
  given.reserve(request.inputs.size());
  for (const auto& [name, ref] : request.inputs) {
    const TensorSpec* spec = FindSpec(signature.inputs, name);
    if (spec == nullptr) {
      return InvalidArgument(Reason::kUnexpectedTensor, name, "", Names(signature.inputs),
                             signature.method + " takes no tensor of this name");
    }
    if (!spec->repeated && std::find(given.begin(), given.end(), spec) != given.end()) {
      return InvalidArgument(Reason::kDuplicateTensor, spec->name, "2", "1",
                             "the tensor is given more than once");
    }
    given.push_back(spec);
    if (ref.resident.has_value()) {
      AppendReference(*spec, ref, text);
      continue;
    }
    if (ref.arena.has_value()) {
      AppendPlace(*spec, ref, text);
      continue;
    }
    RLK_ASSIGN_OR_RETURN(const int64_t bytes, SourceBytes(ref, spec->name));
    // Each one alone first, so that the sum of all cannot overflow.
    RLK_RETURN_IF_ERROR(CheckSize(bytes, inline_bytes_max));
    const HostBytes payload = Payload(ref, bytes);
    const wire::TensorHeader header{ref.dtype, ref.shape, ref.strides ? &*ref.strides : nullptr};
    wire::AppendTensor(spec->field_number, header, payload, text, message);
  }
  for (const auto& [name, value] : request.attributes) {
    const AttributeSpec* spec = FindSpec(signature.attributes, name);
    if (spec == nullptr) {
      return InvalidArgument(Reason::kUnknownField, name, "", Names(signature.attributes),
                             signature.method + " takes no attribute of this name");
    }
    RLK_RETURN_IF_ERROR(AppendAttribute(*spec, value, writer));
  }
  if (request.options.ByteSizeLong() != 0) {
    const size_t begin = writer.Begin(wire::kOptionsFieldNumber);
    for (const wire::OutputPiece& piece : wire::Join(request.options, {})) text.append(piece.text);
    writer.End(begin);
  }
  if (!text.empty() || message.empty()) message.push_back({std::move(text), {}, nullptr});
  RLK_RETURN_IF_ERROR(CheckSize(MessageBytes(message), inline_bytes_max));
  return message;
}

absl::StatusOr<CallResult> DecodeReply(const wire::MethodBinding& method,
                                       const wire::InputBytes& bytes) {
  CallResult result;
  const std::vector<TensorSpec>& specs = method.signature.outputs;
  ReplyReader reader(specs, bytes);
  RLK_RETURN_IF_ERROR(reader.Run());
  result.outputs.reserve(specs.size());
  for (size_t i = 0; i < specs.size(); ++i) {
    const std::optional<wire::GivenTensor>& output = reader.outputs()[i];
    if (!output) continue;
    const std::string& name = specs[i].name;
    switch (output->source.kind) {
      case TensorSource::kInline: {
        RLK_ASSIGN_OR_RETURN(Tensor tensor, TakeTensor(name, *output));
        result.outputs.emplace_back(name, std::move(tensor));
        break;
      }
      case TensorSource::kResident:
        result.residents.emplace_back(name, TakeResident(*output));
        break;
      case TensorSource::kArena:
        result.placed.emplace_back(name, TakePlaced(*output));
        break;
    }
  }
  result.report = Report(reader.TakeReport());
  return result;
}

}  // namespace rlk::client
