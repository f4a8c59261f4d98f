// What the linear's kernels on CUDA need of a device.
#pragma once

#include <cstdint>

namespace rlk::linear {

// Shared memory that a block takes at most, in bytes: the forward and the backward of the BF16
// linear, and the backward of FP32 weights behind the views of AdaLN. Devices of compute capability
// 8.6, 8.9 and 12.x have 99 KB.
inline constexpr int64_t kSharedBytesPerBlock = 160 << 10;

}  // namespace rlk::linear
