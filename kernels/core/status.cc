#include "kernels/core/status.h"

#include <array>
#include <cstring>

#include "absl/strings/ascii.h"
#include "absl/strings/cord.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/string_view.h"

namespace rlk {
namespace {

constexpr char kPayloadUrl[] = "type.rlk/ErrorDetail";
constexpr size_t kValueBytesMax = 128;
constexpr size_t kAllowedBytesMax = 1024;
constexpr size_t kMessageBytesMax = 2048;

constexpr std::array<std::string_view, kReasonCount> kReasonNames = {
    "UNKNOWN",
    "MALFORMED_MESSAGE",
    "UNKNOWN_FIELD",
    "UNKNOWN_ENUM_VALUE",
    "DUPLICATE_TENSOR",
    "MISSING_TENSOR",
    "UNEXPECTED_TENSOR",
    "DTYPE_NOT_ALLOWED",
    "SHAPE_MISMATCH",
    "RANK_TOO_LARGE",
    "INVALID_STRIDES",
    "PAYLOAD_SIZE_MISMATCH",
    "MISALIGNED",
    "ATTRIBUTE_OUT_OF_RANGE",
    "INDEX_OUT_OF_RANGE",
    "VALUE_OUT_OF_RANGE",
    "MESSAGE_TOO_LARGE",
    "LIMIT_EXCEEDED",
    "UNKNOWN_OPTION",
    "UNKNOWN_CONTRACT",
    "UNKNOWN_BACKEND",
    "UNKNOWN_OPERATOR",
    "UNKNOWN_OUTPUT",
    "SOURCE_NOT_SUPPORTED",
    "CONTRACT_UNAVAILABLE",
    "BACKEND_UNAVAILABLE",
    "CLAIM_TOO_LOW",
    "FALLBACK_REFUSED",
    "DEVICE_NOT_FOUND",
    "PLACEMENT_UNAVAILABLE",
    "PLACEMENT_OVERLAP",
    "OFFSET_OUT_OF_RANGE",
    "FILES_UNAVAILABLE",
    "FILE_MISMATCH",
    "SYNTHETIC_WEIGHTS",
    "VERIFICATION_UNAVAILABLE",
    "PEER_NOT_LISTED",
    "QUEUE_FULL",
    "BYTES_EXHAUSTED",
    "DEVICE_MEMORY_EXHAUSTED",
    "SESSIONS_EXHAUSTED",
    "TENSORS_EXHAUSTED",
    "DRAINING",
    "DEVICE_LOST",
    "PEER_UNREACHABLE",
    "DEADLINE_EXCEEDED",
    "CANCELLED",
    "UNAUTHENTICATED",
    "PERMISSION_DENIED",
    "TENSOR_NOT_FOUND",
    "WRONG_SERVER",
    "TENSOR_BUSY",
    "TENSOR_POISONED",
    "VERIFICATION_FAILED",
    "UNWRITTEN_OUTPUT",
    "INTERNAL",
};
static_assert(!kReasonNames.back().empty(), "a reason has no name");

// At most `bytes_max` bytes, the mark included, never through the middle of a UTF-8 sequence.
std::string Cut(std::string_view text, size_t bytes_max) {
  constexpr std::string_view kMark = "...";
  if (text.size() <= bytes_max) return std::string(text);
  size_t keep = bytes_max - kMark.size();
  while (keep > 0 && (static_cast<unsigned char>(text[keep]) & 0xc0) == 0x80) --keep;
  return std::string(text.substr(0, keep)).append(kMark);
}

void AppendField(std::string_view text, std::string& out) {
  const auto size = static_cast<uint32_t>(text.size());
  out.append(reinterpret_cast<const char*>(&size), sizeof(size));
  out.append(text);
}

bool TakeBytes(std::string_view& in, void* out, size_t size) {
  if (in.size() < size) return false;
  memcpy(out, in.data(), size);
  in.remove_prefix(size);
  return true;
}

bool TakeField(std::string_view& in, std::string& out) {
  uint32_t size = 0;
  if (!TakeBytes(in, &size, sizeof(size)) || in.size() < size) return false;
  out.assign(in.substr(0, size));
  in.remove_prefix(size);
  return true;
}

// Whether `text` says `word`, rather than a longer word or number that contains it.
bool Says(std::string_view text, std::string_view word) {
  const auto part_of_word = [](char c) { return absl::ascii_isalnum(c) || c == '_' || c == '.'; };
  for (size_t at = text.find(word); at != text.npos; at = text.find(word, at + 1)) {
    const size_t end = at + word.size();
    if ((at == 0 || !part_of_word(text[at - 1])) &&
        (end == text.size() || !part_of_word(text[end]))) {
      return true;
    }
  }
  return false;
}

}  // namespace

std::string_view ReasonName(Reason reason) {
  const auto index = static_cast<size_t>(reason);
  return index < kReasonNames.size() ? kReasonNames[index] : kReasonNames[0];
}

absl::Status MakeError(absl::StatusCode code, ErrorDetail detail, std::string_view message) {
  std::string body(message);
  if (detail.value.size() > kValueBytesMax) {
    const std::string cut = Cut(detail.value, kValueBytesMax);
    body = absl::StrReplaceAll(body, {{detail.value, cut}});
    detail.value = cut;
  }
  detail.field = Cut(detail.field, kValueBytesMax);
  detail.allowed = Cut(detail.allowed, kAllowedBytesMax);
  if (!detail.value.empty() && !Says(body, detail.value)) {
    absl::StrAppend(&body, ", got ", detail.value);
  }
  if (!detail.field.empty()) body = absl::StrCat(detail.field, ": ", body);
  if (!detail.allowed.empty()) absl::StrAppend(&body, "; allowed: ", detail.allowed);

  absl::Status status(code, Cut(body, kMessageBytesMax));
  if (status.ok()) return status;
  std::string payload;
  payload.push_back(static_cast<char>(detail.reason));
  payload.append(reinterpret_cast<const char*>(&detail.retry_after_ms),
                 sizeof(detail.retry_after_ms));
  AppendField(detail.field, payload);
  AppendField(detail.value, payload);
  AppendField(detail.allowed, payload);
  status.SetPayload(kPayloadUrl, absl::Cord(payload));
  return status;
}

absl::Status InvalidArgument(Reason reason, std::string_view field, std::string_view value,
                             std::string_view allowed, std::string_view message) {
  return MakeError(absl::StatusCode::kInvalidArgument,
                   {reason, std::string(field), std::string(value), std::string(allowed)}, message);
}

std::optional<ErrorDetail> GetErrorDetail(const absl::Status& status) {
  const absl::optional<absl::Cord> payload = status.GetPayload(kPayloadUrl);
  if (!payload) return std::nullopt;
  const std::string bytes(*payload);
  std::string_view in = bytes;
  ErrorDetail detail;
  uint8_t reason = 0;
  if (!TakeBytes(in, &reason, 1) || reason >= kReasonCount ||
      !TakeBytes(in, &detail.retry_after_ms, sizeof(detail.retry_after_ms)) ||
      !TakeField(in, detail.field) || !TakeField(in, detail.value) ||
      !TakeField(in, detail.allowed) || !in.empty()) {
    return std::nullopt;
  }
  detail.reason = static_cast<Reason>(reason);
  return detail;
}

}  // namespace rlk
