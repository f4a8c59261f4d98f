// ServerService: what this server is, what it offers, and why something is not available.
#pragma once

#include <grpcpp/impl/codegen/service_type.h>

#include <functional>
#include <memory>

#include "rlk/v1/server.pb.h"
#include "server/engine/engine.h"
#include "server/rpc/gate.h"
#include "server/rpc/server_facts.h"

namespace rlk::server {

// `engine` and `gate` outlive the service; `sharing` is asked at each GetInfo.
std::unique_ptr<grpc::Service> MakeServerService(const Engine* engine, ServerFacts facts,
                                                 std::function<SharingFacts()> sharing,
                                                 const Gate* gate);

// The record as GetInfo gives it.
void FillProvenance(const Provenance& facts, rlk::v1::Provenance& out);

}  // namespace rlk::server
