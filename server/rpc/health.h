// grpc.health.v1: one answer for the whole server ("") and for each service.
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "server/rpc/transport.h"

namespace grpc {
class CallbackGenericService;
class Server;
}  // namespace grpc

namespace rlk::server {

// A plaintext listener that serves grpc.health.v1 and nothing else, for probes that have no
// credential: whatever else is called there is UNIMPLEMENTED.
class HealthListener {
 public:
  // `address` is HOST:PORT; null where nobody can listen there.
  static std::unique_ptr<HealthListener> Start(const std::string& address, Transport transport);
  ~HealthListener();

  int port() const { return port_; }
  grpc::Server* server() { return server_.get(); }

 private:
  HealthListener(std::unique_ptr<grpc::CallbackGenericService> others,
                 std::unique_ptr<grpc::Server> server, int port);
  const std::unique_ptr<grpc::CallbackGenericService> others_;
  const std::unique_ptr<grpc::Server> server_;
  const int port_;
};

// Thread-safe. The servers outlive it; null ones are left out.
class Health {
 public:
  // Everything starts as NOT_SERVING.
  Health(std::vector<grpc::Server*> servers, std::vector<std::string> services);

  // NOT_SERVING is final once `final` was given: a late "serving" does not undo a drain.
  void Set(bool serving, bool final = false);

 private:
  const std::vector<grpc::Server*> servers_;
  const std::vector<std::string> services_;
  std::mutex mutex_;
  bool final_ = false;
};

}  // namespace rlk::server
