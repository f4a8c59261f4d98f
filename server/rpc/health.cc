#include "server/rpc/health.h"

#include <grpcpp/health_check_service_interface.h>
#include <grpcpp/server.h>

#include <utility>

namespace rlk::server {

Health::Health(grpc::Server* server, std::vector<std::string> services)
    : server_(server), services_(std::move(services)) {
  Set(false);
}

void Health::Set(bool serving, bool final) {
  const std::lock_guard lock(mutex_);
  if (final_) return;
  final_ = final;
  grpc::HealthCheckServiceInterface* service = server_->GetHealthCheckService();
  if (service == nullptr) return;
  for (const std::string& name : services_) service->SetServingStatus(name, serving);
  service->SetServingStatus("", serving);
}

}  // namespace rlk::server
