// A call as plain data: what `proto/wire` makes of a message and what the engine executes.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/core/tensor_view.h"
#include "kernels/digest/digest.h"
#include "kernels/registry/contract.h"
#include "kernels/registry/registry.h"
#include "kernels/registry/selector.h"

namespace rlk {

// Bytes in pieces that somebody else owns: a received payload is rarely one block.
struct HostBytes {
  std::vector<std::span<const std::byte>> pieces;
  int64_t size = 0;
  // Keeps the pieces alive.
  std::shared_ptr<const void> owner;
};

struct TensorHandle {
  std::string id;         // 16 bytes
  std::string server_id;  // empty: this server
  uint64_t generation = 0;
  uint64_t offset = 0;
};

struct ArenaSlot {
  std::string arena;
  uint64_t generation = 0;
  uint64_t offset = 0;
};

struct DeviceInfo {
  DeviceKind kind = DeviceKind::kHost;
  int ordinal = 0;
  std::string name;
  std::string uuid;
  int compute_capability = 0;  // 10 * major + minor; 0 for the host
  int64_t shared_bytes_per_block = 0;
  int multiprocessors = 0;
  int64_t memory_bytes = 0;
};

inline DeviceTraits TraitsOf(const DeviceInfo& info) {
  return {info.compute_capability, info.shared_bytes_per_block};
}

// Memory of one device that outlives calls; freed with its last owner, on any thread. At least
// 256-byte aligned.
class ResidentMemory {
 public:
  virtual ~ResidentMemory() = default;
  // The address on the device; null when it has no bytes.
  virtual std::byte* data() const = 0;
  virtual int64_t bytes() const = 0;
  virtual const DeviceInfo& device() const = 0;
  // Host memory that a GPU reads and writes by itself.
  virtual bool page_locked() const { return false; }
};

enum class TensorSource : uint8_t { kInline, kResident, kArena };

// Where the bytes of a tensor are.
enum class TensorPlace : uint8_t { kMessage, kResident, kHostArena, kDeviceArena };
inline constexpr size_t kTensorPlaceCount = 4;

// A tensor that a request names: header, and where its bytes are.
struct TensorArg {
  int32_t spec = 0;  // index into MethodSignature::inputs
  DType dtype = DType::kUnspecified;
  Dims shape;
  Dims strides;  // always filled; C order when the request gave none
  TensorSource source = TensorSource::kInline;
  HostBytes data;         // kInline; after resolution also the bytes of host memory
  TensorHandle resident;  // kResident
  ArenaSlot arena;        // kArena

  // After resolution, where the source is not inline: the memory, and where in it the tensor
  // begins.
  std::shared_ptr<ResidentMemory> memory;
  int64_t memory_offset = 0;
  TensorPlace place = TensorPlace::kMessage;
  // The caller can write the bytes while the call runs: no value of them may be read twice.
  bool live = false;
  // Keeps writers away.
  std::shared_ptr<const void> pin;
  // Of the tensor as it is used here, where it is known already.
  std::optional<Digest> digest;
  // Its values were made up, as the file says that it was loaded from.
  bool synthetic = false;
};

enum class InputCapture : uint8_t { kUnspecified, kSnapshot, kLive };
enum class Verification : uint8_t { kNone, kRepeat, kReference };
enum class PlacementKind : uint8_t { kInline, kResident, kArena };

struct Placement {
  PlacementKind kind = PlacementKind::kInline;
  ArenaSlot arena;
  // kResident: the tensor to write into; absent makes a new one.
  std::optional<TensorHandle> into;
};

struct CallOptions {
  std::string contract;
  std::string backend;
  bool allow_fallback = false;  // AUTO
  ClaimLevel minimum_claim = ClaimLevel::kL1BatchInvariant;
  std::string device_uuid;
  std::map<std::string, Placement> outputs;
  bool digest_tensors = false;
  bool digest_rows = false;
  InputCapture input_capture = InputCapture::kUnspecified;
  Verification verification = Verification::kNone;
  std::vector<std::string> wanted_outputs;
};

// Set by the transport when the caller is gone; read by the engine between phases.
using CancelFlag = std::atomic<bool>;

// Who calls. The one who knows sessions derives from it.
class Principal {
 public:
  explicit Principal(uint64_t id) : id_(id) {}
  virtual ~Principal() = default;
  // Never used for another principal of this process.
  uint64_t id() const { return id_; }
  // Once true, it stays so, and nothing new may be kept for this principal.
  virtual bool ended() const = 0;

  // What this principal shares with others of one account: the bounds hold for all of them
  // together. Account 0 is none.
  struct Share {
    uint64_t account = 0;
    int64_t tensors_max = 0, resident_bytes_max = 0;
  };
  virtual Share share() const { return {}; }

 private:
  const uint64_t id_;
};

struct Call {
  const Method* method = nullptr;
  // In signature order.
  std::vector<TensorArg> inputs;
  // Attributes as given, by attribute spec index; the engine applies defaults and ranges.
  struct GivenAttribute {
    int32_t spec = 0;
    double number = 0;
    int64_t integer = 0;
  };
  std::vector<GivenAttribute> attributes;
  CallOptions options;
  // Of the request message, for admission and the inline limit.
  int64_t message_bytes = 0;
  std::chrono::steady_clock::time_point received;
  std::chrono::steady_clock::time_point deadline = std::chrono::steady_clock::time_point::max();
  std::shared_ptr<const CancelFlag> cancelled;
  std::string trace_id;
  // Null without a session.
  std::shared_ptr<const Principal> principal;
  // Made by this process from tensors that it has: the bounds of messages do not apply, those of
  // calls do.
  bool in_process = false;
  // Outputs are filled with this byte before the launch, so that an element that the kernel leaves
  // out shows what it is.
  std::optional<std::byte> output_fill;
};

struct OutputTensor {
  int32_t spec = 0;  // index into MethodSignature::outputs
  DType dtype = DType::kUnspecified;
  Dims shape;
  HostBytes data;
  // Where the output stays, in one of the two; it then has no data for the reply.
  std::optional<TensorHandle> resident;
  std::optional<ArenaSlot> arena;
};

struct NamedDigest {
  std::string name;
  std::optional<Digest> tensor;
  std::vector<Digest> rows;
};

struct OutputCheck {
  std::string name;
  bool passed = false;
  int64_t compared = 0;
  int64_t mismatched = 0;
  // REFERENCE: elements that are infinite or NaN where the reference is finite, and with it every
  // input that they depend on.
  int64_t nonfinite = 0;
  double max_abs_error = 0, max_rel_error = 0, atol = 0, rtol = 0;
};

struct VerificationReport {
  Verification kind = Verification::kNone;
  bool passed = false;
  std::vector<OutputCheck> outputs;
};

struct PhaseNanos {
  int64_t receive = 0, queue = 0, stage_in = 0, kernel = 0, stage_out = 0;
};

struct CallReport {
  // The registry's own texts.
  std::string_view contract;
  Backend backend = Backend::kCpu;
  std::string_view kernel;
  DeviceInfo device;
  ClaimLevel claim = ClaimLevel::kNone;
  std::vector<Rejection> rejected;
  std::optional<FallbackRecord> fallback;
  // By attribute spec index, defaults included.
  std::vector<AttributeValue> attributes;
  std::vector<NamedDigest> input_digests, output_digests;
  VerificationReport verification;
  PhaseNanos phases;
  InputCapture input_capture = InputCapture::kSnapshot;
  std::vector<std::string> transports;
  // Outputs that became resident because the reply would have been too large.
  std::vector<std::string> moved_to_resident;
  // Names of inputs with made-up values.
  std::vector<std::string> synthetic_inputs;
  // What the call read and wrote, by TensorPlace. Bytes of messages are not counted here.
  std::array<int64_t, kTensorPlaceCount> input_bytes = {}, output_bytes = {};
};

struct CallResult {
  const Method* method = nullptr;
  std::vector<OutputTensor> outputs;  // present ones, in signature order
  CallReport report;
};

}  // namespace rlk
