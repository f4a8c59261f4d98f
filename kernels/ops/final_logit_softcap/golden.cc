// FP64 reference. It shares no code with the kernels: its own decoding, its own walk over strides.
#include <cmath>
#include <cstdint>

#include "kernels/core/fp_environment.h"
#include "kernels/core/status.h"
#include "kernels/ops/final_logit_softcap/final_logit_softcap.h"
#include "kernels/registry/golden_reader.h"

namespace rlk {
namespace {

using golden::Element;

}  // namespace

absl::Status SoftcapForwardGolden(const KernelArgs& args) {
  const FpEnvironment environment;
  const TensorView& x = args.Input("x");
  const MutableTensorView& y = args.Output("y");
  RLK_RETURN_IF_ERROR(golden::RequireF64(args));
  const double softcap = args.F32("softcap");
  for (int64_t i = 0; i < y.elements(); ++i) {
    y.as<double>()[i] = softcap * std::tanh(Element(x, i) / softcap);
  }
  return absl::OkStatus();
}

absl::Status SoftcapBackwardGolden(const KernelArgs& args) {
  const FpEnvironment environment;
  const TensorView& x = args.Input("x");
  const TensorView& grad_y = args.Input("grad_y");
  const MutableTensorView& grad_x = args.Output("grad_x");
  RLK_RETURN_IF_ERROR(golden::RequireF64(args));
  const double softcap = args.F32("softcap");
  for (int64_t i = 0; i < grad_x.elements(); ++i) {
    const double cosh = std::cosh(Element(x, i) / softcap);
    grad_x.as<double>()[i] = Element(grad_y, i) * (1.0 / (cosh * cosh));
  }
  return absl::OkStatus();
}

}  // namespace rlk
