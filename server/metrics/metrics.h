// Every Prometheus family of the server. Labels come from closed sets, every series is there at
// zero from the start, and nothing on the path of a call looks a label up.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/registry/registry.h"
#include "server/engine/device.h"
#include "server/engine/observer.h"
#include "server/metrics/credentials.h"
#include "server/parity/comparison.h"

namespace rlk::server {

// Labels of rlk_build_info.
struct BuildLabels {
  std::string version, commit, cuda, architectures;
};

// What became of a call that was to be recorded.
enum class RecordResult : uint8_t { kRecorded, kQueueFull, kFileFull };

enum class SelftestResult : uint8_t { kPass = 0, kMismatch = 1, kError = 2 };

class Metrics final : public Observer {
 public:
  // `registry` is bound and outlives this object; calls of methods that are not its own are not
  // counted (the self-test makes use of it).
  Metrics(const Registry& registry, const std::vector<DeviceInfo>& devices,
          const BuildLabels& labels);
  ~Metrics() override;

  // Device memory is read when it is scraped. `devices` in the order of the constructor's; they
  // outlive this object or the next call of this function.
  void SetDevices(std::vector<const Device*> devices);

  // Read when it is scraped; counted from now on. A plain function: what it reads is the process's.
  void SetConnectionsRefused(int64_t (*refused)());

  void OnCallDone(const Method* method, const absl::Status& status, const CallReport* report,
                  int64_t request_bytes, int64_t response_bytes, int64_t total_ns) override;
  void OnQueue(const DeviceInfo& device, int64_t calls, int64_t bytes) override;
  void OnInFlight(int64_t delta) override;
  void OnRejected(Reason reason) override;
  void OnCancelled(CancelStage stage) override;
  void OnDeviceError(const DeviceInfo& device, bool sticky) override;
  void OnVerification(const Method& method, const VerificationReport& report) override;
  void OnReplay(bool same_bits) override;
  void OnReplaySkipped(ReplaySkip why) override;

  // What the sessions hold, read when it is scraped. The function outlives this object or the next
  // call of this function.
  struct Holdings {
    int64_t sessions = 0;
    // Of tensors and arenas.
    int64_t leases = 0;
    // What is charged, and arenas in host memory as they are.
    int64_t resident_bytes = 0, arena_bytes = 0, host_arena_bytes = 0;
  };
  void SetHoldings(std::function<Holdings()> holdings);
  // Bounds of what a GPU, resident tensors, arenas, and the calls that wait for a device may hold.
  struct MemoryLimits {
    int64_t device = 0, resident = 0, arena = 0, queue = 0;
  };
  void SetMemoryLimits(const MemoryLimits& limits);
  // A drain has begun, and has to be over by then.
  void OnDrain(std::chrono::system_clock::time_point deadline);

  void OnCredentialRefused(CredentialRefusal why);
  void OnCredentialReload(CredentialFile file, bool ok);
  // Unix time at which the server's certificate ends.
  void SetCertificateEnd(double seconds);

  // A stream of a tensor ended after so many bytes.
  void OnStream(bool in, int64_t bytes);
  // From handing a reply to the transport until the transport is done with it.
  void OnSent(int64_t ns);
  // One that a caller was told of.
  void OnComparison(const Comparison& comparison);
  void OnSelftest(std::string_view operator_name, SelftestResult result);
  void OnRecord(RecordResult result);

  // One line a family: name, type, label names. The committed list is tests/golden/metrics.txt.
  std::string Describe() const;
  // The exposition text.
  std::string Text() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace rlk::server
