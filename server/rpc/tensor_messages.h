// Tensors of the store <-> messages of TensorService.
#pragma once

#include "absl/status/statusor.h"
#include "kernels/core/limits.h"
#include "rlk/v1/tensor_service.pb.h"
#include "server/tensors/tensor_store.h"

namespace rlk::server {

TensorHandle FromProto(const rlk::v1::TensorHandle& handle);
void FillDescription(const TensorInfo& info, rlk::v1::TensorDescription& out);

// Ranks and texts are bounded here; what else a header must be is the store's to say.
absl::StatusOr<Dims> ShapeFromProto(std::string_view field,
                                    const google::protobuf::RepeatedField<int64_t>& shape,
                                    const Limits& limits);
absl::StatusOr<NewTensor> FromProto(const rlk::v1::UploadHeader& header, const Limits& limits);

}  // namespace rlk::server
