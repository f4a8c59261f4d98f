// Words through which a kernel tells one that runs beside it what is there.
#pragma once

#include <cstdint>

namespace rlk::device {

// What was written before, by this thread or by those that it met at a barrier, is there for
// whoever reads the value with LoadAcquire.
__device__ __forceinline__ void StoreRelease(uint32_t* p, uint32_t value) {
  asm volatile("st.release.gpu.global.u32 [%0], %1;" ::"l"(p), "r"(value) : "memory");
}
// The same, added to what others add.
__device__ __forceinline__ void AddRelease(uint32_t* p, uint32_t value) {
  asm volatile("red.release.gpu.global.add.u32 [%0], %1;" ::"l"(p), "r"(value) : "memory");
}
__device__ __forceinline__ uint32_t LoadAcquire(const uint32_t* p) {
  uint32_t value;
  asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(value) : "l"(p) : "memory");
  return value;
}

}  // namespace rlk::device
