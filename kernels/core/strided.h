// Reading strided tensors in logical order.
#pragma once

#include <cstdint>

#include "kernels/core/tensor_view.h"

namespace rlk {

// Copies the elements with C-order indices [begin, begin + count) to `out`, contiguously. The
// bytes are copied as they are; the data need not be aligned.
void GatherElements(const TensorView& tensor, int64_t begin, int64_t count, void* out);

}  // namespace rlk
