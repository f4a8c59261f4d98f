// What a final_logit_softcap kernel works on. Everything is contiguous, in C order.
#pragma once

#include <cstdint>

namespace rlk {

struct SoftcapForwardParams {
  const void* x = nullptr;  // [count], F32, F16 or BF16
  void* y = nullptr;        // [count], F32 or the dtype of x
  int64_t count = 0;
  float softcap = 0;  // finite, above 0
};

struct SoftcapBackwardParams {
  const void* x = nullptr;       // [count], F32, F16 or BF16
  const void* grad_y = nullptr;  // [count], F32 or the dtype of x
  void* grad_x = nullptr;        // [count], the dtype of x
  int64_t count = 0;
  float softcap = 0;  // finite, above 0
};

}  // namespace rlk
