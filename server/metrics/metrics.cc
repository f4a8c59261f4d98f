#include "server/metrics/metrics.h"

#include <prometheus/text_serializer.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <iterator>
#include <limits>
#include <mutex>
#include <set>
#include <utility>

#include "server/metrics/families.h"
#include "server/metrics/process.h"

namespace rlk::server {
namespace {

const char* TypeName(prometheus::MetricType type) {
  switch (type) {
    case prometheus::MetricType::Counter:
      return "counter";
    case prometheus::MetricType::Gauge:
      return "gauge";
    case prometheus::MetricType::Histogram:
      return "histogram";
    case prometheus::MetricType::Summary:
      return "summary";
    default:
      return "untyped";
  }
}

void Increment(prometheus::Counter* counter) {
  if (counter != nullptr) counter->Increment();
}

}  // namespace

// The families, refreshed when they are collected.
struct Metrics::Impl {
  Impl(const Registry& registry, const std::vector<DeviceInfo>& devices, const BuildLabels& labels)
      : families(registry, devices, labels) {}

  std::vector<prometheus::MetricFamily> Collect() const {
    {
      const std::lock_guard lock(mutex);
      const size_t count = std::min(devices.size(), families.devices.size());
      for (size_t i = 0; i < count; ++i) {
        families.devices[i].memory->Set(static_cast<double>(devices[i]->memory_bytes_in_use()));
        families.devices[i].resident->Set(static_cast<double>(devices[i]->resident_bytes_in_use()));
        families.devices[i].arena->Set(static_cast<double>(devices[i]->shared_bytes_in_use()));
      }
      if (holdings) {
        const Holdings held = holdings();
        families.sessions->Set(static_cast<double>(held.sessions));
        families.leases->Set(static_cast<double>(held.leases));
        families.resident_bytes->Set(static_cast<double>(held.resident_bytes));
        families.arena_bytes->Set(static_cast<double>(held.arena_bytes));
        for (size_t i = 0; i < count; ++i) {
          if (families.devices[i].info.kind != DeviceKind::kHost) continue;
          families.devices[i].arena->Set(static_cast<double>(held.host_arena_bytes));
        }
      }
    }
    CountConnectionsRefused();
    families.in_flight->Set(static_cast<double>(in_flight.load(std::memory_order_relaxed)));
    std::vector<prometheus::MetricFamily> all = families.Collect();
    std::vector<prometheus::MetricFamily> process = CollectProcess();
    all.insert(all.end(), std::make_move_iterator(process.begin()),
               std::make_move_iterator(process.end()));
    return all;
  }

  void CountConnectionsRefused() const {
    const std::lock_guard lock(mutex);
    if (refused == nullptr) return;
    const int64_t now = refused();
    families.connections_refused->Increment(static_cast<double>(now - refused_counted));
    refused_counted = now;
  }

  DeviceSeries* Find(const DeviceInfo& info) {
    for (DeviceSeries& series : families.devices) {
      if (series.info.kind == info.kind && series.info.ordinal == info.ordinal) return &series;
    }
    return nullptr;
  }

  Families families;
  std::atomic<int64_t> in_flight{0};
  mutable std::mutex mutex;
  std::vector<const Device*> devices;
  int64_t (*refused)() = nullptr;       // guarded by mutex
  mutable int64_t refused_counted = 0;  // guarded by mutex
  std::function<Holdings()> holdings;
};

Metrics::Metrics(const Registry& registry, const std::vector<DeviceInfo>& devices,
                 const BuildLabels& labels)
    : impl_(std::make_unique<Impl>(registry, devices, labels)) {}

Metrics::~Metrics() = default;

void Metrics::SetDevices(std::vector<const Device*> devices) {
  const std::lock_guard lock(impl_->mutex);
  impl_->devices = std::move(devices);
}

void Metrics::OnCallDone(const Method* method, const absl::Status& status, const CallReport* report,
                         int64_t request_bytes, int64_t response_bytes, int64_t total_ns) {
  Families& families = impl_->families;
  const auto found = families.methods.find(method);
  if (found == families.methods.end()) return;
  const MethodSeries& series = found->second;
  const auto code = static_cast<size_t>(status.code());
  Increment(series.requests[code < kCodeCount ? code : 2]);
  series.duration->Observe(total_ns);
  families.request_bytes->Observe(request_bytes);
  if (report == nullptr) return;
  families.response_bytes->Observe(response_bytes);
  const PhaseNanos& nanos = report->phases;
  families.phases[kReceive]->Observe(nanos.receive);
  families.phases[kQueuePhase]->Observe(nanos.queue);
  families.phases[kStageInPhase]->Observe(nanos.stage_in);
  families.phases[kKernel]->Observe(nanos.kernel);
  families.phases[kStageOutPhase]->Observe(nanos.stage_out);
  families.transport_bytes[kInline][0]->Increment(static_cast<double>(request_bytes));
  families.transport_bytes[kInline][1]->Increment(static_cast<double>(response_bytes));
  constexpr std::pair<TensorPlace, Transport> kPlaces[] = {
      {TensorPlace::kResident, kResident},
      {TensorPlace::kHostArena, kHostArena},
      {TensorPlace::kDeviceArena, kDeviceArena}};
  for (const auto& [place, transport] : kPlaces) {
    const auto at = static_cast<size_t>(place);
    const int64_t bytes[2] = {report->input_bytes[at], report->output_bytes[at]};
    for (size_t way = 0; way < 2; ++way) {
      if (bytes[way] == 0) continue;
      families.transport_bytes[transport][way]->Increment(static_cast<double>(bytes[way]));
    }
  }
  if (report->fallback.has_value()) Increment(series.fallback);
}

void Metrics::OnQueue(const DeviceInfo& device, int64_t calls, int64_t bytes) {
  if (DeviceSeries* series = impl_->Find(device); series != nullptr) {
    series->queue_depth->Set(static_cast<double>(calls));
    series->queue_bytes->Set(static_cast<double>(bytes));
  }
}

void Metrics::OnInFlight(int64_t delta) {
  impl_->in_flight.fetch_add(delta, std::memory_order_relaxed);
}

void Metrics::OnRejected(Reason reason) {
  const auto index = static_cast<size_t>(reason);
  if (index >= kReasonCount) return;
  Increment(impl_->families.admission_rejections[index]);
  Increment(impl_->families.contract_rejections[index]);
}

void Metrics::OnCancelled(CancelStage stage) {
  Increment(impl_->families.cancelled[static_cast<size_t>(stage)]);
}

void Metrics::OnDeviceError(const DeviceInfo& device, bool sticky) {
  if (DeviceSeries* series = impl_->Find(device); series != nullptr) {
    Increment(series->errors[sticky ? 1 : 0]);
  }
}

void Metrics::OnVerification(const Method& method, const VerificationReport& report) {
  if (report.kind == Verification::kNone) return;
  const int kind = report.kind == Verification::kRepeat ? 0 : 1;
  Increment(impl_->families.verifications[kind][report.passed ? 1 : 0]);
  const auto series = impl_->families.methods.find(&method);
  if (series == impl_->families.methods.end()) return;
  int64_t nonfinite = 0;
  for (const OutputCheck& output : report.outputs) nonfinite += output.nonfinite;
  series->second.nonfinite->Increment(static_cast<double>(nonfinite));
}

void Metrics::OnReplay(bool same_bits) {
  Increment(impl_->families.replays);
  if (!same_bits) Increment(impl_->families.replay_mismatches);
}

void Metrics::OnReplaySkipped(ReplaySkip why) {
  Increment(impl_->families.replays_skipped[static_cast<size_t>(why)]);
}

void Metrics::SetHoldings(std::function<Holdings()> holdings) {
  const std::lock_guard lock(impl_->mutex);
  impl_->holdings = std::move(holdings);
}

void Metrics::SetMemoryLimits(const MemoryLimits& limits) {
  const std::array<int64_t, 4> values = {limits.device, limits.resident, limits.arena,
                                         limits.queue};
  for (size_t i = 0; i < values.size(); ++i) {
    impl_->families.memory_limits[i]->Set(static_cast<double>(values[i]));
  }
}

void Metrics::OnDrain(std::chrono::system_clock::time_point deadline) {
  const std::chrono::duration<double> since_epoch = deadline.time_since_epoch();
  impl_->families.drain_deadline->Set(since_epoch.count());
}

void Metrics::OnCredentialRefused(CredentialRefusal why) {
  Increment(impl_->families.credentials_refused[static_cast<size_t>(why)]);
}

void Metrics::OnCredentialReload(CredentialFile file, bool ok) {
  Increment(impl_->families.credential_reloads[static_cast<size_t>(file)][ok ? 1 : 0]);
}

void Metrics::SetCertificateEnd(double seconds) { impl_->families.certificate_end->Set(seconds); }

void Metrics::OnStream(bool in, int64_t bytes) {
  impl_->families.transport_bytes[kStream][in ? 0 : 1]->Increment(static_cast<double>(bytes));
}

void Metrics::OnSent(int64_t ns) { impl_->families.phases[kSend]->Observe(ns); }

void Metrics::OnSelftest(std::string_view operator_name, SelftestResult result) {
  const auto found = impl_->families.selftests.find(operator_name);
  if (found == impl_->families.selftests.end()) return;
  Increment(found->second[static_cast<size_t>(result)]);
}

void Metrics::OnRecord(RecordResult result) {
  const Families& families = impl_->families;
  Increment(result == RecordResult::kRecorded
                ? families.recorded
                : families.record_drops[result == RecordResult::kQueueFull ? 0 : 1]);
}

void Metrics::OnComparison(const Comparison& comparison) {
  const auto judgment = static_cast<size_t>(comparison.judgment) - 1;
  if (judgment >= kJudgmentCount) return;
  const ComparisonSeries& series = impl_->families.comparisons[judgment];
  Increment(series.results[comparison.passed ? 1 : 0]);
  series.mismatches->Increment(static_cast<double>(comparison.mismatched()));
  series.nan_created->Increment(static_cast<double>(comparison.stats.counts[compare::kNanLeft]));
  constexpr uint64_t kUlpMax = std::numeric_limits<int64_t>::max();
  impl_->families.parity_max_ulp->Observe(
      static_cast<int64_t>(std::min(comparison.stats.extremes.ulp, kUlpMax)));
}

void Metrics::SetConnectionsRefused(int64_t (*refused)()) {
  const std::lock_guard lock(impl_->mutex);
  impl_->refused = refused;
  impl_->refused_counted = refused();
}

std::string Metrics::Describe() const {
  std::set<std::string> lines;
  for (const prometheus::MetricFamily& family : impl_->Collect()) {
    std::set<std::string> labels;
    for (const auto& metric : family.metric) {
      for (const auto& label : metric.label) labels.insert(label.name);
    }
    std::string line = family.name + " " + TypeName(family.type);
    for (const std::string& label : labels) line += " " + label;
    lines.insert(line);
  }
  std::string text;
  for (const std::string& line : lines) text += line + "\n";
  return text;
}

std::string Metrics::Text() const {
  return prometheus::TextSerializer().Serialize(impl_->Collect());
}

}  // namespace rlk::server
