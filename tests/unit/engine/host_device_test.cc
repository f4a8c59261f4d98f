#include "server/engine/host_device.h"

#include <cstdint>
#include <cstring>
#include <memory>
#include <thread>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/core/status.h"
#include "server/engine/host_memory.h"
#include "tests/support/calls.h"
#include "tests/unit/engine/engine_harness.h"

namespace rlk::server {
namespace {

using test::EngineHarness;
using test::Execute;
using test::OutputValues;

uintptr_t Address(const void* pointer) { return reinterpret_cast<uintptr_t>(pointer); }

class HostLaneTest : public testing::Test {
 protected:
  void SetUp() override {
    auto lane = device_->NewLane();
    ASSERT_TRUE(lane.ok());
    lane_ = *std::move(lane);
  }

  std::unique_ptr<Device> device_ = MakeHostDevice({.threads = 1, .poison_outputs = true});
  std::unique_ptr<Lane> lane_;
};

TEST_F(HostLaneTest, TakesOneAlignedPieceInPlaceAndGathersOthers) {
  struct Case {
    int pieces;
    bool misaligned;
    bool in_place;
  };
  const std::vector<float> values = {1, 2, 3, 4, 5, 6, 7};
  for (const Case& c :
       {Case{1, false, true}, Case{1, true, false}, Case{3, false, false}, Case{7, true, false}}) {
    TensorArg tensor = test::Tensor(0, DType::kF32, {7}, values);
    tensor.data = test::ToBytes(values, c.pieces, c.misaligned);
    ASSERT_TRUE(lane_->Begin(256, 0, 0, 0).ok());
    const auto view = lane_->StageIn(tensor);
    ASSERT_TRUE(view.ok());
    EXPECT_EQ(view->data == tensor.data.pieces[0].data(), c.in_place);
    EXPECT_EQ(std::memcmp(view->data, values.data(), 28), 0);
    if (!c.in_place) {
      EXPECT_EQ(Address(view->data) % 64, 0u);
    }
    lane_->End();
  }
}

TEST_F(HostLaneTest, StagedTensorsDoNotMove) {
  ASSERT_TRUE(lane_->Begin(3 * 256, 0, 0, 0).ok());
  std::vector<TensorView> views;
  for (int i = 0; i < 3; ++i) {
    TensorArg tensor = test::Tensor(0, DType::kF32, {4}, std::vector<float>(4, float(i)), 2);
    views.push_back(*lane_->StageIn(tensor));
  }
  for (int i = 0; i < 3; ++i) EXPECT_EQ(views[static_cast<size_t>(i)].as<float>()[3], float(i));
  // More than was announced is our own mistake, and no overrun.
  TensorArg tensor = test::Tensor(0, DType::kF32, {4}, std::vector<float>(4), 2);
  EXPECT_EQ(lane_->StageIn(tensor).status().code(), absl::StatusCode::kInternal);
  lane_->End();
}

TEST_F(HostLaneTest, OutputsArePoisonedAlignedAndOutliveTheLane) {
  ASSERT_TRUE(lane_->Begin(0, 256, 0, 0).ok());
  const auto output = lane_->Output(DType::kF32, {5});
  ASSERT_TRUE(output.ok());
  EXPECT_EQ(Address(output->data) % 64, 0u);
  EXPECT_EQ(output->as<uint8_t>()[19], 0xA5);
  output->as<float>()[0] = 42;
  const auto bytes = lane_->StageOut(*output);
  ASSERT_TRUE(bytes.ok());
  lane_->End();
  lane_.reset();
  device_.reset();
  EXPECT_EQ(bytes->size, 20);
  float value;
  std::memcpy(&value, bytes->pieces[0].data(), sizeof(value));
  EXPECT_EQ(value, 42);
}

TEST_F(HostLaneTest, RefusesToStageOutWhatIsNoOutput) {
  ASSERT_TRUE(lane_->Begin(0, 256, 0, 0).ok());
  float value = 0;
  EXPECT_EQ(lane_->StageOut({DType::kF32, {1}, &value}).status().code(),
            absl::StatusCode::kInternal);
  lane_->End();
}

TEST_F(HostLaneTest, WorkspaceIsAligned) {
  ASSERT_TRUE(lane_->Begin(0, 0, 1000, 0).ok());
  const auto workspace = lane_->Workspace(1000);
  EXPECT_EQ(workspace.size(), 1000u);
  EXPECT_EQ(Address(workspace.data()) % 256, 0u);
  EXPECT_TRUE(lane_->Workspace(1 << 20).empty());
  lane_->End();
}

TEST(HostMemoryTest, ReusesLargeBlocksWithinItsBound) {
  constexpr int64_t kMiB = 1 << 20;
  const auto memory = HostMemory::Make(8 * kMiB);
  const std::byte* first = nullptr;
  {
    const auto block = memory->Allocate(4 * kMiB);
    first = block.get();
    EXPECT_EQ(Address(first) % 64, 0u);
    EXPECT_EQ(memory->idle_bytes(), 0);
  }
  EXPECT_EQ(memory->idle_bytes(), 4 * kMiB);
  EXPECT_EQ(memory->Allocate(3 * kMiB).get(), first);
  // Far too large a block is not taken for a small need.
  EXPECT_NE(memory->Allocate(kMiB).get(), first);
  // The bound holds whatever comes back, and the newest stays.
  std::vector<std::shared_ptr<std::byte>> blocks;
  for (int i = 0; i < 6; ++i) blocks.push_back(memory->Allocate(3 * kMiB));
  blocks.clear();
  EXPECT_LE(memory->idle_bytes(), 8 * kMiB);
  EXPECT_GT(memory->idle_bytes(), 0);
  { const auto huge = memory->Allocate(64 * kMiB); }
  EXPECT_LE(memory->idle_bytes(), 8 * kMiB);
}

TEST(HostMemoryTest, BlocksOutliveTheirMemory) {
  auto memory = HostMemory::Make(1 << 24);
  auto block = memory->Allocate(1 << 20);
  memory.reset();
  block.get()[(1 << 20) - 1] = std::byte{1};
  block.reset();
}

TEST(HostMemoryTest, GathersPiecesOfAnySize) {
  std::vector<uint16_t> values(1001);
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<uint16_t>(i * 7);
  for (int pieces : {1, 2, 5, 2002}) {
    const HostBytes bytes = test::ToBytes(values, pieces, /*misaligned=*/true);
    const Contiguous block = MakeContiguous(bytes, 2);
    ASSERT_NE(block.data, nullptr);
    EXPECT_EQ(std::memcmp(block.data, values.data(), values.size() * 2), 0);
  }
  EXPECT_EQ(MakeContiguous({}, 4).data, nullptr);
}

class HostEngine : public testing::Test, protected EngineHarness {};

TEST_F(HostEngine, SmallCallsRunOnTheSubmittingThread) {
  Start();
  MethodDecl decl = registry->Find("toy.scale")->decl;
  static std::thread::id ran;
  for (Variant& variant : decl.variants) {
    variant.launch = [](const KernelArgs&) {
      ran = std::this_thread::get_id();
      return absl::OkStatus();
    };
  }
  const Method probe{decl, registry->Find("toy.scale")->signature};
  for (int64_t count : {8, 8192, 8193}) {  // 8192 floats in and out: exactly 64 KiB
    Call call = Scale(1, count);
    call.method = &probe;
    call.options.backend = "cpu";
    ASSERT_TRUE(Execute(*engine, std::move(call)).ok());
    EXPECT_EQ(ran == std::this_thread::get_id(), count <= 8192) << count;
  }
}

TEST_F(HostEngine, MisalignedAndStridedInputsGiveTheSameValues) {
  Start();
  const std::vector<float> values = {1, 2, 3, 4, 5, 6};
  for (int pieces : {1, 2, 6}) {
    for (bool misaligned : {false, true}) {
      Call call = Scale(1, 6);
      call.options.backend = "cpu";
      call.inputs[0].data = test::ToBytes(values, pieces, misaligned);
      const auto plain = Execute(*engine, call);
      ASSERT_TRUE(plain.ok());
      EXPECT_EQ(OutputValues<float>(*plain, "y"), (std::vector<float>{2, 4, 6, 8, 10, 12}));
      call.inputs[0].shape = {3, 2};
      call.inputs[0].strides = {1, 3};  // the transpose
      const auto strided = Execute(*engine, call);
      ASSERT_TRUE(strided.ok()) << strided.status();
      EXPECT_EQ(OutputValues<float>(*strided, "y"), (std::vector<float>{2, 8, 4, 10, 6, 12}));
    }
  }
}

TEST_F(HostEngine, ContractAlignmentIsMetForInlineBytes) {
  Start();
  MethodDecl decl = registry->Find("toy.scale")->decl;
  for (Variant& variant : decl.variants) {
    variant.launch = [](const KernelArgs& args) {
      return Address(args.Input("x").data) % 64 == 0 ? absl::OkStatus()
                                                     : absl::InternalError("misaligned");
    };
  }
  MethodSignature signature = registry->Find("toy.scale")->signature;
  signature.inputs[0].alignment = 64;
  const Method aligned{decl, signature};
  for (int i = 0; i < 8; ++i) {
    Call call = Scale(1, 6);
    call.method = &aligned;
    call.options.backend = "cpu";
    call.inputs[0].data = test::ToBytes(std::vector<float>(6), 1, i % 2 == 1);
    const auto result = Execute(*engine, std::move(call));
    EXPECT_TRUE(result.ok()) << result.status();
  }
}

}  // namespace
}  // namespace rlk::server
