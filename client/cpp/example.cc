// The example of README.md: softcap forward and backward of six logits.
#include <cstdio>
#include <utility>

#include "client/cpp/client.h"
#include "client/cpp/final_logit_softcap.h"

namespace {

absl::Status Run(const char* address) {
  using rlk::DType;
  namespace client = rlk::client;

  absl::StatusOr<client::Client> server = client::Client::Connect(address);
  if (!server.ok()) return server.status();

  // The tensor's memory is yours: without an owner it is free again when the call returns.
  const float logits[6] = {-100.0f, -1.0f, 0.0f, 1.0f, 20.0f, 100.0f};
  const client::TensorRef x{.dtype = DType::kF32, .shape = {2, 3}, .data = logits};

  // Typed.
  absl::StatusOr<client::FinalLogitSoftcapForwardResult> forward =
      client::FinalLogitSoftcapForward(*server, {.x = x, .softcap = 20.0});
  if (!forward.ok()) return forward.status();
  for (float y : forward->y.as<float>()) std::printf("%g ", y);
  std::printf("under %s on %s\n", forward->report->contract().c_str(),
              forward->report->backend().c_str());

  // By name, asking for digests; the same for every operator. The call runs while we wait.
  client::CallRequest request{.method = "final_logit_softcap.backward"};
  request.inputs = {{"x", x}, {"grad_y", forward->y.ref()}};
  request.attributes = {{"softcap", 20.0}};
  request.options.add_digests(rlk::v1::DIGEST_SCOPE_TENSOR);
  client::PendingCall pending = server->CallAsync(request);
  absl::StatusOr<client::CallResult> backward = pending.Get();
  if (!backward.ok()) return backward.status();
  std::printf("grad_x %s\n", backward->report->output_digests(0).digest().c_str());
  return absl::OkStatus();
}

}  // namespace

int main(int argc, char** argv) {
  const absl::Status status = Run(argc > 1 ? argv[1] : "127.0.0.1:50051");
  if (!status.ok()) std::fprintf(stderr, "%s\n", status.ToString().c_str());
  return status.ok() ? 0 : 1;
}
