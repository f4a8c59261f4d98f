// consumer ADDRESS: caps three logits on the server, and shows how an error looks.
#include <cstdio>
#include <optional>
#include <string>

#include "client/cpp/client.h"
#include "client/cpp/final_logit_softcap.h"
#include "client/cpp/version.h"
#include "kernels/core/status.h"

namespace {

absl::Status Run(const std::string& address) {
  absl::StatusOr<rlk::client::Client> server = rlk::client::Client::Connect(address);
  if (!server.ok()) return server.status();

  const float logits[3] = {-100, 0, 100};
  const rlk::client::TensorRef x{.dtype = rlk::DType::kF32, .shape = {3}, .data = logits};
  const auto forward = rlk::client::FinalLogitSoftcapForward(*server, {.x = x, .softcap = 20.0});
  if (!forward.ok()) return forward.status();
  for (const float y : forward->y.as<float>()) std::printf("%.3f ", y);
  std::printf("under %s\n", forward->report->contract().c_str());

  const auto refused = rlk::client::FinalLogitSoftcapForward(*server, {.x = x, .softcap = -1.0});
  if (refused.ok()) return absl::InternalError("a negative cap was taken");
  const std::optional<rlk::ErrorDetail> detail = rlk::GetErrorDetail(refused.status());
  if (!detail) return absl::InternalError("the error has no detail");
  std::printf("refused %s\n", detail->field.c_str());
  return absl::OkStatus();
}

}  // namespace

int main(int argc, char** argv) {
  std::printf("rlk %s\n", rlk::client::Version());
  const absl::Status status = Run(argc > 1 ? argv[1] : "127.0.0.1:50051");
  if (!status.ok()) std::fprintf(stderr, "%s\n", status.ToString().c_str());
  return status.ok() ? 0 : 1;
}
