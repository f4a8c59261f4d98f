// Errors: absl::Status with one typed payload, which says the reason, the field, the value and
// what is allowed. `server/rpc` turns it into google.rpc.ErrorInfo and nothing else reads strings.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace rlk {

// The closed list of ErrorInfo reasons. tests/golden/error_reasons.txt holds it.
enum class Reason : uint8_t {
  kUnknown = 0,
  // What the request says.
  kMalformedMessage,
  kUnknownField,
  kUnknownEnumValue,
  kDuplicateTensor,
  kMissingTensor,
  kUnexpectedTensor,
  kDtypeNotAllowed,
  kShapeMismatch,
  kRankTooLarge,
  kInvalidStrides,
  kPayloadSizeMismatch,
  kMisaligned,
  kAttributeOutOfRange,
  kIndexOutOfRange,
  kValueOutOfRange,
  kMessageTooLarge,
  kLimitExceeded,
  kUnknownOption,
  kUnknownContract,
  kUnknownBackend,
  kUnknownOperator,
  kUnknownOutput,
  kSourceNotSupported,
  // What this server can honour.
  kContractUnavailable,
  kBackendUnavailable,
  kClaimTooLow,
  kFallbackRefused,
  kDeviceNotFound,
  kPlacementUnavailable,
  kPlacementOverlap,
  kOffsetOutOfRange,
  kFilesUnavailable,
  kFileMismatch,
  kSyntheticWeights,
  kVerificationUnavailable,
  kPeerNotListed,
  // Load and life cycle.
  kQueueFull,
  kBytesExhausted,
  kDeviceMemoryExhausted,
  kSessionsExhausted,
  kTensorsExhausted,
  kDraining,
  kDeviceLost,
  kPeerUnreachable,
  kDeadlineExceeded,
  kCancelled,
  // Who is calling.
  kUnauthenticated,
  kPermissionDenied,
  kTensorNotFound,
  kWrongServer,
  kTensorBusy,
  kTensorPoisoned,
  // Wrong bits and broken invariants.
  kVerificationFailed,
  kUnwrittenOutput,
  kInternal,
};

inline constexpr int kReasonCount = static_cast<int>(Reason::kInternal) + 1;

// "DTYPE_NOT_ALLOWED", ...
std::string_view ReasonName(Reason reason);

struct ErrorDetail {
  Reason reason = Reason::kUnknown;
  // The field at fault, as the request spells it ("x", "options.contract"); may be empty.
  std::string field;
  // Its value, and what is allowed, as text without payload bytes or pointers.
  std::string value;
  std::string allowed;
  // For RetryInfo; 0 when a retry does not help.
  int64_t retry_after_ms = 0;
};

// "x: dtype F64 is not allowed; allowed: F32, F16, BF16" and the payload.
// Values longer than 128 bytes are cut in the message and in the payload.
absl::Status MakeError(absl::StatusCode code, ErrorDetail detail, std::string_view message);

// INVALID_ARGUMENT, the most common case.
absl::Status InvalidArgument(Reason reason, std::string_view field, std::string_view value,
                             std::string_view allowed, std::string_view message);

// The payload of a status made by MakeError; nullopt for others.
std::optional<ErrorDetail> GetErrorDetail(const absl::Status& status);

}  // namespace rlk

#define RLK_RETURN_IF_ERROR(expression)                                              \
  do {                                                                               \
    if (absl::Status rlk_status = (expression); !rlk_status.ok()) return rlk_status; \
  } while (0)

#define RLK_CONCAT_INNER(a, b) a##b
#define RLK_CONCAT(a, b) RLK_CONCAT_INNER(a, b)
#define RLK_ASSIGN_OR_RETURN(lhs, expression) \
  RLK_ASSIGN_OR_RETURN_IMPL(RLK_CONCAT(rlk_status_or_, __LINE__), lhs, expression)
#define RLK_ASSIGN_OR_RETURN_IMPL(name, lhs, expression) \
  auto name = (expression);                              \
  if (!name.ok()) return std::move(name).status();       \
  lhs = std::move(name).value()
