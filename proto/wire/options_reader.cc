#include <algorithm>
#include <array>
#include <cstdint>
#include <string>
#include <utility>

#include "proto/wire/call_parts.h"
#include "proto/wire/field_reader.h"
#include "proto/wire/piece_reader.h"
#include "proto/wire/wire_format.h"

namespace rlk::wire {
namespace {

using Options = rlk::v1::CallOptions;

// Reads CallOptions straight into the call's. Every member returns false where they are not of the
// common form.
class OptionsReader {
 public:
  OptionsReader(PieceReader& reader, const MethodSignature& signature, const Limits& limits,
                CallOptions& out)
      : reader_(reader), signature_(signature), limits_(limits), out_(out) {}

  bool Run() {
    return ReadFields(reader_, [this](uint32_t tag) { return Field(tag); });
  }

 private:
  bool Field(uint32_t tag) {
    switch (tag) {
      case MakeTag(Options::kOutputsFieldNumber, WireType::kBytes):
        return Output();
      case MakeTag(Options::kWantedOutputsFieldNumber, WireType::kBytes):
        return WantedOutput();
      default:
        break;
    }
    const auto number = static_cast<size_t>(TagFieldNumber(tag));
    if (number >= seen_.size() || std::exchange(seen_[number], true)) return false;
    switch (tag) {
      case MakeTag(Options::kContractFieldNumber, WireType::kBytes):
        return Text(&out_.contract);
      case MakeTag(Options::kBackendFieldNumber, WireType::kBytes):
        return Text(&out_.backend);
      case MakeTag(Options::kDeviceUuidFieldNumber, WireType::kBytes):
        return Text(&out_.device_uuid);
      case MakeTag(Options::kDigestsFieldNumber, WireType::kBytes):
        return Digests();
      default:
        return Choice(tag);
    }
  }

  bool Choice(uint32_t tag) {
    int number = 0;
    switch (tag) {
      case MakeTag(Options::kModeFieldNumber, WireType::kVarint):
        if (!Enum(rlk::v1::Mode_IsValid, &number)) return false;
        out_.allow_fallback = number == rlk::v1::MODE_AUTO;
        return true;
      case MakeTag(Options::kMinimumClaimFieldNumber, WireType::kVarint):
        if (!Enum(rlk::v1::ClaimLevel_IsValid, &number)) return false;
        out_.minimum_claim = ToClaim(static_cast<rlk::v1::ClaimLevel>(number));
        return true;
      case MakeTag(Options::kInputCaptureFieldNumber, WireType::kVarint):
        if (!Enum(rlk::v1::InputCapture_IsValid, &number)) return false;
        out_.input_capture = ToCapture(static_cast<rlk::v1::InputCapture>(number));
        return true;
      case MakeTag(Options::kVerificationFieldNumber, WireType::kVarint):
        if (!Enum(rlk::v1::Verification_IsValid, &number)) return false;
        out_.verification = ToVerification(static_cast<rlk::v1::Verification>(number));
        return true;
      default:
        return false;
    }
  }

  bool Enum(bool (*valid)(int), int* number) {
    uint64_t value = 0;
    if (!ReadVarint(reader_, kVarintBytesMax, &value) || value > INT32_MAX) return false;
    *number = static_cast<int>(value);
    return valid(*number);
  }

  bool Fits(const std::string& text) const {
    return static_cast<int64_t>(text.size()) <= limits_.attribute_text_bytes_max;
  }
  bool Text(std::string* text) { return ReadAscii(reader_, text) && Fits(*text); }

  // Packed.
  bool Digests() {
    int64_t length = 0;
    if (!ReadLength(reader_, &length)) return false;
    const int64_t rest = reader_.Enter(length);
    while (reader_.remaining() > 0) {
      uint64_t scope = 0;
      if (!ReadVarint(reader_, kVarintBytesMax, &scope)) return false;
      if (scope == rlk::v1::DIGEST_SCOPE_TENSOR) {
        out_.digest_tensors = true;
      } else if (scope == rlk::v1::DIGEST_SCOPE_ROWS) {
        out_.digest_rows = true;
      } else {
        return false;
      }
    }
    reader_.Leave(rest);
    return true;
  }

  bool OutputName(std::string* name) {
    return Text(name) &&
           std::any_of(signature_.outputs.begin(), signature_.outputs.end(),
                       [&](const TensorSpec& output) { return output.name == *name; });
  }

  bool WantedOutput() {
    std::string name;
    if (!OutputName(&name)) return false;
    auto& wanted = out_.wanted_outputs;
    if (std::find(wanted.begin(), wanted.end(), name) == wanted.end()) {
      wanted.push_back(std::move(name));
    }
    return true;
  }

  // An entry of the map: its key, then its value.
  bool Output() {
    std::string name;
    Placement placement;
    int fields = 0;
    const bool read = ReadFields(reader_, [&](uint32_t tag) {
      ++fields;
      if (tag == MakeTag(1, WireType::kBytes)) return fields == 1 && OutputName(&name);
      return tag == MakeTag(2, WireType::kBytes) && fields == 2 && Place(&placement);
    });
    return read && fields == 2 &&
           out_.outputs.emplace(std::move(name), std::move(placement)).second;
  }

  bool Place(Placement* out) {
    using Given = rlk::v1::Placement;
    int fields = 0;
    const bool read = ReadFields(reader_, [&](uint32_t tag) {
      if (++fields > 1) return false;
      switch (tag) {
        case MakeTag(Given::kInlineFieldNumber, WireType::kBytes):
          out->kind = PlacementKind::kInline;
          return ReadFields(reader_, [](uint32_t) { return false; });
        case MakeTag(Given::kResidentFieldNumber, WireType::kBytes):
          out->kind = PlacementKind::kResident;
          return ReadFields(reader_, [&](uint32_t inner) { return Into(inner, out); });
        case MakeTag(Given::kArenaFieldNumber, WireType::kBytes):
          out->kind = PlacementKind::kArena;
          return ReadArena(reader_, &out->arena) && Fits(out->arena.arena);
        default:
          return false;
      }
    });
    return read && fields == 1;
  }

  bool Into(uint32_t tag, Placement* out) {
    constexpr uint32_t kInto =
        MakeTag(rlk::v1::Placement::Resident::kIntoFieldNumber, WireType::kBytes);
    if (tag != kInto || out->into.has_value()) return false;
    TensorHandle& into = out->into.emplace();
    return ReadHandle(reader_, &into) && Fits(into.id) && Fits(into.server_id);
  }

  PieceReader& reader_;
  const MethodSignature& signature_;
  const Limits& limits_;
  CallOptions& out_;
  std::array<bool, 16> seen_ = {};
};

}  // namespace

bool ReadOptions(PieceReader& reader, const MethodSignature& signature, const Limits& limits,
                 CallOptions* out) {
  return OptionsReader(reader, signature, limits, *out).Run();
}

}  // namespace rlk::wire
