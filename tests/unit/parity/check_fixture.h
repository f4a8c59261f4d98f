// A real engine on the host, and a check in it.
#pragma once

#include <chrono>
#include <memory>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "server/engine/engine.h"
#include "server/engine/host_device.h"
#include "server/parity/check_context.h"

namespace rlk::test {

class CheckEngine {
 public:
  explicit CheckEngine(const Registry& registry) {
    std::vector<std::unique_ptr<server::Device>> devices;
    devices.push_back(server::MakeHostDevice({.threads = 2}));
    engine_ = std::make_unique<server::Engine>(registry, server::EngineOptions{},
                                               server::ToleranceContract::Builtin(),
                                               std::move(devices), nullptr, nullptr);
    EXPECT_TRUE(engine_->Start().ok());
  }
  server::Engine* engine() { return engine_.get(); }

 private:
  std::unique_ptr<server::Engine> engine_;
};

inline constexpr int64_t kMuchWork = int64_t{1} << 34;

inline std::unique_ptr<server::CheckContext> NewContext(int64_t work_bytes_max = kMuchWork) {
  return std::make_unique<server::CheckContext>(server::Interrupt{}, work_bytes_max);
}

}  // namespace rlk::test
