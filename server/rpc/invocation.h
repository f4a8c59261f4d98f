// An Invocation and named tensors as values: decoded, resolved, brought to the host.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "google/protobuf/repeated_ptr_field.h"
#include "kernels/registry/call.h"
#include "rlk/v1/call.pb.h"
#include "rlk/v1/parity_check.pb.h"
#include "server/engine/engine.h"
#include "server/parity/host_tensor.h"
#include "server/sessions/session.h"
#include "server/tensors/tensor_store.h"

namespace rlk::server {

// What a tensor is that belongs to no method: of any dtype.
TensorSpec AnyTensor(std::string_view name);

inline constexpr int64_t kInvocationInlineBytesMax = int64_t{64} << 10;

struct DecodedInvocation {
  ValueCall call;
  // Contract, backend, device, mode: for whoever names none.
  CallOptions options;
};

// Brings tensors of requests to the host. Nothing is owned.
class ValueReader {
 public:
  ValueReader(const Engine& engine, TensorStore* store, std::shared_ptr<const Session> session)
      : engine_(engine), store_(store), session_(std::move(session)) {}

  // INVALID_ARGUMENT: a method that is not known, a request of another type, options that a check
  // does not take, more than 64 KiB inline, and all that a call of the method is refused for.
  absl::StatusOr<DecodedInvocation> Read(const rlk::v1::Invocation& invocation) const;

  // By name. `field` is in front of it in errors.
  absl::StatusOr<std::map<std::string, HostTensor>> Read(
      const std::string& field,
      const google::protobuf::RepeatedPtrField<rlk::v1::NamedTensor>& tensors) const;

 private:
  absl::StatusOr<HostTensor> ToHost(const std::string& field, TensorArg tensor) const;

  const Engine& engine_;
  TensorStore* const store_;
  const std::shared_ptr<const Session> session_;
};

}  // namespace rlk::server
