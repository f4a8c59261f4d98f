// The thread that ends what nobody renews: sessions, and leases of tensors.
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>

#include "server/sessions/session_table.h"
#include "server/tensors/arena_store.h"
#include "server/tensors/tensor_store.h"

namespace rlk::server {

// All outlive it.
class LeaseLoop {
 public:
  LeaseLoop(SessionTable* sessions, TensorStore* store, ArenaStore* arenas)
      : thread_([this, sessions, store, arenas] {
          constexpr auto kInterval = std::chrono::milliseconds(100);
          std::unique_lock lock(mutex_);
          while (!stop_.wait_for(lock, kInterval, [this] { return stopping_; })) {
            sessions->Sweep();
            store->Sweep();
            arenas->Sweep();
          }
        }) {}
  ~LeaseLoop() {
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    stop_.notify_all();
    thread_.join();
  }

 private:
  std::mutex mutex_;
  std::condition_variable stop_;
  bool stopping_ = false;  // guarded by mutex_
  std::thread thread_;
};

}  // namespace rlk::server
