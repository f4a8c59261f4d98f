// An engine on fake devices (and the host), with everything a test may look at.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "server/engine/engine.h"
#include "server/engine/host_device.h"
#include "tests/support/calls.h"
#include "tests/support/fake_device.h"
#include "tests/support/toy_ops.h"

namespace rlk::test {

// One fake CUDA device and the host device. Tests change `options`, then call Start.
class EngineHarness {
 public:
  ~EngineHarness() {
    // Whatever a failed test still holds must not hang the drain.
    control->Release();
  }

  void Start(bool with_host = true) {
    std::vector<std::unique_ptr<server::Device>> devices;
    devices.push_back(MakeFakeDevice(control));
    if (with_host) devices.push_back(server::MakeHostDevice({.threads = 2}));
    StartWith(std::move(devices));
  }

  void StartWith(std::vector<std::unique_ptr<server::Device>> devices) {
    engine =
        std::make_unique<server::Engine>(*registry, options, server::ToleranceContract::Builtin(),
                                         std::move(devices), &observer, nullptr);
    engine->set_on_device_lost([this](const DeviceInfo& info) { lost.emplace_back(info); });
    const absl::Status status = engine->Start();
    ASSERT_TRUE(status.ok()) << status;
  }

  // y = 2 x for x = base, base + 1, ...
  Call Scale(float base = 1, int64_t count = 8) const {
    std::vector<float> values(static_cast<size_t>(count));
    for (size_t i = 0; i < values.size(); ++i) values[i] = base + static_cast<float>(i);
    Call call;
    call.method = registry->Find("toy.scale");
    call.inputs = {Tensor(0, DType::kF32, {count}, values)};
    return call;
  }

  server::EngineOptions options;
  std::shared_ptr<FakeControl> control = std::make_shared<FakeControl>();
  std::unique_ptr<Registry> registry = MakeToyRegistry();
  CountingObserver observer;
  std::vector<DeviceInfo> lost;
  // Last: its destructor uses the rest.
  std::unique_ptr<server::Engine> engine;
};

inline Reason ReasonOf(const absl::Status& status) {
  const auto detail = GetErrorDetail(status);
  return detail ? detail->reason : Reason::kUnknown;
}

}  // namespace rlk::test
