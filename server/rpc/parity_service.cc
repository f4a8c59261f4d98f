#include "server/rpc/parity_service.h"

#include <utility>

#include "kernels/core/status.h"
#include "rlk/v1/parity.grpc.pb.h"
#include "server/rpc/parity_calls.h"
#include "server/rpc/parity_messages.h"

namespace rlk::server {
namespace {

using rlk::v1::CompareRequest;
using rlk::v1::CompareResponse;

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

using Generated = rlk::v1::ParityService;
using RawService = Generated::WithRawCallbackMethod_Compare<Generated::Service>;

class ParityService final : public RawService {
 public:
  explicit ParityService(const ParityServiceContext& context) : context_(context) {}

  grpc::ServerUnaryReactor* Compare(grpc::CallbackServerContext* call,
                                    const grpc::ByteBuffer* request,
                                    grpc::ByteBuffer* reply) override {
    return HandleParity<CompareRequest, CompareResponse>(
        context_, call, *request, reply,
        [this](ParityCall<CompareRequest>& parity) -> absl::StatusOr<CompareResponse> {
          RLK_ASSIGN_OR_RETURN(const Comparison comparison, RunCompare(context_, parity));
          if (context_.on_comparison) context_.on_comparison(comparison);
          CompareResponse response;
          FillComparison(comparison, *response.mutable_comparison());
          return response;
        });
  }

 private:
  const ParityServiceContext& context_;
};

}  // namespace

std::unique_ptr<grpc::Service> MakeParityService(const ParityServiceContext& context) {
  return std::make_unique<ParityService>(context);
}

}  // namespace rlk::server
