#include "kernels/cuda/launch.h"

#include <limits>
#include <string>

#include "kernels/core/status.h"

namespace rlk::cuda {

absl::StatusOr<unsigned> GridBlocks(int64_t count, int64_t items_per_block) {
  const int64_t blocks = (count - 1) / items_per_block + 1;
  if (count <= 0 || blocks > std::numeric_limits<int32_t>::max()) {
    ErrorDetail detail;
    detail.reason = Reason::kInternal;
    detail.field = "grid";
    detail.value = std::to_string(blocks);
    detail.allowed = "1 .. 2^31 - 1";
    return MakeError(absl::StatusCode::kInternal, std::move(detail),
                     "the launch needs a grid that CUDA does not have");
  }
  return static_cast<unsigned>(blocks);
}

}  // namespace rlk::cuda
