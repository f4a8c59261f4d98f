// Every test here needs a GPU: without one the program ends at once with an error, says so, and
// runs nothing. The status is 77, which CTest counts as skipped, or 1 where RLK_TEST_GPU=1 asks for
// a GPU.
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <string_view>

#include "server/engine/cuda_device.h"

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  if (GTEST_FLAG_GET(list_tests)) return RUN_ALL_TESTS();
  const rlk::server::CudaProbe probe = rlk::server::ProbeCuda();
  if (probe.devices.empty()) {
    std::fprintf(stderr, "rlk_gpu_test needs a GPU: %s\n", probe.reason.c_str());
    const char* wanted = std::getenv("RLK_TEST_GPU");
    return wanted != nullptr && std::string_view(wanted) == "1" ? 1 : 77;
  }
  const rlk::DeviceInfo& info = probe.devices.front();
  std::printf("%s, %s, compute capability %d.%d, driver %s, runtime %s\n", info.name.c_str(),
              info.uuid.c_str(), info.compute_capability / 10, info.compute_capability % 10,
              probe.driver_version.c_str(), probe.runtime_version.c_str());
  if (cudaSetDevice(info.ordinal) != cudaSuccess) {
    std::fprintf(stderr, "rlk_gpu_test: %s\n", cudaGetErrorString(cudaGetLastError()));
    return 1;
  }
  return RUN_ALL_TESTS();
}
