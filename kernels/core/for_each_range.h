// The loop of a host kernel: ranges in parallel, each in the environment that contracts assume.
#pragma once

#include <cstdint>

#include "kernels/core/fp_environment.h"
#include "kernels/core/parallel.h"

namespace rlk {

// Calls body(begin, end) over disjoint ranges that cover [0, count), with a pool in parallel and in
// multiples of `grain` (but the last); `pool` may be null. Each call has an FpEnvironment. Work up
// to `grain` stays on this thread.
template <typename Body>
void ForEachRange(ThreadPool* pool, int64_t count, int64_t grain, const Body& body) {
  const auto guarded = [&body](int64_t begin, int64_t end) {
    const FpEnvironment environment;
    body(begin, end);
  };
  if (pool != nullptr && count > grain) {
    pool->ParallelFor(count, grain, guarded);
  } else if (count > 0) {
    guarded(0, count);
  }
}

}  // namespace rlk
