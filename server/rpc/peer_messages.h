// A call of values as the request of a peer, and the peer's reply as values. Driven by descriptors:
// nothing here knows an operator.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "google/protobuf/descriptor.h"
#include "kernels/core/limits.h"
#include "proto/wire/bytes.h"
#include "rlk/v1/tensor.pb.h"
#include "server/parity/call_runner.h"

namespace rlk::server {

// The RPC of a method; null where the API does not have it (operators of tests).
const google::protobuf::MethodDescriptor* RpcOf(const Method& method);

// Inputs with a handle are named by it; of the others the elements are referred to, not copied.
absl::StatusOr<wire::OutputBytes> EncodePeerCall(
    const ValueCall& call, const SideOptions& options,
    const std::map<int32_t, rlk::v1::TensorHandle>& handles);

struct PeerOutput {
  int32_t spec = 0;
  HostTensor tensor;
  // It stayed there.
  std::optional<rlk::v1::Tensor> resident;
};

struct PeerReply {
  std::vector<PeerOutput> outputs;
  // Serialized.
  std::string report;
};

absl::StatusOr<PeerReply> DecodePeerReply(const ValueCall& call, const wire::InputBytes& bytes,
                                          const Limits& limits);

// Of a tensor that a peer describes.
absl::StatusOr<Dims> PeerShape(const rlk::v1::Tensor& tensor);

}  // namespace rlk::server
