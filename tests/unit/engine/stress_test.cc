// Many threads, random calls, cancellations and drains; and the same bits whatever the load.
#include <atomic>
#include <cmath>
#include <cstdlib>
#include <iostream>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/core/status.h"
#include "tests/unit/engine/engine_harness.h"

namespace rlk::server {
namespace {

using test::EngineHarness;
using test::Execute;
using test::FakePoint;
using test::OutputValues;
using test::Pending;
using test::Submit;

uint64_t Seed() {
  const char* given = std::getenv("RLK_TEST_SEED");
  const uint64_t seed =
      given != nullptr ? std::strtoull(given, nullptr, 10) : std::random_device{}();
  std::cout << "RLK_TEST_SEED=" << seed << "\n";
  return seed;
}

class Stress : public testing::Test, protected EngineHarness {
 protected:
  struct Sent {
    Pending pending;
    std::shared_ptr<std::atomic<bool>> cancelled;
    float base;
    bool repeat;
  };

  // What the outcome of a random call may be.
  static void Judge(const Sent& sent, bool device_may_be_lost) {
    const auto& outcome = sent.pending.Wait();
    if (outcome.ok()) {
      const std::vector<float> y = OutputValues<float>(*outcome, "y");
      for (size_t i = 0; i < y.size(); ++i) {
        ASSERT_EQ(y[i], 2 * (sent.base + static_cast<float>(i)));
      }
      return;
    }
    switch (outcome.status().code()) {
      case absl::StatusCode::kCancelled:
        ASSERT_TRUE(sent.cancelled->load());
        return;
      case absl::StatusCode::kResourceExhausted:
        ASSERT_GT(GetErrorDetail(outcome.status())->retry_after_ms, 0);
        return;
      case absl::StatusCode::kUnavailable:
        ASSERT_TRUE(device_may_be_lost || test::ReasonOf(outcome.status()) == Reason::kDraining);
        return;
      default:
        FAIL() << outcome.status();
    }
  }

  std::vector<Sent> SendRandom(std::mt19937_64& random, int count) {
    std::vector<Sent> sent;
    for (int i = 0; i < count; ++i) {
      Sent& one = sent.emplace_back();
      one.base = static_cast<float>(random() % 1000);
      one.cancelled = std::make_shared<std::atomic<bool>>(false);
      Call call = Scale(one.base, static_cast<int64_t>(random() % 300));
      call.cancelled = one.cancelled;
      if (random() % 2 == 0) call.options.backend = "cpu";
      if (random() % 4 == 0) call.options.verification = Verification::kRepeat;
      if (random() % 8 == 0) call.options.verification = Verification::kReference;
      if (random() % 4 == 0) call.options.digest_tensors = true;
      if (random() % 4 == 0) call.options.digest_rows = true;
      one.pending = Submit(*engine, std::move(call));
      if (random() % 3 == 0 && !sent.empty()) sent[random() % sent.size()].cancelled->store(true);
    }
    return sent;
  }
};

TEST_F(Stress, RandomCallsAndCancellations) {
  const uint64_t seed = Seed();
  options.limits.queue_calls_max = 16;
  options.lanes = 3;
  Start();
  std::vector<std::thread> threads;
  constexpr int kThreads = 4, kCalls = 200;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([this, seed, t] {
      std::mt19937_64 random(seed + static_cast<uint64_t>(t));
      for (const Sent& sent : SendRandom(random, kCalls)) Judge(sent, false);
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_TRUE(engine->Drain(std::chrono::steady_clock::time_point::max()));
  EXPECT_EQ(observer.calls, kThreads * kCalls);
  EXPECT_EQ(observer.in_flight, 0);
  EXPECT_EQ(observer.queue_calls, 0);
  EXPECT_EQ(observer.queue_bytes, 0);
}

TEST_F(Stress, TheDeviceDiesUnderLoad) {
  std::mt19937_64 seeds(Seed());
  for (int round = 0; round < 7; ++round) {
    EngineHarness harness;
    harness.options.lanes = 2;
    const uint64_t seed = seeds();
    harness.control->FailAt(static_cast<FakePoint>(round), 1 + static_cast<int64_t>(seed % 40),
                            /*sticky=*/true);
    harness.Start();
    std::swap(engine, harness.engine);
    std::vector<std::thread> threads;
    for (int t = 0; t < 3; ++t) {
      threads.emplace_back([this, seed, t] {
        std::mt19937_64 random(seed + static_cast<uint64_t>(t));
        for (const Sent& sent : SendRandom(random, 60)) Judge(sent, true);
      });
    }
    for (std::thread& thread : threads) thread.join();
    std::swap(engine, harness.engine);
    EXPECT_TRUE(harness.engine->Drain(std::chrono::steady_clock::time_point::max()));
    EXPECT_EQ(harness.observer.in_flight, 0);
  }
}

TEST_F(Stress, DrainUnderLoadFailsNothingThatWasTaken) {
  const uint64_t seed = Seed();
  Start();
  std::atomic<bool> draining{false};
  std::vector<std::thread> threads;
  for (int t = 0; t < 3; ++t) {
    threads.emplace_back([this, seed, t, &draining] {
      std::mt19937_64 random(seed + static_cast<uint64_t>(t));
      bool refused = false;
      while (!refused) {
        const bool before = draining.load();
        const auto outcome = Execute(*engine, Scale(static_cast<float>(random() % 100)));
        refused = !outcome.ok();
        if (refused) {
          EXPECT_EQ(test::ReasonOf(outcome.status()), Reason::kDraining);
        } else {
          EXPECT_FALSE(before);
        }
      }
    });
  }
  control->AwaitArrivals(FakePoint::kLaunch, 50);
  EXPECT_TRUE(engine->Drain(std::chrono::steady_clock::time_point::max()));
  draining.store(true);
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(observer.failures, 3);
}

}  // namespace
}  // namespace rlk::server
