#include "server/rpc/health.h"

#include <grpcpp/generic/async_generic_service.h>
#include <grpcpp/health_check_service_interface.h>
#include <grpcpp/security/server_credentials.h>
#include <grpcpp/server.h>

#include <chrono>
#include <utility>

namespace rlk::server {

std::unique_ptr<HealthListener> HealthListener::Start(const std::string& address,
                                                      Transport transport) {
  // A probe's request is the name of a service. What a scanner sends must not take memory.
  constexpr int64_t kMessageBytesMax = 4096;
  transport.limits.message_bytes_max = kMessageBytesMax;
  transport.limits.queue_bytes_max = 0;
  grpc::EnableDefaultHealthCheckService(true);
  grpc::ServerBuilder builder;
  ConfigureTransport(transport, builder);
  int port = 0;
  builder.AddListeningPort(address, grpc::InsecureServerCredentials(), &port);
  // UNIMPLEMENTED for all. gRPC wants one service of ours, so that somebody polls.
  auto others = std::make_unique<grpc::CallbackGenericService>();
  builder.RegisterCallbackGenericService(others.get());
  std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
  if (server == nullptr || port <= 0) return nullptr;
  return std::unique_ptr<HealthListener>(
      new HealthListener(std::move(others), std::move(server), port));
}

HealthListener::HealthListener(std::unique_ptr<grpc::CallbackGenericService> others,
                               std::unique_ptr<grpc::Server> server, int port)
    : others_(std::move(others)), server_(std::move(server)), port_(port) {}

// Watches do not hold it up.
HealthListener::~HealthListener() { server_->Shutdown(std::chrono::system_clock::now()); }

Health::Health(std::vector<grpc::Server*> servers, std::vector<std::string> services)
    : servers_(std::move(servers)), services_(std::move(services)) {
  Set(false);
}

void Health::Set(bool serving, bool final) {
  const std::lock_guard lock(mutex_);
  if (final_) return;
  final_ = final;
  for (grpc::Server* const server : servers_) {
    if (server == nullptr) continue;
    grpc::HealthCheckServiceInterface* const service = server->GetHealthCheckService();
    if (service == nullptr) continue;
    for (const std::string& name : services_) service->SetServingStatus(name, serving);
    service->SetServingStatus("", serving);
  }
}

}  // namespace rlk::server
