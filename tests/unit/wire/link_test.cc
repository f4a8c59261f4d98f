// Our generated messages beside gRPC, its reflection and its health service in one program: a
// second copy of a file in the descriptor pool would abort before main.
#include <memory>

#include "google/rpc/error_details.pb.h"
#include "google/rpc/status.pb.h"
#include "grpcpp/ext/proto_server_reflection_plugin.h"
#include "grpcpp/grpcpp.h"
#include "gtest/gtest.h"
#include "rlk/v1/activation.grpc.pb.h"
#include "rlk/v1/server.grpc.pb.h"

namespace rlk {
namespace {

TEST(Link, ServerWithReflectionAndOurMessagesStarts) {
  grpc::EnableDefaultHealthCheckService(true);
  grpc::reflection::InitProtoReflectionServerBuilderPlugin();
  rlk::v1::ActivationService::Service activation;
  rlk::v1::ServerService::Service server_service;
  grpc::ServerBuilder builder;
  int port = 0;
  builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
  builder.RegisterService(&activation);
  builder.RegisterService(&server_service);
  const std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
  ASSERT_NE(server, nullptr);
  EXPECT_GT(port, 0);
  const auto stub = rlk::v1::ServerService::NewStub(
      grpc::CreateChannel("127.0.0.1:" + std::to_string(port), grpc::InsecureChannelCredentials()));
  grpc::ClientContext context;
  rlk::v1::GetInfoResponse reply;
  EXPECT_EQ(stub->GetInfo(&context, {}, &reply).error_code(), grpc::StatusCode::UNIMPLEMENTED);
  server->Shutdown();
}

TEST(Link, ErrorDetailsRoundTrip) {
  google::rpc::ErrorInfo info;
  info.set_reason("REASON");
  info.set_domain("rlk");
  (*info.mutable_metadata())["field"] = std::string("x");
  google::rpc::Status status;
  status.add_details()->PackFrom(info);
  google::rpc::Status parsed;
  ASSERT_TRUE(parsed.ParseFromString(status.SerializeAsString()));
  google::rpc::ErrorInfo unpacked;
  ASSERT_TRUE(parsed.details(0).UnpackTo(&unpacked));
  EXPECT_EQ(unpacked.metadata().at("field"), "x");
}

}  // namespace
}  // namespace rlk
