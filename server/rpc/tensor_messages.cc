#include "server/rpc/tensor_messages.h"

#include <algorithm>
#include <string>

#include "kernels/core/status.h"
#include "proto/wire/call_parts.h"

namespace rlk::server {

TensorHandle FromProto(const rlk::v1::TensorHandle& handle) {
  return {handle.id(), handle.server_id(), handle.generation(), handle.offset()};
}

void FillDescription(const TensorInfo& info, rlk::v1::TensorDescription& out) {
  out.mutable_handle()->set_id(info.handle.id);
  out.mutable_handle()->set_server_id(info.handle.server_id);
  out.mutable_handle()->set_generation(info.handle.generation);
  out.set_dtype(static_cast<rlk::v1::DataType>(info.dtype));
  for (const int64_t size : info.shape) out.add_shape(size);
  out.set_bytes(info.bytes);
  if (info.digest) out.set_digest(info.digest->Text());
  out.set_device_uuid(info.device_uuid);
  out.set_label(info.label);
  out.set_lease_ms(info.lease_ms);
  out.set_poisoned(info.poisoned);
  out.set_references(info.references);
  out.set_synthetic(info.synthetic);
}

absl::StatusOr<Dims> ShapeFromProto(std::string_view field,
                                    const google::protobuf::RepeatedField<int64_t>& shape,
                                    const Limits& limits) {
  const int64_t rank_max = std::min<int64_t>(kMaxRank, limits.rank_max);
  if (shape.size() > rank_max) {
    return InvalidArgument(Reason::kRankTooLarge, field, "rank " + std::to_string(shape.size()),
                           "at most " + std::to_string(rank_max) + " (rank_max)",
                           "the rank is too large");
  }
  return Dims(std::span<const int64_t>(shape.data(), static_cast<size_t>(shape.size())));
}

absl::StatusOr<NewTensor> FromProto(const rlk::v1::UploadHeader& header, const Limits& limits) {
  NewTensor tensor;
  tensor.dtype = static_cast<DType>(header.dtype());
  RLK_ASSIGN_OR_RETURN(tensor.shape, ShapeFromProto("header.shape", header.shape(), limits));
  RLK_RETURN_IF_ERROR(wire::CheckText("header.device_uuid", header.device_uuid(), limits));
  RLK_RETURN_IF_ERROR(wire::CheckText("header.label", header.label(), limits));
  tensor.device_uuid = header.device_uuid();
  tensor.label = header.label();
  tensor.lease_ms = header.lease_ms();
  return tensor;
}

}  // namespace rlk::server
