#include "kernels/core/parallel.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include <atomic>
#include <thread>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/core/for_each_range.h"

namespace rlk {
namespace {

struct Case {
  int threads;
  int64_t count, grain;
};

TEST(ThreadPool, CoversEachIndexOnceInBlocksOfTheGrain) {
  for (const Case& c : std::vector<Case>{{1, 100, 7},
                                         {2, 0, 1},
                                         {2, 1, 1},
                                         {2, 1000, 1},
                                         {3, 1023, 64},
                                         {4, 1024, 64},
                                         {4, 1025, 64},
                                         {4, 10, 100},
                                         {2, 5, 0}}) {
    SCOPED_TRACE(testing::Message() << c.threads << " threads, " << c.count << ", " << c.grain);
    ThreadPool pool(c.threads);
    EXPECT_EQ(pool.threads(), c.threads);
    std::vector<std::atomic<int>> seen(static_cast<size_t>(c.count));
    std::atomic<bool> aligned = true;
    pool.ParallelFor(c.count, c.grain, [&](int64_t begin, int64_t end) {
      if (begin >= end || (c.grain > 0 && begin % c.grain != 0)) aligned = false;
      for (int64_t i = begin; i < end; ++i) ++seen[static_cast<size_t>(i)];
    });
    EXPECT_TRUE(aligned);
    for (const auto& count : seen) EXPECT_EQ(count, 1);
  }
}

#if defined(__x86_64__)
// With a pool, without one, and where the work is too little for it: the same ranges' union, and
// the environment of the contracts in every body, whatever the caller's is.
TEST(ForEachRange, CoversEachIndexOnceInTheEnvironmentOfTheContracts) {
  ThreadPool pool(3);
  const struct {
    ThreadPool* pool;
    int64_t count, grain;
  } cases[] = {{nullptr, 100, 7}, {nullptr, 0, 7}, {&pool, 0, 7},
               {&pool, 7, 7},     {&pool, 8, 7},   {&pool, 1000, 16}};
  // Upward, and subnormals to zero.
  constexpr uint32_t kContracts = 0x1f80, kHostile = 0x1f80 | 0x4000 | 0x8040;
  const uint32_t before = _mm_getcsr();
  _mm_setcsr(kHostile);
  for (const auto& c : cases) {
    SCOPED_TRACE(testing::Message() << c.count << " by " << c.grain);
    std::vector<std::atomic<int>> seen(static_cast<size_t>(c.count));
    std::atomic<int> bodies = 0, right = 0;
    ForEachRange(c.pool, c.count, c.grain, [&](int64_t begin, int64_t end) {
      ++bodies;
      right += (_mm_getcsr() & ~0x3fu) == kContracts;
      for (int64_t i = begin; i < end; ++i) ++seen[static_cast<size_t>(i)];
    });
    EXPECT_EQ(right, bodies);
    EXPECT_EQ(bodies > 1, c.pool != nullptr && c.count > c.grain);
    for (const auto& count : seen) EXPECT_EQ(count, 1);
    EXPECT_EQ(_mm_getcsr() & ~0x3fu, kHostile & ~0x3fu);
  }
  _mm_setcsr(before);
}
#endif

TEST(ThreadPool, SerialisesCallsFromSeveralThreads) {
  ThreadPool pool(3);
  std::vector<int64_t> sums(4);
  std::vector<std::thread> callers;
  for (size_t caller = 0; caller < sums.size(); ++caller) {
    callers.emplace_back([&pool, &sums, caller] {
      for (int round = 0; round < 50; ++round) {
        std::atomic<int64_t> sum = 0;
        pool.ParallelFor(257, 2, [&](int64_t begin, int64_t end) {
          for (int64_t i = begin; i < end; ++i) sum += i;
        });
        sums[caller] += sum;
      }
    });
  }
  for (std::thread& caller : callers) caller.join();
  for (int64_t sum : sums) EXPECT_EQ(sum, 50 * 257 * 256 / 2);
}

TEST(ThreadPool, StopsWithoutEverBeingUsed) { ThreadPool pool(8); }

}  // namespace
}  // namespace rlk
