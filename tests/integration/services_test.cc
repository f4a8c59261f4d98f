// ServerService, health and reflection.
#include <grpcpp/generic/generic_stub.h>

#include "kernels/core/status.h"
#include "tests/integration/fixture.h"

namespace rlk::test {
namespace {

using rlk::v1::ServerService;

TEST(ServicesTest, GetInfoSaysWhatThisServerIs) {
  TestServer server;
  const auto stub = ServerService::NewStub(DefaultChannel(server.tcp()));
  grpc::ClientContext context;
  rlk::v1::GetInfoResponse info;
  ASSERT_TRUE(stub->GetInfo(&context, {}, &info).ok());
  EXPECT_EQ(info.server_id(), server.server().addresses().server_id);
  EXPECT_EQ(info.server_id().size(), 32u);
  EXPECT_EQ(info.provenance().id().size(), 32u);
  EXPECT_EQ(info.provenance().tolerance_contract_sha256().size(), 64u);
  EXPECT_NE(info.provenance().compile_flags().find("-ffp-contract=off"), std::string::npos);
  EXPECT_FALSE(info.provenance().cpu_isa().empty());
  EXPECT_FALSE(info.provenance().has_git_commit() && info.provenance().git_commit().size() != 40u);
  ASSERT_GE(info.devices_size(), 1);
  EXPECT_EQ(info.devices(0).device().kind(), "cpu");
  EXPECT_TRUE(info.devices(0).healthy());
  bool cpu = false;
  for (const auto& backend : info.backends()) {
    if (backend.name() == "cpu") cpu = backend.available() && backend.known_answers_passed() > 0;
    EXPECT_EQ(backend.reason().empty(), backend.available()) << backend.name();
  }
  EXPECT_TRUE(cpu);
  EXPECT_EQ(info.backends_size(), 5);
  EXPECT_EQ(info.limits_size(), 30);
  for (const auto& limit : info.limits()) {
    EXPECT_GT(limit.value(), 0) << limit.name();
    EXPECT_FALSE(limit.meaning().empty());
  }
  ASSERT_EQ(info.capabilities_size(), 5);
  EXPECT_TRUE(info.capabilities(0).available());
}

TEST(ServicesTest, ListOperatorsShowsContractsAndWhyAVariantIsUnavailable) {
  TestServer server;
  const auto stub = ServerService::NewStub(DefaultChannel(server.tcp()));
  grpc::ClientContext context;
  rlk::v1::ListOperatorsRequest request;
  request.set_operator_("final_logit_softcap");
  rlk::v1::ListOperatorsResponse response;
  ASSERT_TRUE(stub->ListOperators(&context, request, &response).ok());
  ASSERT_EQ(response.methods_size(), 2);
  const rlk::v1::MethodInfo& method = response.methods(0);
  EXPECT_EQ(method.method(), "final_logit_softcap.forward");
  EXPECT_EQ(method.rpc(), kForwardPath);
  EXPECT_EQ(method.direction(), rlk::v1::DIRECTION_FORWARD);
  ASSERT_GE(method.contracts_size(), 1);
  EXPECT_FALSE(method.contracts(0).arithmetic().empty());
  bool cpu = false;
  for (const auto& variant : method.contracts(0).variants()) {
    cpu = cpu || (variant.backend() == "cpu" && variant.available() &&
                  variant.claim() == rlk::v1::CLAIM_LEVEL_L3_PORTABLE);
    EXPECT_EQ(variant.reason().empty(), variant.available()) << variant.kernel();
  }
  EXPECT_TRUE(cpu);
  ASSERT_EQ(method.inputs_size(), 1);
  EXPECT_EQ(method.inputs(0).options().dtypes_size(), 3);
  ASSERT_EQ(method.attributes_size(), 2);
  EXPECT_EQ(method.attributes(0).type(), "double");
  EXPECT_EQ(method.attributes(0).options().default_value(), 30);
  ASSERT_EQ(method.outputs_size(), 1);
}

TEST(ServicesTest, UnknownOperatorIsNotFoundWithTheAllowedSet) {
  TestServer server;
  const auto stub = ServerService::NewStub(DefaultChannel(server.tcp()));
  grpc::ClientContext context;
  rlk::v1::ListOperatorsRequest request;
  request.set_operator_("sofcap");
  rlk::v1::ListOperatorsResponse response;
  const grpc::Status status = stub->ListOperators(&context, request, &response);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::NOT_FOUND);
  const ErrorFacts facts = FactsOf(status);
  EXPECT_EQ(facts.reason, ReasonName(Reason::kUnknownOperator));
  EXPECT_EQ(facts.metadata.at("value"), "sofcap");
  EXPECT_NE(facts.metadata.at("allowed").find("final_logit_softcap"), std::string::npos);
}

TEST(ServicesTest, ServerServiceRefusesUnknownFields) {
  TestServer server;
  for (const char* path :
       {"/rlk.v1.ServerService/GetInfo", "/rlk.v1.ServerService/ListOperators"}) {
    const grpc::Status status =
        CallRaw(DefaultChannel(server.tcp()), path, std::string("\xa0\x1f\x01", 3)).status;
    EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT) << path;
    EXPECT_EQ(FactsOf(status).reason, ReasonName(Reason::kUnknownField));
    EXPECT_EQ(FactsOf(status).metadata["field"], "500");
  }
}

TEST(ServicesTest, HealthKnowsTheServerAndEachService) {
  TestServer server;
  const auto channel = DefaultChannel(server.tcp());
  // HealthCheckRequest{service} has field number 1; the reply's field 1 is 1 for SERVING.
  const auto check = [&](const std::string& service) {
    std::string request;
    if (!service.empty()) {
      request = std::string("\x0a") + static_cast<char>(service.size()) + service;
    }
    return CallRaw(channel, "/grpc.health.v1.Health/Check", request);
  };
  for (const char* service :
       {"", "rlk.v1.ActivationService", "rlk.v1.ConditioningService", "rlk.v1.LinearService",
        "rlk.v1.NormService", "rlk.v1.ServerService"}) {
    EXPECT_EQ(check(service).bytes, "\x08\x01") << service;
  }
  EXPECT_EQ(check("rlk.v1.Nothing").status.error_code(), grpc::StatusCode::NOT_FOUND);
  server.server().Drain(0, 1);
}

// The reflection protocol by hand: a request with list_services (field 7) or file_containing_symbol
// (field 4), whose replies are looked at as text.
std::string Reflect(const std::string& target, const std::string& request_bytes) {
  const auto channel = DefaultChannel(target);
  grpc::GenericStub stub(channel);
  grpc::ClientContext context;
  grpc::CompletionQueue queue;
  const auto call = stub.PrepareCall(
      &context, "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo", &queue);
  const auto next = [&queue] {
    void* tag;
    bool ok = false;
    queue.Next(&tag, &ok);
    return ok;
  };
  call->StartCall(nullptr);
  if (!next()) return "";
  const grpc::Slice slice(request_bytes);
  call->Write(grpc::ByteBuffer(&slice, 1), nullptr);
  if (!next()) return "";
  grpc::ByteBuffer reply;
  call->Read(&reply, nullptr);
  if (!next()) return "";
  call->WritesDone(nullptr);
  next();
  grpc::Status status;
  call->Finish(&status, nullptr);
  next();
  std::string text;
  std::vector<grpc::Slice> slices;
  (void)reply.Dump(&slices);
  for (const grpc::Slice& piece : slices) {
    text.append(reinterpret_cast<const char*>(piece.begin()), piece.size());
  }
  return text;
}

TEST(ServicesTest, ReflectionListsServicesAndDescribesThem) {
  TestServer server;
  const std::string services = Reflect(server.tcp(), std::string("\x3a\x00", 2));
  for (const char* name : {"rlk.v1.ActivationService", "rlk.v1.ConditioningService",
                           "rlk.v1.LinearService", "rlk.v1.NormService", "rlk.v1.ServerService",
                           "grpc.health.v1.Health", "grpc.reflection.v1alpha.ServerReflection"}) {
    EXPECT_NE(services.find(name), std::string::npos) << name;
  }
  const std::string symbol = "rlk.v1.ActivationService";
  const std::string file =
      Reflect(server.tcp(), std::string("\x22") + static_cast<char>(symbol.size()) + symbol);
  EXPECT_NE(file.find("FinalLogitSoftcapForward"), std::string::npos);
  EXPECT_NE(file.find("rlk/v1/contract.proto"), std::string::npos)
      << "what a method takes is in the options of contract.proto";
}

}  // namespace
}  // namespace rlk::test
