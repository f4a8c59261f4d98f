#include <string>
#include <vector>

#include "google/protobuf/descriptor.pb.h"
#include "google/protobuf/io/coded_stream.h"
#include "google/protobuf/io/zero_copy_stream_impl_lite.h"
#include "proto/wire/signatures.h"
#include "rlk/v1/activation.pb.h"
#include "rlk/v1/call.pb.h"
#include "rlk/v1/conditioning.pb.h"
#include "rlk/v1/contract.pb.h"
#include "rlk/v1/linear.pb.h"
#include "rlk/v1/norm.pb.h"
#include "rlk/v1/parity.pb.h"
#include "rlk/v1/policy.pb.h"
#include "rlk/v1/server.pb.h"
#include "rlk/v1/session.pb.h"
#include "rlk/v1/tensor.pb.h"
#include "rlk/v1/tensor_service.pb.h"
#include "rlk/v1/weights.pb.h"

namespace rlk::wire {
namespace {

using google::protobuf::FileDescriptor;

// Any message of a file leads to the file. A new file of rlk.v1 gets its line here, or in
// OperatorFiles where it holds operators.
std::vector<const FileDescriptor*> ApiFiles() {
  std::vector<const FileDescriptor*> files = {
      rlk::v1::Tensor::descriptor()->file(),
      rlk::v1::MethodOptions::descriptor()->file(),
      rlk::v1::CallOptions::descriptor()->file(),
      rlk::v1::GetInfoRequest::descriptor()->file(),
      rlk::v1::OpenSessionRequest::descriptor()->file(),
      rlk::v1::UploadRequest::descriptor()->file(),
      rlk::v1::CompareRequest::descriptor()->file(),
      rlk::v1::WeightsManifest::descriptor()->file(),
  };
  for (const FileDescriptor* file : OperatorFiles()) files.push_back(file);
  return files;
}

void Add(const FileDescriptor& file, google::protobuf::FileDescriptorSet* set) {
  for (const auto& present : set->file()) {
    if (present.name() == file.name()) return;
  }
  for (int i = 0; i < file.dependency_count(); ++i) Add(*file.dependency(i), set);
  google::protobuf::FileDescriptorProto proto;
  file.CopyTo(&proto);
  file.CopyJsonNameTo(&proto);
  *set->add_file() = std::move(proto);
}

}  // namespace

std::vector<const FileDescriptor*> OperatorFiles() {
  return {
      rlk::v1::FinalLogitSoftcapForwardRequest::descriptor()->file(),
      rlk::v1::RmsNormForwardRequest::descriptor()->file(),
      rlk::v1::DetLinearForwardRequest::descriptor()->file(),
      rlk::v1::TimestepMlpFp32ForwardRequest::descriptor()->file(),
  };
}

std::string SerializeApi() {
  google::protobuf::FileDescriptorSet set;
  for (const FileDescriptor* file : ApiFiles()) Add(*file, &set);
  std::string bytes;
  {
    google::protobuf::io::StringOutputStream stream(&bytes);
    google::protobuf::io::CodedOutputStream coded(&stream);
    coded.SetSerializationDeterministic(true);
    set.SerializeToCodedStream(&coded);
  }
  return bytes;
}

}  // namespace rlk::wire
