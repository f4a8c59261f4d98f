#include "client/cli/bench_arenas.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <functional>
#include <optional>
#include <utility>

#include "client/cli/latency.h"
#include "client/cli/numbers.h"
#include "client/cpp/status_map.h"
#include "kernels/core/status.h"

namespace rlk::cli {
namespace {

using Clock = std::chrono::steady_clock;
using client::Arena;
using client::ArenaKind;
using client::ArenaSlot;

constexpr int kRoundsMin = 5, kRoundsMax = 200;

double Since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

double MedianOf(std::vector<double>& values) {
  if (values.empty()) return 0;
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

// One call with its input and its output in arenas.
struct SlotCall {
  ArenaSlot x, y;
  std::vector<double> wall, in, out;

  absl::Status Run(const client::Client& client, int64_t bytes,
                   const std::function<void(rlk::v1::CallOptions&)>& options) {
    client::CallRequest request{.method = "final_logit_softcap.forward"};
    request.inputs = {{"x", x.ref(DType::kF32, Dims{bytes / 4})}};
    *(*request.options.mutable_outputs())["y"].mutable_arena() = y.place();
    options(request.options);
    const auto begin = Clock::now();
    RLK_ASSIGN_OR_RETURN(const client::CallResult result, client.Call(request));
    const double seconds = Since(begin);
    const auto& phases = result.report->phases();
    wall.push_back(seconds - static_cast<double>(phases.kernel_ns()) * 1e-9);
    in.push_back(static_cast<double>(phases.stage_in_ns()) * 1e-9);
    out.push_back(static_cast<double>(phases.stage_out_ns()) * 1e-9);
    return absl::OkStatus();
  }
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
  return Since(begin);
}

std::string Micros(double seconds) { return seconds > 0 ? Short(seconds * 1e6) : ""; }

std::string Rate(int64_t bytes, double seconds) {
  return seconds > 0 ? Short(static_cast<double>(bytes) / seconds * 1e-9) : "";
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
  std::optional<SlotCall> host, device;
  if (ways.host) {
    RLK_ASSIGN_OR_RETURN(host, Fitting(HostCall(client, bytes)));
  }
  if (ways.device) {
    RLK_ASSIGN_OR_RETURN(device, Fitting(DeviceCall(client, bytes)));
  }
  std::vector<double> empty_calls, snapshots, digests;
  const auto begin = Clock::now();
  for (int round = 0; round < kRoundsMax && (round < kRoundsMin || Since(begin) < seconds);
       ++round) {
    RLK_ASSIGN_OR_RETURN(const double call, Empty(empty));
    empty_calls.push_back(call);
    if (host) RLK_RETURN_IF_ERROR(host->Run(client, bytes, Live));
    if (!device) continue;
    RLK_RETURN_IF_ERROR(device->Run(client, bytes, Live));
    RLK_RETURN_IF_ERROR(device->Run(client, bytes, Snapshot));
    snapshots.push_back(device->wall.back());
    device->wall.pop_back();
    RLK_RETURN_IF_ERROR(device->Run(client, bytes, Digests));
    digests.push_back(device->wall.back());
    device->wall.pop_back();
  }
  ArenaRow row{.bytes = bytes, .empty_call = MedianOf(empty_calls)};
  if (host) {
    row.host_call = MedianOf(host->wall);
    row.host_in = MedianOf(host->in);
    row.host_out = MedianOf(host->out);
  }
  if (device) {
    row.device_live = MedianOf(device->wall);
    row.device_snapshot = MedianOf(snapshots);
    row.device_digests = MedianOf(digests);
  }
  return row;
}

Json ArenaJson(const ArenaRow& row) {
  const auto number = [](double value) { return value > 0 ? Json(value) : Json(nullptr); };
  return {{"bytes", row.bytes},
          {"empty_call_seconds", number(row.empty_call)},
          {"host_call_less_kernel_seconds", number(row.host_call)},
          {"host_stage_in_seconds", number(row.host_in)},
          {"host_stage_out_seconds", number(row.host_out)},
          {"host_transport_seconds", number(row.host_transport())},
          {"device_live_less_kernel_seconds", number(row.device_live)},
          {"device_snapshot_less_kernel_seconds", number(row.device_snapshot)},
          {"device_digests_less_kernel_seconds", number(row.device_digests)}};
}

std::string ArenaText(const ArenaWays& ways, const std::vector<ArenaRow>& rows) {
  std::string text;
  if (!ways.host) text += "host arena: not offered: " + ways.host_reason + "\n";
  if (!ways.device) text += "device arena: not offered: " + ways.device_reason + "\n";
  if (rows.empty()) return text;
  Table table({"size", "empty call us", "host arena us", "in GB/s", "out GB/s", "transport us",
               "device LIVE us", "SNAPSHOT us", "with digests us"});
  for (const ArenaRow& row : rows) {
    table.Add({std::to_string(row.bytes), Micros(row.empty_call), Micros(row.host_call),
               Rate(row.bytes, row.host_in), Rate(row.bytes, row.host_out),
               Micros(row.host_transport()), Micros(row.device_live), Micros(row.device_snapshot),
               Micros(row.device_digests)});
  }
  return text +
         "Arenas: final_logit_softcap.forward from one slot into another, wall less kernel. in, "
         "out: what a GPU\nmoves by itself; transport: less that. empty call: a generated stub, in "
         "the same rounds.\n\n" +
         table.Text();
}

}  // namespace rlk::cli
