// Kernels that go wrong on purpose.
#pragma once

#include "absl/status/status.h"
#include "kernels/core/stream_ref.h"

namespace rlk::gpu_test {

// Enqueues a kernel that writes where nothing is mapped: a sticky error.
absl::Status LaunchIllegalWrite(StreamRef stream);

// Enqueues a kernel that runs until `release` (mapped host memory) is not zero.
absl::Status LaunchUntil(const int* release, StreamRef stream);

}  // namespace rlk::gpu_test
