// Sampled calls: run twice without being asked.
#include <set>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/core/status.h"
#include "kernels/digest/digest.h"
#include "server/engine/replay_sampler.h"
#include "tests/unit/engine/engine_harness.h"

namespace rlk::server {
namespace {

using test::EngineHarness;
using test::Execute;
using test::FakePoint;
using test::OutputValues;
using test::ReasonOf;

constexpr int64_t kCalls = 1000;

TEST(ReplaySampler, TakesOneOfEachWindowAtChangingPlaces) {
  for (const uint64_t every : {1, 2, 7, 100}) {
    std::set<uint64_t> places;
    for (uint64_t window = 0; window < 200; ++window) {
      int taken = 0;
      for (uint64_t place = 0; place < every; ++place) {
        if (!ReplaySampler::Takes(every, window * every + place)) continue;
        ++taken;
        places.insert(place);
      }
      ASSERT_EQ(taken, 1) << every << " window " << window;
    }
    // A period of the traffic must not hide a call: most places of a window get their turn.
    EXPECT_GE(places.size(), every * 3 / 4) << every;
  }
  ReplaySampler none(0);
  for (int i = 0; i < 100; ++i) EXPECT_FALSE(none.Next());
}

TEST(ReplaySampler, CountsCalls) {
  ReplaySampler sampler(7);
  for (uint64_t i = 0; i < 100; ++i) EXPECT_EQ(sampler.Next(), ReplaySampler::Takes(7, i)) << i;
}

class Replay : public testing::Test, protected EngineHarness {
 protected:
  void StartSampling(int64_t every) {
    options.replay_every = every;
    options.on_repeat_mismatch = [this](const RepeatMismatch& found) { found_.push_back(found); };
    Start();
  }

  // The number (from 1) of the first launch of call `number`: a sampled call has two.
  static int64_t LaunchOf(int64_t every, int64_t number) {
    int64_t launch = 1;
    for (int64_t i = 0; i < number; ++i) {
      launch +=
          ReplaySampler::Takes(static_cast<uint64_t>(every), static_cast<uint64_t>(i)) ? 2 : 1;
    }
    return launch;
  }

  // Calls are made one after the other: the test's to look at between them.
  std::vector<RepeatMismatch> found_;
};

TEST_F(Replay, CatchesAFlippedBitWhereItSamplesAndOnlyThere) {
  constexpr int64_t kEvery = 10;
  StartSampling(kEvery);
  // One sampled call of the thousand, and one that is not.
  int64_t sampled = 500, other = 700;
  while (!ReplaySampler::Takes(kEvery, static_cast<uint64_t>(sampled))) ++sampled;
  while (ReplaySampler::Takes(kEvery, static_cast<uint64_t>(other))) ++other;
  control->FlipBitAt(LaunchOf(kEvery, sampled));
  control->FlipBitAt(LaunchOf(kEvery, other));
  for (int64_t i = 0; i < kCalls; ++i) {
    const auto result = Execute(*engine, Scale());
    ASSERT_EQ(result.ok(), i != sampled) << i << ": " << result.status();
    if (!result.ok()) {
      EXPECT_EQ(result.status().code(), absl::StatusCode::kDataLoss);
      EXPECT_EQ(ReasonOf(result.status()), Reason::kVerificationFailed);
    }
  }
  EXPECT_EQ(observer.replays, kCalls / kEvery);
  EXPECT_EQ(observer.replay_mismatches, 1);
  EXPECT_EQ(observer.verified, 0);
  EXPECT_EQ(control->arrivals(FakePoint::kLaunch), kCalls + kCalls / kEvery);
}

TEST_F(Replay, CatchesFlippedBitsAtItsRate) {
  constexpr int64_t kEvery = 10;
  StartSampling(kEvery);
  for (int64_t i = 0; i < kCalls; ++i) control->FlipBitAt(LaunchOf(kEvery, i));
  int64_t caught = 0;
  for (int64_t i = 0; i < kCalls; ++i) caught += Execute(*engine, Scale()).ok() ? 0 : 1;
  EXPECT_EQ(caught, kCalls / kEvery);
  EXPECT_EQ(observer.replay_mismatches, kCalls / kEvery);
  EXPECT_EQ(found_.size(), static_cast<size_t>(kCalls / kEvery));
}

TEST_F(Replay, SaysNothingToTheCallerWhereBitsAreEqual) {
  StartSampling(1);
  const auto result = Execute(*engine, Scale());
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->report.verification.kind, Verification::kNone);
  EXPECT_TRUE(result->report.input_digests.empty());
  EXPECT_EQ(OutputValues<float>(*result, "y"), (std::vector<float>{2, 4, 6, 8, 10, 12, 14, 16}));
  EXPECT_EQ(observer.replays, 1);
  EXPECT_TRUE(found_.empty());
}

TEST_F(Replay, TellsAllThatRunningTheCallAgainNeeds) {
  StartSampling(1);
  // The second run, then one that the caller asked for.
  for (const bool asked : {false, true}) {
    control->FlipBitAt(control->arrivals(FakePoint::kLaunch) + 2);
    Call call = Scale(1, 100);
    call.attributes = {{.spec = 0, .number = 3}};
    call.trace_id = "0af7651916cd43dd8448eb211c80319c";
    if (asked) call.options.verification = Verification::kRepeat;
    EXPECT_FALSE(Execute(*engine, std::move(call)).ok());
    ASSERT_EQ(found_.size(), 1u);
    const RepeatMismatch& found = found_.front();
    EXPECT_EQ(found.method, registry->Find("toy.scale"));
    EXPECT_EQ(found.sampled, !asked);
    EXPECT_EQ(found.contract, registry->Find("toy.scale")->decl.contracts.front().id);
    EXPECT_EQ(found.backend, Backend::kCuda);
    EXPECT_EQ(found.device.uuid, "fake-0");
    ASSERT_EQ(found.attributes.size(), 1u);
    EXPECT_EQ(found.attributes[0].number, 3);
    EXPECT_EQ(found.trace_id, "0af7651916cd43dd8448eb211c80319c");
    std::vector<float> values(100);
    for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i) + 1;
    const auto digest = [&values] {
      return ComputeDigest(TensorView{DType::kF32, {100}, {1}, values.data()});
    };
    ASSERT_EQ(found.inputs.size(), 1u);
    EXPECT_EQ(found.inputs[0].name, "x");
    EXPECT_EQ(found.inputs[0].digest, digest());
    for (float& value : values) value *= 3;
    ASSERT_EQ(found.outputs.size(), 1u);
    EXPECT_EQ(found.outputs[0].name, "y");
    EXPECT_EQ(found.outputs[0].first, digest());
    EXPECT_TRUE(found.outputs[0].second.has_value());
    EXPECT_NE(found.outputs[0].second, found.outputs[0].first);
    EXPECT_EQ(found.outputs[0].comparison.mismatched, 1);
    EXPECT_EQ(found.outputs[0].comparison.first, 50);
    found_.clear();
  }
  EXPECT_EQ(observer.replays, 1);
  EXPECT_EQ(observer.verified, 1);
}

TEST_F(Replay, ACallThatAsksForReferenceGetsItsReport) {
  StartSampling(1);
  Call call = Scale();
  call.options.verification = Verification::kReference;
  const auto result = Execute(*engine, std::move(call));
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->report.verification.kind, Verification::kReference);
  EXPECT_TRUE(result->report.verification.passed);
  EXPECT_EQ(observer.replays, 1);
}

TEST_F(Replay, NobodyIsRefusedBecauseOfASample) {
  StartSampling(1);
  control->FailAt(FakePoint::kBegin, 1, /*sticky=*/false);
  ASSERT_TRUE(Execute(*engine, Scale()).ok());
  EXPECT_EQ(control->arrivals(FakePoint::kLaunch), 1);
  EXPECT_EQ(observer.replays, 0);
  EXPECT_EQ(observer.replays_skipped[static_cast<size_t>(ReplaySkip::kMemory)], 1);
  // Without room for one run there is none for the call.
  control->FailAt(FakePoint::kBegin, 1, /*sticky=*/false);
  control->FailAt(FakePoint::kBegin, 1, /*sticky=*/false);
  const auto refused = Execute(*engine, Scale());
  EXPECT_EQ(ReasonOf(refused.status()), Reason::kDeviceMemoryExhausted);
}

TEST_F(Replay, SkipsWhatCannotBeRunTwiceAndCountsIt) {
  StartSampling(1);
  const Method* const scale = registry->Find("toy.scale");
  Method update{scale->decl, scale->signature};
  update.signature.direction = Direction::kUpdate;
  Call call = Scale();
  call.method = &update;
  ASSERT_TRUE(Execute(*engine, std::move(call)).ok());
  EXPECT_EQ(observer.replays_skipped[static_cast<size_t>(ReplaySkip::kState)], 1);
  // The process's own calls are nobody's traffic.
  call = Scale();
  call.in_process = true;
  ASSERT_TRUE(Execute(*engine, std::move(call)).ok());
  EXPECT_EQ(control->arrivals(FakePoint::kLaunch), 2);
  EXPECT_EQ(observer.replays, 0);
}

TEST_F(Replay, TheWatchdogSeesASampleThatHangs) {
  options.watchdog_ms = 10;
  StartSampling(1);
  control->Hold();
  const auto lost = Execute(*engine, Scale());
  EXPECT_EQ(lost.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(ReasonOf(lost.status()), Reason::kDeviceLost);
  EXPECT_EQ(observer.replays, 0);
}

TEST_F(Replay, RefusedCallsTakeNoSample) {
  StartSampling(2);
  for (int i = 0; i < 100; ++i) {
    Call call = Scale();
    call.attributes = {{.spec = 0, .number = test::kToyRefusedFactor}};
    EXPECT_FALSE(Execute(*engine, std::move(call)).ok());
    EXPECT_TRUE(Execute(*engine, Scale()).ok());
  }
  EXPECT_EQ(observer.replays, 50);
}

}  // namespace
}  // namespace rlk::server
