// rlk health. The two messages of grpc.health.v1 are one field each, so they are read and written
// as unknown fields of an empty message: a second compiled copy of health.proto would collide with
// that of other libraries.
#include <google/protobuf/empty.pb.h>
#include <grpcpp/channel.h>
#include <grpcpp/generic/generic_stub.h>

#include <array>
#include <chrono>
#include <memory>
#include <utility>

#include "client/cli/command.h"
#include "client/cli/render.h"
#include "client/cpp/channel.h"
#include "client/cpp/status_map.h"
#include "kernels/core/status.h"

namespace rlk::cli {
namespace {

constexpr int64_t kTimeoutMs = 5000;
constexpr int kField = 1;  // HealthCheckRequest.service, HealthCheckResponse.status
constexpr std::array<const char*, 4> kStates = {"UNKNOWN", "SERVING", "NOT_SERVING",
                                                "SERVICE_UNKNOWN"};

grpc::ByteBuffer Request(const std::string& service) {
  google::protobuf::Empty request;
  if (!service.empty()) {
    request.GetReflection()->MutableUnknownFields(&request)->AddLengthDelimited(kField)->assign(
        service);
  }
  const grpc::Slice slice(request.SerializeAsString());
  return grpc::ByteBuffer(&slice, 1);
}

absl::StatusOr<std::string> State(const grpc::ByteBuffer& reply) {
  grpc::Slice slice;
  google::protobuf::Empty message;
  if (!reply.TrySingleSlice(&slice).ok() && !reply.DumpToSingleSlice(&slice).ok()) {
    return absl::InternalError("the reply has no bytes");
  }
  if (!message.ParseFromArray(slice.begin(), static_cast<int>(slice.size()))) {
    return absl::InternalError("the reply is no HealthCheckResponse");
  }
  uint64_t state = 0;
  const auto& fields = message.GetReflection()->GetUnknownFields(message);
  for (int i = 0; i < fields.field_count(); ++i) {
    if (fields.field(i).number() == kField &&
        fields.field(i).type() == google::protobuf::UnknownField::TYPE_VARINT) {
      state = fields.field(i).varint();
    }
  }
  return state < kStates.size() ? kStates[state] : std::to_string(state);
}

absl::StatusOr<std::string> Check(std::shared_ptr<grpc::Channel> channel,
                                  const std::string& service, std::chrono::milliseconds timeout) {
  grpc::GenericStub stub(std::move(channel));
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + timeout);
  grpc::CompletionQueue queue;
  grpc::ByteBuffer reply;
  grpc::Status status;
  auto call =
      stub.PrepareUnaryCall(&context, "/grpc.health.v1.Health/Check", Request(service), &queue);
  call->StartCall();
  call->Finish(&reply, &status, nullptr);
  void* tag = nullptr;
  bool ok = false;
  const bool answered = queue.Next(&tag, &ok);
  queue.Shutdown();
  if (!answered || !ok) return absl::InternalError("no answer");
  if (!status.ok()) return client::FromGrpc(status);
  return State(reply);
}

}  // namespace

Outcome RunHealth(const Args& args) {
  if (args.positional().size() > 1) {
    return UsageError(absl::InvalidArgumentError("rlk health takes one service, or none"));
  }
  const auto timeout_ms = args.GetInteger("--timeout-ms", kTimeoutMs, 1, int64_t{1} << 31);
  if (!timeout_ms.ok()) return UsageError(timeout_ms.status());
  const std::string address = ServerAddress(args);
  const auto options = ClientOptionsOf(args);
  if (!options.ok()) return ConnectError(options.status());
  auto channel = client::MakeChannel(address, *options);
  if (!channel.ok()) return ConnectError(channel.status());
  const std::string service = args.positional().empty() ? "" : args.positional()[0];
  const auto state = Check(*std::move(channel), service, std::chrono::milliseconds(*timeout_ms));
  if (!state.ok()) return CallError(state.status());
  Outcome outcome;
  outcome.json = Dump({{"address", address}, {"service", service}, {"status", *state}});
  outcome.text = *state + "\n";
  if (*state != "SERVING") {
    outcome.exit_code = kExitRefused;
    outcome.failures.push_back((service.empty() ? "the server" : service) + " is " + *state);
  }
  return outcome;
}

}  // namespace rlk::cli
