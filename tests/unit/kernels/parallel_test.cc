#include "kernels/core/parallel.h"

#include <atomic>
#include <thread>
#include <vector>

#include "gtest/gtest.h"

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
