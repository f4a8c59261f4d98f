// The bounded pool: nothing is lost, nothing waits without bound.
#include "server/parity/work_pool.h"

#include <gtest/gtest.h>

#include <atomic>
#include <future>

#include "kernels/core/status.h"

namespace rlk::server {
namespace {

TEST(WorkPool, RefusesWhatIsTooMuchAndRunsTheRest) {
  std::promise<void> release, started;
  std::shared_future<void> held = release.get_future().share();
  std::atomic<int> ran{0};
  {
    WorkPool pool(1, 2, "checks");
    const auto count = [&ran](const Interrupt&, absl::Status status) {
      EXPECT_TRUE(status.ok());
      ++ran;
    };
    ASSERT_TRUE(pool.Submit({},
                            [&](const Interrupt&, absl::Status) {
                              started.set_value();
                              held.wait();
                            })
                    .ok());
    started.get_future().wait();
    EXPECT_TRUE(pool.Submit({}, count).ok());
    EXPECT_TRUE(pool.Submit({}, count).ok());
    const absl::Status full = pool.Submit({}, count);
    EXPECT_EQ(full.code(), absl::StatusCode::kResourceExhausted);
    EXPECT_EQ(GetErrorDetail(full)->reason, Reason::kQueueFull);
    EXPECT_EQ(GetErrorDetail(full)->field, "checks");
    EXPECT_GT(GetErrorDetail(full)->retry_after_ms, 0);
    release.set_value();
  }
  EXPECT_EQ(ran, 2);
}

TEST(WorkPool, SaysWhoseTurnComesTooLate) {
  std::promise<absl::Status> late, gone, ended;
  const std::atomic<bool> ending = true;
  {
    WorkPool pool(2, 8, "checks");
    Interrupt interrupt;
    interrupt.deadline = std::chrono::steady_clock::time_point::min();
    ASSERT_TRUE(
        pool.Submit(interrupt, [&](const Interrupt&,
                                   absl::Status status) { late.set_value(std::move(status)); })
            .ok());
    ASSERT_TRUE(pool.Submit({.cancelled = [] { return true; }},
                            [&](const Interrupt&, absl::Status status) {
                              gone.set_value(std::move(status));
                            })
                    .ok());
    ASSERT_TRUE(pool.Submit({.cancelled = [] { return true; }, .ending = &ending},
                            [&](const Interrupt&, absl::Status status) {
                              ended.set_value(std::move(status));
                            })
                    .ok());
  }
  const absl::Status end = ended.get_future().get();
  EXPECT_EQ(end.code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(GetErrorDetail(end)->reason, Reason::kDraining);
  EXPECT_EQ(late.get_future().get().code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_EQ(gone.get_future().get().code(), absl::StatusCode::kCancelled);
}

}  // namespace
}  // namespace rlk::server
