// FP64 reference. It shares no code with the kernels. No contract declares a cast but the output's.
#include <cmath>
#include <cstdint>

#include "kernels/core/fp_environment.h"
#include "kernels/core/status.h"
#include "kernels/ops/timestep_sinusoid_h3/timestep_sinusoid_h3.h"
#include "kernels/registry/golden_reader.h"

namespace rlk {
namespace {

double Frequency(double max_period, int64_t k, int64_t half) {
  return std::pow(max_period, -static_cast<double>(k) / static_cast<double>(half));
}

}  // namespace

absl::Status TimestepSinusoidForwardGolden(const KernelArgs& args) {
  const FpEnvironment environment;
  RLK_RETURN_IF_ERROR(golden::RequireF64(args));
  const TensorView& timestep = args.Input("timestep");
  const MutableTensorView& embedding = args.Output("embedding");
  if (!embedding.present()) return absl::OkStatus();
  const int64_t half = args.I64("num_channels") / 2;
  for (int64_t t = 0; t < timestep.shape[0]; ++t) {
    for (int64_t k = 0; k < half; ++k) {
      const double angle =
          golden::Element(timestep, t) * Frequency(args.F32("max_period"), k, half);
      embedding.as<double>()[t * 2 * half + k] = std::cos(angle);
      embedding.as<double>()[t * 2 * half + half + k] = std::sin(angle);
    }
  }
  return absl::OkStatus();
}

absl::Status TimestepSinusoidBackwardGolden(const KernelArgs& args) {
  const FpEnvironment environment;
  RLK_RETURN_IF_ERROR(golden::RequireF64(args));
  const TensorView& grad = args.Input("grad_embedding");
  const TensorView& embedding = args.Input("embedding");
  const MutableTensorView& output = args.Output("grad_timestep");
  if (!output.present()) return absl::OkStatus();
  const int64_t half = grad.shape[1] / 2;
  for (int64_t t = 0; t < grad.shape[0]; ++t) {
    double sum = 0;
    for (int64_t k = 0; k < half; ++k) {
      const int64_t cosine = t * 2 * half + k, sine = cosine + half;
      sum += (golden::Element(grad, sine) * golden::Element(embedding, cosine) -
              golden::Element(grad, cosine) * golden::Element(embedding, sine)) *
             Frequency(args.F32("max_period"), k, half);
    }
    output.as<double>()[t] = sum;
  }
  return absl::OkStatus();
}

}  // namespace rlk
