// Signatures from the descriptors of rlk.v1.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "google/protobuf/descriptor.h"
#include "kernels/registry/signature.h"

namespace rlk::wire {

// Every request has CallOptions, every response CallReport, under this number.
inline constexpr int kOptionsFieldNumber = 100;
inline constexpr int kReportFieldNumber = 100;

// One RPC with rlk.v1.method options.
struct MethodBinding {
  const google::protobuf::MethodDescriptor* descriptor = nullptr;
  MethodSignature signature;
};

// Compiles every operator method of the services in `files` (INTERNAL, naming the field, where an
// option is contradictory or a name does not follow contracts' rule). The order is that of files,
// services and methods.
absl::StatusOr<std::vector<MethodBinding>> CompileSignatures(
    const std::vector<const google::protobuf::FileDescriptor*>& files);

// The files of rlk.v1 that hold operator services.
std::vector<const google::protobuf::FileDescriptor*> OperatorFiles();

// Every file of rlk.v1 and what they import, imports first, without comments: the committed
// baseline tests/golden/api.binpb. Equal bytes for equal APIs.
std::string SerializeApi();

// Stable text of the compiled signatures: the committed baseline tests/golden/signatures.txt.
std::string DumpSignatures(const std::vector<MethodBinding>& bindings);

}  // namespace rlk::wire
