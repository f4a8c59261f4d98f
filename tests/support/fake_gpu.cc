#include "tests/support/fake_gpu.h"

#include <string>
#include <utility>

#include "kernels/builtin.h"
#include "server/engine/host_device.h"

namespace rlk::test {

void FillFakeGpuRegistry(Registry& registry) {
  Registry builtin;
  RegisterBuiltin({}, builtin);
  for (const Backend backend : {Backend::kCpu, Backend::kGolden}) {
    registry.SetBackend(backend, builtin.backend(backend));
  }
  BackendState cuda;
  cuda.available = true;
  registry.SetBackend(Backend::kCuda, cuda);
  for (const auto& method : builtin.methods()) {
    MethodDecl decl = method->decl;
    std::vector<Variant> variants;
    for (const Variant& variant : decl.variants) {
      if (variant.backend != Backend::kCpu) continue;
      variants.push_back(variant);
      variants.back().backend = Backend::kCuda;
      variants.back().kernel += "_on_a_fake_gpu";
      variants.push_back(variant);
    }
    decl.variants = std::move(variants);
    registry.Add(std::move(decl));
  }
}

std::vector<std::unique_ptr<server::Device>> MakeFakeGpus(
    const std::vector<std::shared_ptr<FakeControl>>& controls) {
  std::vector<std::unique_ptr<server::Device>> devices;
  devices.push_back(server::MakeHostDevice({.threads = 1}));
  for (size_t i = 0; i < controls.size(); ++i) {
    FakeDeviceOptions options;
    options.ordinal = static_cast<int>(i);
    options.uuid = "fake-" + std::to_string(i);
    devices.push_back(MakeFakeDevice(controls[i], options));
  }
  return devices;
}

}  // namespace rlk::test
