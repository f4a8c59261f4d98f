// The engine with a CUDA device: the whole way of a call but the transport.
#include "server/engine/engine.h"

#include <gtest/gtest.h>

#include <future>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "kernels/builtin.h"
#include "kernels/core/status.h"
#include "proto/wire/signatures.h"
#include "server/engine/cuda_device.h"
#include "server/engine/host_device.h"
#include "tests/gpu/device_memory.h"
#include "tests/gpu/softcap_runner.h"

namespace rlk::gpu_test {
namespace {

using server::CudaDeviceOptions;
using server::Engine;
using server::EngineOptions;

struct Input {
  DType dtype;
  Dims shape;
  Dims strides;
  std::vector<uint8_t> bytes;
  int pieces = 1;
};

TensorArg MakeArg(int spec, const Input& input) {
  TensorArg arg;
  arg.spec = spec;
  arg.dtype = input.dtype;
  arg.shape = input.shape;
  arg.strides = input.strides;
  auto owner = std::make_shared<std::vector<uint8_t>>(input.bytes);
  const auto* data = reinterpret_cast<const std::byte*>(owner->data());
  const size_t step = owner->size() / static_cast<size_t>(input.pieces) + 1;
  for (size_t at = 0; at < owner->size(); at += step) {
    arg.data.pieces.emplace_back(data + at, std::min(step, owner->size() - at));
  }
  arg.data.size = static_cast<int64_t>(owner->size());
  arg.data.owner = std::move(owner);
  return arg;
}

Input Contiguous(DType dtype, Dims shape, std::vector<uint8_t> bytes, int pieces = 1) {
  return {dtype, shape, ContiguousStrides(shape), std::move(bytes), pieces};
}

Call MakeCall(const Registry& registry, const char* method, const std::vector<Input>& inputs,
              double cap, const std::string& backend) {
  Call call;
  call.method = registry.Find(method);
  for (size_t i = 0; i < inputs.size(); ++i) {
    call.inputs.push_back(MakeArg(static_cast<int>(i), inputs[i]));
  }
  const auto& attributes = call.method->signature.attributes;
  for (size_t i = 0; i < attributes.size(); ++i) {
    if (attributes[i].name == "softcap") {
      call.attributes.push_back({static_cast<int32_t>(i), cap, 0});
    }
  }
  call.options.backend = backend;
  call.options.digest_tensors = true;
  call.received = std::chrono::steady_clock::now();
  return call;
}

std::vector<uint8_t> Bytes(const HostBytes& bytes) {
  std::vector<uint8_t> all;
  for (std::span<const std::byte> piece : bytes.pieces) {
    const auto* data = reinterpret_cast<const uint8_t*>(piece.data());
    all.insert(all.end(), data, data + piece.size());
  }
  return all;
}

EngineOptions LargeCalls() {
  EngineOptions options;
  options.refuse_large_replies = false;
  return options;
}

class GpuEngine : public testing::Test {
 protected:
  void Start(const Registry& registry, const CudaDeviceOptions& device,
             EngineOptions options = LargeCalls()) {
    std::vector<std::unique_ptr<server::Device>> devices;
    server::HostDeviceOptions host;
    host.poison_outputs = device.poison_outputs;
    devices.push_back(server::MakeHostDevice(host));
    auto cuda = server::MakeCudaDevice(device);
    ASSERT_TRUE(cuda.ok()) << cuda.status();
    cuda_ = cuda->get();
    devices.push_back(*std::move(cuda));
    engine_ = std::make_unique<Engine>(registry, options, server::ToleranceContract::Builtin(),
                                       std::move(devices), nullptr, nullptr);
    const absl::Status started = engine_->Start();
    ASSERT_TRUE(started.ok()) << started;
  }

  absl::StatusOr<CallResult> Run(Call call) {
    auto promise = std::make_shared<std::promise<absl::StatusOr<CallResult>>>();
    auto result = promise->get_future();
    engine_->Submit(std::move(call), [promise](absl::StatusOr<CallResult> done) {
      promise->set_value(std::move(done));
    });
    return result.get();
  }

  // Runs the call on both backends and expects equal bytes and digests.
  void ExpectCudaEqualsCpu(const char* method, const std::vector<Input>& inputs, double cap) {
    const Registry& registry = BuiltinRegistry();
    const auto cuda = Run(MakeCall(registry, method, inputs, cap, "cuda"));
    const auto cpu = Run(MakeCall(registry, method, inputs, cap, "cpu"));
    ASSERT_TRUE(cuda.ok()) << cuda.status();
    ASSERT_TRUE(cpu.ok()) << cpu.status();
    EXPECT_EQ(cuda->report.backend, Backend::kCuda);
    EXPECT_EQ(cuda->report.device.kind, DeviceKind::kCuda);
    EXPECT_EQ(cuda->report.claim, ClaimLevel::kL3Portable);
    EXPECT_EQ(cpu->report.backend, Backend::kCpu);
    ASSERT_EQ(cuda->outputs.size(), cpu->outputs.size());
    for (size_t i = 0; i < cuda->outputs.size(); ++i) {
      EXPECT_TRUE(Bytes(cuda->outputs[i].data) == Bytes(cpu->outputs[i].data)) << method;
      EXPECT_EQ(cuda->report.output_digests[i].tensor->Text(),
                cpu->report.output_digests[i].tensor->Text());
    }
    ASSERT_EQ(cuda->report.input_digests.size(), inputs.size());
    for (size_t i = 0; i < inputs.size(); ++i) {
      EXPECT_EQ(cuda->report.input_digests[i].tensor->Text(),
                cpu->report.input_digests[i].tensor->Text());
    }
  }

  server::Device* cuda_ = nullptr;
  std::unique_ptr<Engine> engine_;
};

TEST_F(GpuEngine, EqualsCpuThroughTheWholeEngine) {
  CudaDeviceOptions device;
  device.poison_outputs = true;
  Start(BuiltinRegistry(), device);
  for (DType dtype : {DType::kBF16, DType::kF16, DType::kF32}) {
    for (int64_t columns : {int64_t{0}, int64_t{1}, int64_t{7}, int64_t{1000}, int64_t{33333}}) {
      const Dims shape{3, columns};
      const int64_t count = 3 * columns;
      const Input x = Contiguous(dtype, shape, NormalValues(dtype, count, 30.0f, 1), 3);
      ExpectCudaEqualsCpu("final_logit_softcap.forward", {x}, 30.0);
      for (DType grad : {DType::kF32, dtype}) {
        const Input g = Contiguous(grad, shape, NormalValues(grad, count, 1.0f, 2));
        ExpectCudaEqualsCpu("final_logit_softcap.backward", {x, g}, 20.0);
      }
    }
  }
}

TEST_F(GpuEngine, TakesScalarsAndStridedInputs) {
  Start(BuiltinRegistry(), {});
  ExpectCudaEqualsCpu("final_logit_softcap.forward",
                      {Contiguous(DType::kF32, Dims{}, NormalValues(DType::kF32, 1, 30.0f, 3))},
                      30.0);
  // [5, 4, 3] with gaps in every dimension.
  const Dims shape{5, 4, 3}, strides{100, 20, 2};
  const int64_t extent = 4 * 100 + 3 * 20 + 2 * 2 + 1;
  ExpectCudaEqualsCpu(
      "final_logit_softcap.forward",
      {{DType::kBF16, shape, strides, NormalValues(DType::kBF16, extent, 30.0f, 4), 2}}, 30.0);
}

// Larger than the staging of a lane: the payload goes through it in pieces, the lane grows.
TEST_F(GpuEngine, StagesPayloadsLargerThanItsStaging) {
  CudaDeviceOptions device;
  device.lane_bytes = int64_t{1} << 20;
  Start(BuiltinRegistry(), device);
  const int64_t count = (int64_t{1} << 23) + 12345;
  const Dims shape{count};
  const Input x = Contiguous(DType::kBF16, shape, NormalValues(DType::kBF16, count, 30.0f, 5), 17);
  ExpectCudaEqualsCpu("final_logit_softcap.forward", {x}, 30.0);
}

TEST_F(GpuEngine, ReportsPhasesOfTheDevice) {
  Start(BuiltinRegistry(), {});
  const int64_t count = int64_t{1} << 20;
  Call call =
      MakeCall(BuiltinRegistry(), "final_logit_softcap.forward",
               {Contiguous(DType::kBF16, Dims{count}, NormalValues(DType::kBF16, count, 30.0f, 6))},
               30.0, "cuda");
  call.options.digest_tensors = false;
  const auto result = Run(std::move(call));
  ASSERT_TRUE(result.ok()) << result.status();
  const PhaseNanos& phases = result->report.phases;
  EXPECT_GT(phases.stage_in, 0);
  EXPECT_GT(phases.kernel, 0);
  EXPECT_GT(phases.stage_out, 0);
  EXPECT_EQ(result->report.kernel, "softcap_forward_cuda");
  EXPECT_EQ(result->report.device.uuid.substr(0, 4), "GPU-");
  EXPECT_EQ(result->report.device.uuid.size(), 40u);
}

TEST_F(GpuEngine, ManyClientsGetTheSameBits) {
  Start(BuiltinRegistry(), {});
  constexpr int kThreads = 8, kCalls = 40;
  const int64_t count = 100'003;
  const Input x =
      Contiguous(DType::kBF16, Dims{count}, NormalValues(DType::kBF16, count, 30.0f, 7), 2);
  const auto alone =
      Run(MakeCall(BuiltinRegistry(), "final_logit_softcap.forward", {x}, 30.0, "cuda"));
  ASSERT_TRUE(alone.ok()) << alone.status();
  const std::vector<uint8_t> expected = Bytes(alone->outputs[0].data);
  std::vector<int> wrong(kThreads);
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < kCalls; ++i) {
        Call call = MakeCall(BuiltinRegistry(), "final_logit_softcap.forward", {x}, 30.0, "cuda");
        call.options.digest_tensors = i % 2 == 0;
        const auto result = Run(std::move(call));
        wrong[static_cast<size_t>(t)] += !result.ok() || Bytes(result->outputs[0].data) != expected;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (int count_wrong : wrong) EXPECT_EQ(count_wrong, 0);
}

TEST_F(GpuEngine, RepeatVerificationPasses) {
  Start(BuiltinRegistry(), {});
  const int64_t count = 70'001;
  Call call =
      MakeCall(BuiltinRegistry(), "final_logit_softcap.forward",
               {Contiguous(DType::kF16, Dims{count}, NormalValues(DType::kF16, count, 30.0f, 8))},
               30.0, "cuda");
  call.options.verification = Verification::kRepeat;
  const auto result = Run(std::move(call));
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_TRUE(result->report.verification.passed);
}

void ExpectMemoryExhausted(const absl::Status& status) {
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status;
  const auto detail = GetErrorDetail(status);
  ASSERT_TRUE(detail.has_value());
  EXPECT_EQ(detail->reason, Reason::kDeviceMemoryExhausted);
  EXPECT_GT(detail->retry_after_ms, 0);
}

TEST_F(GpuEngine, BudgetOfDeviceMemoryIsKept) {
  CudaDeviceOptions device;
  device.lane_bytes = int64_t{1} << 20;
  device.device_bytes_max = int64_t{96} << 20;
  Start(BuiltinRegistry(), device);
  const auto run = [&](int64_t count) {
    return Run(MakeCall(BuiltinRegistry(), "final_logit_softcap.forward",
                        {Contiguous(DType::kF32, Dims{count},
                                    std::vector<uint8_t>(static_cast<size_t>(4 * count)))},
                        30.0, "cuda"));
  };
  ExpectMemoryExhausted(run(int64_t{16} << 20).status());  // 128 MiB
  // 64 MiB each: one at a time fits, on whatever lane, because idle lanes give way.
  for (int i = 0; i < 10; ++i) {
    const auto result = run(int64_t{8} << 20);
    EXPECT_TRUE(result.ok()) << result.status();
    EXPECT_LE(cuda_->memory_bytes_in_use(), device.device_bytes_max);
  }
}

TEST_F(GpuEngine, RunningOutOfDeviceMemoryIsSurvived) {
  CudaDeviceOptions device;
  device.device_bytes_max = int64_t{1} << 50;
  Start(BuiltinRegistry(), device);
  const int64_t count = int64_t{1} << 27;  // 1 GiB with its result
  const Input x =
      Contiguous(DType::kF32, Dims{count}, std::vector<uint8_t>(static_cast<size_t>(4 * count)));
  const auto call = [&] {
    return MakeCall(BuiltinRegistry(), "final_logit_softcap.forward", {x}, 30.0, "cuda");
  };
  size_t free_bytes = 0, total_bytes = 0;
  RLK_GPU_CHECK(cudaMemGetInfo(&free_bytes, &total_bytes));
  {
    const cuda::DeviceBuffer hog =
        NewBuffer(static_cast<int64_t>(free_bytes) - (int64_t{512} << 20));
    ExpectMemoryExhausted(Run(call()).status());
    EXPECT_TRUE(cuda_->healthy());
  }
  const auto result = Run(call());
  EXPECT_TRUE(result.ok()) << result.status();
}

// A registry in which the cuda backend failed its known answers.
std::unique_ptr<Registry> RegistryWithFailedCuda() {
  BuiltinOptions options;
  options.has_cuda = true;
  options.compute_capability = server::ProbeCuda().devices.front().compute_capability;
  auto registry = std::make_unique<Registry>();
  RegisterBuiltin(options, *registry);
  BackendState failed;
  failed.failed_to_load = true;
  failed.reason = "known answer 0 (add) is wrong";
  registry->SetBackend(Backend::kCuda, failed);
  auto bindings = wire::CompileSignatures(wire::OperatorFiles());
  std::vector<MethodSignature> signatures;
  for (auto& binding : *bindings) signatures.push_back(std::move(binding.signature));
  EXPECT_TRUE(registry->Bind(std::move(signatures)).ok());
  return registry;
}

TEST_F(GpuEngine, StrictRefusesFallbackAndAutoReportsIt) {
  const std::unique_ptr<Registry> registry = RegistryWithFailedCuda();
  Start(*registry, {});
  const Input x = Contiguous(DType::kBF16, Dims{100}, NormalValues(DType::kBF16, 100, 30.0f, 9));
  const auto strict = Run(MakeCall(*registry, "final_logit_softcap.forward", {x}, 30.0, ""));
  EXPECT_EQ(strict.status().code(), absl::StatusCode::kFailedPrecondition) << strict.status();
  const auto detail = GetErrorDetail(strict.status());
  ASSERT_TRUE(detail.has_value());
  EXPECT_EQ(detail->reason, Reason::kFallbackRefused);

  Call call = MakeCall(*registry, "final_logit_softcap.forward", {x}, 30.0, "");
  call.options.allow_fallback = true;
  const auto automatic = Run(std::move(call));
  ASSERT_TRUE(automatic.ok()) << automatic.status();
  EXPECT_EQ(automatic->report.backend, Backend::kCpu);
  ASSERT_TRUE(automatic->report.fallback.has_value());
  EXPECT_EQ(automatic->report.fallback->from, Backend::kCuda);
  EXPECT_NE(automatic->report.fallback->reason.find("known answer"), std::string::npos);
  engine_.reset();  // before the registry
}

}  // namespace
}  // namespace rlk::gpu_test
