// Arenas of this host by the C++ client: bits, captures, references, bounds.
#include <algorithm>
#include <chrono>
#include <cstring>
#include <functional>
#include <future>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "kernels/digest/digest.h"
#include "tests/integration/arena_fixture.h"
#include "tests/support/fake_device.h"
#include "tests/support/fake_gpu.h"

namespace rlk::test {
namespace {

TEST_F(ArenaTest, ACallInArenasGivesTheBitsOfAnInlineOne) {
  const Shared shared(address());
  for (const int64_t elements : {int64_t{0}, int64_t{1}, int64_t{1001}, int64_t{200'000}}) {
    const auto size = static_cast<size_t>(elements) * sizeof(float);
    const ArenaSlot x = *shared.in.Take(static_cast<int64_t>(size));
    const ArenaSlot y = *shared.out.Take(static_cast<int64_t>(size));
    FillLogits(x.mutable_bytes());
    CallRequest request = shared.Softcap(x, elements);
    const auto from_slot = shared.client.Call(request);
    ASSERT_TRUE(from_slot.ok()) << from_slot.status();
    EXPECT_EQ(from_slot->report->input_capture(), rlk::v1::INPUT_CAPTURE_LIVE);
    Place("y", y.place(), request);
    const auto in_slots = shared.client.Call(request);
    ASSERT_TRUE(in_slots.ok()) << in_slots.status();
    EXPECT_TRUE(in_slots->outputs.empty());
    ASSERT_EQ(in_slots->placed.size(), 1u);
    EXPECT_EQ(in_slots->placed[0].second.shape, Dims({elements}));
    EXPECT_EQ(in_slots->placed[0].second.place.generation(), y.place().generation());
    ASSERT_EQ(in_slots->report->transports_size(), 1);
    EXPECT_EQ(in_slots->report->transports(0), "host_arena");
    request = {.method = "final_logit_softcap.forward"};
    request.inputs = {{"x", {.dtype = DType::kF32, .shape = {elements}, .data = x.data()}}};
    const auto inline_call = shared.client.Call(request);
    ASSERT_TRUE(inline_call.ok()) << inline_call.status();
    const std::string expected = Bytes(inline_call->Output("y")->bytes(), size);
    EXPECT_TRUE(Bytes(from_slot->Output("y")->bytes(), size) == expected) << elements;
    EXPECT_TRUE(Bytes(y.bytes(), size) == expected) << elements;
  }
}

TEST_F(ArenaTest, ViewsWithStridesAndOffsetsAreReadAsTheyLie) {
  const Shared shared(address());
  const ArenaSlot x = *shared.in.Take(4 * 64 * 257);
  FillLogits(x.mutable_bytes());
  CallRequest request{.method = "final_logit_softcap.forward"};
  request.inputs = {{"x", x.ref(DType::kF32, {256, 63}, 4 * 257, Dims{1, 257})}};
  const auto view = shared.client.Call(request);
  ASSERT_TRUE(view.ok()) << view.status();
  request.inputs = {{"x",
                     {.dtype = DType::kF32,
                      .shape = {256, 63},
                      .strides = Dims{1, 257},
                      .data = static_cast<const std::byte*>(x.data()) + 4 * 257}}};
  const auto sent = shared.client.Call(request);
  ASSERT_TRUE(sent.ok()) << sent.status();
  EXPECT_EQ(ComputeDigest(view->Output("y")->view()), ComputeDigest(sent->Output("y")->view()));
}

// What was computed is what was digested, whoever writes meanwhile; and a result that nobody can
// write is a snapshot as it lies.
TEST_F(ArenaTest, DigestsAndVerificationTakeASnapshot) {
  const Shared shared(address());
  constexpr int64_t kElements = 4096;
  const ArenaSlot x = *shared.in.Take(4 * kElements), y = *shared.out.Take(4 * kElements);
  FillLogits(x.mutable_bytes());
  const auto capture = [&](const std::function<void(CallRequest&)>& change) {
    CallRequest request = shared.Softcap(x, kElements);
    Place("y", y.place(), request);
    change(request);
    const auto result = shared.client.Call(request);
    EXPECT_TRUE(result.ok()) << result.status();
    return result.ok() ? result->report->input_capture() : rlk::v1::INPUT_CAPTURE_UNSPECIFIED;
  };
  EXPECT_EQ(capture([](CallRequest&) {}), rlk::v1::INPUT_CAPTURE_LIVE);
  const std::function<void(CallRequest&)> forced[] = {
      [](CallRequest& r) { r.options.set_input_capture(rlk::v1::INPUT_CAPTURE_SNAPSHOT); },
      [](CallRequest& r) { r.options.add_digests(rlk::v1::DIGEST_SCOPE_TENSOR); },
      [](CallRequest& r) { r.options.add_digests(rlk::v1::DIGEST_SCOPE_ROWS); },
      [](CallRequest& r) { r.options.set_verification(rlk::v1::VERIFICATION_REPEAT); },
      [](CallRequest& r) { r.options.set_verification(rlk::v1::VERIFICATION_REFERENCE); },
      [&y](CallRequest& r) {
        r.inputs = {{"x", y.ref(DType::kF32, {kElements})}};
        r.options.clear_outputs();
      },
  };
  for (const auto& change : forced) EXPECT_EQ(capture(change), rlk::v1::INPUT_CAPTURE_SNAPSHOT);

  CallRequest request = shared.Softcap(x, kElements);
  Place("y", y.place(), request);
  request.options.add_digests(rlk::v1::DIGEST_SCOPE_TENSOR);
  const auto result = shared.client.Call(request);
  ASSERT_TRUE(result.ok()) << result.status();
  const auto digest = [](const void* data) {
    return ComputeDigest({DType::kF32, {kElements}, {1}, data}).Text();
  };
  EXPECT_EQ(result->report->input_digests(0).digest(), digest(x.data()));
  EXPECT_EQ(result->report->output_digests(0).digest(), digest(y.data()));
}

// Every reference is checked at every use.
TEST_F(ArenaTest, RefusesPlacesThatAreNotTheCallersToName) {
  const Shared shared(address()), other(address());
  constexpr int64_t kElements = 64, kBytes = 4 * kElements;
  const ArenaSlot x = *shared.in.Take(kBytes), beside = *shared.in.Take(kBytes);
  const ArenaSlot y = *shared.out.Take(kBytes), foreign = *other.in.Take(kBytes);
  FillLogits(x.mutable_bytes());
  rlk::v1::ArenaRef stale;
  {
    const ArenaSlot freed = *shared.in.Take(kBytes);
    stale = freed.place();
  }
  // The same place again, under another number.
  const ArenaSlot again = *shared.in.Take(kBytes);
  ASSERT_EQ(again.place().offset(), stale.offset());
  const auto changed = [&x](const std::function<void(rlk::v1::ArenaRef&)>& change) {
    rlk::v1::ArenaRef place = x.place();
    change(place);
    return place;
  };
  const auto offset = [&](uint64_t to) {
    return changed([to](rlk::v1::ArenaRef& place) { place.set_offset(to); });
  };
  const uint64_t begin = x.place().offset();
  std::string elsewhere = x.place().arena();
  elsewhere[0] = static_cast<char>(elsewhere[0] ^ 1);
  std::string invented = x.place().arena();
  invented.back() = static_cast<char>(invented.back() ^ 1);
  struct Case {
    const char* name;
    rlk::v1::ArenaRef place;
    absl::StatusCode code;
    Reason reason;
  } const cases[] = {
      {"stale", stale, absl::StatusCode::kNotFound, Reason::kTensorNotFound},
      {"foreign", foreign.place(), absl::StatusCode::kNotFound, Reason::kTensorNotFound},
      {"invented", changed([&](auto& place) { place.set_arena(invented); }),
       absl::StatusCode::kNotFound, Reason::kTensorNotFound},
      {"empty", changed([](auto& place) { place.clear_arena(); }), absl::StatusCode::kNotFound,
       Reason::kTensorNotFound},
      {"another server's", changed([&](auto& place) { place.set_arena(elsewhere); }),
       absl::StatusCode::kFailedPrecondition, Reason::kWrongServer},
      {"generation 0", changed([](auto& place) { place.set_generation(0); }),
       absl::StatusCode::kNotFound, Reason::kTensorNotFound},
      {"beyond the slot", offset(begin + 4), absl::StatusCode::kInvalidArgument,
       Reason::kOffsetOutOfRange},
      {"in the slot beside", offset(beside.place().offset()), absl::StatusCode::kInvalidArgument,
       Reason::kOffsetOutOfRange},
      {"beyond the arena", offset(uint64_t{1} << 40), absl::StatusCode::kInvalidArgument,
       Reason::kOffsetOutOfRange},
      {"around the end of 64 bits", offset(UINT64_MAX - 3), absl::StatusCode::kInvalidArgument,
       Reason::kOffsetOutOfRange},
  };
  for (const Case& c : cases) {
    CallRequest request = shared.Softcap(x, kElements);
    request.inputs[0].second.arena = c.place;
    const auto read = shared.client.Call(request);
    EXPECT_EQ(read.status().code(), c.code) << c.name << ": " << read.status();
    EXPECT_EQ(ReasonOf(read.status()), c.reason) << c.name;
    request = shared.Softcap(x, kElements);
    Place("y", c.place, request);
    // The slot beside may be written where the arena may; this one may not.
    const auto written = shared.client.Call(request);
    EXPECT_FALSE(written.ok()) << c.name;
  }
  const auto with_ref = [&](client::TensorRef ref) {
    CallRequest request = shared.Softcap(x, kElements);
    request.inputs[0].second = std::move(ref);
    return ReasonOf(shared.client.Call(request).status());
  };
  EXPECT_EQ(with_ref(x.ref(DType::kF32, {kElements + 1})), Reason::kOffsetOutOfRange);
  EXPECT_EQ(with_ref(x.ref(DType::kF32, {2, 2}, 0, Dims{int64_t{1} << 62, 1})),
            Reason::kInvalidStrides);
  EXPECT_EQ(with_ref(x.ref(DType::kF32, {int64_t{1} << 62, 8})), Reason::kLimitExceeded);
  EXPECT_EQ(with_ref(x.ref(DType::kF32, {2, 2}, 0, Dims{100, 1})), Reason::kOffsetOutOfRange);
  EXPECT_EQ(with_ref(x.ref(DType::kF32, {4}, 2)), Reason::kMisaligned);
  EXPECT_EQ(with_ref(x.ref(DType::kI32, {4})), Reason::kDtypeNotAllowed);

  const auto with_output = [&](const rlk::v1::ArenaRef& place) {
    CallRequest request = shared.Softcap(x, kElements);
    Place("y", place, request);
    return ReasonOf(shared.client.Call(request).status());
  };
  EXPECT_EQ(with_output(beside.place()), Reason::kPlacementUnavailable);
  EXPECT_EQ(with_output(y.place(4)), Reason::kOffsetOutOfRange);
  EXPECT_EQ(with_output(y.place()), Reason::kUnknown);
  CallRequest over_input{.method = "final_logit_softcap.forward"};
  over_input.inputs = {{"x", y.ref(DType::kF32, {kElements / 2})}};
  Place("y", y.place(kBytes / 2), over_input);
  EXPECT_EQ(ReasonOf(shared.client.Call(over_input).status()), Reason::kPlacementOverlap);
  // Without the session there is no arena.
  const Client stranger = *Client::Connect(server_->tcp());
  EXPECT_EQ(stranger.Call(shared.Softcap(x, kElements)).status().code(),
            absl::StatusCode::kUnauthenticated);
}

// The caller passes tensors, and the client picks the way; one that is slower than was promised is
// told.
TEST_F(ArenaTest, LargeInputsGoThroughSharedMemoryUnseen) {
  Limits limits;
  limits.arena_bytes_max = 20 * kMiB;
  Start(limits);
  const Client near = *Client::Connect(address()), far = *Client::Connect(server_->tcp());
  for (const int64_t rows : {int64_t{600}, int64_t{3000}, int64_t{6000}, int64_t{600}}) {
    client::Tensor x = *client::Tensor::Allocate(DType::kF32, std::vector<int64_t>{rows, 1024});
    FillLogits(x.mutable_bytes());
    CallRequest request{.method = "final_logit_softcap.forward"};
    // Transposed in memory: a view, brought over as what it spans.
    request.inputs = {{"x",
                       {.dtype = DType::kF32,
                        .shape = {1024, rows},
                        .strides = Dims{1, 1024},
                        .data = x.bytes().data()}}};
    const auto shared = near.Call(request), streamed = far.Call(request);
    ASSERT_TRUE(shared.ok()) << shared.status();
    ASSERT_TRUE(streamed.ok()) << streamed.status();
    EXPECT_EQ(ComputeDigest(shared->Output("y")->view()),
              ComputeDigest(streamed->Output("y")->view()));
    const bool fits = rows < 6000;
    const auto& transports = shared->report->transports();
    EXPECT_EQ(std::count(transports.begin(), transports.end(), "host_arena"), fits ? 1 : 0);
    EXPECT_EQ(shared->slower.find("arena_bytes_max") != std::string::npos, !fits) << rows;
    EXPECT_EQ(streamed->slower, "");
    EXPECT_EQ(streamed->report->transports(0), "resident");
  }
  EXPECT_EQ(SeriesValue(Scrape(server_->metrics()), "rlk_arena_bytes"), 16 * kMiB);
  EXPECT_TRUE(near.ListTensors()->empty());
}

// A call that was given up goes on, with the inputs that it was given.
TEST_F(ArenaTest, NothingIsStagedWhereACallThatWasGivenUpReads) {
  server_.reset();
  const auto control = std::make_shared<FakeControl>();
  server::Options options = TestOptions();
  options.unix_path = dir_.File("socket");
  server::ServerHooks hooks;
  hooks.devices.push_back(
      MakeFakeDevice(control, {.kind = DeviceKind::kHost, .compute_capability = 0}));
  server_.emplace(options, std::move(hooks));
  const Client client = *Client::Connect(address());
  constexpr int64_t kElements = kMiB;
  const auto request = [](float value, std::vector<float>& x) {
    x.assign(kElements, value);
    CallRequest call{.method = "final_logit_softcap.forward"};
    call.inputs = {{"x", {.dtype = DType::kF32, .shape = {kElements}, .data = x.data()}}};
    return call;
  };
  const Arena out = *client.OpenArena(ArenaKind::kHostOutput, kElements * sizeof(float));
  const ArenaSlot y = *out.Take(kElements * sizeof(float));
  std::vector<float> first, second;
  CallRequest given_up = request(1, first);
  Place("y", y.place(), given_up);
  control->Hold();
  // Given up after it was launched, however long that takes here.
  for (int64_t ms = 50; control->arrivals(FakePoint::kLaunch) == 0; ms *= 2) {
    given_up.timeout = std::chrono::milliseconds(ms);
    EXPECT_FALSE(client.Call(given_up).ok());
  }
  auto next = std::async(std::launch::async, [&] { return client.Call(request(2, second)); });
  control->AwaitArrivals(FakePoint::kLaunch, 2);
  control->Release();
  const auto result = next.get();
  ASSERT_TRUE(result.ok()) << result.status();
  AwaitSeries(*server_, "rlk_inflight_requests", 0);
  const auto* const written = reinterpret_cast<const float*>(y.bytes().data());
  EXPECT_NEAR(written[0], 1, 0.01);
  EXPECT_NEAR(written[kElements - 1], 1, 0.01);
  EXPECT_NEAR(result->Output("y")->as<float>()[0], 2, 0.01);
}

// A client that cannot map what it was given says why, and gives it back.
TEST_F(ArenaTest, AClientWithoutTheGpuGetsNoDeviceArena) {
  server_.reset();
  server::Options options = TestOptions();
  options.unix_path = dir_.File("socket");
  server::ServerHooks hooks;
  hooks.devices = MakeFakeGpus({std::make_shared<FakeControl>()});
  hooks.fill_registry = FillFakeGpuRegistry;
  server_.emplace(options, std::move(hooks));
  const Client client = *Client::Connect(address());
  const auto refused = client.OpenArena(ArenaKind::kDevice, kMiB);
  EXPECT_EQ(ReasonOf(refused.status()), Reason::kPlacementUnavailable) << refused.status();
  EXPECT_EQ(SeriesValue(Scrape(server_->metrics()), "rlk_arena_bytes"), 0);
  // Host arenas go to the GPU by its own copies.
  const Shared shared(address());
  const ArenaSlot x = *shared.in.Take(4000), y = *shared.out.Take(4000);
  FillLogits(x.mutable_bytes());
  CallRequest request = shared.Softcap(x, 1000);
  Place("y", y.place(), request);
  const auto on_gpu = shared.client.Call(request);
  ASSERT_TRUE(on_gpu.ok()) << on_gpu.status();
  EXPECT_EQ(on_gpu->report->device().uuid(), "fake-0");
  const std::string bits = Bytes(y.bytes(), 4000);
  request.options.set_backend("cpu");
  ASSERT_TRUE(shared.client.Call(request).ok());
  EXPECT_TRUE(Bytes(y.bytes(), 4000) == bits);
}

TEST_F(ArenaTest, BoundsAreRefusedByNameAndGiveWayAgain) {
  Limits limits;
  limits.session_arenas_max = 2;
  limits.session_arena_bytes_max = 3 * kMiB;
  limits.arena_bytes_max = 4 * kMiB;
  limits.arena_slots_max = 3;
  Start(limits);
  const Client client = *Client::Connect(address()), other = *Client::Connect(address());
  const auto open = [](const Client& by, int64_t bytes) {
    return by.OpenArena(ArenaKind::kHostInput, bytes);
  };
  for (const int64_t bytes : {int64_t{-1}, int64_t{0}, 3 * kMiB + 1, INT64_MAX}) {
    EXPECT_EQ(ReasonOf(open(client, bytes).status()), Reason::kLimitExceeded) << bytes;
  }
  std::optional<Arena> first = *open(client, 2 * kMiB);
  EXPECT_EQ(ReasonOf(open(client, 2 * kMiB).status()), Reason::kBytesExhausted);
  EXPECT_EQ(ReasonOf(open(other, 3 * kMiB).status()), Reason::kBytesExhausted);
  const Arena second = *open(client, 1);
  EXPECT_EQ(second.size(), 4096);
  const auto refused = open(client, 1);
  EXPECT_EQ(ReasonOf(refused.status()), Reason::kTensorsExhausted);
  EXPECT_NE(GetErrorDetail(refused.status())->allowed.find("session_arenas_max"),
            std::string::npos);
  std::vector<ArenaSlot> slots;
  for (int i = 0; i < 3; ++i) slots.push_back(*second.Take(1));
  EXPECT_EQ(ReasonOf(second.Take(1).status()), Reason::kTensorsExhausted);
  slots.pop_back();
  EXPECT_EQ(ReasonOf(second.Take(4097).status()), Reason::kLimitExceeded);
  EXPECT_EQ(ReasonOf(second.Take(4000).status()), Reason::kBytesExhausted);
  EXPECT_EQ(second.Take(1)->size(), 256);
  first.reset();
  EXPECT_TRUE(open(client, 2 * kMiB).ok());
}

}  // namespace
}  // namespace rlk::test
