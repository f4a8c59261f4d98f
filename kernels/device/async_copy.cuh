// Asynchronous copies of 16 bytes from global to shared memory, in the order of their groups.
#pragma once

#include <cstdint>

namespace rlk::device {

// With `present` false sixteen zero bytes are written and `from`, which must be a valid address,
// is not read. Streams: the copy does not stay in the first-level cache.
__device__ __forceinline__ void CopyAsync16(void* to, const void* from, bool present) {
  const auto address = static_cast<uint32_t>(__cvta_generic_to_shared(to));
  asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;" ::"r"(address), "l"(from),
               "r"(present ? 16 : 0)
               : "memory");
}
__device__ __forceinline__ void CopyAsyncCommit() {
  asm volatile("cp.async.commit_group;" ::: "memory");
}
// Until at most kGroups of this thread's last groups are not done.
template <int kGroups>
__device__ __forceinline__ void CopyAsyncWait() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kGroups) : "memory");
}

}  // namespace rlk::device
