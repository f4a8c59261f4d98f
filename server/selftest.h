// The self-test: a fixed input of every method, run again and again on every backend through the
// engine like any call, its output digests compared with stored ones. A machine whose bits drift
// is noticed while it serves.
#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "server/engine/engine.h"
#include "server/log/log.h"
#include "server/metrics/metrics.h"

namespace rlk::server {

struct SelftestOutcome {
  std::string operator_name, method, backend;
  SelftestResult result = SelftestResult::kError;
  // Why, unless it passed.
  std::string detail;
};

// Runs every method on every available backend once. Blocks.
std::vector<SelftestOutcome> RunSelftest(Engine& engine);

// Runs it now and then at an interval, on its own thread, until it is destroyed.
class SelftestLoop {
 public:
  // Nothing is owned; everything outlives the loop. What fails is logged.
  SelftestLoop(Engine* engine, Metrics* metrics, const Logger* logger,
               std::chrono::nanoseconds interval);
  ~SelftestLoop();

 private:
  void Run();

  Engine* const engine_;
  Metrics* const metrics_;
  const Logger* const logger_;
  const std::chrono::nanoseconds interval_;
  std::mutex mutex_;
  std::condition_variable wake_;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace rlk::server
