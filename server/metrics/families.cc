#include "server/metrics/families.h"

#include <iterator>
#include <utility>

namespace rlk::server {
namespace {

using Labels = prometheus::Labels;

// Of nanoseconds; 50 us to 13 s.
constexpr Buckets kCallSeconds = {.first = 50'000, .log2_factor = 1, .count = 19, .units = 1e9};
// 1 us to 8 s: phases of a small call take a few microseconds.
constexpr Buckets kPhaseSeconds = {.first = 1'000, .log2_factor = 1, .count = 24, .units = 1e9};
// 64 B to 4 GiB.
constexpr Buckets kBytes = {.first = 64, .log2_factor = 2, .count = 14};
// 1 to 4M units in the last place.
constexpr Buckets kUlp = {.first = 1, .log2_factor = 2, .count = 12};

const char* DirectionLabel(Direction direction) {
  switch (direction) {
    case Direction::kForward:
      return "forward";
    case Direction::kBackward:
      return "backward";
    case Direction::kUpdate:
      return "update";
  }
  return "forward";
}

prometheus::Family<prometheus::Counter>& CounterFamily(prometheus::Registry& registry,
                                                       const char* name, const char* help) {
  return prometheus::BuildCounter().Name(name).Help(help).Register(registry);
}

prometheus::Family<prometheus::Gauge>& GaugeFamily(prometheus::Registry& registry, const char* name,
                                                   const char* help) {
  return prometheus::BuildGauge().Name(name).Help(help).Register(registry);
}

enum class ReasonKind { kContract, kAdmission, kNeither };

// Every reason is listed: a new one does not compile until it is placed.
ReasonKind KindOf(Reason reason) {
  switch (reason) {
    case Reason::kMalformedMessage:
    case Reason::kUnknownField:
    case Reason::kUnknownEnumValue:
    case Reason::kDuplicateTensor:
    case Reason::kMissingTensor:
    case Reason::kUnexpectedTensor:
    case Reason::kDtypeNotAllowed:
    case Reason::kShapeMismatch:
    case Reason::kRankTooLarge:
    case Reason::kInvalidStrides:
    case Reason::kPayloadSizeMismatch:
    case Reason::kMisaligned:
    case Reason::kAttributeOutOfRange:
    case Reason::kIndexOutOfRange:
    case Reason::kValueOutOfRange:
    case Reason::kMessageTooLarge:
    case Reason::kLimitExceeded:
    case Reason::kUnknownOption:
    case Reason::kUnknownContract:
    case Reason::kUnknownBackend:
    case Reason::kUnknownOperator:
    case Reason::kUnknownOutput:
    case Reason::kSourceNotSupported:
    case Reason::kContractUnavailable:
    case Reason::kBackendUnavailable:
    case Reason::kClaimTooLow:
    case Reason::kFallbackRefused:
    case Reason::kDeviceNotFound:
    case Reason::kPlacementUnavailable:
    case Reason::kPlacementOverlap:
    case Reason::kOffsetOutOfRange:
    case Reason::kFilesUnavailable:
    case Reason::kFileMismatch:
    case Reason::kSyntheticWeights:
    case Reason::kVerificationUnavailable:
    case Reason::kPeerNotListed:
    case Reason::kTensorNotFound:
    case Reason::kWrongServer:
    case Reason::kTensorBusy:
    case Reason::kTensorPoisoned:
      return ReasonKind::kContract;
    case Reason::kQueueFull:
    case Reason::kBytesExhausted:
    case Reason::kDeviceMemoryExhausted:
    case Reason::kSessionsExhausted:
    case Reason::kTensorsExhausted:
    case Reason::kDraining:
    case Reason::kDeviceLost:
    case Reason::kPeerUnreachable:
    case Reason::kUnauthenticated:
    case Reason::kPermissionDenied:
      return ReasonKind::kAdmission;
    case Reason::kUnknown:
    case Reason::kDeadlineExceeded:
    case Reason::kCancelled:
    case Reason::kVerificationFailed:
    case Reason::kUnwrittenOutput:
    case Reason::kInternal:
      return ReasonKind::kNeither;
  }
  return ReasonKind::kNeither;
}

}  // namespace

std::string DeviceLabel(const DeviceInfo& info) {
  return (info.kind == DeviceKind::kCuda ? "cuda:" : "cpu:") + std::to_string(info.ordinal);
}

std::vector<prometheus::MetricFamily> Families::Collect() const {
  std::vector<prometheus::MetricFamily> all = registry.Collect();
  for (const auto& family : histograms) {
    std::vector<prometheus::MetricFamily> collected = family->Collect();
    all.insert(all.end(), std::make_move_iterator(collected.begin()),
               std::make_move_iterator(collected.end()));
  }
  return all;
}

HistogramFamily& Families::AddHistograms(const char* name, const char* help,
                                         const Buckets& buckets) {
  histograms.push_back(std::make_unique<HistogramFamily>(name, help, buckets));
  return *histograms.back();
}

Families::Families(const Registry& methods_registry, const std::vector<DeviceInfo>& infos,
                   const BuildLabels& labels) {
  AddCalls(methods_registry);
  AddBytes();
  AddRejections();
  AddCredentials();
  AddDeterminism(methods_registry);
  AddComparisons();
  AddDevices(infos);
  GaugeFamily(registry, "rlk_build_info", "Facts about the binary; always 1.")
      .Add({{"version", labels.version},
            {"commit", labels.commit},
            {"cuda", labels.cuda},
            {"sm", labels.architectures}})
      .Set(1);
}

void Families::AddCalls(const Registry& methods_registry) {
  auto& requests = CounterFamily(registry, "rlk_requests_total",
                                 "Operator calls by the status that they ended with.");
  auto& durations = AddHistograms(
      "rlk_request_duration_seconds",
      "Time of an operator call on the server, from its arrival to its result.", kCallSeconds);
  auto& phase_family = AddHistograms("rlk_phase_duration_seconds",
                                     "Time of one phase of a call that succeeded.", kPhaseSeconds);
  auto& fallbacks =
      CounterFamily(registry, "rlk_fallback_total",
                    "Calls that ran on a lower backend because a higher one did not load.");
  // Counted where a reference is computed anyway: a pass over every output of every call would cost
  // a memory-bound kernel as much again.
  auto& nonfinite =
      CounterFamily(registry, "rlk_nonfinite_total",
                    "Elements of outputs that are infinite or NaN where the FP64 reference is "
                    "finite, in calls with REFERENCE verification.");
  for (const auto& method : methods_registry.methods()) {
    const std::string& name = method->signature.operator_name;
    const Labels labels = {{"operator", name},
                           {"direction", DirectionLabel(method->signature.direction)}};
    MethodSeries& series = methods[method.get()];
    for (const absl::StatusCode code : kCountedCodes) {
      Labels with_code = labels;
      with_code["code"] = absl::StatusCodeToString(code);
      series.requests[static_cast<size_t>(code)] = &requests.Add(with_code);
    }
    for (auto& counter : series.requests) {
      if (counter == nullptr) {
        counter = series.requests[static_cast<size_t>(absl::StatusCode::kUnknown)];
      }
    }
    series.duration = durations.Add(labels);
    series.nonfinite = &nonfinite.Add(labels);
    series.fallback = &fallbacks.Add({{"operator", name}});
  }
  constexpr std::array<const char*, kPhaseCount> kPhases = {"receive", "queue",     "stage_in",
                                                            "kernel",  "stage_out", "send"};
  for (int i = 0; i < kPhaseCount; ++i) {
    phases[i] = phase_family.Add({{"phase", kPhases[i]}});
  }
  in_flight = &GaugeFamily(registry, "rlk_inflight_requests", "Calls in the engine.").Add({});
  drain_deadline =
      &GaugeFamily(registry, "rlk_drain_deadline_timestamp_seconds",
                   "Unix time at which a drain that has begun has to be over; 0 before it begins.")
           .Add({});
  connections_refused = &CounterFamily(registry, "rlk_connections_refused_total",
                                       "Connections closed because connections_max were open.")
                             .Add({});
  auto& cancelled_family =
      CounterFamily(registry, "rlk_cancelled_total",
                    "Calls given up before this stage: cancelled, or past their deadline.");
  constexpr std::array<const char*, kCancelStageCount> kStages = {"queue", "stage_in", "launch",
                                                                  "stage_out"};
  for (int i = 0; i < kCancelStageCount; ++i) {
    cancelled[i] = &cancelled_family.Add({{"stage", kStages[i]}});
  }
}

void Families::AddBytes() {
  request_bytes = AddHistograms("rlk_request_bytes", "Size of a request message.", kBytes).Add({});
  response_bytes = AddHistograms("rlk_response_bytes", "Tensor bytes of a reply.", kBytes).Add({});
  auto& transports = CounterFamily(registry, "rlk_transport_bytes_total",
                                   "Bytes of calls that succeeded, by the way they travelled.");
  for (size_t i = 0; i < kTransports.size(); ++i) {
    transport_bytes[i][0] = &transports.Add({{"transport", kTransports[i]}, {"direction", "in"}});
    transport_bytes[i][1] = &transports.Add({{"transport", kTransports[i]}, {"direction", "out"}});
  }
}

void Families::AddRejections() {
  auto& admission = CounterFamily(registry, "rlk_admission_rejections_total",
                                  "Calls refused because of load or the server's state.");
  auto& contract = CounterFamily(registry, "rlk_contract_rejections_total",
                                 "Calls refused because of what they ask for.");
  for (int i = 0; i < kReasonCount; ++i) {
    const auto reason = static_cast<Reason>(i);
    const Labels labels = {{"reason", std::string(ReasonName(reason))}};
    switch (KindOf(reason)) {
      case ReasonKind::kContract:
        contract_rejections[i] = &contract.Add(labels);
        break;
      case ReasonKind::kAdmission:
        admission_rejections[i] = &admission.Add(labels);
        break;
      case ReasonKind::kNeither:
        break;
    }
  }
}

void Families::AddCredentials() {
  auto& refused = CounterFamily(registry, "rlk_credentials_refused_total",
                                "Tokens and certificates of callers that were refused.");
  for (size_t i = 0; i < kCredentialRefusals.size(); ++i) {
    credentials_refused[i] = &refused.Add({{"reason", kCredentialRefusals[i]}});
  }
  auto& reloads = CounterFamily(registry, "rlk_credential_reloads_total",
                                "Changed files of credentials that were read again; after an error "
                                "the former ones stay in use.");
  for (size_t i = 0; i < kCredentialFiles.size(); ++i) {
    credential_reloads[i][0] = &reloads.Add({{"file", kCredentialFiles[i]}, {"result", "error"}});
    credential_reloads[i][1] = &reloads.Add({{"file", kCredentialFiles[i]}, {"result", "ok"}});
  }
  certificate_end = &GaugeFamily(registry, "rlk_certificate_end_timestamp_seconds",
                                 "Unix time at which the server's certificate ends; 0 without TLS.")
                         .Add({});
}

void Families::AddDeterminism(const Registry& methods_registry) {
  auto& verification =
      CounterFamily(registry, "rlk_verifications_total", "Verifications that calls asked for.");
  for (int passed = 0; passed < 2; ++passed) {
    const char* result = passed ? "pass" : "fail";
    verifications[0][passed] = &verification.Add({{"verification", "repeat"}, {"result", result}});
    verifications[1][passed] =
        &verification.Add({{"verification", "reference"}, {"result", result}});
  }
  auto& selftest = CounterFamily(registry, "rlk_selftest_total",
                                 "Self-tests: a fixed input re-run, its digest compared.");
  constexpr std::array<const char*, kSelftestResultCount> kResults = {"pass", "mismatch", "error"};
  for (const auto& method : methods_registry.methods()) {
    const std::string& name = method->signature.operator_name;
    for (int i = 0; i < kSelftestResultCount; ++i) {
      selftests[name][i] = &selftest.Add({{"operator", name}, {"result", kResults[i]}});
    }
  }
  replays = &CounterFamily(registry, "rlk_replays_total",
                           "Sampled calls that were run twice, their bits compared.")
                 .Add({});
  replay_mismatches =
      &CounterFamily(registry, "rlk_replay_mismatches_total", "Replays with different bits.")
           .Add({});
  auto& skipped = CounterFamily(registry, "rlk_replays_skipped_total",
                                "Sampled calls that ran once, by what stood in the way.");
  constexpr std::array<const char*, kReplaySkipCount> kSkips = {"memory", "state", "live_input"};
  for (size_t i = 0; i < kSkips.size(); ++i) {
    replays_skipped[i] = &skipped.Add({{"reason", kSkips[i]}});
  }
  recorded = &CounterFamily(registry, "rlk_recorded_calls_total",
                            "Calls that succeeded and are in the recording.")
                  .Add({});
  auto& drops = CounterFamily(registry, "rlk_recording_drops_total",
                              "Calls that the recording lacks, by what had no room for them.");
  record_drops[0] = &drops.Add({{"reason", "queue"}});
  record_drops[1] = &drops.Add({{"reason", "file"}});
}

void Families::AddComparisons() {
  auto& checks = CounterFamily(registry, "rlk_parity_checks_total",
                               "Comparisons of two tensors, by what they judge.");
  auto& mismatches = CounterFamily(registry, "rlk_parity_mismatch_elements_total",
                                   "Elements with other bits in comparisons of two tensors.");
  auto& nan_created =
      CounterFamily(registry, "rlk_nan_created_total",
                    "Elements that are NaN on the left side of a comparison alone.");
  constexpr std::array<const char*, kJudgmentCount> kJudgments = {"accuracy", "invariance",
                                                                  "parity"};
  for (size_t i = 0; i < kJudgmentCount; ++i) {
    const Labels labels = {{"judgment", kJudgments[i]}};
    for (const int passed : {0, 1}) {
      comparisons[i].results[static_cast<size_t>(passed)] =
          &checks.Add({{"judgment", kJudgments[i]}, {"result", passed ? "pass" : "fail"}});
    }
    comparisons[i].mismatches = &mismatches.Add(labels);
    comparisons[i].nan_created = &nan_created.Add(labels);
  }
  parity_max_ulp =
      AddHistograms("rlk_parity_max_ulp", "Largest difference of a comparison, in ULP.", kUlp)
          .Add({});
}

void Families::AddDevices(const std::vector<DeviceInfo>& infos) {
  auto& memory = GaugeFamily(registry, "rlk_device_memory_bytes",
                             "Memory that the server holds on a device, by what it is for.");
  auto& errors = CounterFamily(registry, "rlk_device_errors_total",
                               "Errors of a device; a sticky one takes it out of rotation.");
  auto& depth = GaugeFamily(registry, "rlk_queue_depth", "Calls that wait for a device.");
  auto& bytes = GaugeFamily(registry, "rlk_queue_bytes", "Payload of the calls that wait.");
  for (const DeviceInfo& info : infos) {
    const std::string label = DeviceLabel(info);
    DeviceSeries series;
    series.info = info;
    series.memory = &memory.Add({{"device", label}, {"kind", "lanes"}});
    series.resident = &memory.Add({{"device", label}, {"kind", "resident"}});
    series.arena = &memory.Add({{"device", label}, {"kind", "arena"}});
    series.errors[0] = &errors.Add({{"device", label}, {"class", "transient"}});
    series.errors[1] = &errors.Add({{"device", label}, {"class", "sticky"}});
    series.queue_depth = &depth.Add({{"device", label}});
    series.queue_bytes = &bytes.Add({{"device", label}});
    devices.push_back(series);
  }
  auto& limits = GaugeFamily(registry, "rlk_memory_limit_bytes",
                             "Bounds of memory: of what the server takes of each GPU, of resident "
                             "tensors, of arenas, of the payload that waits for a device.");
  constexpr std::array<const char*, 4> kLimits = {"device", "resident", "arena", "queue"};
  for (size_t i = 0; i < kLimits.size(); ++i) {
    memory_limits[i] = &limits.Add({{"kind", kLimits[i]}});
  }
  leases = &GaugeFamily(registry, "rlk_leases", "Leases on tensors and arenas.").Add({});
  sessions = &GaugeFamily(registry, "rlk_sessions", "Open sessions.").Add({});
  resident_bytes = &GaugeFamily(registry, "rlk_resident_bytes",
                                "What resident tensors are charged to their sessions.")
                        .Add({});
  arena_bytes =
      &GaugeFamily(registry, "rlk_arena_bytes", "What arenas are charged to their sessions.")
           .Add({});
}

}  // namespace rlk::server
