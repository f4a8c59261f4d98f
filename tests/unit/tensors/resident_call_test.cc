// Calls on tensors that stay: the engine and the store together, on the host and a fake GPU.
#include <thread>

#include "server/engine/engine.h"
#include "tests/support/calls.h"
#include "tests/support/toy_ops.h"
#include "tests/unit/tensors/store_harness.h"

namespace rlk::test {
namespace {

using server::TensorInfo;

const std::vector<float> kValues = {1, 2, 3, 4, 5, 6};
const std::vector<float> kDoubled = {2, 4, 6, 8, 10, 12};

class ResidentCallTest : public testing::Test {
 protected:
  ResidentCallTest() { Start({}); }
  ~ResidentCallTest() override {
    control_->Release();
    engine_.reset();
  }

  void Start(const server::EngineOptions& options) {
    engine_.reset();
    control_ = std::make_shared<FakeControl>();
    std::vector<std::unique_ptr<server::Device>> devices;
    devices.push_back(server::MakeHostDevice({.threads = 1, .poison_outputs = true}));
    devices.push_back(MakeFakeDevice(control_));
    host_ = devices[0]->info().uuid;
    gpu_ = devices[1]->info().uuid;
    devices_ = {devices[0].get(), devices[1].get()};
    store_ = std::make_unique<server::TensorStore>(
        server::TensorStoreOptions{.limits = options.limits, .server_id = kServerId}, devices_);
    engine_ =
        std::make_unique<server::Engine>(*registry_, options, server::ToleranceContract::Builtin(),
                                         std::move(devices), &observer_, store_.get());
    ASSERT_TRUE(engine_->Start().ok());
  }

  TensorInfo Put(const std::vector<float>& values, Dims shape, const std::string& device) {
    auto upload =
        store_->Upload(owner_, {.dtype = DType::kF32, .shape = shape, .device_uuid = device});
    EXPECT_TRUE(upload.ok()) << upload.status();
    const std::span<const std::byte> piece = std::as_bytes(std::span(values));
    EXPECT_TRUE((*upload)->Write({&piece, 1}).ok());
    return *(*upload)->Finish(std::nullopt);
  }

  std::vector<float> Get(const TensorHandle& handle) {
    auto download = store_->Download(owner_.get(), handle, 0);
    EXPECT_TRUE(download.ok()) << download.status();
    if (!download.ok()) return {};
    const HostBytes bytes = *(*download)->Next((*download)->bytes_left());
    std::vector<float> values(static_cast<size_t>(bytes.size) / sizeof(float));
    auto* to = reinterpret_cast<std::byte*>(values.data());
    for (const auto& piece : bytes.pieces) {
      std::memcpy(to, piece.data(), piece.size());
      to += piece.size();
    }
    return values;
  }

  // y = 2 x on a resident x, whole.
  Call Scale(const TensorInfo& info) const {
    Call call;
    call.method = registry_->Find("toy.scale");
    call.principal = owner_;
    TensorArg x;
    x.source = TensorSource::kResident;
    x.resident = info.handle;
    call.inputs = {x};
    return call;
  }

  static void Keep(Call& call, std::optional<TensorHandle> into = std::nullopt) {
    call.options.outputs["y"] = {PlacementKind::kResident, {}, std::move(into)};
  }

  std::unique_ptr<Registry> registry_ = MakeToyRegistry();
  std::shared_ptr<FakeControl> control_;
  std::shared_ptr<TestPrincipal> owner_ = NewPrincipal();
  CountingObserver observer_;
  std::vector<server::Device*> devices_;
  std::string host_, gpu_;
  std::unique_ptr<server::TensorStore> store_;
  std::unique_ptr<server::Engine> engine_;
};

TEST_F(ResidentCallTest, RunsWhereTheTensorLies) {
  for (const std::string& device : {host_, gpu_}) {
    const TensorInfo info = Put(kValues, {6}, device);
    Call call = Scale(info);
    if (device == host_) call.options.backend = "cpu";
    const auto result = Execute(*engine_, std::move(call));
    ASSERT_TRUE(result.ok()) << result.status();
    EXPECT_EQ(OutputValues<float>(*result, "y"), kDoubled);
    EXPECT_EQ(result->report.device.uuid, device);
    EXPECT_EQ(result->report.transports, (std::vector<std::string>{"inline", "resident"}));
    EXPECT_EQ(result->report.input_bytes[1], 24);
    EXPECT_EQ(result->report.input_capture, InputCapture::kSnapshot);
  }
}

TEST_F(ResidentCallTest, HostTensorsGoToAnyDeviceAndGpuTensorsNowhereUnasked) {
  const TensorInfo on_host = Put(kValues, {6}, host_), on_gpu = Put(kValues, {6}, gpu_);
  const auto copied = Execute(*engine_, Scale(on_host));
  ASSERT_TRUE(copied.ok()) << copied.status();
  EXPECT_EQ(copied->report.device.uuid, gpu_);
  EXPECT_EQ(OutputValues<float>(*copied, "y"), kDoubled);
  Call call = Scale(on_gpu);
  call.options.backend = "cpu";
  const auto refused = Execute(*engine_, std::move(call));
  EXPECT_EQ(refused.status().code(), absl::StatusCode::kFailedPrecondition);
  call = Scale(on_gpu);
  call.options.device_uuid = host_;
  const auto pinned = Execute(*engine_, std::move(call));
  EXPECT_EQ(ReasonOf(pinned.status()), Reason::kPlacementUnavailable) << pinned.status();
}

TEST_F(ResidentCallTest, ViewsWithStridesAreUsedAsTheyLie) {
  const TensorInfo info = Put(kValues, {2, 3}, gpu_);
  Call call = Scale(info);
  TensorArg& x = call.inputs[0];
  x.dtype = DType::kF32;
  x.shape = {2, 2};
  x.strides = {1, 3};
  x.resident.offset = 4;
  const auto result = Execute(*engine_, std::move(call));
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(OutputValues<float>(*result, "y"), (std::vector<float>{4, 10, 6, 12}));
  for (const uint64_t offset : {uint64_t{1}, uint64_t{2}}) {
    call = Scale(info);
    call.inputs[0].dtype = DType::kF32;
    call.inputs[0].shape = call.inputs[0].strides = {1};
    call.inputs[0].resident.offset = offset;
    EXPECT_EQ(ReasonOf(Execute(*engine_, std::move(call)).status()), Reason::kMisaligned);
  }
}

TEST_F(ResidentCallTest, OutputsStayWhereTheyAreAskedTo) {
  for (const std::string& device : {host_, gpu_}) {
    const TensorInfo info = Put(kValues, {2, 3}, device);
    Call call = Scale(info);
    if (device == host_) call.options.backend = "cpu";
    call.options.digest_tensors = true;
    Keep(call);
    const auto result = Execute(*engine_, std::move(call));
    ASSERT_TRUE(result.ok()) << result.status();
    ASSERT_EQ(result->outputs.size(), 1u);
    ASSERT_TRUE(result->outputs[0].resident.has_value());
    EXPECT_EQ(result->outputs[0].data.size, 0);
    EXPECT_EQ(result->report.transports, std::vector<std::string>{"resident"});
    EXPECT_TRUE(result->report.moved_to_resident.empty());
    EXPECT_EQ(result->report.output_bytes[1], 24);
    const TensorHandle y = *result->outputs[0].resident;
    EXPECT_EQ(Get(y), kDoubled);
    const auto described = *store_->Describe(owner_.get(), y);
    EXPECT_EQ(described.shape, Dims({2, 3}));
    EXPECT_EQ(described.device_uuid, device);
    EXPECT_EQ(described.digest, result->report.output_digests[0].tensor);
    EXPECT_EQ(result->report.input_digests[0].tensor, info.digest);
  }
}

TEST_F(ResidentCallTest, StateIsUpdatedInPlaceByItsGeneration) {
  for (const std::string& device : {host_, gpu_}) {
    const TensorInfo x = Put(kValues, {6}, device);
    const TensorInfo state = Put(std::vector<float>(9, 0), {9}, device);
    const auto update = [&](TensorHandle into) {
      into.offset = 8;
      Call call = Scale(x);
      if (device == host_) call.options.backend = "cpu";
      Keep(call, into);
      return Execute(*engine_, std::move(call));
    };
    const auto updated = update(state.handle);
    ASSERT_TRUE(updated.ok()) << updated.status();
    const TensorHandle next = *updated->outputs[0].resident;
    EXPECT_EQ(next.id, state.handle.id);
    EXPECT_EQ(next.generation, 2u);
    EXPECT_EQ(Get(next), (std::vector<float>{0, 0, 2, 4, 6, 8, 10, 12, 0}));
    // A retry of the same update finds that it has happened.
    const auto again = update(state.handle);
    EXPECT_EQ(again.status().code(), absl::StatusCode::kNotFound);
    EXPECT_TRUE(update(next).ok());
  }
}

TEST_F(ResidentCallTest, ADeviceFailurePoisonsTheStateAndNothingElse) {
  const TensorInfo x = Put(kValues, {6}, gpu_), state = Put(kValues, {6}, gpu_);
  Call call = Scale(x);
  Keep(call, state.handle);
  control_->FailAt(FakePoint::kLaunch, 1, /*sticky=*/false);
  EXPECT_FALSE(Execute(*engine_, std::move(call)).ok());
  EXPECT_TRUE(store_->Describe(owner_.get(), state.handle)->poisoned);
  EXPECT_FALSE(store_->Describe(owner_.get(), x.handle)->poisoned);
  call = Scale(state);
  EXPECT_EQ(ReasonOf(Execute(*engine_, std::move(call)).status()), Reason::kTensorPoisoned);
  call = Scale(x);
  Keep(call, state.handle);
  EXPECT_EQ(ReasonOf(Execute(*engine_, std::move(call)).status()), Reason::kTensorPoisoned);
  EXPECT_TRUE(store_->Release(owner_.get(), {&state.handle, 1}).ok());
}

TEST_F(ResidentCallTest, AFailureBeforeTheLaunchLeavesTheStateAsItWas) {
  const TensorInfo x = Put(kValues, {6}, gpu_), state = Put(kDoubled, {6}, gpu_);
  Call call = Scale(x);
  Keep(call, state.handle);
  control_->FailAt(FakePoint::kBegin, 1, /*sticky=*/false);
  EXPECT_FALSE(Execute(*engine_, std::move(call)).ok());
  EXPECT_FALSE(store_->Describe(owner_.get(), state.handle)->poisoned);
  EXPECT_EQ(Get(state.handle), kDoubled);
}

TEST_F(ResidentCallTest, RefusesOutputsOverInputsAndWithoutASession) {
  const TensorInfo x = Put(kValues, {6}, gpu_);
  Call call = Scale(x);
  Keep(call, x.handle);
  auto refused = Execute(*engine_, std::move(call));
  EXPECT_EQ(refused.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(ReasonOf(refused.status()), Reason::kPlacementOverlap);
  EXPECT_EQ(Get(x.handle), kValues);

  call = Scale(x);
  call.principal = nullptr;
  EXPECT_EQ(Execute(*engine_, std::move(call)).status().code(), absl::StatusCode::kUnauthenticated);
  call = Call();
  call.method = registry_->Find("toy.scale");
  call.inputs = {Tensor(0, DType::kF32, {6}, kValues)};
  Keep(call);
  EXPECT_EQ(Execute(*engine_, std::move(call)).status().code(), absl::StatusCode::kUnauthenticated);
  call = Scale(x);
  call.options.outputs["y"].kind = PlacementKind::kArena;
  EXPECT_EQ(ReasonOf(Execute(*engine_, std::move(call)).status()), Reason::kPlacementUnavailable);
}

TEST_F(ResidentCallTest, AReplyAboveTheLimitStaysAndSaysSo) {
  server::EngineOptions options;
  options.limits.inline_bytes_max = 16;
  Start(options);
  const TensorInfo x = Put(kValues, {6}, gpu_);
  const auto result = Execute(*engine_, Scale(x));
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->report.moved_to_resident, std::vector<std::string>{"y"});
  ASSERT_TRUE(result->outputs[0].resident.has_value());
  EXPECT_EQ(Get(*result->outputs[0].resident), kDoubled);
  // Without a session it is refused before anything runs.
  Call call;
  call.method = registry_->Find("toy.scale");
  call.inputs = {Tensor(0, DType::kF32, {6}, kValues)};
  call.inputs[0].strides = {0};
  call.inputs[0].data = ToBytes(std::vector<float>{1});
  EXPECT_EQ(ReasonOf(Execute(*engine_, std::move(call)).status()), Reason::kMessageTooLarge);
}

TEST_F(ResidentCallTest, VerifiesOnResidentTensors) {
  for (const std::string& device : {host_, gpu_}) {
    for (const Verification verification : {Verification::kRepeat, Verification::kReference}) {
      const TensorInfo x = Put(kValues, {6}, device);
      Call call = Scale(x);
      if (device == host_) call.options.backend = "cpu";
      call.options.verification = verification;
      call.options.digest_rows = true;
      Keep(call);
      const auto result = Execute(*engine_, std::move(call));
      ASSERT_TRUE(result.ok()) << result.status();
      EXPECT_TRUE(result->report.verification.passed);
      ASSERT_EQ(result->report.verification.outputs.size(), 1u);
      EXPECT_EQ(result->report.verification.outputs[0].compared, 6);
      EXPECT_EQ(result->report.input_digests[0].rows.size(), 1u);
      EXPECT_EQ(Get(*result->outputs[0].resident), kDoubled);
    }
  }
}

TEST_F(ResidentCallTest, ARepeatThatDiffersKeepsNothingAndPoisonsState) {
  const TensorInfo x = Put(kValues, {6}, gpu_), state = Put(kValues, {6}, gpu_);
  control_->FlipBitAt(2);
  Call call = Scale(x);
  call.options.verification = Verification::kRepeat;
  Keep(call, state.handle);
  const auto result = Execute(*engine_, std::move(call));
  EXPECT_EQ(result.status().code(), absl::StatusCode::kDataLoss);
  EXPECT_TRUE(store_->Describe(owner_.get(), state.handle)->poisoned);
  EXPECT_EQ(store_->usage().tensors, 2);
}

TEST_F(ResidentCallTest, ASampledCallComparesWhereItsOutputsStay) {
  Start({.replay_every = 1});
  const TensorInfo x = Put(kValues, {6}, gpu_), state = Put(kValues, {6}, gpu_);
  Call call = Scale(x);
  Keep(call, state.handle);
  const auto updated = Execute(*engine_, std::move(call));
  ASSERT_TRUE(updated.ok()) << updated.status();
  EXPECT_EQ(observer_.replays, 1);
  // The second run went elsewhere, and no byte of either came to the host.
  const TensorHandle next = *updated->outputs[0].resident;
  EXPECT_EQ(next.generation, 2u);
  EXPECT_EQ(control_->arrivals(FakePoint::kStageOut), 0);
  EXPECT_EQ(Get(next), kDoubled);

  control_->FlipBitAt(control_->arrivals(FakePoint::kLaunch) + 1);
  call = Scale(x);
  Keep(call, next);
  const auto differs = Execute(*engine_, std::move(call));
  EXPECT_EQ(differs.status().code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(ReasonOf(differs.status()), Reason::kVerificationFailed);
  EXPECT_EQ(GetErrorDetail(differs.status())->value,
            "1 of 6 elements differ, the first at index 3");
  EXPECT_EQ(observer_.replay_mismatches, 1);
  EXPECT_TRUE(store_->Describe(owner_.get(), next)->poisoned);
  EXPECT_EQ(store_->usage().tensors, 2);
}

TEST_F(ResidentCallTest, ReleaseDuringACallKeepsTheMemoryUntilItIsDone) {
  const TensorInfo x = Put(kValues, {6}, gpu_);
  control_->Hold();
  Call call = Scale(x);
  Keep(call);
  const Pending pending = Submit(*engine_, std::move(call));
  control_->AwaitArrivals(FakePoint::kLaunch, 1);
  ASSERT_TRUE(store_->Release(owner_.get(), {&x.handle, 1}).ok());
  EXPECT_EQ(store_->usage().tensors, 2) << "the input in use, and the output";
  owner_->End();
  store_->ReleaseOwner(owner_->id());
  control_->Release();
  EXPECT_TRUE(pending.Wait().ok());
  engine_->Drain(std::chrono::steady_clock::time_point::max());
  engine_.reset();
  EXPECT_EQ(store_->usage().tensors, 0) << "nothing is kept for an owner that has ended";
}

TEST_F(ResidentCallTest, ALostDeviceGivesItsTensorsUpOnly) {
  const TensorInfo x = Put(kValues, {6}, gpu_), state = Put(kValues, {6}, gpu_);
  Call call = Scale(x);
  Keep(call, state.handle);
  control_->FailAt(FakePoint::kDone, 1, /*sticky=*/true);
  EXPECT_EQ(Execute(*engine_, std::move(call)).status().code(), absl::StatusCode::kUnavailable);
  EXPECT_TRUE(store_->Describe(owner_.get(), state.handle)->poisoned);
  EXPECT_EQ(Execute(*engine_, Scale(x)).status().code(), absl::StatusCode::kUnavailable);
  EXPECT_TRUE(store_->Release(owner_.get(), std::vector{x.handle, state.handle}).ok());
}

TEST_F(ResidentCallTest, RefusesWhatTheBudgetDoesNotHold) {
  server::EngineOptions options;
  options.limits.session_resident_bytes_max = 8192;
  Start(options);
  const TensorInfo x = Put(kValues, {6}, gpu_), other = Put(kValues, {6}, gpu_);
  Call call = Scale(x);
  Keep(call);
  const auto refused = Execute(*engine_, std::move(call));
  EXPECT_EQ(refused.status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(ReasonOf(refused.status()), Reason::kBytesExhausted);
  EXPECT_EQ(control_->arrivals(FakePoint::kLaunch), 0);
  ASSERT_TRUE(store_->Release(owner_.get(), {&other.handle, 1}).ok());
  call = Scale(x);
  Keep(call);
  EXPECT_TRUE(Execute(*engine_, std::move(call)).ok());
}

}  // namespace
}  // namespace rlk::test
