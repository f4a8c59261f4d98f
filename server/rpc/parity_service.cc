#include "server/rpc/parity_service.h"

#include <algorithm>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "kernels/core/status.h"
#include "rlk/v1/parity.pb.h"
#include "server/parity/digests.h"
#include "server/parity/policy.h"
#include "server/rpc/parity_calls.h"
#include "server/rpc/parity_messages.h"
#include "server/rpc/policy_messages.h"
#include "server/rpc/raw_service.h"

namespace rlk::server {
namespace {

using rlk::v1::CheckInvarianceRequest;
using rlk::v1::CheckInvarianceResponse;
using rlk::v1::CheckParityRequest;
using rlk::v1::CheckParityResponse;
using rlk::v1::ComparePolicyRequest;
using rlk::v1::ComparePolicyResponse;
using rlk::v1::CompareRequest;
using rlk::v1::CompareResponse;
using rlk::v1::DigestTensorRequest;
using rlk::v1::DigestTensorResponse;

// 1 MiB of a reply.
constexpr int64_t kDigestRowsMax = 65536;

absl::StatusOr<Comparison> RunCompare(const ParityServiceContext& service,
                                      ParityCall<CompareRequest>& call) {
  const CompareRequest& request = call.request;
  RLK_ASSIGN_OR_RETURN(const ComparisonOptions options,
                       FromProto(request.options(), "options", service.engine->options().limits));
  if (request.has_right() != request.right_digest().empty()) {
    return InvalidArgument(Reason::kMissingTensor, "right",
                           request.has_right() ? "a tensor and a digest" : "neither",
                           "a tensor or right_digest", "there is one right side");
  }
  RLK_ASSIGN_OR_RETURN(const ParityTensor left,
                       TakeTensor(service, call.session, "left", CompareRequest::kLeftFieldNumber,
                                  request.has_left() ? &request.left() : nullptr, call.payloads));
  if (!request.has_right()) {
    return CompareWithDigest(left, request.right_digest(), options, call.interrupt);
  }
  RLK_ASSIGN_OR_RETURN(const ParityTensor right,
                       TakeTensor(service, call.session, "right", CompareRequest::kRightFieldNumber,
                                  &request.right(), call.payloads));
  return CompareTensors(left, right, options, service.comparison(), call.interrupt);
}

absl::StatusOr<ComparePolicyResponse> RunPolicy(const ParityServiceContext& service,
                                                ParityCall<ComparePolicyRequest>& call) {
  const ComparePolicyRequest& request = call.request;
  RLK_ASSIGN_OR_RETURN(const PolicyOptions options, FromProto(request.options()));
  const auto take = [&](const char* name, int field, const rlk::v1::Tensor* tensor) {
    return TakeTensor(service, call.session, name, field, tensor, call.payloads);
  };
  PolicyTensors tensors;
  RLK_ASSIGN_OR_RETURN(tensors.rollout, take("rollout", ComparePolicyRequest::kRolloutFieldNumber,
                                             request.has_rollout() ? &request.rollout() : nullptr));
  RLK_ASSIGN_OR_RETURN(tensors.trainer, take("trainer", ComparePolicyRequest::kTrainerFieldNumber,
                                             request.has_trainer() ? &request.trainer() : nullptr));
  if (request.has_mask()) {
    RLK_ASSIGN_OR_RETURN(tensors.mask,
                         take("mask", ComparePolicyRequest::kMaskFieldNumber, &request.mask()));
  }
  if (request.has_cu_seqlens()) {
    RLK_ASSIGN_OR_RETURN(
        tensors.cu_seqlens,
        take("cu_seqlens", ComparePolicyRequest::kCuSeqlensFieldNumber, &request.cu_seqlens()));
  }
  if (request.has_rollout_logits()) {
    RLK_ASSIGN_OR_RETURN(tensors.rollout_logits,
                         take("rollout_logits", ComparePolicyRequest::kRolloutLogitsFieldNumber,
                              &request.rollout_logits()));
  }
  if (request.has_trainer_logits()) {
    RLK_ASSIGN_OR_RETURN(tensors.trainer_logits,
                         take("trainer_logits", ComparePolicyRequest::kTrainerLogitsFieldNumber,
                              &request.trainer_logits()));
  }
  RLK_ASSIGN_OR_RETURN(const PolicyComparison comparison,
                       ComparePolicies(tensors, options, call.interrupt));
  ComparePolicyResponse response;
  FillPolicy(comparison, *response.mutable_comparison());
  return response;
}

absl::StatusOr<DigestTensorResponse> RunDigest(const ParityServiceContext& service,
                                               ParityCall<DigestTensorRequest>& call) {
  const DigestTensorRequest& request = call.request;
  RLK_ASSIGN_OR_RETURN(
      const ParityTensor tensor,
      TakeTensor(service, call.session, "tensor", DigestTensorRequest::kTensorFieldNumber,
                 request.has_tensor() ? &request.tensor() : nullptr, call.payloads));
  if (request.rows_max() < 0 || request.rows_max() > kDigestRowsMax) {
    return InvalidArgument(Reason::kLimitExceeded, "rows_max", std::to_string(request.rows_max()),
                           "0 to " + std::to_string(kDigestRowsMax), "too many rows for a reply");
  }
  if (request.first_row() < 0 || request.first_row() > tensor.rows()) {
    return InvalidArgument(Reason::kIndexOutOfRange, "first_row",
                           std::to_string(request.first_row()),
                           "0 to " + std::to_string(tensor.rows()), "there is no such row");
  }
  DigestTensorResponse response;
  response.set_dtype(static_cast<rlk::v1::DataType>(tensor.dtype));
  for (const int64_t size : tensor.shape) response.add_shape(size);
  response.set_rows(tensor.rows());
  response.set_first_row(request.first_row());
  if (!request.without_tensor_digest()) {
    RLK_ASSIGN_OR_RETURN(const Digest digest, DigestOf(tensor, call.interrupt));
    response.set_digest(digest.Text());
  }
  const int64_t count = std::min(request.rows_max(), tensor.rows() - request.first_row());
  RLK_ASSIGN_OR_RETURN(const std::vector<Digest> rows,
                       RowDigestsOf(tensor, request.first_row(), count, call.interrupt));
  for (const Digest& row : rows) {
    response.mutable_row_digests()->append(row.bytes.begin(), row.bytes.end());
  }
  return response;
}

class ParityService final : public RawService {
 public:
  ParityService(const ParityServiceContext& context, const Gate* gate)
      : RawService(gate), context_(context) {
    Add<CompareRequest, CompareResponse>(
        "Compare", [this](ParityCall<CompareRequest>& parity) -> absl::StatusOr<CompareResponse> {
          RLK_ASSIGN_OR_RETURN(const Comparison comparison, RunCompare(context_, parity));
          if (context_.on_comparison) context_.on_comparison(comparison);
          CompareResponse response;
          FillComparison(comparison, *response.mutable_comparison());
          return response;
        });
    Add<ComparePolicyRequest, ComparePolicyResponse>(
        "ComparePolicy",
        [this](ParityCall<ComparePolicyRequest>& parity) { return RunPolicy(context_, parity); });
    Add<DigestTensorRequest, DigestTensorResponse>(
        "DigestTensor",
        [this](ParityCall<DigestTensorRequest>& parity) { return RunDigest(context_, parity); });
    // The tensors of a call as data lie deeper than where payloads are taken out.
    const int64_t inline_header = context.engine->options().limits.inline_bytes_max;
    Add<CheckParityRequest, CheckParityResponse>(
        "CheckParity",
        [this](ParityCall<CheckParityRequest>& parity) {
          return RunCheckParity(context_.checks, parity.session, parity.request, parity.interrupt);
        },
        inline_header);
    Add<CheckInvarianceRequest, CheckInvarianceResponse>(
        "CheckInvariance",
        [this](ParityCall<CheckInvarianceRequest>& parity) {
          return RunCheckInvariance(context_.checks, parity.session, parity.request,
                                    parity.interrupt);
        },
        inline_header);
  }

 private:
  template <typename Request, typename Response>
  void Add(const char* method, std::function<absl::StatusOr<Response>(ParityCall<Request>&)> work,
           std::optional<int64_t> header_bytes_max = std::nullopt) {
    AddUnary(
        std::string("/rlk.v1.ParityService/") + method,
        [this, work = std::move(work), header_bytes_max](
            const IncomingCall& call, const grpc::ByteBuffer& request, grpc::ByteBuffer* reply) {
          return HandleParity<Request, Response>(context_, call, request, reply, work,
                                                 header_bytes_max);
        },
        [this](const absl::Status& status, std::chrono::nanoseconds) {
          CountRefusal(context_.pooled(), status);
        });
  }

  const ParityServiceContext& context_;
};

}  // namespace

std::unique_ptr<grpc::Service> MakeParityService(const ParityServiceContext& context,
                                                 const Gate* gate) {
  return std::make_unique<ParityService>(context, gate);
}

}  // namespace rlk::server
