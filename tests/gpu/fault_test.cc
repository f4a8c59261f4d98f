// Kernels that go wrong on a real GPU. A context does not survive them, so each runs in a process
// of its own.
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <future>
#include <memory>
#include <string>
#include <vector>

#include "kernels/builtin.h"
#include "kernels/core/status.h"
#include "proto/wire/signatures.h"
#include "server/engine/cuda_device.h"
#include "server/engine/engine.h"
#include "server/engine/host_device.h"
#include "tests/gpu/device_memory.h"
#include "tests/gpu/fault_kernels.h"

namespace rlk::gpu_test {
namespace {

using server::Engine;
using server::EngineOptions;

// Ends the child with a code that no test expects.
void Require(bool condition, const char* what) {
  if (condition) return;
  std::fprintf(stderr, "not so: %s\n", what);
  _exit(99);
}
#define RLK_REQUIRE(condition) Require((condition), #condition)

// Launch functions are plain functions, so the flag is where they find it.
int* g_release = nullptr;
bool g_fault = false;
LaunchFn g_launch = nullptr;

absl::Status IllegalWrite(const KernelArgs& args) {
  return g_fault ? LaunchIllegalWrite(args.stream) : g_launch(args);
}

absl::Status Hang(const KernelArgs& args) {
  return g_fault ? LaunchUntil(g_release, args.stream) : g_launch(args);
}

// The builtin operators with `launch` in place of the forward kernels of backend cuda.
std::unique_ptr<Registry> FaultyRegistry(LaunchFn launch) {
  BuiltinOptions options;
  options.has_cuda = true;
  options.compute_capability = server::ProbeCuda().devices.front().compute_capability;
  Registry builtin;
  RegisterBuiltin(options, builtin);
  auto registry = std::make_unique<Registry>();
  for (const Backend backend : {Backend::kCuda, Backend::kCpu, Backend::kGolden}) {
    registry->SetBackend(backend, builtin.backend(backend));
  }
  for (const auto& method : builtin.methods()) {
    MethodDecl decl = method->decl;
    for (Variant& variant : decl.variants) {
      if (variant.backend != Backend::kCuda) continue;
      if (decl.method != "final_logit_softcap.forward") continue;
      g_launch = variant.launch;
      variant.launch = launch;
    }
    registry->Add(std::move(decl));
  }
  auto bindings = wire::CompileSignatures(wire::OperatorFiles());
  std::vector<MethodSignature> signatures;
  for (auto& binding : *bindings) signatures.push_back(std::move(binding.signature));
  RLK_REQUIRE(registry->Bind(std::move(signatures)).ok());
  return registry;
}

Call MakeCall(const Registry& registry, const char* backend) {
  static const std::vector<float> values = {-40, -1.5f, 0, 0.25f, 20, 1000};
  TensorArg x;
  x.spec = 0;
  x.dtype = DType::kF32;
  x.shape = Dims{6};
  x.strides = ContiguousStrides(x.shape);
  x.data.pieces.emplace_back(reinterpret_cast<const std::byte*>(values.data()), 24);
  x.data.size = 24;
  Call call;
  call.method = registry.Find("final_logit_softcap.forward");
  call.inputs.push_back(std::move(x));
  call.options.backend = backend;
  call.received = std::chrono::steady_clock::now();
  return call;
}

absl::StatusOr<CallResult> Run(Engine& engine, Call call) {
  std::promise<absl::StatusOr<CallResult>> promise;
  engine.Submit(std::move(call), [&promise](absl::StatusOr<CallResult> result) {
    promise.set_value(std::move(result));
  });
  return promise.get_future().get();
}

std::string OutputBytes(const absl::StatusOr<CallResult>& result) {
  RLK_REQUIRE(result.ok());
  const auto& piece = result->outputs.at(0).data.pieces.at(0);
  return std::string(reinterpret_cast<const char*>(piece.data()), piece.size());
}

// A good call, the fault, and what is left: the engine says so, and the host still has the bits.
void MeetFault(LaunchFn launch, int64_t watchdog_ms, const char* words) {
  void* release = nullptr;
  RLK_REQUIRE(cudaHostAlloc(&release, sizeof(int), cudaHostAllocMapped) == cudaSuccess);
  g_release = static_cast<int*>(release);
  *g_release = 0;
  const std::unique_ptr<Registry> registry = FaultyRegistry(launch);
  std::vector<std::unique_ptr<server::Device>> devices;
  devices.push_back(server::MakeHostDevice({}));
  auto cuda = server::MakeCudaDevice({});
  RLK_REQUIRE(cuda.ok());
  devices.push_back(*std::move(cuda));
  EngineOptions options;
  options.watchdog_ms = watchdog_ms;
  auto* engine = new Engine(*registry, options, server::ToleranceContract::Builtin(),
                            std::move(devices), nullptr, nullptr);
  std::promise<void> lost;
  engine->set_on_device_lost([&lost](const DeviceInfo&) { lost.set_value(); });
  RLK_REQUIRE(engine->Start().ok());
  const std::string expected = OutputBytes(Run(*engine, MakeCall(*registry, "cuda")));
  RLK_REQUIRE(OutputBytes(Run(*engine, MakeCall(*registry, "cpu"))) == expected);

  g_fault = true;
  const auto failed = Run(*engine, MakeCall(*registry, "cuda"));
  RLK_REQUIRE(failed.status().code() == absl::StatusCode::kUnavailable);
  RLK_REQUIRE(GetErrorDetail(failed.status())->reason == Reason::kDeviceLost);
  std::fprintf(stderr, "%s\n", std::string(failed.status().message()).c_str());
  RLK_REQUIRE(failed.status().message().find(words) != absl::string_view::npos);
  lost.get_future().wait();
  RLK_REQUIRE(!engine->serving());
  g_fault = false;
  const auto later = Run(*engine, MakeCall(*registry, "cuda"));
  RLK_REQUIRE(GetErrorDetail(later.status())->reason == Reason::kDeviceLost);
  RLK_REQUIRE(OutputBytes(Run(*engine, MakeCall(*registry, "cpu"))) == expected);
  *g_release = 1;
  // As the server: what belongs to a dead context is leaked.
  _exit(0);
}

class GpuFaultDeathTest : public testing::Test {
 protected:
  GpuFaultDeathTest() { GTEST_FLAG_SET(death_test_style, "threadsafe"); }
};

TEST_F(GpuFaultDeathTest, AnIllegalWriteCostsTheDeviceAndNotTheHost) {
  EXPECT_EXIT(MeetFault(&IllegalWrite, 30000, "cudaErrorIllegalAddress"),
              testing::ExitedWithCode(0), "");
}

TEST_F(GpuFaultDeathTest, AKernelThatHangsMeetsTheWatchdog) {
  EXPECT_EXIT(MeetFault(&Hang, 200, "watchdog_ms"), testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace rlk::gpu_test
