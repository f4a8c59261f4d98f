// rlk bench rpc. Blocks of the three kinds of call alternate, so that a change of the machine's
// speed meets all of them.
#include <grpcpp/create_channel.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/security/credentials.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <thread>

#include "client/cli/command.h"
#include "client/cli/floor_server.h"
#include "client/cli/latency.h"
#include "client/cli/numbers.h"
#include "client/cli/random.h"
#include "client/cli/render.h"
#include "client/cpp/channel.h"
#include "client/cpp/final_logit_softcap.h"
#include "client/cpp/status_map.h"
#include "kernels/core/status.h"
#include "rlk/v1/server.grpc.pb.h"

namespace rlk::cli {
namespace {

using Clock = std::chrono::steady_clock;
using CallFn = std::function<absl::Status()>;

constexpr char kTensor[] = "random:32:f32:1:30";  // 128 bytes
constexpr int kWarmUpCalls = 200;

struct BenchPlan {
  // Short blocks: on a machine that others use too, its speed changes within a second.
  int64_t calls = 200;
  int64_t blocks = 50;
  std::vector<int64_t> callers = {1, 4, 16, 64};
  double seconds = 1;
};

struct Kind {
  const char* name;
  CallFn call;
};

struct Throughput {
  int64_t callers = 0;
  std::map<std::string, double> calls_per_second = {};
};

absl::StatusOr<BenchPlan> MakePlan(const Args& args) {
  BenchPlan plan;
  RLK_ASSIGN_OR_RETURN(plan.calls, args.GetInteger("--calls", plan.calls, 1, 10000000));
  RLK_ASSIGN_OR_RETURN(plan.blocks, args.GetInteger("--blocks", plan.blocks, 1, 1000));
  if (args.Has("--seconds")) {
    const auto seconds = ParseNumber(args.Get("--seconds"));
    if (!seconds || !(*seconds > 0 && *seconds <= 600)) {
      return InvalidArgument(Reason::kUnknownOption, "--seconds", args.Get("--seconds"),
                             "a number in (0, 600]", "the value is not allowed");
    }
    plan.seconds = *seconds;
  }
  if (args.Has("--callers")) {
    plan.callers.clear();
    std::string rest = args.Get("--callers") + ",";
    for (size_t comma; (comma = rest.find(',')) != std::string::npos; rest.erase(0, comma + 1)) {
      const auto callers = ParseInteger<int64_t>(rest.substr(0, comma));
      if (!callers || *callers < 1 || *callers > 1024) {
        return InvalidArgument(Reason::kUnknownOption, "--callers", args.Get("--callers"),
                               "integers in [1, 1024] with commas between",
                               "the value is not allowed");
      }
      plan.callers.push_back(*callers);
    }
  }
  return plan;
}

// grpc.health.v1.Health/Check of the whole server: the request for service "" is an empty message.
absl::Status CheckHealth(grpc::GenericStub& stub) {
  grpc::ClientContext context;
  grpc::CompletionQueue queue;
  const grpc::Slice empty;
  const grpc::ByteBuffer request(&empty, 1);
  grpc::ByteBuffer reply;
  grpc::Status status;
  auto call = stub.PrepareUnaryCall(&context, "/grpc.health.v1.Health/Check", request, &queue);
  call->StartCall();
  call->Finish(&reply, &status, nullptr);
  void* tag = nullptr;
  bool ok = false;
  const bool answered = queue.Next(&tag, &ok);
  queue.Shutdown();
  return answered && ok ? client::FromGrpc(status) : absl::InternalError("no answer");
}

absl::Status RunLatency(const BenchPlan& plan, const std::vector<Kind>& kinds,
                        std::map<std::string, LatencySamples>& samples) {
  for (const Kind& kind : kinds) {
    for (int i = 0; i < kWarmUpCalls; ++i) RLK_RETURN_IF_ERROR(kind.call());
  }
  for (int64_t block = 0; block < plan.blocks; ++block) {
    for (const Kind& kind : kinds) {
      LatencySamples& to = samples[kind.name];
      for (int64_t i = 0; i < plan.calls; ++i) {
        const auto begin = Clock::now();
        RLK_RETURN_IF_ERROR(kind.call());
        to.Add(Clock::now() - begin);
      }
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<double> CallsPerSecond(int64_t callers, double seconds, const CallFn& call) {
  std::atomic<int64_t> calls{0};
  std::mutex mutex;
  absl::Status error;
  const auto begin = Clock::now();
  const auto end =
      begin + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
  {
    std::vector<std::jthread> threads;
    for (int64_t i = 0; i < callers; ++i) {
      threads.emplace_back([&] {
        int64_t done = 0;
        // At least one each: a thread may get its turn after the end.
        do {
          if (absl::Status status = call(); !status.ok()) {
            std::lock_guard lock(mutex);
            error = status;
            return;
          }
          ++done;
        } while (Clock::now() < end);
        calls += done;
      });
    }
  }
  if (!error.ok()) return error;
  return static_cast<double>(calls) / std::chrono::duration<double>(Clock::now() - begin).count();
}

absl::StatusOr<std::vector<Throughput>> RunThroughput(const BenchPlan& plan,
                                                      const std::vector<Kind>& kinds) {
  constexpr int kRounds = 2;
  std::vector<Throughput> results;
  for (int64_t callers : plan.callers) {
    Throughput result{.callers = callers};
    for (int round = 0; round < kRounds; ++round) {
      for (const Kind& kind : kinds) {
        RLK_ASSIGN_OR_RETURN(const double rate,
                             CallsPerSecond(callers, plan.seconds / kRounds, kind.call));
        result.calls_per_second[kind.name] += rate / kRounds;
      }
    }
    results.push_back(std::move(result));
  }
  return results;
}

Outcome Report(const std::string& address, const BenchPlan& plan, const std::vector<Kind>& kinds,
               std::map<std::string, LatencySamples>& latency,
               const std::vector<Throughput>& throughput) {
  const double floor = latency["empty"].Percentile(0.5);
  const double ratio = latency["softcap"].Percentile(0.5) / floor;
  Json latency_json = Json::object(), throughput_json = Json::array();
  Table latency_table({"one caller", "p50 us", "p90 us", "p99 us", "p50 / empty"});
  for (const Kind& kind : kinds) {
    const LatencySamples& samples = latency[kind.name];
    latency_json[kind.name] = samples.Summary();
    latency_json[kind.name]["calls"] = samples.count();
    latency_table.Add({kind.name, Short(samples.Percentile(0.5)), Short(samples.Percentile(0.9)),
                       Short(samples.Percentile(0.99)), Short(samples.Percentile(0.5) / floor)});
  }
  Table throughput_table({"callers", "empty calls/s", "softcap calls/s", "softcap / empty"});
  for (const Throughput& result : throughput) {
    const double empty = result.calls_per_second.at("empty");
    const double softcap = result.calls_per_second.at("softcap");
    throughput_table.Add({std::to_string(result.callers),
                          std::to_string(static_cast<int64_t>(empty)),
                          std::to_string(static_cast<int64_t>(softcap)), Short(softcap / empty)});
    throughput_json.push_back({{"callers", result.callers},
                               {"empty_calls_per_second", empty},
                               {"softcap_calls_per_second", softcap},
                               {"ratio", softcap / empty}});
  }
  Outcome outcome;
  outcome.json = Dump({{"benchmark", "rpc"},
                       {"server", address},
                       {"tensor_bytes", 128},
                       {"blocks", plan.blocks},
                       {"calls_per_block", plan.calls},
                       {"latency_us", std::move(latency_json)},
                       {"p50_ratio", ratio},
                       {"throughput", std::move(throughput_json)}});
  outcome.text =
      "empty: gRPC unary call with empty messages to a process of its own, same kind of "
      "transport\nhealth: grpc.health.v1 Check of " +
      address + "\nsoftcap: final_logit_softcap.forward of 128 bytes at " + address + "\n\n" +
      latency_table.Text() + "\n" + throughput_table.Text();
  return outcome;
}

}  // namespace

const VerbOptions& BenchVerbs() {
  static const VerbOptions verbs = {
      {"load",
       {{"--calls"},
        {"--warm-up"},
        {"--clients"},
        {"--mix"},
        {"--seed"},
        {"--rate"},
        {"--arrivals"},
        {"--blocks"},
        {"--turns"},
        {"--against"}}},
      {"rpc", {{"--calls"}, {"--blocks"}, {"--callers"}, {"--seconds"}}},
      {"transport", {{"--seconds"}, {"--bytes-max"}, {"--arenas-only", false}}}};
  return verbs;
}

Outcome RunBench(const Args& args) {
  const std::string verb = args.positional().size() == 1 ? args.positional()[0] : "";
  if (BenchVerbs().count(verb) == 0) {
    return UsageError(InvalidArgument(Reason::kUnknownOption, "BENCHMARK", verb,
                                      "rpc, transport, load", "rlk bench takes one benchmark"));
  }
  const absl::Status own = CheckVerbOptions(args, BenchVerbs(), "bench", verb);
  if (!own.ok()) return UsageError(own);
  if (verb == "load") return RunBenchLoad(args);
  const absl::StatusOr<BenchPlan> plan = MakePlan(args);
  if (!plan.ok()) return UsageError(plan.status());
  if (verb == "transport") return RunBenchTransport(args, plan->seconds);
  const std::string address = ServerAddress(args);
  const auto client = Connect(args);
  if (!client.ok()) return ConnectError(client.status());
  const auto floor = FloorServer::Start(address.rfind("unix:", 0) == 0);
  if (!floor.ok()) return CallError(floor.status());
  const auto floor_stub = rlk::v1::ServerService::NewStub(
      grpc::CreateChannel(floor->address(), grpc::InsecureChannelCredentials()));
  const auto options = ClientOptionsOf(args);
  const auto channel = options.ok()
                           ? client::MakeChannel(address, *options)
                           : absl::StatusOr<std::shared_ptr<grpc::Channel>>(options.status());
  if (!channel.ok()) return UsageError(channel.status());
  grpc::GenericStub health_stub(*channel);
  const auto tensor = MakeRandom(kTensor);
  if (!tensor.ok()) return CallError(tensor.status());
  const client::FinalLogitSoftcapForwardArgs softcap_args{.x = tensor->ref()};

  const std::vector<Kind> kinds = {
      {"empty",
       [&floor_stub] {
         grpc::ClientContext context;
         rlk::v1::GetInfoResponse response;
         return client::FromGrpc(floor_stub->GetInfo(&context, {}, &response));
       }},
      {"health", [&health_stub] { return CheckHealth(health_stub); }},
      {"softcap",
       [&client, &softcap_args] {
         return client::FinalLogitSoftcapForward(*client, softcap_args).status();
       }},
  };
  std::map<std::string, LatencySamples> latency;
  if (absl::Status status = RunLatency(*plan, kinds, latency); !status.ok()) {
    return CallError(status);
  }
  const auto throughput = RunThroughput(*plan, {kinds[0], kinds[2]});
  if (!throughput.ok()) return CallError(throughput.status());
  return Report(address, *plan, kinds, latency, *throughput);
}

}  // namespace rlk::cli
