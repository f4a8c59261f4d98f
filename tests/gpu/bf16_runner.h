// Runs any call on a CUDA variant of its method, the way the engine launches it.
#pragma once

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "tests/gpu/device_memory.h"
#include "tests/support/op_call.h"

namespace rlk::gpu_test {

// The CUDA variants of a call's method that offer its contract and take its shape on this device.
inline std::vector<const Variant*> CudaVariantsOf(const test::OpCall& call) {
  int device = 0, major = 0, minor = 0;
  RLK_GPU_CHECK(cudaGetDevice(&device));
  RLK_GPU_CHECK(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device));
  RLK_GPU_CHECK(cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device));
  const int capability = 10 * major + minor;
  test::BoundOp bound(call, &test::OnTheHost);
  std::vector<const Variant*> variants;
  for (const Variant& variant : test::OpMethod(call).decl.variants) {
    if (BackendDevice(variant.backend) != DeviceKind::kCuda) continue;
    if (capability < variant.capability_min || capability > variant.capability_max) continue;
    if (variant.applicable != nullptr && !variant.applicable(bound.args()).ok()) continue;
    for (const ContractClaim& claim : variant.contracts) {
      if (claim.contract == call.contract) variants.push_back(&variant);
    }
  }
  return variants;
}

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

// Every CUDA variant that takes the call, against the cpu backend with all cores.
inline void ExpectOpCudaEqualsCpu(const test::OpCall& call, const std::string& what) {
  static ThreadPool* const pool =
      new ThreadPool(static_cast<int>(std::max(1u, std::thread::hardware_concurrency())));
  const std::vector<const Variant*> variants = CudaVariantsOf(call);
  ASSERT_FALSE(variants.empty()) << what;
  const test::OpOutputs expected = test::RunOpCpu(call, pool);
  for (const Variant* variant : variants) {
    test::ExpectSameOp(RunOpCuda(call, *variant), expected, what + " " + variant->kernel);
  }
}

}  // namespace rlk::gpu_test
