// After any sequence of operations everything can be released, and every gauge is at zero again.
#include <map>
#include <mutex>
#include <random>
#include <thread>

#include "server/engine/engine.h"
#include "tests/support/calls.h"
#include "tests/support/toy_ops.h"
#include "tests/unit/tensors/store_harness.h"

namespace rlk::test {
namespace {

using server::TensorInfo;

// Handles that clients have had, for others to try.
class SeenHandles {
 public:
  void Add(const TensorHandle& handle) {
    const std::lock_guard lock(mutex_);
    handles_[next_++ % handles_.size()] = handle;
  }
  TensorHandle Any(uint32_t random) const {
    const std::lock_guard lock(mutex_);
    return handles_[random % handles_.size()];
  }

 private:
  mutable std::mutex mutex_;
  std::vector<TensorHandle> handles_{64};
  size_t next_ = 0;
};

// One client that does what it likes with its own tensors, with those of others and with invented
// ones. It knows what its tensors hold.
class Client {
 public:
  Client(server::TensorStore& store, server::Engine& engine, const Registry& registry,
         std::vector<std::string> devices, uint32_t seed)
      : store_(store),
        engine_(engine),
        registry_(registry),
        devices_(std::move(devices)),
        random_(seed) {}

  void Step(SeenHandles& seen) {
    switch (random_() % 10) {
      case 0:
      case 1:
        Upload();
        break;
      case 2:
        (void)store_.Upload(owner_, {.dtype = DType::kF32, .shape = {8}});
        break;
      case 3:
        Read();
        break;
      case 4:
      case 5:
        Run(/*keep=*/true);
        break;
      case 6:
        Update();
        break;
      case 7:
        Release();
        break;
      case 8:
        Intrude(seen.Any(random_()));
        break;
      case 9:
        if (random_() % 16 == 0) Restart();
        break;
    }
    if (!tensors_.empty()) seen.Add(tensors_.begin()->second.first);
  }

  void End() {
    owner_->End();
    store_.ReleaseOwner(owner_->id());
    tensors_.clear();
  }

 private:
  using Entry = std::pair<TensorHandle, std::vector<float>>;

  std::vector<float> Values() {
    std::vector<float> values(8);
    for (float& value : values) value = static_cast<float>(random_() % 100);
    return values;
  }

  Entry* Pick() {
    if (tensors_.empty()) return nullptr;
    auto it = tensors_.begin();
    std::advance(it, random_() % tensors_.size());
    return &it->second;
  }

  void Upload() {
    const std::vector<float> values = Values();
    auto upload = store_.Upload(
        owner_,
        {.dtype = DType::kF32, .shape = {8}, .device_uuid = devices_[random_() % devices_.size()]});
    if (!upload.ok()) {
      EXPECT_EQ(upload.status().code(), absl::StatusCode::kResourceExhausted) << upload.status();
      return;
    }
    const std::span<const std::byte> piece = std::as_bytes(std::span(values));
    ASSERT_TRUE((*upload)->Write({&piece, 1}).ok());
    const TensorInfo info = *(*upload)->Finish(std::nullopt);
    tensors_[info.handle.id] = {info.handle, values};
  }

  void Read() {
    const Entry* entry = Pick();
    if (entry == nullptr) return;
    auto download = store_.Download(owner_.get(), entry->first, 0);
    ASSERT_TRUE(download.ok()) << download.status();
    const HostBytes bytes = *(*download)->Next(32);
    EXPECT_EQ(std::memcmp(bytes.pieces[0].data(), entry->second.data(), 32), 0);
  }

  absl::StatusOr<CallResult> Call(const Entry& x, std::optional<TensorHandle> into, bool keep) {
    rlk::Call call;
    call.method = registry_.Find("toy.scale");
    call.principal = owner_;
    TensorArg arg;
    arg.source = TensorSource::kResident;
    arg.resident = x.first;
    call.inputs = {arg};
    if (keep) call.options.outputs["y"] = {PlacementKind::kResident, {}, std::move(into)};
    return Execute(engine_, std::move(call));
  }

  static std::vector<float> Doubled(std::vector<float> values) {
    for (float& value : values) value *= 2;
    return values;
  }

  void Run(bool keep) {
    const Entry* entry = Pick();
    if (entry == nullptr) return;
    const std::vector<float> expected = Doubled(entry->second);
    const auto result = Call(*entry, std::nullopt, keep);
    if (!result.ok()) {
      EXPECT_EQ(result.status().code(), absl::StatusCode::kResourceExhausted) << result.status();
      return;
    }
    const TensorHandle y = *result->outputs[0].resident;
    tensors_[y.id] = {y, expected};
  }

  void Update() {
    const Entry* x = Pick();
    Entry* state = Pick();
    if (x == nullptr || state == nullptr) return;
    const std::vector<float> expected = Doubled(x->second);
    const auto result = Call(*x, state->first, true);
    if (result.ok()) {
      *state = {*result->outputs[0].resident, expected};
      return;
    }
    const Reason reason = ReasonOf(result.status());
    EXPECT_TRUE(reason == Reason::kPlacementOverlap || reason == Reason::kPlacementUnavailable)
        << result.status();
  }

  void Release() {
    const Entry* entry = Pick();
    if (entry == nullptr) return;
    const TensorHandle handle = entry->first;
    ASSERT_TRUE(store_.Release(owner_.get(), {&handle, 1}).ok());
    tensors_.erase(handle.id);
    EXPECT_FALSE(store_.Describe(owner_.get(), handle).ok());
  }

  void Intrude(const TensorHandle& handle) {
    if (tensors_.contains(handle.id)) return;
    EXPECT_FALSE(store_.Download(owner_.get(), handle, 0).ok());
    EXPECT_FALSE(store_.Release(owner_.get(), {&handle, 1}).ok());
    EXPECT_FALSE(Call({handle, {}}, std::nullopt, true).ok());
    if (const Entry* own = Pick(); own != nullptr) {
      EXPECT_FALSE(Call(*own, handle, true).ok());
    }
  }

  void Restart() {
    End();
    owner_ = NewPrincipal();
  }

  server::TensorStore& store_;
  server::Engine& engine_;
  const Registry& registry_;
  const std::vector<std::string> devices_;
  std::mt19937 random_;
  std::shared_ptr<TestPrincipal> owner_ = NewPrincipal();
  std::map<std::string, Entry> tensors_;
};

TEST(RandomOperationsTest, EverythingIsReleasableAndTheGaugesReturnToZero) {
  constexpr int kClients = 4, kSteps = 1500;
  const std::unique_ptr<Registry> registry = MakeToyRegistry();
  auto control = std::make_shared<FakeControl>();
  std::vector<std::unique_ptr<server::Device>> devices;
  devices.push_back(server::MakeHostDevice({.threads = 1}));
  devices.push_back(MakeFakeDevice(control));
  const std::vector<server::Device*> places = {devices[0].get(), devices[1].get()};
  server::EngineOptions options;
  options.limits.session_resident_bytes_max = 20 * 4096;
  options.limits.resident_bytes_max = 50 * 4096;
  server::TensorStore store({.limits = options.limits, .server_id = kServerId}, places);
  CountingObserver observer;
  server::Engine engine(*registry, options, server::ToleranceContract::Builtin(),
                        std::move(devices), &observer, &store);
  ASSERT_TRUE(engine.Start().ok());
  SeenHandles seen;
  std::vector<std::thread> threads;
  for (int i = 0; i < kClients; ++i) {
    const auto seed = static_cast<uint32_t>(1000 + i);
    threads.emplace_back([&, seed] {
      SCOPED_TRACE("seed " + std::to_string(seed));
      Client client(store, engine, *registry, {places[0]->info().uuid, places[1]->info().uuid},
                    seed);
      for (int step = 0; step < kSteps; ++step) client.Step(seen);
      client.End();
    });
  }
  for (std::thread& thread : threads) thread.join();
  engine.Drain(std::chrono::steady_clock::time_point::max());
  EXPECT_EQ(store.usage().tensors, 0);
  EXPECT_EQ(store.usage().bytes, 0);
  EXPECT_EQ(places[0]->resident_bytes_in_use(), 0);
  EXPECT_EQ(places[1]->resident_bytes_in_use(), 0);
  EXPECT_EQ(observer.in_flight, 0);
  EXPECT_EQ(observer.queue_bytes, 0);
}

}  // namespace
}  // namespace rlk::test
