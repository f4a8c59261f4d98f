// Unary calls that take their time: a pool works on them and answers from there.
#pragma once

#include <grpcpp/server_context.h>
#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/server_callback.h>

#include <atomic>
#include <functional>
#include <memory>

#include "absl/status/statusor.h"
#include "google/protobuf/message.h"
#include "kernels/core/status.h"
#include "server/parity/interrupt.h"
#include "server/parity/work_pool.h"
#include "server/rpc/call_counter.h"
#include "server/sessions/session.h"

namespace rlk::server {

// Nothing is owned; everything outlives the gRPC server.
struct PoolContext {
  WorkPool* pool = nullptr;
  // Counts the calls in flight; a drain waits for them.
  CallCounter* counter = nullptr;
  // True where calls in flight are to end. May be null.
  const std::atomic<bool>* ending = nullptr;
  // Of a refusal.
  std::function<void(Reason reason)> on_rejected;
};

// Gives the message that becomes the reply. Ends early where the interrupt says so: nobody waits
// any more, the session has ended, the server has no more time.
using PoolWork =
    std::function<absl::StatusOr<std::unique_ptr<google::protobuf::Message>>(const Interrupt&)>;

// Runs `work` on the pool. `session`, where there is one, has counted the call (EnterSession); its
// lease does not pass meanwhile.
grpc::ServerUnaryReactor* RunOnPool(const PoolContext& pooled, grpc::CallbackServerContext* context,
                                    std::shared_ptr<Session> session, grpc::ByteBuffer* reply,
                                    PoolWork work);

// Tells `on_rejected` of an error.
void CountRefusal(const PoolContext& pooled, const absl::Status& status);

}  // namespace rlk::server
