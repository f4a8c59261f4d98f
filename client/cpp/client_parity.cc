// The client's calls of ParityService.
#include <utility>
#include <vector>

#include "client/cpp/client_impl.h"
#include "client/cpp/status_map.h"
#include "client/cpp/uploaded_inputs.h"
#include "kernels/core/status.h"

namespace rlk::client {
namespace {

// What a request holds besides its tensors.
constexpr int64_t kFramingBytes = int64_t{16} << 10;
constexpr int64_t kDigestRowsMax = 65536;

struct NamedTensor {
  const char* name;
  const TensorRef* ref;
  rlk::v1::Tensor* message;
};

// Puts tensors into a message, large ones on the server until this object goes.
class SentTensors {
 public:
  explicit SentTensors(const Client& client) : uploaded_(client, "tensor of a comparison") {}

  absl::Status Fill(const std::vector<NamedTensor>& tensors, int64_t inline_bytes_max,
                    const Timeout& timeout) {
    int64_t total = kFramingBytes;
    for (const NamedTensor& tensor : tensors) {
      if (tensor.ref->resident) continue;
      RLK_ASSIGN_OR_RETURN(const int64_t bytes, SourceBytes(*tensor.ref, tensor.name));
      if (__builtin_add_overflow(total, bytes, &total)) total = INT64_MAX;
    }
    for (const NamedTensor& tensor : tensors) {
      RLK_RETURN_IF_ERROR(FillOne(tensor, total > inline_bytes_max, timeout));
    }
    return absl::OkStatus();
  }

 private:
  absl::Status FillOne(const NamedTensor& tensor, bool upload, const Timeout& timeout) {
    TensorRef ref = *tensor.ref;
    if (upload) RLK_RETURN_IF_ERROR(uploaded_.UploadOne(tensor.name, ref, timeout));
    if (!ref.resident || ref.dtype != DType::kUnspecified) {
      tensor.message->set_dtype(static_cast<rlk::v1::DataType>(ref.dtype));
      for (const int64_t size : ref.shape) tensor.message->add_shape(size);
      if (ref.strides) {
        for (const int64_t stride : *ref.strides) tensor.message->add_strides(stride);
      }
    }
    if (ref.resident) {
      *tensor.message->mutable_resident() = *ref.resident;
      return absl::OkStatus();
    }
    RLK_ASSIGN_OR_RETURN(const int64_t bytes, SourceBytes(ref, tensor.name));
    tensor.message->set_data(ref.data, static_cast<size_t>(bytes));
    return absl::OkStatus();
  }

  UploadedInputs uploaded_;
};

}  // namespace

absl::StatusOr<rlk::v1::Comparison> Client::Compare(const CompareArgs& args) const {
  rlk::v1::CompareRequest request;
  *request.mutable_options() = args.options;
  request.set_right_digest(args.right_digest);
  std::vector<NamedTensor> tensors = {{"left", &args.left, request.mutable_left()}};
  if (args.right) tensors.push_back({"right", &*args.right, request.mutable_right()});
  SentTensors sent(*this);
  RLK_RETURN_IF_ERROR(sent.Fill(tensors, impl_->options.inline_bytes_max, args.timeout));
  grpc::ClientContext context;
  impl_->Prepare(args.timeout, context);
  rlk::v1::CompareResponse response;
  RLK_RETURN_IF_ERROR(FromGrpc(impl_->parity->Compare(&context, request, &response)));
  return std::move(*response.mutable_comparison());
}

absl::StatusOr<rlk::v1::PolicyComparison> Client::ComparePolicy(
    const ComparePolicyArgs& args) const {
  rlk::v1::ComparePolicyRequest request;
  *request.mutable_options() = args.options;
  std::vector<NamedTensor> tensors = {{"rollout", &args.rollout, request.mutable_rollout()},
                                      {"trainer", &args.trainer, request.mutable_trainer()}};
  if (args.mask) tensors.push_back({"mask", &*args.mask, request.mutable_mask()});
  if (args.cu_seqlens) {
    tensors.push_back({"cu_seqlens", &*args.cu_seqlens, request.mutable_cu_seqlens()});
  }
  if (args.rollout_logits) {
    tensors.push_back({"rollout_logits", &*args.rollout_logits, request.mutable_rollout_logits()});
  }
  if (args.trainer_logits) {
    tensors.push_back({"trainer_logits", &*args.trainer_logits, request.mutable_trainer_logits()});
  }
  SentTensors sent(*this);
  RLK_RETURN_IF_ERROR(sent.Fill(tensors, impl_->options.inline_bytes_max, args.timeout));
  grpc::ClientContext context;
  impl_->Prepare(args.timeout, context);
  rlk::v1::ComparePolicyResponse response;
  RLK_RETURN_IF_ERROR(FromGrpc(impl_->parity->ComparePolicy(&context, request, &response)));
  return std::move(*response.mutable_comparison());
}

absl::StatusOr<TensorDigests> Client::Digest(const DigestArgs& args) const {
  rlk::v1::DigestTensorRequest request;
  SentTensors sent(*this);
  RLK_RETURN_IF_ERROR(sent.Fill({{"tensor", &args.tensor, request.mutable_tensor()}},
                                impl_->options.inline_bytes_max, args.timeout));
  request.set_rows_max(args.rows ? kDigestRowsMax : 0);
  TensorDigests result;
  for (int64_t first = 0; first == 0 || (args.rows && first < result.rows);
       first += kDigestRowsMax) {
    request.set_first_row(first);
    request.set_without_tensor_digest(first > 0);
    grpc::ClientContext context;
    impl_->Prepare(args.timeout, context);
    rlk::v1::DigestTensorResponse response;
    RLK_RETURN_IF_ERROR(FromGrpc(impl_->parity->DigestTensor(&context, request, &response)));
    if (first == 0) {
      result.digest = response.digest();
      result.dtype = static_cast<DType>(response.dtype());
      result.shape = Dims(std::span<const int64_t>(response.shape().data(),
                                                   static_cast<size_t>(response.shape_size())));
      result.rows = response.rows();
    }
    result.row_digests += response.row_digests();
  }
  return result;
}

}  // namespace rlk::client
