#include "client/cpp/uploaded_inputs.h"

#include "kernels/core/status.h"

namespace rlk::client {
namespace {

// A view goes as what it spans, and the call says what the view is.
absl::StatusOr<ResidentTensor> PutSource(const Client& client, const TensorRef& input,
                                         int64_t bytes,
                                         const std::optional<std::chrono::milliseconds>& timeout) {
  TensorRef source = input;
  source.strides.reset();
  if (input.strides && !IsContiguous(input.shape, *input.strides)) {
    source.shape = Dims{bytes / DTypeSize(input.dtype)};
  }
  return client.Put(source, {.label = "input of a call", .timeout = timeout});
}

}  // namespace

UploadedInputs::~UploadedInputs() {
  if (!tensors_.empty()) (void)client_.Release(tensors_);
}

absl::Status UploadedInputs::Upload(std::vector<std::pair<std::string, TensorRef>>& inputs,
                                    const std::optional<std::chrono::milliseconds>& timeout) {
  for (auto& [name, input] : inputs) {
    if (input.resident) continue;
    RLK_ASSIGN_OR_RETURN(const int64_t bytes, SourceBytes(input, name));
    if (bytes < kUploadFrom) continue;
    RLK_ASSIGN_OR_RETURN(ResidentTensor tensor, PutSource(client_, input, bytes, timeout));
    input.data = nullptr;
    input.owner.reset();
    input.resident = tensor.handle;
    tensors_.push_back(std::move(tensor));
  }
  return absl::OkStatus();
}

}  // namespace rlk::client
