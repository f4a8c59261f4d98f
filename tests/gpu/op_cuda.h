// A call of any operator on a CUDA variant, with everything in device memory.
#pragma once

#include <cuda_runtime_api.h>

#include <algorithm>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "tests/gpu/device_memory.h"
#include "tests/support/op_call.h"

namespace rlk::gpu_test {

// Everything in device memory; outputs lie between guards, and workspace and outputs hold canaries
// before the launch.
inline test::OpOutputs RunOpCuda(const test::OpCall& call, const Variant& variant) {
  std::vector<cuda::DeviceBuffer> inputs;
  const auto place = [&](const test::OpTensor& tensor) -> const void* {
    const auto size = static_cast<int64_t>(tensor.bytes.size());
    inputs.push_back(NewBuffer(std::max<int64_t>(size, 1)));
    ToDevice(inputs.back().data(), tensor.bytes.data(), size);
    return inputs.back().data();
  };
  test::BoundOp bound(call, place);
  std::vector<std::unique_ptr<GuardedOutput>> outputs(bound.outputs().size());
  for (size_t i = 0; i < outputs.size(); ++i) {
    MutableTensorView& view = bound.outputs()[i];
    if (!view.present()) continue;
    outputs[i] = std::make_unique<GuardedOutput>(view.bytes());
    view.data = outputs[i]->data();
  }
  cuda::DeviceBuffer workspace;
  if (variant.workspace_bytes != nullptr) {
    const int64_t bytes = variant.workspace_bytes(bound.args());
    workspace = NewBuffer(std::max<int64_t>(bytes, 1));
    Fill(workspace.data(), 0xff, bytes);
    bound.args().workspace = {workspace.data(), static_cast<size_t>(bytes)};
  }
  const cuda::Stream stream = NewStream();
  bound.args().stream = {stream.get()};
  const absl::Status status = variant.launch(bound.args());
  EXPECT_TRUE(status.ok()) << variant.kernel << ": " << status;
  RLK_GPU_CHECK(cudaStreamSynchronize(stream.get()));
  test::OpOutputs results;
  for (size_t i = 0; i < outputs.size(); ++i) {
    if (outputs[i] == nullptr) continue;
    outputs[i]->ExpectGuardsIntact();
    results[bound.name(i)] = Download<std::byte>(outputs[i]->data(), bound.outputs()[i].bytes());
  }
  return results;
}

// The variant of the cuda backend.
inline test::OpOutputs RunOpCuda(const test::OpCall& call) {
  return RunOpCuda(call, test::OpVariant(call, Backend::kCuda));
}

// A pool of all cores, for the cpu backend.
inline ThreadPool* AllCores() {
  static ThreadPool* const pool =
      new ThreadPool(static_cast<int>(std::max(1u, std::thread::hardware_concurrency())));
  return pool;
}

inline void ExpectCudaEqualsCpu(const test::OpCall& call, const std::string& what) {
  test::ExpectSameOp(RunOpCuda(call), test::RunOpCpu(call, AllCores()), what);
}

}  // namespace rlk::gpu_test
