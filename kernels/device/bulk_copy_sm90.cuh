// Bulk copies into shared memory and out of it, and the barriers of a ring of stages that they fill
// (sm_90 and later; of the barriers Init, FenceInit, Arrive, WaitInBlock and Test from sm_80 on).
#pragma once

#include <cstdint>

#include "kernels/device/async_copy.cuh"

namespace rlk::device {

// A barrier in shared memory. A phase completes when all arrivals and all announced bytes are
// there.
class StageBarrier {
 public:
  // By one thread; then FenceInit, and the block (or cluster) meets.
  __device__ __forceinline__ void Init(int arrivals) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(Address()), "r"(arrivals)
                 : "memory");
  }
  static __device__ __forceinline__ void FenceInit() {
#if __CUDA_ARCH__ >= 900
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
#endif
  }
  __device__ __forceinline__ uint32_t Address() const { return SharedAddress(&word_); }

  __device__ __forceinline__ void Arrive() {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(Address()) : "memory");
  }
  // Arrives, and announces bytes that copies bring.
  __device__ __forceinline__ void ArriveExpect(int bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(Address()),
                 "r"(bytes)
                 : "memory");
  }
  // Until the phase of this parity has completed. Of a new barrier parity 1 has.
  __device__ __forceinline__ void Wait(uint32_t parity) const {
    asm volatile(
        "{\n\t"
        ".reg .pred done;\n"
        "again_%=:\n\t"
        "mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 done, [%0], %1;\n\t"
        "@!done bra again_%=;\n\t"
        "}" ::"r"(Address()),
        "r"(parity)
        : "memory");
  }
  // The same, where only threads of this block arrive: what others wrote in its cluster may not be
  // seen.
  __device__ __forceinline__ void WaitInBlock(uint32_t parity) const {
#if __CUDA_ARCH__ >= 900
    asm volatile(
        "{\n\t"
        ".reg .pred done;\n"
        "again_%=:\n\t"
        "mbarrier.try_wait.parity.acquire.cta.shared::cta.b64 done, [%0], %1;\n\t"
        "@!done bra again_%=;\n\t"
        "}" ::"r"(Address()),
        "r"(parity)
        : "memory");
#else
    while (!Test(parity)) {
    }
#endif
  }
  // Whether it has: for a thread that has something to do meanwhile.
  __device__ __forceinline__ bool Test(uint32_t parity) const {
    uint32_t done;
    asm volatile(
        "{\n\t"
        ".reg .pred done;\n\t"
        "mbarrier.test_wait.parity.acquire.cta.shared::cta.b64 done, [%1], %2;\n\t"
        "selp.u32 %0, 1, 0, done;\n\t"
        "}"
        : "=r"(done)
        : "r"(Address()), "r"(parity)
        : "memory");
    return done != 0;
  }

 private:
  uint64_t word_;
};

// Bulk copies issued after this see what ordinary writes, known of here, have put in global memory.
__device__ __forceinline__ void FenceBeforeBulkCopy() {
#if __CUDA_ARCH__ >= 900
  asm volatile("fence.proxy.async.global;" ::: "memory");
#endif
}

// Copies `bytes`, a multiple of 16; both addresses are 16-byte aligned. `barrier` counts them.
__device__ __forceinline__ void BulkCopy(void* to, const void* from, int bytes,
                                         const StageBarrier& barrier) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::
          "r"(SharedAddress(to)),
      "l"(from), "r"(bytes), "r"(barrier.Address())
      : "memory");
}

// Copies `bytes`, a multiple of 16, from shared to global memory; both addresses are 16-byte
// aligned. What ordinary writes put there is seen after FenceBeforeBulkStore of those threads and a
// barrier. A thread's copies until BulkStoreCommit are a group.
__device__ __forceinline__ void BulkStore(void* to, const void* from, int bytes) {
#if __CUDA_ARCH__ >= 900
  asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(to),
               "r"(SharedAddress(from)), "r"(bytes)
               : "memory");
#else
  __trap();
#endif
}
__device__ __forceinline__ void FenceBeforeBulkStore() {
#if __CUDA_ARCH__ >= 900
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
#endif
}
__device__ __forceinline__ void BulkStoreCommit() {
#if __CUDA_ARCH__ >= 900
  asm volatile("cp.async.bulk.commit_group;" ::: "memory");
#endif
}
// Until at most kGroups of this thread's last groups have not yet read shared memory.
template <int kGroups>
__device__ __forceinline__ void BulkStoreWait() {
#if __CUDA_ARCH__ >= 900
  asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(kGroups) : "memory");
#endif
}

}  // namespace rlk::device
