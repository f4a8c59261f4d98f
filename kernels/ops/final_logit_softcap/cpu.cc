#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

#include "kernels/core/cpu_features.h"
#include "kernels/core/for_each_range.h"
#include "kernels/core/status.h"
#include "kernels/core/strided.h"
#include "kernels/ops/final_logit_softcap/cpu_kernels.h"
#include "kernels/ops/final_logit_softcap/final_logit_softcap.h"

namespace rlk {
namespace {

// Elements of one step of the pool, and of one gathered piece.
constexpr int64_t kGrain = 16384;
constexpr int64_t kPiece = 1024;

const SoftcapCpuKernels& Kernels(Isa isa) {
  return PickByIsa(isa, kCpuKernelsBase, kCpuKernelsV3, kCpuKernelsV4);
}

absl::Status Broken(const char* what) {
  return MakeError(absl::StatusCode::kInternal, {Reason::kInternal, "", "", ""}, what);
}

// -1 for a dtype that the signature does not allow.
int Index(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return kSoftcapF32;
    case DType::kF16:
      return kSoftcapF16;
    case DType::kBF16:
      return kSoftcapBf16;
    default:
      return -1;
  }
}

// An input as contiguous elements: where it lies, or gathered piece by piece into a small buffer.
class Reader {
 public:
  explicit Reader(const TensorView& tensor)
      : tensor_(tensor),
        size_(DTypeSize(tensor.dtype)),
        direct_(tensor.contiguous() &&
                reinterpret_cast<uintptr_t>(tensor.data) % static_cast<uintptr_t>(size_) == 0) {}

  bool direct() const { return direct_; }

  // Elements [begin, begin + count), count <= kPiece unless direct.
  const void* Read(int64_t begin, int64_t count) {
    if (direct_) return tensor_.as<std::byte>() + begin * size_;
    GatherElements(tensor_, begin, count, buffer_.data());
    return buffer_.data();
  }

 private:
  const TensorView& tensor_;
  const int64_t size_;
  const bool direct_;
  alignas(64) std::array<std::byte, kPiece * sizeof(float)> buffer_;
};

}  // namespace

absl::Status RunSoftcapForwardCpu(const KernelArgs& args, Isa isa) {
  const TensorView& x = args.Input("x");
  const MutableTensorView& y = args.Output("y");
  const float softcap = args.F32("softcap");
  const int dtype = Index(x.dtype);
  if (dtype < 0 || (y.dtype != DType::kF32 && y.dtype != x.dtype)) return Broken("softcap dtypes");
  if (!(x.shape == y.shape)) return Broken("x and y have different shapes");
  const auto kernel = Kernels(isa).forward[dtype][y.dtype == x.dtype ? 1 : 0];
  const int64_t y_size = DTypeSize(y.dtype);
  ForEachRange(args.pool, x.elements(), kGrain, [&](int64_t begin, int64_t end) {
    Reader reader(x);
    const int64_t step = reader.direct() ? end - begin : kPiece;
    for (int64_t i = begin; i < end; i += step) {
      const int64_t count = std::min(step, end - i);
      kernel(reader.Read(i, count), y.as<std::byte>() + i * y_size, count, softcap);
    }
  });
  return absl::OkStatus();
}

absl::Status RunSoftcapBackwardCpu(const KernelArgs& args, Isa isa) {
  const TensorView& x = args.Input("x");
  const TensorView& grad_y = args.Input("grad_y");
  const MutableTensorView& grad_x = args.Output("grad_x");
  const float softcap = args.F32("softcap");
  const int dtype = Index(x.dtype);
  if (dtype < 0 || grad_x.dtype != x.dtype ||
      (grad_y.dtype != DType::kF32 && grad_y.dtype != x.dtype)) {
    return Broken("softcap dtypes");
  }
  if (!(x.shape == grad_y.shape) || !(x.shape == grad_x.shape)) {
    return Broken("x, grad_y and grad_x have different shapes");
  }
  const auto kernel = Kernels(isa).backward[dtype][grad_y.dtype == x.dtype ? 1 : 0];
  const int64_t size = DTypeSize(x.dtype);
  ForEachRange(args.pool, x.elements(), kGrain, [&](int64_t begin, int64_t end) {
    Reader x_reader(x), grad_reader(grad_y);
    const bool direct = x_reader.direct() && grad_reader.direct();
    const int64_t step = direct ? end - begin : kPiece;
    for (int64_t i = begin; i < end; i += step) {
      const int64_t count = std::min(step, end - i);
      kernel(x_reader.Read(i, count), grad_reader.Read(i, count), grad_x.as<std::byte>() + i * size,
             count, softcap);
    }
  });
  return absl::OkStatus();
}

absl::Status LaunchSoftcapForwardCpu(const KernelArgs& args) {
  return RunSoftcapForwardCpu(args, BestIsa());
}

absl::Status LaunchSoftcapBackwardCpu(const KernelArgs& args) {
  return RunSoftcapBackwardCpu(args, BestIsa());
}

}  // namespace rlk
