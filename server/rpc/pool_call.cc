#include "server/rpc/pool_call.h"

#include <chrono>
#include <optional>
#include <utility>

#include "server/parity/exception_status.h"
#include "server/rpc/status_map.h"
#include "server/rpc/unary.h"

namespace rlk::server {
namespace {

using std::chrono::steady_clock;

steady_clock::time_point SteadyDeadline(const grpc::CallbackServerContext& context) {
  const auto left = context.deadline() - std::chrono::system_clock::now();
  // A client may name a deadline of centuries, which would overflow.
  constexpr auto kFar = std::chrono::hours(24 * 365);
  if (left > kFar) return steady_clock::time_point::max();
  return steady_clock::now() + left;
}

// A call from its arrival to its answer.
struct PooledCall {
  PoolContext pooled;
  grpc::CallbackServerContext* context;
  std::shared_ptr<Session> session;
  grpc::ServerUnaryReactor* reactor;
  grpc::ByteBuffer* reply;
  PoolWork work;

  void Begin() const {
    pooled.counter->Enter();
    if (session != nullptr) session->BeginWork();
  }

  // What the call held is given back before the caller hears of the end.
  void End(const absl::Status& status) {
    work = nullptr;
    CountRefusal(pooled, status);
    if (session != nullptr) {
      session->EndWork(context->IsCancelled(), SessionClock::now());
      session->LeaveCall();
    }
    // From here on the reactor and the context may be gone.
    reactor->Finish(ToGrpcStatus(status));
    pooled.counter->Leave();
  }

  absl::Status Run(const Interrupt& turn) const {
    try {
      const auto response = work(turn);
      if (response.ok()) {
        FillReply(**response, reply);
      } else if (pooled.ending != nullptr && *pooled.ending) {
        // Not what a peer or the engine made of it.
        if (absl::Status end = turn.Check(); !end.ok()) return end;
      }
      return response.status();
    } catch (...) {
      return StatusOfException();
    }
  }
};

}  // namespace

void CountRefusal(const PoolContext& pooled, const absl::Status& status) {
  if (status.ok() || !pooled.on_rejected) return;
  const std::optional<ErrorDetail> detail = GetErrorDetail(status);
  pooled.on_rejected(detail ? detail->reason : Reason::kInternal);
}

grpc::ServerUnaryReactor* RunOnPool(const PoolContext& pooled, grpc::CallbackServerContext* context,
                                    std::shared_ptr<Session> session, grpc::ByteBuffer* reply,
                                    PoolWork work) {
  EchoTraceparent(context);
  grpc::ServerUnaryReactor* const reactor = context->DefaultReactor();
  const auto call = std::make_shared<PooledCall>(
      PooledCall{pooled, context, std::move(session), reactor, reply, std::move(work)});
  call->Begin();
  const Interrupt interrupt = {SteadyDeadline(*context),
                               [context, session = call->session] {
                                 return context->IsCancelled() ||
                                        (session != nullptr && session->ended());
                               },
                               pooled.ending};
  const absl::Status taken =
      pooled.pool->Submit(interrupt, [call](const Interrupt& turn, const absl::Status& verdict) {
        call->End(verdict.ok() ? call->Run(turn) : verdict);
      });
  if (!taken.ok()) call->End(taken);
  return reactor;
}

}  // namespace rlk::server
