#include "tests/integration/security_fixture.h"

#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/security/credentials.h>
#include <openssl/sha.h>
#include <sys/stat.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <future>
#include <thread>

#include "google/protobuf/descriptor.h"
#include "google/protobuf/descriptor.pb.h"
#include "proto/wire/signatures.h"
#include "rlk/v1/parity.pb.h"
#include "rlk/v1/server.pb.h"
#include "rlk/v1/session.pb.h"
#include "rlk/v1/tensor_service.pb.h"
#include "server/sessions/random_id.h"

namespace rlk::test {

std::string HashOf(std::string_view token) {
  std::string bytes(SHA256_DIGEST_LENGTH, '\0');
  SHA256(reinterpret_cast<const unsigned char*>(token.data()), token.size(),
         reinterpret_cast<unsigned char*>(bytes.data()));
  return "sha256:" + server::HexText(bytes);
}

void WriteFile(const std::string& path, const std::string& text, unsigned mode) {
  const std::string fresh = path + ".new";
  std::ofstream(fresh, std::ios::binary) << text;
  if (chmod(fresh.c_str(), mode) != 0 || rename(fresh.c_str(), path.c_str()) != 0) abort();
}

RawReply CallWith(const std::shared_ptr<grpc::Channel>& channel, const std::string& path,
                  const std::string& request, const Headers& headers) {
  grpc::GenericStub stub(channel);
  grpc::ClientContext context;
  for (const auto& [key, value] : headers) context.AddMetadata(key, value);
  const grpc::Slice slice(request);
  grpc::ByteBuffer in(&slice, 1), out;
  // Shared: gRPC's thread may still be inside set_value when the status is here.
  auto done = std::make_shared<std::promise<grpc::Status>>();
  std::future<grpc::Status> status = done->get_future();
  stub.UnaryCall(&context, path, grpc::StubOptions(), &in, &out,
                 [done](grpc::Status ended) { done->set_value(std::move(ended)); });
  RawReply reply;
  reply.status = status.get();
  std::vector<grpc::Slice> slices;
  if (reply.status.ok()) (void)out.Dump(&slices);
  for (const grpc::Slice& piece : slices) {
    reply.bytes.append(reinterpret_cast<const char*>(piece.begin()), piece.size());
  }
  return reply;
}

std::shared_ptr<grpc::Channel> TlsChannel(const std::string& target, const ClientTls& tls) {
  grpc::SslCredentialsOptions options;
  options.pem_root_certs = tls.authority;
  options.pem_cert_chain = tls.own.certificate;
  options.pem_private_key = tls.own.key;
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  if (!tls.server_name.empty()) arguments.SetSslTargetNameOverride(tls.server_name);
  if (tls.sessions != nullptr) {
    const grpc_arg kept = grpc_ssl_session_cache_create_channel_arg(tls.sessions);
    arguments.SetPointerWithVtable(kept.key, kept.value.pointer.p, kept.value.pointer.vtable);
  }
  return grpc::CreateCustomChannel(target, grpc::SslCredentials(options), arguments);
}

bool Healthy(const std::shared_ptr<grpc::Channel>& channel) {
  return CallWith(channel, "/grpc.health.v1.Health/Check", "", {}).bytes == "\x08\x01";
}

std::vector<std::string> AllPaths() {
  std::vector<const google::protobuf::FileDescriptor*> files = wire::OperatorFiles();
  for (const auto* message :
       {rlk::v1::CompareRequest::descriptor(), rlk::v1::GetInfoRequest::descriptor(),
        rlk::v1::OpenSessionRequest::descriptor(), rlk::v1::UploadRequest::descriptor()}) {
    files.push_back(message->file());
  }
  std::vector<std::string> paths = {
      "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo",
      "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo",
      "/rlk.v1.NoService/NoMethod"};
  for (const auto* file : files) {
    for (int i = 0; i < file->service_count(); ++i) {
      const auto* const service = file->service(i);
      for (int j = 0; j < service->method_count(); ++j) {
        paths.push_back("/" + service->full_name() + "/" + service->method(j)->name());
      }
    }
  }
  return paths;
}

void Await(const std::function<bool()>& holds) {
  while (!holds()) std::this_thread::sleep_for(std::chrono::milliseconds(20));
}

}  // namespace rlk::test
