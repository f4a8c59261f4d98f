#include "client/cpp/async_queue.h"

#include <algorithm>
#include <functional>
#include <mutex>
#include <system_error>
#include <thread>

#include "absl/status/status.h"

namespace rlk::client {
namespace {

constexpr unsigned kThreadsMin = 2, kThreadsMax = 16;

void Serve(grpc::CompletionQueue& queue) {
  void* tag = nullptr;
  bool ok = false;
  while (queue.Next(&tag, &ok)) static_cast<AsyncEvent*>(tag)->Happened(ok);
}

// How many threads were started, at most the number that is wanted.
unsigned StartThreads(grpc::CompletionQueue& queue) {
  const unsigned wanted =
      std::clamp(std::thread::hardware_concurrency() / 2, kThreadsMin, kThreadsMax);
  for (unsigned started = 0; started < wanted; ++started) {
    try {
      std::thread(Serve, std::ref(queue)).detach();
    } catch (const std::system_error&) {
      return started;
    }
  }
  return wanted;
}

}  // namespace

absl::StatusOr<grpc::CompletionQueue*> AsyncQueue() {
  static auto& mutex = *new std::mutex;
  static auto& queue = *new grpc::CompletionQueue;
  static unsigned threads = 0;
  const std::lock_guard lock(mutex);
  if (threads == 0) threads = StartThreads(queue);
  if (threads == 0) {
    return absl::ResourceExhaustedError("no thread can be started for asynchronous calls");
  }
  return &queue;
}

}  // namespace rlk::client
