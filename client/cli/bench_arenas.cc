#include "client/cli/bench_arenas.h"

#include <cstring>
#include <functional>
#include <optional>
#include <utility>

#include "client/cli/timing.h"
#include "client/cpp/status_map.h"
#include "kernels/core/status.h"

namespace rlk::cli {
namespace {

using client::Arena;
using client::ArenaKind;
using client::ArenaSlot;

constexpr int kRoundsMin = 5, kRoundsMax = 200;

// One call with its input and its output in arenas.
struct SlotCall {
  ArenaSlot x, y;
  Median wall, in, out;

  absl::Status Run(const client::Client& client, int64_t bytes,
                   const std::function<void(rlk::v1::CallOptions&)>& options) {
    client::CallRequest request{.method = "final_logit_softcap.forward"};
    request.inputs = {{"x", x.ref(DType::kF32, Dims{bytes / 4})}};
    *(*request.options.mutable_outputs())["y"].mutable_arena() = y.place();
    options(request.options);
    const auto begin = Clock::now();
    RLK_ASSIGN_OR_RETURN(const client::CallResult result, client.Call(request));
    const double seconds = SecondsSince(begin);
    const auto& phases = result.report->phases();
    wall.Add(seconds - static_cast<double>(phases.kernel_ns()) * 1e-9);
    in.Add(static_cast<double>(phases.stage_in_ns()) * 1e-9);
    out.Add(static_cast<double>(phases.stage_out_ns()) * 1e-9);
    return absl::OkStatus();
  }

  // The median of what it took since the last look.
  double TakeWall() { return std::exchange(wall, {}).Get(); }
};

absl::StatusOr<SlotCall> HostCall(const client::Client& client, int64_t bytes) {
  RLK_ASSIGN_OR_RETURN(const Arena in, client.OpenArena(ArenaKind::kHostInput, bytes));
  RLK_ASSIGN_OR_RETURN(const Arena out, client.OpenArena(ArenaKind::kHostOutput, bytes));
  RLK_ASSIGN_OR_RETURN(ArenaSlot x, in.Take(bytes));
  RLK_ASSIGN_OR_RETURN(ArenaSlot y, out.Take(bytes));
  float value = 0.5f;
  for (size_t at = 0; at + sizeof(value) <= x.mutable_bytes().size(); at += sizeof(value)) {
    std::memcpy(x.mutable_bytes().data() + at, &value, sizeof(value));
  }
  return SlotCall{std::move(x), std::move(y), {}, {}, {}};
}

// New memory of a GPU is zero, which is as good a logit as any.
absl::StatusOr<SlotCall> DeviceCall(const client::Client& client, int64_t bytes) {
  RLK_ASSIGN_OR_RETURN(const Arena arena, client.OpenArena(ArenaKind::kDevice, 2 * bytes + 512));
  RLK_ASSIGN_OR_RETURN(ArenaSlot x, arena.Take(bytes));
  RLK_ASSIGN_OR_RETURN(ArenaSlot y, arena.Take(bytes));
  return SlotCall{std::move(x), std::move(y), {}, {}, {}};
}

void Live(rlk::v1::CallOptions&) {}
void Snapshot(rlk::v1::CallOptions& options) {
  options.set_input_capture(rlk::v1::INPUT_CAPTURE_SNAPSHOT);
}
void Digests(rlk::v1::CallOptions& options) { options.add_digests(rlk::v1::DIGEST_SCOPE_TENSOR); }

absl::StatusOr<double> Empty(rlk::v1::TensorService::Stub& stub) {
  const auto begin = Clock::now();
  grpc::ClientContext context;
  rlk::v1::ListTensorsResponse response;
  RLK_RETURN_IF_ERROR(client::FromGrpc(stub.ListTensors(&context, {}, &response)));
  return SecondsSince(begin);
}

// The two by turns; returns what the empty call took. Each way has rounds of its own: a call that
// has the processors sleep for long makes the next one slower, whichever it is.
absl::StatusOr<double> Alternate(const client::Client& client, rlk::v1::TensorService::Stub& empty,
                                 SlotCall& call, int64_t bytes,
                                 const std::function<void(rlk::v1::CallOptions&)>& options,
                                 double seconds) {
  Median empty_calls;
  const auto begin = Clock::now();
  for (int round = 0; round < kRoundsMax && (round < kRoundsMin || SecondsSince(begin) < seconds);
       ++round) {
    RLK_ASSIGN_OR_RETURN(const double taken, Empty(empty));
    empty_calls.Add(taken);
    RLK_RETURN_IF_ERROR(call.Run(client, bytes, options));
  }
  return empty_calls.Get();
}

// Nothing where the server's bounds leave no room for it.
absl::StatusOr<std::optional<SlotCall>> Fitting(absl::StatusOr<SlotCall> call) {
  if (absl::IsResourceExhausted(call.status())) return std::nullopt;
  if (!call.ok()) return call.status();
  return *std::move(call);
}

}  // namespace

absl::StatusOr<ArenaWays> OfferedArenas(const client::Client& client) {
  RLK_ASSIGN_OR_RETURN(const rlk::v1::GetInfoResponse info, client.GetInfo());
  ArenaWays ways;
  for (const rlk::v1::Capability& capability : info.capabilities()) {
    if (capability.name() == "host_arena") {
      ways.host = capability.available();
      ways.host_reason = capability.reason();
    } else if (capability.name() == "device_arena") {
      ways.device = capability.available();
      ways.device_reason = capability.reason();
    }
  }
  return ways;
}

absl::StatusOr<ArenaRow> BenchArenas(const client::Client& client,
                                     rlk::v1::TensorService::Stub& empty, const ArenaWays& ways,
                                     int64_t bytes, double seconds) {
  ArenaRow row{.bytes = bytes};
  if (ways.device) {
    RLK_ASSIGN_OR_RETURN(std::optional<SlotCall> call, Fitting(DeviceCall(client, bytes)));
    if (call) {
      RLK_ASSIGN_OR_RETURN(row.empty_call, Alternate(client, empty, *call, bytes, Live, seconds));
      row.device_live = call->TakeWall();
      RLK_RETURN_IF_ERROR(Alternate(client, empty, *call, bytes, Snapshot, seconds).status());
      row.device_snapshot = call->TakeWall();
      RLK_RETURN_IF_ERROR(Alternate(client, empty, *call, bytes, Digests, seconds).status());
      row.device_digests = call->TakeWall();
    }
  }
  if (ways.host) {
    RLK_ASSIGN_OR_RETURN(std::optional<SlotCall> call, Fitting(HostCall(client, bytes)));
    if (call) {
      RLK_ASSIGN_OR_RETURN(row.host_empty_call,
                           Alternate(client, empty, *call, bytes, Live, seconds));
      row.host_call = call->TakeWall();
      row.host_in = call->in.Get();
      row.host_out = call->out.Get();
    }
  }
  return row;
}

Json ArenaJson(const ArenaRow& row) {
  return {{"bytes", row.bytes},
          {"empty_call_seconds", NumberOrNull(row.empty_call)},
          {"host_empty_call_seconds", NumberOrNull(row.host_empty_call)},
          {"host_call_less_kernel_seconds", NumberOrNull(row.host_call)},
          {"host_stage_in_seconds", NumberOrNull(row.host_in)},
          {"host_stage_out_seconds", NumberOrNull(row.host_out)},
          {"host_transport_seconds", NumberOrNull(row.host_transport())},
          {"device_live_less_kernel_seconds", NumberOrNull(row.device_live)},
          {"device_snapshot_less_kernel_seconds", NumberOrNull(row.device_snapshot)},
          {"device_digests_less_kernel_seconds", NumberOrNull(row.device_digests)}};
}

std::string ArenaText(const ArenaWays& ways, const std::vector<ArenaRow>& rows) {
  std::string text;
  if (!ways.host) text += "host arena: not offered: " + ways.host_reason + "\n";
  if (!ways.device) text += "device arena: not offered: " + ways.device_reason + "\n";
  if (rows.empty()) return text;
  Table table({"size", "empty call us", "host arena us", "in GB/s", "out GB/s", "transport us",
               "device LIVE us", "SNAPSHOT us", "with digests us"});
  for (const ArenaRow& row : rows) {
    table.Add({std::to_string(row.bytes), Microseconds(row.empty_call), Microseconds(row.host_call),
               GigabytesPerSecond(row.bytes, row.host_in),
               GigabytesPerSecond(row.bytes, row.host_out), Microseconds(row.host_transport()),
               Microseconds(row.device_live), Microseconds(row.device_snapshot),
               Microseconds(row.device_digests)});
  }
  return text +
         "Arenas: final_logit_softcap.forward from one slot into another, wall less kernel. in, "
         "out: what a GPU\nmoves by itself; transport: less that. empty call: a generated stub, by "
         "turns with LIVE.\n\n" +
         table.Text();
}

}  // namespace rlk::cli
