// A tensor store on the host and a fake GPU, with a clock that the test moves.
#pragma once

#include <chrono>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/core/status.h"
#include "server/engine/host_device.h"
#include "server/sessions/session.h"
#include "server/tensors/tensor_store.h"
#include "tests/support/fake_device.h"

namespace rlk::test {

class TestClock {
 public:
  static std::chrono::steady_clock::time_point Now() { return now_; }
  static void Advance(std::chrono::milliseconds by) { now_ += by; }

 private:
  static inline std::chrono::steady_clock::time_point now_ = std::chrono::steady_clock::now();
};

class TestPrincipal final : public Principal {
 public:
  using Principal::Principal;
  bool ended() const override { return ended_; }
  void End() { ended_ = true; }

 private:
  std::atomic<bool> ended_{false};
};

inline std::shared_ptr<TestPrincipal> NewPrincipal() {
  static std::atomic<uint64_t> next{1};
  return std::make_shared<TestPrincipal>(next++);
}

inline Reason ReasonOf(const absl::Status& status) {
  const auto detail = GetErrorDetail(status);
  return detail ? detail->reason : Reason::kUnknown;
}

inline constexpr char kServerId[] = "0123456789abcdef0123456789abcdef";

struct StoreHarness {
  explicit StoreHarness(Limits limits = {}) {
    host = server::MakeHostDevice({.threads = 1});
    gpu = MakeFakeDevice(std::make_shared<FakeControl>());
    store = std::make_unique<server::TensorStore>(
        server::TensorStoreOptions{.limits = limits, .server_id = kServerId, .now = TestClock::Now},
        std::vector<server::Device*>{host.get(), gpu.get()});
  }

  absl::StatusOr<server::TensorInfo> Put(const std::shared_ptr<const Principal>& owner,
                                         const std::vector<float>& values, Dims shape,
                                         server::NewTensor tensor = {}) {
    tensor.dtype = DType::kF32;
    tensor.shape = shape;
    if (tensor.device_uuid.empty()) tensor.device_uuid = host->info().uuid;
    RLK_ASSIGN_OR_RETURN(auto upload, store->Upload(owner, tensor));
    const std::span<const std::byte> piece = std::as_bytes(std::span(values));
    RLK_RETURN_IF_ERROR(upload->Write({&piece, 1}));
    return upload->Finish(std::nullopt);
  }

  absl::StatusOr<std::vector<float>> Get(const Principal* owner, const TensorHandle& handle) {
    RLK_ASSIGN_OR_RETURN(auto download, store->Download(owner, handle, 0));
    std::vector<float> values(static_cast<size_t>(download->bytes_left()) / sizeof(float));
    auto* to = reinterpret_cast<std::byte*>(values.data());
    while (download->bytes_left() > 0) {
      RLK_ASSIGN_OR_RETURN(const HostBytes bytes, download->Next(5));
      for (const auto& piece : bytes.pieces) {
        std::memcpy(to, piece.data(), piece.size());
        to += piece.size();
      }
    }
    return values;
  }

  int64_t memory() const { return host->resident_bytes_in_use() + gpu->resident_bytes_in_use(); }

  std::unique_ptr<server::Device> host, gpu;
  std::unique_ptr<server::TensorStore> store;
};

}  // namespace rlk::test
