// Barriers of a part of a block: some threads only say that they were here, others wait for all.
#pragma once

namespace rlk::device {

// `kThreads` is the sum of those that arrive and those that wait, whole warps. 1 <= id <= 15; 0 is
// __syncthreads. What a thread wrote to shared memory before it came is seen by those that waited.
template <int kThreads>
struct NamedBarrier {
  int id;

  __device__ __forceinline__ void Arrive() const {
    asm volatile("barrier.cta.arrive.aligned %0, %1;" ::"r"(id), "n"(kThreads) : "memory");
  }
  __device__ __forceinline__ void Wait() const {
    asm volatile("barrier.cta.sync.aligned %0, %1;" ::"r"(id), "n"(kThreads) : "memory");
  }
};

}  // namespace rlk::device
