// Arenas and slots, and calls on them: the engine and the store together, on the host and a fake
// GPU that works behind the caller's back.
#include "server/tensors/arena_store.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <functional>

#include "server/engine/engine.h"
#include "server/engine/host_memory.h"
#include "server/tensors/holdings.h"
#include "tests/support/calls.h"
#include "tests/support/toy_ops.h"
#include "tests/unit/tensors/store_harness.h"

namespace rlk::test {
namespace {

using server::ArenaKind;
using server::OpenedArena;
using server::SlotPlace;

constexpr int64_t kMiB = int64_t{1} << 20;

const std::vector<float> kValues = {1, 2, 3, 4, 5, 6};
const std::vector<float> kDoubled = {2, 4, 6, 8, 10, 12};

class ArenaCallTest : public testing::Test {
 protected:
  ArenaCallTest() { Start(server::EngineOptions()); }
  ~ArenaCallTest() override {
    control_->Release();
    engine_.reset();
  }

  void Start(const server::EngineOptions& options) {
    engine_.reset();
    control_ = std::make_shared<FakeControl>();
    std::vector<std::unique_ptr<server::Device>> devices;
    devices.push_back(server::MakeHostDevice({.threads = 1, .poison_outputs = true}));
    devices.push_back(MakeFakeDevice(control_));
    const std::vector<server::Device*> places = {devices[0].get(), devices[1].get()};
    tensors_ = std::make_unique<server::TensorStore>(
        server::TensorStoreOptions{.limits = options.limits, .server_id = kServerId}, places);
    arenas_ = std::make_unique<server::ArenaStore>(options.limits, kServerId, places);
    holdings_ = std::make_unique<server::Holdings>(tensors_.get(), arenas_.get());
    engine_ =
        std::make_unique<server::Engine>(*registry_, options, server::ToleranceContract::Builtin(),
                                         std::move(devices), &observer_, holdings_.get());
    ASSERT_TRUE(engine_->Start().ok());
  }

  // A tensor's slot, and the memory as the client maps it.
  struct Place {
    ArenaSlot slot;
    float* data = nullptr;
  };

  Place Take(ArenaKind kind, int64_t bytes = 24) {
    auto opened = arenas_->Open(owner_, kind, std::max(bytes, kMiB), {}, {});
    EXPECT_TRUE(opened.ok()) << opened.status();
    const auto slot = arenas_->TakeSlot(*owner_, opened->id, bytes);
    EXPECT_TRUE(slot.ok()) << slot.status();
    Place place{{opened->id, slot->generation, slot->offset}, nullptr};
    TensorArg found;
    found.source = TensorSource::kArena;
    found.arena = place.slot;
    found.dtype = DType::kU8;
    found.shape = {bytes};
    found.strides = {1};
    EXPECT_TRUE(arenas_->Resolve(owner_.get(), "x", found).ok());
    place.data = reinterpret_cast<float*>(found.memory->data() + found.memory_offset);
    return place;
  }

  Place Put(ArenaKind kind) {
    Place place = Take(kind);
    std::memcpy(place.data, kValues.data(), 24);
    return place;
  }

  static std::vector<float> Read(const Place& place) { return {place.data, place.data + 6}; }

  Call Scale(const Place& x, const std::string& backend = "") const {
    Call call;
    call.method = registry_->Find("toy.scale");
    call.principal = owner_;
    TensorArg input;
    input.source = TensorSource::kArena;
    input.arena = x.slot;
    input.dtype = DType::kF32;
    input.shape = {6};
    input.strides = {1};
    call.inputs = {input};
    call.options.backend = backend;
    return call;
  }

  static void Keep(Call& call, const Place& y) {
    call.options.outputs["y"] = {PlacementKind::kArena, y.slot, {}};
  }

  std::unique_ptr<Registry> registry_ = MakeToyRegistry();
  std::shared_ptr<FakeControl> control_;
  std::shared_ptr<TestPrincipal> owner_ = NewPrincipal();
  CountingObserver observer_;
  std::unique_ptr<server::TensorStore> tensors_;
  std::unique_ptr<server::ArenaStore> arenas_;
  std::unique_ptr<server::Holdings> holdings_;
  std::unique_ptr<server::Engine> engine_;
};

// Where bytes lie, where they go, and what the report says of it.
TEST_F(ArenaCallTest, EveryWayGivesTheBitsAndSaysWhatItWas) {
  const struct {
    ArenaKind x, y;
    const char* backend;
    InputCapture capture;
    int64_t staged;  // tensors that the fake GPU was sent or sent back
    std::vector<std::string> transports;
  } cases[] = {
      {ArenaKind::kHostInput,
       ArenaKind::kHostOutput,
       "cpu",
       InputCapture::kLive,
       0,
       {"host_arena"}},
      {ArenaKind::kHostOutput,
       ArenaKind::kHostOutput,
       "cpu",
       InputCapture::kSnapshot,
       0,
       {"host_arena"}},
      {ArenaKind::kHostInput,
       ArenaKind::kHostOutput,
       "",
       InputCapture::kSnapshot,
       2,
       {"host_arena"}},
      {ArenaKind::kDevice, ArenaKind::kDevice, "", InputCapture::kLive, 0, {"device_arena"}},
      {ArenaKind::kDevice,
       ArenaKind::kHostOutput,
       "",
       InputCapture::kLive,
       1,
       {"host_arena", "device_arena"}},
      {ArenaKind::kHostInput,
       ArenaKind::kDevice,
       "",
       InputCapture::kSnapshot,
       1,
       {"host_arena", "device_arena"}},
  };
  for (size_t i = 0; i < std::size(cases); ++i) {
    const auto& c = cases[i];
    const Place x = Put(c.x), y = Take(c.y);
    const auto arrivals = [this] {
      return control_->arrivals(FakePoint::kStageIn) + control_->arrivals(FakePoint::kStageOut);
    };
    const int64_t before = arrivals();
    Call call = Scale(x, c.backend);
    Keep(call, y);
    const auto result = Execute(*engine_, std::move(call));
    ASSERT_TRUE(result.ok()) << i << ": " << result.status();
    EXPECT_EQ(Read(y), kDoubled) << i;
    EXPECT_EQ(result->report.input_capture, c.capture) << i;
    EXPECT_EQ(result->report.transports, c.transports) << i;
    EXPECT_EQ(arrivals() - before, c.staged) << i;
    ASSERT_TRUE(result->outputs[0].arena.has_value()) << i;
    EXPECT_EQ(result->outputs[0].arena->generation, y.slot.generation) << i;
    EXPECT_EQ(result->outputs[0].data.size, 0) << i;
    const bool device_in = c.x == ArenaKind::kDevice, device_out = c.y == ArenaKind::kDevice;
    EXPECT_EQ(result->report.input_bytes[device_in ? 3 : 2], 24) << i;
    EXPECT_EQ(result->report.output_bytes[device_out ? 3 : 2], 24) << i;
  }
}

// A snapshot is taken before the launch: what is written after that is not seen, neither by the
// kernel nor by whoever looks at the input afterwards.
TEST_F(ArenaCallTest, ASnapshotIsWhatEverybodyLooksAt) {
  for (const ArenaKind kind : {ArenaKind::kHostInput, ArenaKind::kDevice}) {
    const Place x = Put(kind), y = Take(ArenaKind::kHostOutput);
    // Copies are made when somebody looks, at the earliest; this writes behind the first kernel.
    int64_t digests = 0;
    control_->SetHook([&](FakePoint point, int64_t) {
      if (point == FakePoint::kDigest && digests++ == 1) x.data[0] = 1000;
    });
    Call call = Scale(x);
    Keep(call, y);
    call.options.digest_tensors = call.options.digest_rows = true;
    call.options.verification = Verification::kReference;
    const auto result = Execute(*engine_, std::move(call));
    control_->SetHook(nullptr);
    ASSERT_TRUE(result.ok()) << result.status();
    EXPECT_EQ(x.data[0], 1000);
    EXPECT_EQ(Read(y), kDoubled);
    EXPECT_TRUE(result->report.verification.passed);
    const TensorView expected{DType::kF32, {6}, {1}, kValues.data()};
    EXPECT_EQ(result->report.input_digests[0].tensor, ComputeDigest(expected));
    EXPECT_EQ(result->report.input_digests[0].rows, ComputeRowDigests(expected));
  }
}

TEST_F(ArenaCallTest, RepeatsCompareBitsInArenas) {
  for (const ArenaKind kind : {ArenaKind::kHostOutput, ArenaKind::kDevice}) {
    const Place x = Put(ArenaKind::kHostInput), y = Take(kind);
    for (const bool flip : {false, true}) {
      if (flip) control_->FlipBitAt(kind == ArenaKind::kHostOutput ? 4 : 8);
      Call call = Scale(x);
      Keep(call, y);
      call.options.verification = Verification::kRepeat;
      const auto result = Execute(*engine_, std::move(call));
      EXPECT_EQ(result.ok(), !flip) << result.status();
      if (flip) {
        EXPECT_EQ(result.status().code(), absl::StatusCode::kDataLoss);
      }
    }
  }
}

TEST_F(ArenaCallTest, SampledRepeatsLeaveLiveCallsOut) {
  server::EngineOptions options;
  options.replay_every = 1;
  Start(options);
  const Place x = Put(ArenaKind::kDevice), y = Take(ArenaKind::kDevice);
  Call call = Scale(x);
  Keep(call, y);
  ASSERT_TRUE(Execute(*engine_, std::move(call)).ok());
  EXPECT_EQ(control_->arrivals(FakePoint::kLaunch), 1);
}

// While calls use a slot it is read by many or written by one.
TEST_F(ArenaCallTest, ASlotIsReadByManyOrWrittenByOne) {
  const Place x = Put(ArenaKind::kDevice), y = Take(ArenaKind::kDevice);
  control_->Hold();
  Call first = Scale(x);
  Keep(first, y);
  Pending pending = Submit(*engine_, std::move(first));
  control_->AwaitArrivals(FakePoint::kLaunch, 1);
  const auto reason = [this](Call call) {
    return ReasonOf(Execute(*engine_, std::move(call)).status());
  };
  Call reads = Scale(y);
  EXPECT_EQ(reason(std::move(reads)), Reason::kTensorBusy);
  const Place other = Put(ArenaKind::kDevice);
  Call writes = Scale(other);
  Keep(writes, y);
  EXPECT_EQ(reason(std::move(writes)), Reason::kTensorBusy);
  writes = Scale(other);
  Keep(writes, x);
  EXPECT_EQ(reason(std::move(writes)), Reason::kTensorBusy);
  // Freed under the call: its name goes, its place does not.
  EXPECT_TRUE(arenas_->FreeSlot(*owner_, y.slot.arena, y.slot.generation).ok());
  EXPECT_EQ(reason(Scale(y)), Reason::kTensorNotFound);
  const auto whole = arenas_->TakeSlot(*owner_, y.slot.arena, kMiB);
  EXPECT_EQ(ReasonOf(whole.status()), Reason::kBytesExhausted);
  control_->Release();
  EXPECT_TRUE(pending.Wait().ok());
  EXPECT_EQ(Read(y), kDoubled);
  EXPECT_TRUE(arenas_->TakeSlot(*owner_, y.slot.arena, kMiB).ok());
}

// The memory of a session that has ended is there until the last call is done.
TEST_F(ArenaCallTest, CallsInFlightKeepWhatTheyUse) {
  const Place x = Put(ArenaKind::kHostInput), y = Take(ArenaKind::kHostOutput);
  EXPECT_EQ(control_->locks(), 2) << "host memory is page-locked, once for each arena";
  control_->Hold();
  Call call = Scale(x);
  Keep(call, y);
  Pending pending = Submit(*engine_, std::move(call));
  control_->AwaitArrivals(FakePoint::kLaunch, 1);
  owner_->End();
  arenas_->ReleaseOwner(owner_->id());
  EXPECT_EQ(arenas_->host_bytes(), 2 * kMiB);
  EXPECT_EQ(arenas_->usage().bytes, 2 * kMiB);
  control_->Release();
  EXPECT_TRUE(pending.Wait().ok());
  EXPECT_EQ(arenas_->host_bytes(), 0);
  EXPECT_EQ(arenas_->usage().bytes, 0);
  EXPECT_EQ(control_->locks(), 0);
}

// toy.scale with a check that keeps the values that it saw.
struct CheckedScale {
  explicit CheckedScale(const Registry& registry)
      : method{registry.Find("toy.scale")->decl, registry.Find("toy.scale")->signature} {
    seen().clear();
    method.decl.checked_inputs = {"x"};
    method.decl.validate_values = [](const KernelArgs& args) {
      const TensorView& x = args.Input("x");
      for (int64_t i = 0; i < x.shape[0]; ++i) {
        seen().push_back(x.as<float>()[i * x.strides[0]]);
      }
      return absl::OkStatus();
    };
  }
  static std::vector<float>& seen() {
    static std::vector<float> values;
    return values;
  }

  Method method;
};

// Far apart or not, a copy has the elements alone.
TEST_F(ArenaCallTest, CheckedInputsAreCopiedByTheirElements) {
  constexpr int64_t kBytes = 4 * kMiB, kStride = kBytes / 8 - 1;
  for (const ArenaKind kind : {ArenaKind::kHostInput, ArenaKind::kDevice}) {
    CheckedScale checked(*registry_);
    const Place x = Take(kind, kBytes);
    x.data[0] = 1;
    x.data[kStride] = 2;
    x.data[2 * kStride] = 3;
    Call call = Scale(x);
    call.method = &checked.method;
    call.inputs[0].shape = {3};
    call.inputs[0].strides = {kStride};
    const auto result = Execute(*engine_, std::move(call));
    ASSERT_TRUE(result.ok()) << result.status();
    EXPECT_EQ(CheckedScale::seen(), (std::vector<float>{1, 2, 3}));
    EXPECT_EQ(result->report.input_bytes[kind == ArenaKind::kDevice ? 3 : 2], 12);
    EXPECT_EQ(result->report.input_capture, InputCapture::kSnapshot);
    std::vector<float> y(3);
    ASSERT_EQ(result->outputs[0].data.size, 12);
    server::Gather(result->outputs[0].data, reinterpret_cast<std::byte*>(y.data()));
    EXPECT_EQ(y, (std::vector<float>{2, 4, 6}));
  }
}

// Copies that wait are bounded as messages are.
TEST_F(ArenaCallTest, CopiesOfCheckedInputsCountInTheQueue) {
  server::EngineOptions options;
  options.limits.queue_bytes_max = 32;
  options.lanes = 1;
  Start(options);
  CheckedScale checked(*registry_);
  const Place x = Put(ArenaKind::kDevice);
  control_->Hold();
  std::vector<Pending> pending;
  for (int i = 0; i < 16; ++i) {
    Call call = Scale(x);
    call.method = &checked.method;
    pending.push_back(Submit(*engine_, std::move(call)));
  }
  // With one that runs, or some, and one that waits there is no room.
  const bool refused = pending.back().done();
  control_->Release();
  for (const Pending& call : pending) (void)call.Wait();
  EXPECT_TRUE(refused);
  EXPECT_EQ(ReasonOf(pending.back().Wait().status()), Reason::kBytesExhausted);
  EXPECT_TRUE(pending.front().Wait().ok());
}

class TestPeer final : public server::ArenaPeer {
 public:
  explicit TestPeer(uint32_t uid = 7) : uid_(uid) {}
  bool MayMap() const override {
    ++looks_;
    return maps_;
  }
  uint32_t uid() const override { return uid_; }
  void End() { maps_ = false; }
  // How often somebody looked since the last time.
  int looks() const { return looks_.exchange(0); }

 private:
  const uint32_t uid_;
  std::atomic<bool> maps_{true};
  mutable std::atomic<int> looks_{0};
};

TEST_F(ArenaCallTest, WhatIsStillMappedStaysCharged) {
  const auto peer = std::make_shared<TestPeer>();
  for (const ArenaKind kind : {ArenaKind::kHostInput, ArenaKind::kHostOutput, ArenaKind::kDevice}) {
    ASSERT_TRUE(arenas_->Open(owner_, kind, kMiB, {}, peer).ok());
  }
  EXPECT_EQ(arenas_->usage(owner_->id()).bytes, 3 * kMiB);
  owner_->End();
  arenas_->ReleaseOwner(owner_->id());
  peer->looks();
  arenas_->Sweep();
  EXPECT_EQ(peer->looks(), 1) << "a process is looked at once, whatever it left";
  EXPECT_EQ(arenas_->host_bytes(), 0);
  EXPECT_EQ(arenas_->usage().bytes, 2 * kMiB);
  peer->End();
  arenas_->Sweep();
  EXPECT_EQ(arenas_->usage().bytes, 0);
}

TEST_F(ArenaCallTest, NothingIsOpenedForASessionThatHasEnded) {
  owner_->End();
  for (const ArenaKind kind : {ArenaKind::kHostInput, ArenaKind::kHostOutput, ArenaKind::kDevice}) {
    const auto refused = arenas_->Open(owner_, kind, kMiB, {}, {});
    EXPECT_EQ(refused.status().code(), absl::StatusCode::kUnauthenticated);
    EXPECT_EQ(ReasonOf(refused.status()), Reason::kUnauthenticated);
  }
  EXPECT_EQ(arenas_->usage().bytes, 0);
}

// What a process and the processes of a user may leave is bounded by number too.
TEST_F(ArenaCallTest, WhoHasLeftTooMuchGetsNoMore) {
  server::EngineOptions options;
  options.limits.session_arenas_max = 1;
  options.limits.sessions_max = 2;
  Start(options);
  const auto open = [this](const std::shared_ptr<TestPeer>& peer, ArenaKind kind) {
    const auto owner = NewPrincipal();
    const absl::Status status = arenas_->Open(owner, kind, 4096, {}, peer).status();
    owner->End();
    arenas_->ReleaseOwner(owner->id());
    return status;
  };
  const auto first = std::make_shared<TestPeer>(), second = std::make_shared<TestPeer>();
  for (int i = 0; i < 4; ++i) ASSERT_TRUE(open(first, ArenaKind::kHostOutput).ok()) << i;
  const absl::Status refused = open(first, ArenaKind::kHostOutput);
  EXPECT_EQ(refused.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(ReasonOf(refused), Reason::kTensorsExhausted);
  EXPECT_EQ(GetErrorDetail(refused)->allowed, "below 4 (4 * session_arenas_max)");
  EXPECT_TRUE(open(first, ArenaKind::kHostInput).ok()) << "nothing of it stays";
  EXPECT_TRUE(open(second, ArenaKind::kDevice).ok());
  const auto third = std::make_shared<TestPeer>(), stranger = std::make_shared<TestPeer>(8);
  EXPECT_EQ(ReasonOf(open(third, ArenaKind::kHostOutput)), Reason::kTensorsExhausted);
  EXPECT_TRUE(open(stranger, ArenaKind::kHostOutput).ok());
  first->End();
  EXPECT_TRUE(open(third, ArenaKind::kHostInput).ok());
  EXPECT_TRUE(open(third, ArenaKind::kHostOutput).ok());
}

TEST_F(ArenaCallTest, ADeviceThatIsLostKeepsTheSlotsOfItsCalls) {
  const Place x = Put(ArenaKind::kDevice), y = Take(ArenaKind::kDevice);
  Call call = Scale(x);
  Keep(call, y);
  control_->FailAt(FakePoint::kLaunch, 1, /*sticky=*/true);
  EXPECT_EQ(Execute(*engine_, std::move(call)).status().code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(arenas_->Open(owner_, ArenaKind::kDevice, kMiB, {}, {}).status().code(),
            absl::StatusCode::kFailedPrecondition);
}

}  // namespace
}  // namespace rlk::test
