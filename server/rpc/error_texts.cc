#include "server/rpc/error_texts.h"

#include <cstddef>
#include <iterator>

namespace rlk::server {
namespace {

struct Row {
  Reason reason;
  ErrorTexts texts;
};

constexpr Row kRows[] = {
    {Reason::kUnknown, {"server", "an error of its own", "none: please report it"}},
    {Reason::kMalformedMessage,
     {"request", "malformed", "the protobuf encoding of the message, each field once"}},
    {Reason::kUnknownField, {"request", "an unknown field", "the fields of the message"}},
    {Reason::kUnknownEnumValue, {"request", "an unknown value", "the values of the enum"}},
    {Reason::kDuplicateTensor, {"request", "given more than once", "one tensor with one source"}},
    {Reason::kMissingTensor, {"request", "absent", "a tensor"}},
    {Reason::kUnexpectedTensor, {"request", "a tensor", "the method's inputs"}},
    {Reason::kDtypeNotAllowed, {"request", "another dtype", "the dtypes that ListOperators lists"}},
    {Reason::kShapeMismatch, {"request", "another shape", "the dims that ListOperators lists"}},
    {Reason::kRankTooLarge, {"request", "a larger rank", "rank_max"}},
    {Reason::kInvalidStrides,
     {"request", "other strides", "strides of at least 0 that fit the shape"}},
    {Reason::kPayloadSizeMismatch, {"request", "another size", "the bytes of the shape"}},
    {Reason::kMisaligned, {"request", "another offset", "a multiple of the alignment"}},
    {Reason::kAttributeOutOfRange,
     {"request", "another value", "the range that ListOperators lists"}},
    {Reason::kIndexOutOfRange, {"request", "another index", "indices of the tensor"}},
    {Reason::kValueOutOfRange,
     {"request", "another value", "the range that the operator's page gives"}},
    {Reason::kMessageTooLarge, {"request", "more bytes", "inline_bytes_max"}},
    {Reason::kLimitExceeded, {"request", "more", "the limits that GetInfo lists"}},
    {Reason::kUnknownOption, {"options", "another value", "the values that the option takes"}},
    {Reason::kUnknownContract,
     {"options.contract", "another contract", "the contracts that ListOperators lists"}},
    {Reason::kUnknownBackend,
     {"options.backend", "another backend", "cuda_sm90, cuda, cpu, golden, cublaslt"}},
    {Reason::kUnknownOperator,
     {"method", "another method", "the methods that ListOperators lists"}},
    {Reason::kUnknownOutput, {"options.wanted_outputs", "another output", "the method's outputs"}},
    {Reason::kSourceNotSupported, {"request", "another source", "data (inline)"}},
    {Reason::kContractUnavailable,
     {"options.contract", "the contract", "contracts with an available backend"}},
    {Reason::kBackendUnavailable,
     {"options.backend", "any", "backends that GetInfo lists as available"}},
    {Reason::kClaimTooLow,
     {"options.minimum_claim", "a higher claim", "the claims that ListOperators lists"}},
    {Reason::kFallbackRefused, {"options.mode", "STRICT", "AUTO"}},
    {Reason::kDeviceNotFound,
     {"options.device_uuid", "another device", "the devices that GetInfo lists"}},
    {Reason::kPlacementUnavailable, {"options.outputs", "another placement", "inline"}},
    {Reason::kPlacementOverlap,
     {"options.outputs", "memory of another tensor of the call", "memory of its own"}},
    {Reason::kOffsetOutOfRange, {"request", "another offset", "offsets inside the tensor"}},
    {Reason::kFilesUnavailable, {"path", "a file", "a server with --weights-root"}},
    {Reason::kFileMismatch, {"manifest", "another file", "the file that the manifest describes"}},
    {Reason::kSyntheticWeights, {"synthetic", "made-up values", "weights of a model"}},
    {Reason::kVerificationUnavailable, {"options.verification", "REFERENCE", "REPEAT, or none"}},
    {Reason::kPeerNotListed,
     {"server", "another server", "the addresses that --parity-peer lists"}},
    {Reason::kQueueFull, {"queue_calls_max", "full", "fewer calls at a time; retry later"}},
    {Reason::kBytesExhausted, {"queue_bytes_max", "taken", "fewer bytes at a time; retry later"}},
    {Reason::kDeviceMemoryExhausted,
     {"device", "no memory for the call", "device_bytes_max and the memory of the device"}},
    {Reason::kSessionsExhausted,
     {"sessions_max", "taken", "fewer sessions at a time; retry later"}},
    {Reason::kTensorsExhausted,
     {"session_tensors_max", "taken", "fewer tensors at a time; release some"}},
    {Reason::kDraining, {"server", "not serving", "a server that serves; retry with another"}},
    {Reason::kDeviceLost, {"device", "lost", "a healthy device; retry with another server"}},
    {Reason::kPeerUnreachable, {"server", "no answer", "a server that answers; retry later"}},
    {Reason::kDeadlineExceeded, {"deadline", "passed", "a later deadline"}},
    {Reason::kCancelled, {"call", "cancelled", "a caller that waits for the reply"}},
    {Reason::kUnauthenticated, {"credential", "none that is known", "a valid credential"}},
    {Reason::kPermissionDenied,
     {"credential", "without this permission", "a principal with the permission"}},
    {Reason::kTensorNotFound, {"request", "an unknown handle", "a handle of this session"}},
    {Reason::kWrongServer, {"request", "a handle of another server", "a handle of this server"}},
    {Reason::kTensorBusy, {"request", "in use by another call", "one call at a time; retry later"}},
    {Reason::kTensorPoisoned,
     {"request", "poisoned by a device failure", "a tensor that is whole"}},
    {Reason::kVerificationFailed,
     {"options.verification", "different bits", "0 different elements"}},
    {Reason::kUnwrittenOutput,
     {"reply", "an output that was not written", "every element written"}},
    {Reason::kInternal, {"server", "an error of its own", "none: please report it"}},
};

// A new reason does not compile until it has its row, in its place.
constexpr bool EveryReasonHasItsRow() {
  if (std::size(kRows) != kReasonCount) return false;
  for (size_t i = 0; i < kReasonCount; ++i) {
    const ErrorTexts& texts = kRows[i].texts;
    if (kRows[i].reason != static_cast<Reason>(i)) return false;
    if (texts.field.empty() || texts.value.empty() || texts.allowed.empty()) return false;
  }
  return true;
}
static_assert(EveryReasonHasItsRow());

}  // namespace

ErrorTexts TextsOf(Reason reason) { return kRows[static_cast<size_t>(reason)].texts; }

}  // namespace rlk::server
