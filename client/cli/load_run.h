// Runs one block of `rlk bench load`: a fixed number of calls by many clients, in a closed or an
// open loop.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "client/cli/latency_histogram.h"
#include "client/cli/load_kinds.h"
#include "client/cpp/client.h"

namespace rlk::cli {

struct LoadPlan {
  int64_t calls = 10'000;
  int64_t warm_up_calls = 1'000;
  int64_t clients = 8;
  // Calls a second of all clients together; 0 is the closed loop, in which each client calls as
  // soon as it has its answer.
  double rate = 0;
  // Open loop: gaps between calls are exponential in place of equal.
  bool poisson = false;
  uint64_t seed = 1;
  std::vector<MixPart> mix;
};

// What the calls of one kind, or of all, gave.
struct LoadCounts {
  // Of calls that succeeded. In the open loop from the time at which the call was due, so that a
  // server that stands still is seen by every call that was due meanwhile, sent or not.
  LatencyHistogram latency;
  // Calls that failed, by the name of the status code.
  std::map<std::string, int64_t> errors;

  void Merge(const LoadCounts& other);
};

struct LoadBlock {
  double seconds = 0;
  // In the order of the mix.
  std::vector<LoadCounts> parts;
  LoadCounts all;
  // Open loop: how late calls were sent, because all clients were busy or the machine was.
  LatencyHistogram behind;
  // Of one call that failed.
  std::string first_error;

  double CallsPerSecond() const;
};

// The calls of one client, in the order of the mix; for one thread at a time.
using ClientCalls = std::vector<std::function<absl::Status()>>;

// Makes `calls` calls, each client on a thread of its own. The same plan makes the same calls.
LoadBlock RunLoad(const LoadPlan& plan, int64_t calls, const std::vector<ClientCalls>& clients);

// Clients of one server, each with a connection and with its tensors there; they stay from block to
// block.
class LoadClients {
 public:
  static absl::StatusOr<LoadClients> Connect(const std::string& address,
                                             const client::ClientOptions& options,
                                             const LoadPlan& plan);
  const std::vector<ClientCalls>& calls() const { return calls_; }

 private:
  // The calls hold references to these.
  std::vector<std::unique_ptr<client::Client>> clients_;
  std::vector<ClientCalls> calls_;
};

// When each of `calls` calls is due, from the start of the block.
std::vector<std::chrono::nanoseconds> DueTimes(const LoadPlan& plan, int64_t calls);

}  // namespace rlk::cli
