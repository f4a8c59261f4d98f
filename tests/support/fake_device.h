// A device behind the engine's seam whose faults and timing a test decides.
//
// Like a GPU it works behind the caller's back: copies and kernels are queued on the lane and run
// when somebody looks (Done, Wait, ComputeDigest), and not while the device is held. So a call
// whose bytes are dropped too early is a use after free that a sanitizer sees. Kernels are host
// code.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "server/engine/device.h"

namespace rlk::test {

enum class FakePoint { kBegin, kStageIn, kOutput, kLaunch, kStageOut, kDone, kDigest };

// The test's hand on a fake device; outlives it. Thread-safe.
class FakeControl {
 public:
  // The n-th arrival (from 1, over all lanes) at a point fails; where more than n have happened,
  // the next. A sticky failure makes the device unhealthy, and everything after it fails.
  void FailAt(FakePoint point, int64_t nth, bool sticky);
  // A sticky error that no call met: one of an upload, for example.
  void Lose();
  // The n-th launch (from 1) gets one bit of its first output inverted.
  void FlipBitAt(int64_t launch);
  // Runs at every arrival, on the engine's thread, before the fault is looked at.
  void SetHook(std::function<void(FakePoint, int64_t nth)> hook);

  // While held, nothing that was enqueued gets done: Done() is false.
  void Hold();
  // While held so, Launch itself does not return.
  void HoldInLaunch();
  void Release();

  // Blocks until so many arrivals happened at a point.
  void AwaitArrivals(FakePoint point, int64_t count);
  int64_t arrivals(FakePoint point) const;
  // The largest number of lanes that had a call at one time.
  int64_t busy_lanes_max() const;
  int64_t lanes_destroyed() const;
  bool sticky() const;
  // Page-locks that are held.
  int64_t locks() const { return locks_; }
  void AddLocks(int64_t count) { locks_ += count; }

 private:
  friend class FakeLane;
  friend class FakeDevice;

  struct Fault {
    int64_t nth;
    bool sticky;
  };

  absl::Status Arrive(FakePoint point);
  bool held() const;
  void AwaitRelease();

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::map<FakePoint, int64_t> arrivals_;
  std::multimap<FakePoint, Fault> faults_;
  std::vector<int64_t> flips_;
  std::function<void(FakePoint, int64_t)> hook_;
  bool held_ = false, held_in_launch_ = false, sticky_ = false;
  std::atomic<int64_t> locks_{0};
  int64_t busy_lanes_ = 0, busy_lanes_max_ = 0, lanes_destroyed_ = 0, launches_ = 0;
};

struct FakeDeviceOptions {
  DeviceKind kind = DeviceKind::kCuda;
  int ordinal = 0;
  std::string uuid = "fake-0";
  int compute_capability = 90;
  bool runs_inline = false;
};

std::unique_ptr<server::Device> MakeFakeDevice(std::shared_ptr<FakeControl> control,
                                               const FakeDeviceOptions& options = {});

}  // namespace rlk::test
