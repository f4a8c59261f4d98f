#include "client/cli/load_run.h"

#include <algorithm>
#include <atomic>
#include <barrier>
#include <cmath>
#include <thread>
#include <utility>

#include "kernels/core/counter_random.h"
#include "kernels/core/status.h"

namespace rlk::cli {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::nanoseconds;

// What one client counts by itself.
struct Tally {
  std::vector<LoadCounts> parts;
  LatencyHistogram behind;
  std::string first_error;
};

// What the clients of a block share.
struct Block {
  const LoadPlan& plan;
  const CallRange range;
  // Empty in the closed loop.
  const std::vector<nanoseconds> due;
  std::atomic<int64_t> next{0};
  // Set before any client begins.
  Clock::time_point begin = {};
};

void RunClient(Block& block, const ClientCalls& calls, Tally& tally) {
  for (int64_t i; (i = block.next.fetch_add(1, std::memory_order_relaxed)) < block.range.count;) {
    const size_t part = PartOfCall(block.plan.mix, block.plan.seed, block.range.first + i);
    Clock::time_point from = Clock::now();
    if (!block.due.empty()) {
      const Clock::time_point due = block.begin + block.due[static_cast<size_t>(i)];
      std::this_thread::sleep_until(due);
      tally.behind.Add((Clock::now() - due).count());
      from = due;
    }
    const absl::Status status = calls[part]();
    if (status.ok()) {
      tally.parts[part].latency.Add((Clock::now() - from).count());
      continue;
    }
    const std::string code = absl::StatusCodeToString(status.code());
    ++tally.parts[part].errors[code];
    if (tally.first_error.empty()) tally.first_error = code + ": " + std::string(status.message());
  }
}

}  // namespace

int64_t LoadCounts::failed() const {
  int64_t calls = 0;
  for (const auto& [code, count] : errors) calls += count;
  return calls;
}

void LoadCounts::Merge(const LoadCounts& other) {
  latency.Merge(other.latency);
  for (const auto& [code, count] : other.errors) errors[code] += count;
}

double LoadBlock::CallsPerSecond() const {
  return seconds > 0 ? static_cast<double>(all.latency.count()) / seconds : 0;
}

void LoadBlock::Merge(const LoadBlock& other) {
  seconds += other.seconds;
  parts.resize(std::max(parts.size(), other.parts.size()));
  for (size_t part = 0; part < other.parts.size(); ++part) parts[part].Merge(other.parts[part]);
  all.Merge(other.all);
  behind.Merge(other.behind);
  if (first_error.empty()) first_error = other.first_error;
}

CallRange TurnOf(int64_t calls, int64_t turn, int64_t turns) {
  const int64_t size = calls / turns, larger = calls % turns;
  return {turn * size + std::min(turn, larger), size + (turn < larger ? 1 : 0)};
}

std::vector<nanoseconds> DueTimes(const LoadPlan& plan, const CallRange& range) {
  std::vector<nanoseconds> due;
  if (plan.rate == 0) return due;
  due.reserve(static_cast<size_t>(range.count));
  const double gap = 1e9 / plan.rate;
  double at = 0;
  for (int64_t i = 0; i < range.count; ++i) {
    due.emplace_back(static_cast<int64_t>(at));
    // Uniform in (0, 1].
    const uint64_t bits = RandomBits(~plan.seed, static_cast<uint64_t>(range.first + i));
    const double uniform = static_cast<double>((bits >> 11) + 1) * 0x1p-53;
    at += plan.poisson ? -std::log(uniform) * gap : gap;
  }
  return due;
}

absl::StatusOr<LoadClients> LoadClients::Connect(const std::string& address,
                                                 const client::ClientOptions& options,
                                                 const LoadPlan& plan) {
  LoadClients made;
  client::ClientOptions own = options;
  own.own_connection = true;
  for (int64_t i = 0; i < plan.clients; ++i) {
    RLK_ASSIGN_OR_RETURN(client::Client connected, client::Client::Connect(address, own));
    made.clients_.push_back(std::make_unique<client::Client>(std::move(connected)));
  }
  return made;
}

absl::Status LoadClients::Prepare(const LoadPlan& plan) {
  for (const std::unique_ptr<client::Client>& client : clients_) {
    ClientCalls calls;
    for (const MixPart& part : plan.mix) {
      RLK_ASSIGN_OR_RETURN(std::function<absl::Status()> call, part.kind->prepare(*client));
      calls.push_back(std::move(call));
    }
    calls_.push_back(std::move(calls));
  }
  return absl::OkStatus();
}

LoadBlock RunLoad(const LoadPlan& plan, const CallRange& range,
                  const std::vector<ClientCalls>& clients) {
  Block block{.plan = plan, .range = range, .due = DueTimes(plan, range)};
  std::vector<Tally> tallies(clients.size());
  for (Tally& tally : tallies) tally.parts.resize(plan.mix.size());
  // Nobody calls before all threads are there.
  std::barrier start(static_cast<std::ptrdiff_t>(clients.size()),
                     [&block]() noexcept { block.begin = Clock::now(); });
  {
    std::vector<std::jthread> threads;
    for (size_t i = 0; i < clients.size(); ++i) {
      threads.emplace_back([&, i] {
        start.arrive_and_wait();
        RunClient(block, clients[i], tallies[i]);
      });
    }
  }
  LoadBlock result;
  result.seconds = std::chrono::duration<double>(Clock::now() - block.begin).count();
  result.parts.resize(plan.mix.size());
  for (const Tally& tally : tallies) {
    for (size_t part = 0; part < plan.mix.size(); ++part) {
      result.parts[part].Merge(tally.parts[part]);
    }
    result.behind.Merge(tally.behind);
    if (result.first_error.empty()) result.first_error = tally.first_error;
  }
  for (const LoadCounts& part : result.parts) result.all.Merge(part);
  return result;
}

}  // namespace rlk::cli
