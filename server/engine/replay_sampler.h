// Which calls are run twice unasked: one of every N, at a place within the N that changes, so that
// traffic with a period (a trainer's step) does not show the same call each time. The choice is a
// function of N and of the call's number alone.
#pragma once

#include <atomic>
#include <cstdint>

namespace rlk::server {

class ReplaySampler {
 public:
  // 0 takes none.
  explicit ReplaySampler(int64_t every) : every_(static_cast<uint64_t>(every)) {}

  // Whether the next call is one. Thread-safe: one atomic addition.
  bool Next() {
    return every_ != 0 && Takes(every_, number_.fetch_add(1, std::memory_order_relaxed));
  }

  // Whether call `number` (from 0) is one.
  static bool Takes(uint64_t every, uint64_t number) {
    return number % every == Mix(number / every) % every;
  }

 private:
  // The finalizer of SplitMix64 (Steele, Lea, Flood: Fast Splittable Pseudorandom Number
  // Generators, 2014).
  static uint64_t Mix(uint64_t x) {
    x += 0x9e3779b97f4a7c15;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
    x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
    return x ^ (x >> 31);
  }

  const uint64_t every_;
  std::atomic<uint64_t> number_{0};
};

}  // namespace rlk::server
