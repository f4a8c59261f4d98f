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

// A method of a registry on one backend.
struct SelftestCase {
  const Method* method = nullptr;
  Backend backend = Backend::kCpu;
};

// Every method on every available backend that has its default contract.
std::vector<SelftestCase> SelftestCases(const Registry& registry);
// Blocks.
SelftestOutcome RunSelftestCase(Engine& engine, const SelftestCase& which);
// Runs all of them once, one after the other. Blocks.
std::vector<SelftestOutcome> RunSelftest(Engine& engine);

// Runs them on its own thread, one at a time and each like a call that came last, until it is
// destroyed: all at once when it begins, then each once in an interval, spread over it.
class SelftestLoop {
 public:
  // Nothing is owned; everything outlives the loop. What fails is logged.
  SelftestLoop(Engine* engine, Metrics* metrics, const Logger* logger,
               std::chrono::nanoseconds interval);
  ~SelftestLoop();

 private:
  void Run();
  void Tell(const SelftestOutcome& outcome);

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
