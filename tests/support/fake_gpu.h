// A server that believes it has a GPU: the host's kernels as variants of backend `cuda`, on a fake
// device whose faults a test decides.
#pragma once

#include <memory>
#include <vector>

#include "kernels/registry/registry.h"
#include "server/engine/device.h"
#include "tests/support/fake_device.h"

namespace rlk::test {

// The builtin operators, with a `cuda` variant for each `cpu` one. Not bound.
void FillFakeGpuRegistry(Registry& registry);

// One fake device of kind CUDA for each control ("fake-0", "fake-1", ...), and the host.
std::vector<std::unique_ptr<server::Device>> MakeFakeGpus(
    const std::vector<std::shared_ptr<FakeControl>>& controls);

}  // namespace rlk::test
