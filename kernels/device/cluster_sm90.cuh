// Thread block clusters (sm_90 and later): the blocks meet, and write into each other's shared
// memory.
#pragma once

#include <cstdint>

#include "kernels/device/async_copy.cuh"

namespace rlk::device {

// The blocks of a cluster meet: all of them have started, and what was initialised under a fence
// before ClusterArrive is seen after ClusterWait.
__device__ __forceinline__ void ClusterArrive() {
  asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");
}
__device__ __forceinline__ void ClusterWait() {
  asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
}

// A barrier in shared memory that completes a phase when its one arrival and the bytes that this
// arrival announced are there. Bytes may come before the arrival, but not before the phase ahead
// has completed: a sender that can be so early needs a second barrier, used in turns.
class TransferBarrier {
 public:
  // By one thread, then ClusterArrive and ClusterWait.
  __device__ __forceinline__ void Init() {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(SharedAddress(&word_)) : "memory");
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  }
  // By one thread, once a phase.
  __device__ __forceinline__ void Expect(int bytes) {
    asm volatile(
        "mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(SharedAddress(&word_)),
        "r"(bytes)
        : "memory");
  }
  __device__ __forceinline__ void Wait(int phase) {
    asm volatile(
        "{\n\t"
        ".reg .pred done;\n"
        "again_%=:\n\t"
        "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n\t"
        "@!done bra again_%=;\n\t"
        "}" ::"r"(SharedAddress(&word_)),
        "r"(phase & 1)
        : "memory");
  }
  // Writes two floats to where `local` is in the block `rank` of the cluster and counts their bytes
  // on that block's barrier.
  __device__ __forceinline__ void Send(const float2* local, uint32_t rank, float2 value) {
    asm volatile(
        "{\n\t"
        ".reg .b32 to, barrier;\n\t"
        "mapa.shared::cluster.u32 to, %0, %2;\n\t"
        "mapa.shared::cluster.u32 barrier, %1, %2;\n\t"
        "st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v2.f32 [to], {%3, %4}, "
        "[barrier];\n\t"
        "}" ::"r"(SharedAddress(local)),
        "r"(SharedAddress(&word_)), "r"(rank), "f"(value.x), "f"(value.y)
        : "memory");
  }

 private:
  uint64_t word_;
};

}  // namespace rlk::device
