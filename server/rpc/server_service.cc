#include "server/rpc/server_service.h"

#include <algorithm>
#include <chrono>
#include <iterator>
#include <set>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "kernels/core/status.h"
#include "proto/wire/call_parts.h"
#include "server/rpc/operator_info.h"
#include "server/rpc/raw_service.h"
#include "server/rpc/unary.h"

namespace rlk::server {
namespace {

struct LimitEntry {
  const char* name;
  int64_t Limits::*value;
  const char* meaning;
};

constexpr LimitEntry kLimits[] = {
    {"rank_max", &Limits::rank_max, "dimensions of a tensor"},
    {"tensors_per_call_max", &Limits::tensors_per_call_max, "tensors of one call"},
    {"call_bytes_max", &Limits::call_bytes_max, "payload of one call, inputs and outputs"},
    {"inline_bytes_max", &Limits::inline_bytes_max,
     "a request message, framing included; tensors and row digests of a reply"},
    {"header_bytes_max", &Limits::header_bytes_max,
     "a request message without its tensors' elements"},
    {"message_bytes_max", &Limits::message_bytes_max, "a received message; gRPC refuses above"},
    {"queue_calls_max", &Limits::queue_calls_max, "calls waiting for a device"},
    {"queue_bytes_max", &Limits::queue_bytes_max,
     "payload of the calls waiting for a device; and of replies not yet read"},
    {"attribute_text_bytes_max", &Limits::attribute_text_bytes_max, "a text in a request"},
    {"reference_elements_max", &Limits::reference_elements_max,
     "elements of a call with REFERENCE verification"},
    {"connections_max", &Limits::connections_max, "open connections"},
    {"streams_per_connection_max", &Limits::streams_per_connection_max,
     "calls in flight on one connection"},
    {"device_bytes_max", &Limits::device_bytes_max, "memory of one GPU that the server takes"},
    {"sessions_max", &Limits::sessions_max, "open sessions"},
    {"session_lease_ms", &Limits::session_lease_ms, "lease of a session that asks for none"},
    {"session_lease_ms_max", &Limits::session_lease_ms_max, "lease that may be asked for"},
    {"session_calls_max", &Limits::session_calls_max, "calls in flight of one session"},
    {"session_tensors_max", &Limits::session_tensors_max, "resident tensors of one session"},
    {"session_resident_bytes_max", &Limits::session_resident_bytes_max,
     "resident tensors of one session"},
    {"resident_bytes_max", &Limits::resident_bytes_max, "resident tensors of all sessions"},
    {"account_sessions_max", &Limits::account_sessions_max, "open sessions of one account"},
    {"account_tensors_max", &Limits::account_tensors_max, "resident tensors of one account"},
    {"account_resident_bytes_max", &Limits::account_resident_bytes_max,
     "bytes of the resident tensors of one account"},
    {"session_arenas_max", &Limits::session_arenas_max, "arenas of one session"},
    {"session_arena_bytes_max", &Limits::session_arena_bytes_max, "arenas of one session"},
    {"arena_bytes_max", &Limits::arena_bytes_max, "arenas of all sessions"},
    {"arena_slots_max", &Limits::arena_slots_max, "slots of one arena"},
    {"chunk_bytes_max", &Limits::chunk_bytes_max, "data of one message of a stream"},
    {"parity_work_bytes_max", &Limits::parity_work_bytes_max,
     "bytes that all calls of one parity check read and write"},
    {"parity_peer_ms_max", &Limits::parity_peer_ms_max,
     "milliseconds that a parity check waits for one call of another server"},
};
static_assert(sizeof(Limits) == std::size(kLimits) * sizeof(int64_t), "a limit is not listed");

void AddCapability(const char* name, bool available, const std::string& reason,
                   rlk::v1::GetInfoResponse& out) {
  auto* capability = out.add_capabilities();
  capability->set_name(name);
  capability->set_available(available);
  capability->set_reason(reason);
}

void AddDevices(const Engine& engine, rlk::v1::GetInfoResponse& out) {
  for (const Device* device : engine.devices()) {
    const DeviceInfo& info = device->info();
    auto* entry = out.add_devices();
    entry->mutable_device()->set_kind(info.kind == DeviceKind::kCuda ? "cuda" : "cpu");
    entry->mutable_device()->set_ordinal(info.ordinal);
    entry->mutable_device()->set_name(info.name);
    entry->mutable_device()->set_uuid(info.uuid);
    if (info.kind == DeviceKind::kCuda) {
      entry->set_compute_capability(std::to_string(info.compute_capability / 10) + "." +
                                    std::to_string(info.compute_capability % 10));
    }
    entry->set_multiprocessor_count(info.multiprocessors);
    entry->set_memory_bytes(info.memory_bytes);
    entry->set_healthy(device->healthy());
  }
}

rlk::v1::GetInfoResponse MakeInfo(const Engine& engine, const ServerFacts& facts,
                                  const SharingFacts& sharing, double uptime_seconds) {
  rlk::v1::GetInfoResponse out;
  out.set_server_id(facts.server_id);
  FillProvenance(facts.provenance, *out.mutable_provenance());
  AddDevices(engine, out);
  for (int i = 0; i < kBackendCount; ++i) {
    const auto backend = static_cast<Backend>(i);
    const BackendState& state = engine.registry().backend(backend);
    auto* entry = out.add_backends();
    entry->set_name(std::string(BackendName(backend)));
    entry->set_available(state.available);
    if (!state.available) entry->set_reason(state.reason);
    entry->set_known_answers_passed(state.known_answers_passed);
  }
  for (const LimitEntry& limit : kLimits) {
    auto* entry = out.add_limits();
    entry->set_name(limit.name);
    entry->set_value(engine.options().limits.*limit.value);
    entry->set_meaning(limit.meaning);
  }
  AddCapability("inline", true, "", out);
  AddCapability("stream", true, "", out);
  AddCapability("resident", true, "", out);
  AddCapability("host_arena", sharing.host_arena.empty(), sharing.host_arena, out);
  AddCapability("device_arena", sharing.device_arena.empty(), sharing.device_arena, out);
  out.set_uptime_seconds(uptime_seconds);
  return out;
}

absl::StatusOr<rlk::v1::ListOperatorsResponse> MakeOperatorList(
    const Engine& engine, const rlk::v1::ListOperatorsRequest& request) {
  const Registry& registry = engine.registry();
  DeviceTraits best;
  for (const Device* device : engine.devices()) {
    const DeviceTraits traits = TraitsOf(device->info());
    if (traits.compute_capability > best.compute_capability) best = traits;
  }
  rlk::v1::ListOperatorsResponse out;
  std::set<std::string> operators;
  for (const auto& method : registry.methods()) {
    operators.insert(method->signature.operator_name);
    if (!request.operator_().empty() && method->signature.operator_name != request.operator_()) {
      continue;
    }
    FillMethodInfo(registry, best, *method, *out.add_methods());
  }
  if (out.methods_size() == 0 && !request.operator_().empty()) {
    std::string allowed;
    for (const std::string& name : operators) allowed += (allowed.empty() ? "" : ", ") + name;
    return MakeError(absl::StatusCode::kNotFound,
                     {.reason = Reason::kUnknownOperator,
                      .field = "operator",
                      .value = request.operator_(),
                      .allowed = allowed},
                     "no operator has this name");
  }
  return out;
}

class ServerService final : public RawService {
 public:
  ServerService(const Engine* engine, ServerFacts facts, std::function<SharingFacts()> sharing,
                const Gate* gate)
      : RawService(gate), engine_(engine), facts_(std::move(facts)), sharing_(std::move(sharing)) {
    AddUnary(
        "/rlk.v1.ServerService/GetInfo",
        [this](const IncomingCall& call, const grpc::ByteBuffer& request, grpc::ByteBuffer* reply) {
          return FinishUnary(call.context, GetInfo(request), reply);
        });
    AddUnary(
        "/rlk.v1.ServerService/ListOperators",
        [this](const IncomingCall& call, const grpc::ByteBuffer& request, grpc::ByteBuffer* reply) {
          return FinishUnary(call.context, ListOperators(request), reply);
        });
  }

 private:
  absl::StatusOr<rlk::v1::GetInfoResponse> GetInfo(const grpc::ByteBuffer& request) const {
    const std::chrono::duration<double> uptime = std::chrono::steady_clock::now() - start_;
    RLK_RETURN_IF_ERROR(ParseRequest<rlk::v1::GetInfoRequest>(request).status());
    return MakeInfo(*engine_, facts_, sharing_(), uptime.count());
  }

  absl::StatusOr<rlk::v1::ListOperatorsResponse> ListOperators(
      const grpc::ByteBuffer& request) const {
    RLK_ASSIGN_OR_RETURN(const auto parsed, ParseRequest<rlk::v1::ListOperatorsRequest>(request));
    RLK_RETURN_IF_ERROR(wire::CheckText("operator", parsed.operator_(), engine_->options().limits));
    return MakeOperatorList(*engine_, parsed);
  }

  const Engine* const engine_;
  const ServerFacts facts_;
  const std::function<SharingFacts()> sharing_;
  const std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

}  // namespace

void FillProvenance(const Provenance& facts, rlk::v1::Provenance& out) {
  out.set_id(facts.id);
  out.set_version(facts.version);
  if (facts.git_commit) out.set_git_commit(*facts.git_commit);
  if (facts.git_dirty) out.set_git_dirty(*facts.git_dirty);
  out.set_compiler(facts.compiler);
  out.set_compile_flags(facts.compile_flags);
  for (const std::string& name : facts.cuda_architectures) out.add_cuda_architectures(name);
  if (facts.cuda_runtime) out.set_cuda_runtime(*facts.cuda_runtime);
  if (facts.cuda_driver) out.set_cuda_driver(*facts.cuda_driver);
  out.set_tolerance_contract_version(facts.tolerance_contract_version);
  out.set_tolerance_contract_sha256(facts.tolerance_contract_sha256);
  out.set_cpu_isa(facts.cpu_isa);
}

std::unique_ptr<grpc::Service> MakeServerService(const Engine* engine, ServerFacts facts,
                                                 std::function<SharingFacts()> sharing,
                                                 const Gate* gate) {
  return std::make_unique<ServerService>(engine, std::move(facts), std::move(sharing), gate);
}

}  // namespace rlk::server
