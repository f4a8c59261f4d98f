// The threads on which calls end that no thread waits for. Internal.
#pragma once

#include <grpcpp/completion_queue.h>

#include "absl/status/statusor.h"

namespace rlk::client {

// The tag of one operation on the queue.
class AsyncEvent {
 public:
  virtual ~AsyncEvent() = default;
  // Runs once, on a thread of the queue. May destroy anything, the last reference of a channel too.
  virtual void Happened(bool ok) = 0;
};

// The queue of the process: its threads start with the first use, and neither ends before the
// process does. The queue behind gRPC's callbacks would not do: it ends with the process's last
// channel, and aborts where a callback held that one. Error: RESOURCE_EXHAUSTED, when no thread
// can be started.
absl::StatusOr<grpc::CompletionQueue*> AsyncQueue();

}  // namespace rlk::client
