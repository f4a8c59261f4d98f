// Upload and download as streams of chunks over raw bytes. Internal.
#pragma once

#include <grpcpp/client_context.h>
#include <grpcpp/generic/generic_stub.h>

#include <cstddef>
#include <functional>
#include <span>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/cpp/resident.h"

namespace rlk::client {

// Sends `source` (bytes in C order) behind `header`. Payload with an owner is sent by reference.
absl::StatusOr<ResidentTensor> UploadStream(grpc::GenericStub& stub, grpc::ClientContext& context,
                                            const rlk::v1::UploadHeader& header,
                                            const TensorRef& source, int64_t bytes,
                                            const PutOptions& options);

// Fills what `place` returns for the description; the span has the tensor's bytes.
absl::Status DownloadStream(
    grpc::GenericStub& stub, grpc::ClientContext& context, const rlk::v1::DownloadRequest& request,
    const std::function<absl::StatusOr<std::span<std::byte>>(const ResidentTensor&)>& place,
    const GetOptions& options);

}  // namespace rlk::client
