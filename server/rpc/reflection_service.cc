#include "server/rpc/reflection_service.h"

#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "google/protobuf/descriptor.h"
#include "google/protobuf/descriptor.pb.h"
#include "grpc/reflection/v1/reflection.pb.h"
#include "server/rpc/raw_service.h"
#include "server/rpc/status_map.h"
#include "server/rpc/unary.h"

namespace rlk::server {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::DescriptorPool;
using google::protobuf::FieldDescriptor;
using google::protobuf::FileDescriptor;
using grpc::reflection::v1::ServerReflectionRequest;
using grpc::reflection::v1::ServerReflectionResponse;

const DescriptorPool& Pool() { return *DescriptorPool::generated_pool(); }

void NotFound(const std::string& what, ServerReflectionResponse& out) {
  out.mutable_error_response()->set_error_code(static_cast<int>(grpc::StatusCode::NOT_FOUND));
  out.mutable_error_response()->set_error_message("there is no " + what + " of this name");
}

// The file, then what it imports, each once.
void AddFile(const FileDescriptor* file, std::set<std::string>& seen,
             ServerReflectionResponse& out) {
  if (!seen.insert(file->name()).second) return;
  google::protobuf::FileDescriptorProto proto;
  file->CopyTo(&proto);
  out.mutable_file_descriptor_response()->add_file_descriptor_proto(proto.SerializeAsString());
  for (int i = 0; i < file->dependency_count(); ++i) AddFile(file->dependency(i), seen, out);
}

void FillFile(const FileDescriptor* file, const char* what, ServerReflectionResponse& out) {
  std::set<std::string> seen;
  if (file == nullptr) return NotFound(what, out);
  AddFile(file, seen, out);
}

void FillExtensions(const std::string& type, ServerReflectionResponse& out) {
  const Descriptor* const message = Pool().FindMessageTypeByName(type);
  if (message == nullptr) return NotFound("message", out);
  std::vector<const FieldDescriptor*> extensions;
  Pool().FindAllExtensions(message, &extensions);
  out.mutable_all_extension_numbers_response()->set_base_type_name(type);
  for (const FieldDescriptor* extension : extensions) {
    out.mutable_all_extension_numbers_response()->add_extension_number(extension->number());
  }
}

ServerReflectionResponse Answer(const ServerReflectionRequest& request,
                                const std::vector<std::string>& services) {
  ServerReflectionResponse out;
  out.set_valid_host(request.host());
  *out.mutable_original_request() = request;
  switch (request.message_request_case()) {
    case ServerReflectionRequest::kFileByFilename:
      FillFile(Pool().FindFileByName(request.file_by_filename()), "file", out);
      break;
    case ServerReflectionRequest::kFileContainingSymbol:
      FillFile(Pool().FindFileContainingSymbol(request.file_containing_symbol()), "symbol", out);
      break;
    case ServerReflectionRequest::kFileContainingExtension: {
      const auto& extension = request.file_containing_extension();
      const Descriptor* const type = Pool().FindMessageTypeByName(extension.containing_type());
      const FieldDescriptor* const field =
          type == nullptr ? nullptr
                          : Pool().FindExtensionByNumber(type, extension.extension_number());
      FillFile(field == nullptr ? nullptr : field->file(), "extension", out);
      break;
    }
    case ServerReflectionRequest::kAllExtensionNumbersOfType:
      FillExtensions(request.all_extension_numbers_of_type(), out);
      break;
    case ServerReflectionRequest::kListServices:
      for (const std::string& name : services) {
        out.mutable_list_services_response()->add_service()->set_name(name);
      }
      break;
    case ServerReflectionRequest::MESSAGE_REQUEST_NOT_SET:
      out.mutable_error_response()->set_error_code(
          static_cast<int>(grpc::StatusCode::INVALID_ARGUMENT));
      out.mutable_error_response()->set_error_message("the request asks for nothing");
      break;
  }
  return out;
}

// Reads a question, writes its answer, and so on until the caller has no more.
class Conversation final : public grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer> {
 public:
  explicit Conversation(const std::vector<std::string>& services) : services_(services) {
    StartRead(&question_);
  }

  void OnReadDone(bool ok) override {
    if (!ok) {
      Finish(grpc::Status::OK);
      return;
    }
    const auto request = ParseRequest<ServerReflectionRequest>(question_);
    if (!request.ok()) {
      Finish(ToGrpcStatus(request.status()));
      return;
    }
    FillReply(Answer(*request, services_), &answer_);
    StartWrite(&answer_);
  }

  void OnWriteDone(bool ok) override {
    if (!ok) {
      Finish(grpc::Status::CANCELLED);
      return;
    }
    question_.Clear();
    answer_.Clear();
    StartRead(&question_);
  }

  void OnDone() override { delete this; }

 private:
  const std::vector<std::string>& services_;
  grpc::ByteBuffer question_, answer_;
};

class ReflectionService final : public RawService {
 public:
  ReflectionService(std::vector<std::string> services, const Gate* gate)
      : RawService(gate), services_(std::move(services)) {
    for (const char* version : {"v1", "v1alpha"}) {
      const std::string name = absl::StrCat("grpc.reflection.", version, ".ServerReflection");
      services_.push_back(name);
      AddBidiStream(absl::StrCat("/", name, "/ServerReflectionInfo"),
                    [this](const IncomingCall&) { return new Conversation(services_); });
    }
  }

 private:
  std::vector<std::string> services_;
};

}  // namespace

std::unique_ptr<grpc::Service> MakeReflectionService(std::vector<std::string> services,
                                                     const Gate* gate) {
  return std::make_unique<ReflectionService>(std::move(services), gate);
}

}  // namespace rlk::server
