// The families as prometheus-cpp objects; internal to this folder.
#pragma once

#include <prometheus/collectable.h>
#include <prometheus/counter.h>
#include <prometheus/gauge.h>
#include <prometheus/registry.h>

#include <array>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "server/metrics/histogram.h"
#include "server/metrics/metrics.h"

namespace rlk::server {

// Status codes that a call can end with; others count as UNKNOWN.
inline constexpr std::array<absl::StatusCode, 13> kCountedCodes = {
    absl::StatusCode::kOk,
    absl::StatusCode::kCancelled,
    absl::StatusCode::kUnknown,
    absl::StatusCode::kInvalidArgument,
    absl::StatusCode::kDeadlineExceeded,
    absl::StatusCode::kNotFound,
    absl::StatusCode::kPermissionDenied,
    absl::StatusCode::kResourceExhausted,
    absl::StatusCode::kFailedPrecondition,
    absl::StatusCode::kInternal,
    absl::StatusCode::kUnavailable,
    absl::StatusCode::kDataLoss,
    absl::StatusCode::kUnauthenticated,
};
inline constexpr int kCodeCount = 17;

enum Phase { kReceive, kQueuePhase, kStageInPhase, kKernel, kStageOutPhase, kSend, kPhaseCount };
inline constexpr std::array<const char*, 5> kTransports = {"inline", "stream", "resident",
                                                           "host_arena", "device_arena"};
enum Transport { kInline, kStream, kResident, kHostArena, kDeviceArena };
inline constexpr int kCancelStageCount = 4;
inline constexpr int kSelftestResultCount = 3;
inline constexpr size_t kJudgmentCount = 3;

// What a call of one method touches.
struct MethodSeries {
  std::array<prometheus::Counter*, kCodeCount> requests = {};
  Histogram* duration = nullptr;
  prometheus::Counter* fallback = nullptr;
  prometheus::Counter* nonfinite = nullptr;
};

// What comparisons of one judgment found.
struct ComparisonSeries {
  // [fail 0, pass 1]
  std::array<prometheus::Counter*, 2> results = {};
  prometheus::Counter* mismatches = nullptr;
  prometheus::Counter* nan_created = nullptr;
};

struct DeviceSeries {
  DeviceInfo info;
  prometheus::Gauge* memory = nullptr;
  prometheus::Gauge* resident = nullptr;
  prometheus::Gauge* arena = nullptr;
  // [sticky]
  std::array<prometheus::Counter*, 2> errors = {};
  prometheus::Gauge* queue_depth = nullptr;
  prometheus::Gauge* queue_bytes = nullptr;
};

// Builds the families in the constructor and then only hands out pointers.
struct Families {
  Families(const Registry& registry, const std::vector<DeviceInfo>& devices,
           const BuildLabels& labels);

  // All of them, as they are now.
  std::vector<prometheus::MetricFamily> Collect() const;

  prometheus::Registry registry;
  std::vector<std::unique_ptr<HistogramFamily>> histograms;
  std::map<const Method*, MethodSeries> methods;
  std::vector<DeviceSeries> devices;
  std::array<Histogram*, kPhaseCount> phases = {};
  Histogram* request_bytes = nullptr;
  Histogram* response_bytes = nullptr;
  // [transport][0 in, 1 out]
  std::array<std::array<prometheus::Counter*, 2>, kTransports.size()> transport_bytes = {};
  prometheus::Gauge* in_flight = nullptr;
  prometheus::Gauge* drain_deadline = nullptr;
  prometheus::Counter* connections_refused = nullptr;
  std::array<prometheus::Counter*, kCredentialRefusals.size()> credentials_refused = {};
  // [file][error 0, ok 1]
  std::array<std::array<prometheus::Counter*, 2>, kCredentialFiles.size()> credential_reloads = {};
  prometheus::Gauge* certificate_end = nullptr;
  prometheus::Gauge* sessions = nullptr;
  prometheus::Gauge* leases = nullptr;
  prometheus::Gauge* resident_bytes = nullptr;
  prometheus::Gauge* arena_bytes = nullptr;
  // In the order of Metrics::MemoryLimits.
  std::array<prometheus::Gauge*, 4> memory_limits = {};
  // Null where the reason is of the other kind.
  std::array<prometheus::Counter*, kReasonCount> admission_rejections = {};
  std::array<prometheus::Counter*, kReasonCount> contract_rejections = {};
  std::array<prometheus::Counter*, kCancelStageCount> cancelled = {};
  // [repeat 0, reference 1][fail 0, pass 1]
  std::array<std::array<prometheus::Counter*, 2>, 2> verifications = {};
  prometheus::Counter* replays = nullptr;
  prometheus::Counter* replay_mismatches = nullptr;
  std::array<prometheus::Counter*, kReplaySkipCount> replays_skipped = {};
  prometheus::Counter* recorded = nullptr;
  // [queue 0, file 1]
  std::array<prometheus::Counter*, 2> record_drops = {};
  std::map<std::string, std::array<prometheus::Counter*, kSelftestResultCount>, std::less<>>
      selftests;
  // [judgment]
  std::array<ComparisonSeries, kJudgmentCount> comparisons = {};
  Histogram* parity_max_ulp = nullptr;

 private:
  HistogramFamily& AddHistograms(const char* name, const char* help, const Buckets& buckets);
  void AddCalls(const Registry& methods_registry);
  void AddBytes();
  void AddRejections();
  void AddCredentials();
  void AddDeterminism(const Registry& methods_registry);
  void AddComparisons();
  void AddDevices(const std::vector<DeviceInfo>& infos);
};

// "cpu:0", "cuda:1": the device label.
std::string DeviceLabel(const DeviceInfo& info);

}  // namespace rlk::server
