// The recorder alone: what it holds, and how it ends.
#include "server/recorder.h"

#include <chrono>
#include <future>
#include <memory>
#include <vector>

#include "client/cli/replay.h"
#include "kernels/digest/digest.h"
#include "tests/integration/fixture.h"
#include "tests/support/op_call.h"

namespace rlk::test {
namespace {

class RecorderTest : public testing::Test {
 protected:
  TempDir dir_;
  const std::string file_ = dir_.File("calls.rlkrec");
};

// A call whose only tensor lies at the beginning of a message.
void RecordOne(server::Recorder& recorder, const std::shared_ptr<std::vector<std::byte>>& message) {
  const std::vector<float> values = {1, 2, 3, 4, 5, 6};
  const std::span<const std::byte> bytes = std::as_bytes(std::span(values));
  std::copy(bytes.begin(), bytes.end(), message->begin());
  Call call;
  call.method = OpRegistry().Find("final_logit_softcap.forward");
  TensorArg& input = call.inputs.emplace_back();
  input.dtype = DType::kF32;
  input.shape = {2, 3};
  input.strides = ContiguousStrides(input.shape);
  input.data = {
      {std::span(message->data(), bytes.size())}, static_cast<int64_t>(bytes.size()), message};
  CallResult result;
  result.report.input_digests.push_back(
      {"x", ComputeDigest(TensorView{DType::kF32, {2, 3}, {3, 1}, values.data()}), {}});
  recorder.OnCall(call, &result);
}

// A tensor of a few bytes would keep the whole message, which may have 2 MiB.
TEST_F(RecorderTest, WhatWaitsHoldsNoMessages) {
  const server::Logger logger(server::LogLevel::kError);
  auto recorder = server::Recorder::Make({.path = file_, .tensors = true}, {}, &logger, nullptr);
  ASSERT_TRUE(recorder.ok()) << recorder.status();
  const auto message = std::make_shared<std::vector<std::byte>>(size_t{2} << 20);
  RecordOne(**recorder, message);
  EXPECT_EQ(message.use_count(), 1);
  recorder->reset();
  const auto file = cli::RecordingFile::Open(file_, false);
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_EQ((*file)->reader().tensors(), 1);
}

TEST_F(RecorderTest, ADiskThatHangsKeepsNobody) {
  using Clock = std::chrono::steady_clock;
  const server::Logger logger(server::LogLevel::kError);
  std::promise<void> disk;
  const std::shared_future<void> answers = disk.get_future().share();
  auto recorder = server::Recorder::Make({.path = file_, .tensors = true}, {}, &logger,
                                         [answers](server::RecordResult result) {
                                           if (result == server::RecordResult::kRecorded) {
                                             answers.wait();
                                           }
                                         });
  ASSERT_TRUE(recorder.ok()) << recorder.status();
  const auto message = std::make_shared<std::vector<std::byte>>(100);
  RecordOne(**recorder, message);
  EXPECT_FALSE((*recorder)->Close(Clock::now()));
  RecordOne(**recorder, message);
  EXPECT_FALSE((*recorder)->Close(Clock::now() + std::chrono::milliseconds(1)));
  disk.set_value();
  EXPECT_TRUE((*recorder)->Close(Clock::time_point::max()));
  recorder->reset();
  const auto file = cli::RecordingFile::Open(file_, false);
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_EQ((*file)->reader().calls(), 1);
  EXPECT_EQ((*file)->reader().end()->dropped_full, 1u);
}

}  // namespace
}  // namespace rlk::test
