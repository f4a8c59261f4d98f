#include <algorithm>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <utility>

#include "proto/wire/call_parts.h"
#include "proto/wire/piece_reader.h"
#include "proto/wire/signatures.h"
#include "proto/wire/tensor_reader.h"
#include "proto/wire/wire_format.h"

namespace rlk::wire {
namespace {

// Every member that reads returns false where the message is not of the common form.
class CommonDecoder {
 public:
  CommonDecoder(const MethodSignature& signature, const InputBytes& bytes, const Limits& limits,
                Call& call)
      : signature_(signature),
        limits_(limits),
        owner_(bytes.owner),
        reader_(bytes.pieces),
        call_(call) {}

  bool Run() {
    while (reader_.remaining() > 0) {
      uint32_t tag = 0;
      if (!ReadTag(reader_, &tag) || !ReadField(tag)) return false;
    }
    int64_t header_bytes = call_.message_bytes;
    for (const TensorArg& input : call_.inputs) header_bytes -= input.data.size;
    if (header_bytes > limits_.header_bytes_max) return false;
    // Few, and mostly in order already.
    std::sort(call_.inputs.begin(), call_.inputs.end(),
              [](const TensorArg& a, const TensorArg& b) { return a.spec < b.spec; });
    std::sort(call_.attributes.begin(), call_.attributes.end(),
              [](const auto& a, const auto& b) { return a.spec < b.spec; });
    return true;
  }

 private:
  bool ReadField(uint32_t tag) {
    const int number = TagFieldNumber(tag);
    for (size_t i = 0; i < signature_.inputs.size(); ++i) {
      if (signature_.inputs[i].field_number != number) continue;
      return TagWireType(tag) == WireType::kBytes && ReadInput(static_cast<int32_t>(i));
    }
    for (size_t i = 0; i < signature_.attributes.size(); ++i) {
      if (signature_.attributes[i].field_number != number) continue;
      return ReadAttribute(static_cast<int32_t>(i), TagWireType(tag));
    }
    return tag == MakeTag(kOptionsFieldNumber, WireType::kBytes) &&
           !std::exchange(has_options_, true) &&
           ReadOptions(reader_, signature_, limits_, &call_.options);
  }

  bool ReadInput(int32_t index) {
    const TensorSpec& spec = signature_.inputs[static_cast<size_t>(index)];
    if (spec.repeated ||
        static_cast<int64_t>(call_.inputs.size()) >= limits_.tensors_per_call_max) {
      return false;
    }
    for (const TensorArg& input : call_.inputs) {
      if (input.spec == index) return false;
    }
    GivenTensor tensor;
    if (!ReadTensor(reader_, &tensor)) return false;
    if (tensor.source.kind == TensorSource::kInline) tensor.source.payload.owner = owner_;
    auto input =
        CheckTensor(spec, spec.name, {tensor.dtype, tensor.shape.span(), tensor.strides.span()},
                    std::move(tensor.source), limits_);
    if (!input.ok()) return false;
    input->spec = index;
    call_.inputs.push_back(*std::move(input));
    return true;
  }

  bool ReadAttribute(int32_t index, WireType type) {
    const AttributeSpec& spec = signature_.attributes[static_cast<size_t>(index)];
    for (const Call::GivenAttribute& given : call_.attributes) {
      if (given.spec == index) return false;
    }
    Call::GivenAttribute& given = call_.attributes.emplace_back();
    given.spec = index;
    if (spec.kind == AttributeKind::kF32 || spec.kind == AttributeKind::kF64) {
      return type == WireType::kFixed64 && ReadDouble(&given.number);
    }
    uint64_t value = 0;
    if (type != WireType::kVarint || !ReadVarint(reader_, kVarintBytesMax, &value)) return false;
    given.integer = static_cast<int64_t>(value);
    switch (spec.kind) {
      case AttributeKind::kBool:
        given.integer = value != 0 ? 1 : 0;
        return true;
      case AttributeKind::kDType:
        return value < kDTypeCount;
      case AttributeKind::kEnum:
        return std::any_of(spec.enumerators.begin(), spec.enumerators.end(),
                           [&](const auto& known) { return known.first == given.integer; });
      default:
        return true;
    }
  }

  bool ReadDouble(double* number) {
    uint64_t bits = 0;
    for (int shift = 0; shift < 64; shift += 8) {
      uint8_t byte = 0;
      if (!reader_.ReadByte(&byte)) return false;
      bits |= static_cast<uint64_t>(byte) << shift;
    }
    std::memcpy(number, &bits, sizeof(bits));
    return true;
  }

  const MethodSignature& signature_;
  const Limits& limits_;
  const std::shared_ptr<const void>& owner_;
  PieceReader reader_;
  Call& call_;
  bool has_options_ = false;
};

}  // namespace

std::optional<Call> DecodeCommonCall(const Method& method, const InputBytes& bytes,
                                     const Limits& limits) {
  std::optional<Call> call(std::in_place);
  call->method = &method;
  for (const auto& piece : bytes.pieces) call->message_bytes += static_cast<int64_t>(piece.size());
  call->inputs.reserve(method.signature.inputs.size());
  if (!CommonDecoder(method.signature, bytes, limits, *call).Run()) return std::nullopt;
  return call;
}

}  // namespace rlk::wire
