// Many calls at once from one thread.
#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "tests/integration/fixture.h"

namespace rlk::test {

// A call in flight. It lives as long as somebody holds it or gRPC has it.
struct FlyingCall {
  grpc::ClientContext context;
  rlk::v1::FinalLogitSoftcapForwardRequest request;
  rlk::v1::FinalLogitSoftcapForwardResponse response;
};

// At most `window` calls at a time. Used by one thread; `done` runs on gRPC's.
class Pipeline {
 public:
  using Done = std::function<void(const FlyingCall& call, const grpc::Status& status)>;

  explicit Pipeline(int64_t window) : window_(window) {}
  ~Pipeline() { Wait(); }

  // Blocks while the window is full. No deadline where it is zero.
  std::shared_ptr<FlyingCall> Send(rlk::v1::ActivationService::Stub& stub,
                                   const rlk::v1::FinalLogitSoftcapForwardRequest& request,
                                   std::chrono::microseconds deadline, Done done) {
    {
      std::unique_lock<std::mutex> lock(mutex_);
      changed_.wait(lock, [this] { return flying_ < window_; });
      ++flying_;
    }
    auto call = std::make_shared<FlyingCall>();
    call->request = request;
    if (deadline.count() > 0) {
      call->context.set_deadline(std::chrono::system_clock::now() + deadline);
    }
    stub.async()->FinalLogitSoftcapForward(
        &call->context, &call->request, &call->response,
        [this, call, done = std::move(done)](const grpc::Status& status) {
          done(*call, status);
          // Notified under the lock: the one that waits may destroy this at once.
          const std::lock_guard<std::mutex> lock(mutex_);
          --flying_;
          changed_.notify_all();
        });
    return call;
  }

  // Until all calls are done.
  void Wait() {
    std::unique_lock<std::mutex> lock(mutex_);
    changed_.wait(lock, [this] { return flying_ == 0; });
  }

 private:
  const int64_t window_;
  std::mutex mutex_;
  std::condition_variable changed_;
  int64_t flying_ = 0;
};

}  // namespace rlk::test
