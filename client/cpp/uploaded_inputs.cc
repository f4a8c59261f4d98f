#include "client/cpp/uploaded_inputs.h"

#include "kernels/core/status.h"

namespace rlk::client {
namespace {

// A view goes as what it spans, and the call says what the view is.
absl::StatusOr<ResidentTensor> PutSource(const Client& client, const TensorRef& input,
                                         int64_t bytes, const char* label,
                                         const std::optional<std::chrono::milliseconds>& timeout) {
  TensorRef source = input;
  source.strides.reset();
  if (input.strides && !IsContiguous(input.shape, *input.strides)) {
    source.shape = Dims{bytes / DTypeSize(input.dtype)};
  }
  return client.Put(source, {.label = label, .timeout = timeout});
}

}  // namespace

UploadedInputs::~UploadedInputs() {
  if (!tensors_.empty()) (void)client_.Release(tensors_);
}

absl::Status UploadedInputs::Upload(std::vector<std::pair<std::string, TensorRef>>& inputs,
                                    const std::optional<std::chrono::milliseconds>& timeout) {
  for (auto& [name, input] : inputs) RLK_RETURN_IF_ERROR(UploadOne(name, input, timeout));
  return absl::OkStatus();
}

absl::Status UploadedInputs::UploadOne(const std::string& name, TensorRef& input,
                                       const std::optional<std::chrono::milliseconds>& timeout) {
  if (input.resident || input.arena) return absl::OkStatus();
  RLK_ASSIGN_OR_RETURN(const int64_t bytes, SourceBytes(input, name));
  if (bytes < kUploadFrom) return absl::OkStatus();
  RLK_ASSIGN_OR_RETURN(ResidentTensor tensor, PutSource(client_, input, bytes, label_, timeout));
  input.data = nullptr;
  input.owner.reset();
  input.resident = tensor.handle;
  tensors_.push_back(std::move(tensor));
  return absl::OkStatus();
}

}  // namespace rlk::client
