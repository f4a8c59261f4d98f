#include "server/rpc/peer_call.h"

#include <algorithm>
#include <chrono>
#include <exception>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/core/status.h"
#include "server/rpc/status_map.h"

namespace rlk::server {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

milliseconds PeerTime(steady_clock::time_point deadline, steady_clock::time_point now,
                      milliseconds most) {
  if (deadline == steady_clock::time_point::max()) return most;
  const auto left = std::chrono::duration_cast<milliseconds>(deadline - now);
  return std::clamp(left - left / 10, milliseconds(0), most);
}

PeerCall::PeerCall(const std::string& address, const Limits& limits, CheckContext& check,
                   const std::string& session)
    : address_(address), check_(check) {
  context_.set_deadline(std::chrono::system_clock::now() +
                        PeerTime(check.interrupt().deadline, steady_clock::now(),
                                 milliseconds(limits.parity_peer_ms_max)));
  if (!session.empty()) context_.AddMetadata(kPeerSessionKey, session);
}

absl::StatusOr<grpc::ByteBuffer> PeerCall::Unary(grpc::GenericStub& stub, const std::string& path,
                                                 const grpc::ByteBuffer& request) {
  // Shared: gRPC's thread may still be inside set_value when the status is here.
  auto done = std::make_shared<std::promise<grpc::Status>>();
  std::future<grpc::Status> status = done->get_future();
  grpc::ByteBuffer reply;
  stub.UnaryCall(&context_, path, grpc::StubOptions(), &request, &reply,
                 [done](grpc::Status ended) { done->set_value(std::move(ended)); });
  RLK_RETURN_IF_ERROR(Result(check_.Await(std::move(status), [this] { context_.TryCancel(); })));
  return reply;
}

absl::Status PeerCall::Unary(grpc::GenericStub& stub, const std::string& path,
                             const google::protobuf::Message& request,
                             google::protobuf::Message* response) {
  const grpc::Slice slice(request.SerializeAsString());
  RLK_ASSIGN_OR_RETURN(const grpc::ByteBuffer reply,
                       Unary(stub, path, grpc::ByteBuffer(&slice, 1)));
  grpc::Slice whole;
  if (reply.DumpToSingleSlice(&whole).ok() &&
      response->ParseFromArray(whole.begin(), static_cast<int>(whole.size()))) {
    return absl::OkStatus();
  }
  return MakeError(absl::StatusCode::kInternal,
                   {Reason::kInternal, "server", address_, "a reply that makes sense"},
                   absl::StrCat(address_, " gave a malformed reply"));
}

void PeerCall::WatchCaller() {
  const auto watch = [this] {
    constexpr auto kLook = std::chrono::milliseconds(20);
    std::unique_lock lock(mutex_);
    while (!stop_.wait_for(lock, kLook, [this] { return stopping_; })) {
      try {
        if (check_.CheckCaller().ok()) continue;
      } catch (...) {
        // It takes memory to say that the caller has gone, and none that he has not.
      }
      context_.TryCancel();
      return;
    }
  };
  try {
    watch_ = std::thread(watch);
  } catch (const std::exception&) {
    // No thread, or no memory for one. Without it the stream still ends at its deadline.
  }
}

PeerCall::~PeerCall() {
  if (!watch_.joinable()) return;
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  stop_.notify_all();
  watch_.join();
}

absl::Status PeerCall::Result(const grpc::Status& status) const {
  if (status.ok()) return absl::OkStatus();
  // The caller's own end comes first: the peer's call ended by it.
  RLK_RETURN_IF_ERROR(check_.CheckCaller());
  const absl::Status theirs = FromGrpcStatus(status);
  if (std::optional<ErrorDetail> detail = GetErrorDetail(theirs)) {
    // What is allowed will be put behind it again.
    std::string said = status.error_message();
    if (const std::string end = "; allowed: " + detail->allowed; said.ends_with(end)) {
      said.resize(said.size() - end.size());
    }
    detail->field = detail->field.empty() ? "server" : absl::StrCat("server.", detail->field);
    return MakeError(theirs.code(), *std::move(detail), absl::StrCat(address_, " says: ", said));
  }
  switch (status.error_code()) {
    case grpc::StatusCode::DEADLINE_EXCEEDED:
      return MakeError(absl::StatusCode::kDeadlineExceeded,
                       {Reason::kDeadlineExceeded, "server", address_,
                        "an answer within the deadline, and within parity_peer_ms_max"},
                       absl::StrCat(address_, " did not answer in time"));
    case grpc::StatusCode::UNAVAILABLE:
      return MakeError(absl::StatusCode::kUnavailable,
                       {Reason::kPeerUnreachable, "server", address_, "a server that answers"},
                       absl::StrCat(address_, " cannot be reached: ", status.error_message()));
    default:
      return MakeError(theirs.code(),
                       {Reason::kPeerUnreachable, "server", address_, "an rlk server"},
                       absl::StrCat(address_, " is no such server: ", status.error_message()));
  }
}

}  // namespace rlk::server
