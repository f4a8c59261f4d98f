#include "kernels/core/strided.h"

#include <algorithm>
#include <cstddef>
#include <cstring>

namespace rlk {
namespace {

template <int kSize>
std::byte* CopyRun(const std::byte* from, int64_t stride, int64_t count, std::byte* to) {
  if (stride == 1) {
    memcpy(to, from, static_cast<size_t>(count * kSize));
    return to + count * kSize;
  }
  for (int64_t i = 0; i < count; ++i) {
    memcpy(to, from, kSize);
    to += kSize;
    from += stride * kSize;
  }
  return to;
}

template <int kSize>
void Gather(const TensorView& tensor, int64_t begin, int64_t count, std::byte* out) {
  const int rank = tensor.shape.rank();
  const int64_t inner = rank == 0 ? 1 : tensor.shape[rank - 1];
  const int64_t inner_stride = rank == 0 ? 1 : tensor.strides[rank - 1];
  // Position of `begin`.
  Dims index = tensor.shape;
  int64_t rest = begin, offset = 0;
  for (int d = rank - 1; d >= 0; --d) {
    index[d] = rest % tensor.shape[d];
    rest /= tensor.shape[d];
    offset += index[d] * tensor.strides[d];
  }
  const auto* base = tensor.as<std::byte>();
  while (count > 0) {
    const int64_t position = rank == 0 ? 0 : index[rank - 1];
    const int64_t run = std::min(inner - position, count);
    out = CopyRun<kSize>(base + offset * kSize, inner_stride, run, out);
    count -= run;
    // To the start of the next row.
    if (rank == 0) return;
    offset -= position * inner_stride;
    index[rank - 1] = 0;
    for (int d = rank - 2; d >= 0; --d) {
      offset += tensor.strides[d];
      if (++index[d] < tensor.shape[d]) break;
      offset -= tensor.strides[d] * tensor.shape[d];
      index[d] = 0;
    }
  }
}

}  // namespace

void GatherElements(const TensorView& tensor, int64_t begin, int64_t count, void* out) {
  auto* to = static_cast<std::byte*>(out);
  switch (DTypeSize(tensor.dtype)) {
    case 1:
      return Gather<1>(tensor, begin, count, to);
    case 2:
      return Gather<2>(tensor, begin, count, to);
    case 4:
      return Gather<4>(tensor, begin, count, to);
    case 8:
      return Gather<8>(tensor, begin, count, to);
  }
}

}  // namespace rlk
