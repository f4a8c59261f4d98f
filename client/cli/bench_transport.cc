// rlk bench transport: the ways of a tensor to the server and back, beside the floors of the run.
#include <grpcpp/create_channel.h>
#include <grpcpp/security/credentials.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <optional>
#include <vector>

#include "client/cli/bench_arenas.h"
#include "client/cli/command.h"
#include "client/cli/floor_server.h"
#include "client/cli/numbers.h"
#include "client/cli/render.h"
#include "client/cli/timing.h"
#include "client/cli/transport_floor.h"
#include "client/cpp/status_map.h"
#include "kernels/core/status.h"
#include "rlk/v1/tensor_service.grpc.pb.h"

namespace rlk::cli {
namespace {

constexpr int64_t kSmallBytes = 128;
// A unary message of gRPC and protobuf; more is not possible.
constexpr int64_t kUnaryBytesMax = int64_t{256} << 20;
constexpr int kRoundsMin = 3, kRoundsMax = 200;

// What one size gave: medians, in seconds; 0 where a way does not apply.
struct Row {
  int64_t bytes = 0;
  double memcpy = 0, socket = 0, unary = 0, put = 0, get = 0, inline_call = 0;
  // What the server's GPU takes to read as much page-locked memory of a host arena.
  double pinned_dma = 0;
  // Of a call on resident tensors, and of a call of 128 bytes beside it: wall less kernel.
  double resident = 0, small_call = 0;
};

absl::StatusOr<client::Tensor> Filled(int64_t bytes, float value) {
  RLK_ASSIGN_OR_RETURN(client::Tensor tensor,
                       client::Tensor::Allocate(DType::kF32, std::vector<int64_t>{bytes / 4}));
  std::ranges::fill(tensor.mutable_as<float>(), value);
  return tensor;
}

// One size after the other; within a size, all ways alternate, so that they see the same load. The
// calls that carry no tensor of that size come after these, with a small call between them: caches
// and memory that large transfers have just left would be counted as theirs.
class TransportBench {
 public:
  TransportBench(const client::Client& client, rlk::v1::TensorService::Stub& unary, double seconds)
      : client_(client), unary_(unary), seconds_(seconds) {}

  absl::StatusOr<Row> Run(int64_t bytes) {
    RLK_ASSIGN_OR_RETURN(const client::Tensor tensor, Filled(bytes, 0.5f));
    RLK_ASSIGN_OR_RETURN(client::Tensor back, Filled(bytes, 0.0f));
    RLK_ASSIGN_OR_RETURN(const SocketSink sink, SocketSink::Start(bytes));
    RLK_ASSIGN_OR_RETURN(const client::ResidentTensor x, client_.Put(tensor.ref()));
    RLK_ASSIGN_OR_RETURN(client::ResidentTensor y, client_.Put(tensor.ref()));
    Row row{.bytes = bytes};
    RLK_RETURN_IF_ERROR(Transfers(tensor, back, sink, row));
    RLK_RETURN_IF_ERROR(Calls(x, y, row));
    RLK_RETURN_IF_ERROR(client_.Release({x, y}));
    return row;
  }

 private:
  bool GoesOn(int round, Clock::time_point begin) const {
    return round < kRoundsMax && (round < kRoundsMin || SecondsSince(begin) < seconds_);
  }

  absl::Status Transfers(const client::Tensor& tensor, client::Tensor& back, const SocketSink& sink,
                         Row& row) {
    const int64_t bytes = row.bytes;
    Median memcpy, socket, unary, put, get, inline_call;
    const auto begin = Clock::now();
    for (int round = 0; GoesOn(round, begin); ++round) {
      memcpy.Add(MemcpySeconds(tensor.bytes(), back.mutable_bytes()));
      RLK_ASSIGN_OR_RETURN(const double bare, sink.Send(tensor.bytes()));
      socket.Add(bare);
      if (bytes <= kUnaryBytesMax) {
        RLK_ASSIGN_OR_RETURN(const double message, Unary(tensor));
        unary.Add(message);
      }
      RLK_RETURN_IF_ERROR(PutAndGet(tensor, back, put, get));
      if (bytes <= client::kInlineBytesMax / 4) {
        RLK_ASSIGN_OR_RETURN(const double call, Inline(tensor));
        inline_call.Add(call);
      }
    }
    row = {.bytes = bytes,
           .memcpy = memcpy.Get(),
           .socket = socket.Get(),
           .unary = unary.Get(),
           .put = put.Get(),
           .get = get.Get(),
           .inline_call = inline_call.Get()};
    return absl::OkStatus();
  }

  absl::Status Calls(const client::ResidentTensor& x, client::ResidentTensor& y, Row& row) {
    RLK_ASSIGN_OR_RETURN(const client::Tensor tensor, Filled(kSmallBytes, 0.5f));
    Median small_call, resident;
    const auto begin = Clock::now();
    for (int round = 0; GoesOn(round, begin); ++round) {
      RLK_ASSIGN_OR_RETURN(const double call, Inline(tensor));
      small_call.Add(call);
      RLK_ASSIGN_OR_RETURN(const double wall, Resident(x, y));
      resident.Add(wall);
    }
    row.small_call = small_call.Get();
    row.resident = resident.Get();
    return absl::OkStatus();
  }

  // What a generated stub with a `bytes` field costs, to a server that looks at nothing.
  absl::StatusOr<double> Unary(const client::Tensor& tensor) {
    const auto begin = Clock::now();
    rlk::v1::ListTensorsRequest request;
    request.set_page_token(tensor.bytes().data(), tensor.bytes().size());
    grpc::ClientContext context;
    rlk::v1::ListTensorsResponse response;
    RLK_RETURN_IF_ERROR(client::FromGrpc(unary_.ListTensors(&context, request, &response)));
    return SecondsSince(begin);
  }

  absl::Status PutAndGet(const client::Tensor& tensor, client::Tensor& back, Median& put,
                         Median& get) {
    auto begin = Clock::now();
    RLK_ASSIGN_OR_RETURN(const client::ResidentTensor resident,
                         client_.Put(tensor.ref(), {.verify = false}));
    put.Add(SecondsSince(begin));
    begin = Clock::now();
    const absl::Status got = client_.GetInto(resident, 0, back.mutable_bytes(), {.verify = false});
    get.Add(SecondsSince(begin));
    RLK_RETURN_IF_ERROR(client_.Release({resident}));
    return got;
  }

  absl::StatusOr<double> Inline(const client::Tensor& tensor) {
    client::CallRequest request{.method = "final_logit_softcap.forward"};
    request.inputs = {{"x", tensor.ref()}};
    const auto begin = Clock::now();
    RLK_ASSIGN_OR_RETURN(const client::CallResult result, client_.Call(request));
    return SecondsSince(begin) - static_cast<double>(result.report->phases().kernel_ns()) * 1e-9;
  }

  // Reads x and writes y in place: nothing is sent, copied or allocated.
  absl::StatusOr<double> Resident(const client::ResidentTensor& x, client::ResidentTensor& y) {
    client::CallRequest request{.method = "final_logit_softcap.forward"};
    request.inputs = {{"x", x.ref()}};
    *(*request.options.mutable_outputs())["y"].mutable_resident()->mutable_into() = y.handle;
    const auto begin = Clock::now();
    RLK_ASSIGN_OR_RETURN(const client::CallResult result, client_.Call(request));
    const double wall = SecondsSince(begin);
    y.handle = result.Resident("y")->handle;
    return wall - static_cast<double>(result.report->phases().kernel_ns()) * 1e-9;
  }

  const client::Client& client_;
  rlk::v1::TensorService::Stub& unary_;
  const double seconds_;
};

std::string SizeText(int64_t bytes) {
  if (bytes >= int64_t{1} << 30) return Short(static_cast<double>(bytes) / (1 << 30)) + " GiB";
  if (bytes >= 1 << 20) return Short(static_cast<double>(bytes) / (1 << 20)) + " MiB";
  if (bytes >= 1 << 10) return Short(static_cast<double>(bytes) / (1 << 10)) + " KiB";
  return std::to_string(bytes) + " B";
}

std::string Ratio(double a, double b) { return a > 0 && b > 0 ? Short(a / b) : ""; }

Json RowJson(const Row& row) {
  return {{"bytes", row.bytes},
          {"memcpy_seconds", NumberOrNull(row.memcpy)},
          {"pinned_dma_seconds", NumberOrNull(row.pinned_dma)},
          {"unix_socket_seconds", NumberOrNull(row.socket)},
          {"unary_bytes_seconds", NumberOrNull(row.unary)},
          {"upload_seconds", NumberOrNull(row.put)},
          {"download_seconds", NumberOrNull(row.get)},
          {"inline_call_less_kernel_seconds", NumberOrNull(row.inline_call)},
          {"resident_call_less_kernel_seconds", NumberOrNull(row.resident)},
          {"small_call_less_kernel_seconds", NumberOrNull(row.small_call)},
          {"upload_to_unix_socket", NumberOrNull(row.put > 0 ? row.socket / row.put : 0)},
          {"upload_to_unary_bytes", NumberOrNull(row.put > 0 ? row.unary / row.put : 0)},
          {"resident_call_to_small_call", NumberOrNull(row.resident / row.small_call)}};
}

Outcome Report(const std::string& address, const std::vector<Row>& rows, const ArenaWays& ways,
               const std::vector<ArenaRow>& arena_rows) {
  Table table({"size", "memcpy GB/s", "pinned DMA", "socket", "unary", "upload", "download",
               "upload/socket", "upload/unary", "inline call us", "128 B call us",
               "resident call us", "resident/128 B"});
  Json sizes = Json::array();
  for (const Row& row : rows) {
    table.Add({SizeText(row.bytes), GigabytesPerSecond(row.bytes, row.memcpy),
               GigabytesPerSecond(row.bytes, row.pinned_dma),
               GigabytesPerSecond(row.bytes, row.socket), GigabytesPerSecond(row.bytes, row.unary),
               GigabytesPerSecond(row.bytes, row.put), GigabytesPerSecond(row.bytes, row.get),
               Ratio(row.socket, row.put), Ratio(row.unary, row.put), Microseconds(row.inline_call),
               Short(row.small_call * 1e6), Short(row.resident * 1e6),
               Ratio(row.resident, row.small_call)});
    sizes.push_back(RowJson(row));
  }
  Json arenas = Json::array();
  for (const ArenaRow& row : arena_rows) arenas.push_back(ArenaJson(row));
  Outcome outcome;
  outcome.json =
      Dump({{"benchmark", "transport"}, {"server", address}, {"sizes", sizes}, {"arenas", arenas}});
  if (rows.empty()) {
    outcome.text = ArenaText(ways, arena_rows);
    return outcome;
  }
  outcome.text =
      "GB/s, medians of alternating rounds. memcpy: one thread. pinned DMA: the server's GPU "
      "from\na host arena. socket: a bare Unix socket to a "
      "process of\nits own. unary: a generated stub with a bytes field, same kind of transport "
      "as " +
      address +
      ". Calls:\nfinal_logit_softcap.forward, wall less kernel; resident reads one tensor and "
      "writes another in place.\n\n" +
      table.Text() + "\n" + ArenaText(ways, arena_rows);
  return outcome;
}

absl::StatusOr<std::vector<int64_t>> Sizes(const Args& args) {
  RLK_ASSIGN_OR_RETURN(const int64_t most, args.GetInteger("--bytes-max", int64_t{1} << 30,
                                                           kSmallBytes, int64_t{16} << 30));
  std::vector<int64_t> sizes = {kSmallBytes};
  for (int64_t bytes = 1 << 10; bytes <= most; bytes *= 4) sizes.push_back(bytes);
  return sizes;
}

}  // namespace

Outcome RunBenchTransport(const Args& args, double seconds) {
  const auto sizes = Sizes(args);
  if (!sizes.ok()) return UsageError(sizes.status());
  const std::string address = ServerAddress(args);
  const auto client = Connect(args);
  if (!client.ok()) return ConnectError(client.status());
  const auto floor = FloorServer::Start(address.rfind("unix:", 0) == 0);
  if (!floor.ok()) return CallError(floor.status());
  grpc::ChannelArguments arguments;
  arguments.SetMaxSendMessageSize(-1);
  const auto unary = rlk::v1::TensorService::NewStub(
      grpc::CreateCustomChannel(floor->address(), grpc::InsecureChannelCredentials(), arguments));
  TransportBench bench(*client, *unary, seconds);
  const auto ways = OfferedArenas(*client);
  if (!ways.ok()) return CallError(ways.status());
  std::vector<Row> rows;
  std::vector<ArenaRow> arena_rows;
  for (const int64_t bytes : *sizes) {
    if (!args.Has("--arenas-only")) {
      const auto row = bench.Run(bytes);
      if (!row.ok()) return CallError(row.status());
      rows.push_back(*row);
    }
    if (address.rfind("unix:", 0) != 0 || (!ways->host && !ways->device)) continue;
    const auto row = BenchArenas(*client, *unary, *ways, bytes, seconds);
    if (!row.ok()) return CallError(row.status());
    arena_rows.push_back(*row);
    if (!rows.empty()) rows.back().pinned_dma = row->host_in;
  }
  return Report(address, rows, *ways, arena_rows);
}

}  // namespace rlk::cli
