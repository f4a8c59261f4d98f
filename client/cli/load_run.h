// Runs a block of `rlk bench load`, or a part of one: a fixed number of calls by many clients, in a
// closed or an open loop.
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

  int64_t failed() const;
  void Merge(const LoadCounts& other);
};

// Calls first, first + 1, ... of a block.
struct CallRange {
  int64_t first = 0;
  int64_t count = 0;
};

struct LoadBlock {
  double seconds = 0;
  // In the order of the mix.
  std::vector<LoadCounts> parts;
  LoadCounts all;
  // Open loop: how late calls were sent, because all clients were busy or the machine was.
  LatencyHistogram behind;
  // Of one call that failed, with its status code.
  std::string first_error;

  double CallsPerSecond() const;
  // As if both had been one.
  void Merge(const LoadBlock& other);
};

// The calls of one client, in the order of the mix; for one thread at a time.
using ClientCalls = std::vector<std::function<absl::Status()>>;

// Makes the calls of the range, each client on a thread of its own, and waits for all of them. The
// same plan makes the same calls.
LoadBlock RunLoad(const LoadPlan& plan, const CallRange& range,
                  const std::vector<ClientCalls>& clients);

// The part number `turn` of a block of `calls` calls that is cut into so many; sizes differ by one
// at most.
CallRange TurnOf(int64_t calls, int64_t turn, int64_t turns);

// Clients of one server, each with a connection and with its tensors there; they stay from block to
// block.
class LoadClients {
 public:
  static absl::StatusOr<LoadClients> Connect(const std::string& address,
                                             const client::ClientOptions& options,
                                             const LoadPlan& plan);
  // Makes the tensors of all clients and leaves on the server what stays there.
  absl::Status Prepare(const LoadPlan& plan);
  // Those of Prepare.
  const std::vector<ClientCalls>& calls() const { return calls_; }

 private:
  // The calls hold references to these.
  std::vector<std::unique_ptr<client::Client>> clients_;
  std::vector<ClientCalls> calls_;
};

// When each call of the range is due, from the first one's time on.
std::vector<std::chrono::nanoseconds> DueTimes(const LoadPlan& plan, const CallRange& range);

}  // namespace rlk::cli
