// grpc.health.v1: one answer for the whole server ("") and for each service.
#pragma once

#include <mutex>
#include <string>
#include <vector>

namespace grpc {
class Server;
}

namespace rlk::server {

// Thread-safe. `server` outlives it.
class Health {
 public:
  // Everything starts as NOT_SERVING.
  Health(grpc::Server* server, std::vector<std::string> services);

  // NOT_SERVING is final once `final` was given: a late "serving" does not undo a drain.
  void Set(bool serving, bool final = false);

 private:
  grpc::Server* const server_;
  const std::vector<std::string> services_;
  std::mutex mutex_;
  bool final_ = false;
};

}  // namespace rlk::server
