// A call that has arrived, and whose it is.
#pragma once

#include <grpcpp/server_context.h>

#include <memory>

#include "server/sessions/account.h"

namespace rlk::server {

struct IncomingCall {
  grpc::CallbackServerContext* context = nullptr;
  // Of the caller's credential. Null where the server asks for none, and for callers on the Unix
  // socket, whom the kernel vouches for.
  std::shared_ptr<Account> account;
};

}  // namespace rlk::server
