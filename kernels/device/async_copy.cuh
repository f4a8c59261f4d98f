// Asynchronous copies from device to shared memory, 16 bytes a thread, and programmatic dependent
// launch.
#pragma once

#include <cstdint>

namespace rlk::device {

__device__ __forceinline__ uint32_t SharedAddress(const void* p) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(p));
}

// Copies 16 bytes. With `present` false sixteen zero bytes are written and `from`, which must be a
// valid address, is not read. The copy does not stay in the first-level cache.
__device__ __forceinline__ void CopyAsync16(void* to, const void* from, bool present) {
  asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;" ::"r"(SharedAddress(to)),
               "l"(from), "r"(present ? 16 : 0)
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

// What is at p is on its way to the second-level cache; with ToStay it stays among other data.
__device__ __forceinline__ void Prefetch(const void* p) {
  asm volatile("prefetch.global.L2 [%0];" ::"l"(p));
}
__device__ __forceinline__ void PrefetchToStay(const void* p) {
  asm volatile("prefetch.global.L2::evict_last [%0];" ::"l"(p));
}

// Programmatic dependent launch: a kernel launched with it may start before the one ahead has
// ended; nothing of that one is read before WaitForLaunchAhead. Without it both do nothing.
__device__ __forceinline__ void AllowLaunchBehind() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}
__device__ __forceinline__ void WaitForLaunchAhead() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

}  // namespace rlk::device
