// What the engine tells about itself. Metrics implement it; the engine knows no Prometheus.
#pragma once

#include <cstdint>
#include <string_view>

#include "absl/status/status.h"
#include "kernels/core/status.h"
#include "kernels/registry/call.h"

namespace rlk::server {

enum class CancelStage : uint8_t { kQueue, kStageIn, kLaunch, kStageOut };

// Why a sampled call ran once: no room for its second outputs, it changes a state, or somebody may
// write its inputs meanwhile.
enum class ReplaySkip : uint8_t { kMemory, kState, kLiveInput };
inline constexpr int kReplaySkipCount = 3;

// Called from any thread, often; must not block, allocate or look up labels by string.
class Observer {
 public:
  virtual ~Observer() = default;
  // Every call once, refused ones included; `method` is null when it is unknown. `report` is null
  // on error.
  virtual void OnCallDone(const Method* method, const absl::Status& status,
                          const CallReport* report, int64_t request_bytes, int64_t response_bytes,
                          int64_t total_ns) = 0;
  virtual void OnQueue(const DeviceInfo& device, int64_t calls, int64_t bytes) = 0;
  virtual void OnInFlight(int64_t delta) = 0;
  virtual void OnRejected(Reason reason) = 0;
  virtual void OnCancelled(CancelStage stage) = 0;
  virtual void OnDeviceError(const DeviceInfo& device, bool sticky) = 0;
  virtual void OnVerification(const Method& method, const VerificationReport& report) = 0;
  // A sampled call was run twice: no caller asked for it.
  virtual void OnReplay(bool same_bits) = 0;
  virtual void OnReplaySkipped(ReplaySkip why) = 0;
};

}  // namespace rlk::server
