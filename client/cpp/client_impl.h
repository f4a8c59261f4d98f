// What a client consists of. Internal.
#pragma once

#include <grpcpp/channel.h>
#include <grpcpp/client_context.h>
#include <grpcpp/generic/generic_stub.h>

#include <chrono>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "client/cpp/client.h"
#include "client/cpp/session.h"
#include "client/cpp/staging.h"
#include "rlk/v1/parity.grpc.pb.h"
#include "rlk/v1/server.grpc.pb.h"
#include "rlk/v1/tensor_service.grpc.pb.h"

namespace rlk::client {

using Timeout = std::optional<std::chrono::milliseconds>;

struct Client::Impl {
  ClientOptions options;
  std::vector<wire::MethodBinding> methods;
  std::map<std::string, const wire::MethodBinding*> by_name;
  std::shared_ptr<grpc::Channel> channel;
  mutable std::unique_ptr<grpc::GenericStub> stub;
  std::unique_ptr<rlk::v1::ServerService::Stub> server;
  std::unique_ptr<rlk::v1::TensorService::Stub> tensors;
  std::unique_ptr<rlk::v1::ParityService::Stub> parity;
  std::unique_ptr<rlk::v1::SessionService::Stub> sessions;
  std::unique_ptr<Staging> staging = std::make_unique<Staging>();
  // Last: it makes calls when it goes.
  std::unique_ptr<SessionHolder> session;

  // The deadline, and the session where there is one.
  void Prepare(const Timeout& timeout, grpc::ClientContext& context) const {
    const Timeout chosen = timeout ? timeout : options.default_timeout;
    if (chosen) context.set_deadline(std::chrono::system_clock::now() + *chosen);
    session->Attach(context);
  }
};

}  // namespace rlk::client
