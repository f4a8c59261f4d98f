// A call on every CUDA variant of its method that takes it.
#pragma once

#include <string>
#include <vector>

#include "tests/gpu/op_cuda.h"

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

// Every CUDA variant that takes the call, against the cpu backend with all cores.
inline void ExpectOpCudaEqualsCpu(const test::OpCall& call, const std::string& what) {
  const std::vector<const Variant*> variants = CudaVariantsOf(call);
  ASSERT_FALSE(variants.empty()) << what;
  const test::OpOutputs expected = test::RunOpCpu(call, AllCores());
  for (const Variant* variant : variants) {
    test::ExpectSameOp(RunOpCuda(call, *variant), expected, what + " " + variant->kernel);
  }
}

}  // namespace rlk::gpu_test
