// FP64 reference. The declared cast and the FP32 SiLU that feeds it are the contract's; the rest is
// FP64 and shares no code with the kernels.
#include <cmath>
#include <cstdint>
#include <vector>

#include "kernels/arith/functions.h"
#include "kernels/core/fp_environment.h"
#include "kernels/core/status.h"
#include "kernels/ops/adaln_projection_3mod/adaln_projection_3mod.h"
#include "kernels/registry/golden_reader.h"
#include "kernels/registry/golden_variant.h"

namespace rlk {
namespace {

using golden::Element;

float Silu(linear::SiluKind kind, float z) {
  return kind == linear::SiluKind::kPortable ? arith::Silu(z) : z / (1.0f + std::exp(-z));
}

struct Reference {
  explicit Reference(const KernelArgs& args)
      : weight(args.Input("weight")), shape(adaln::ReadShape(args)), width(shape.outputs / 18) {
    const TensorView& temb = args.Input("temb");
    const bool bf16 = weight.dtype == DType::kBF16;
    for (int64_t i = 0; i < shape.rows * shape.inputs; ++i) {
      const float z = static_cast<float>(Element(temb, i));
      const double a = Silu(adaln::ReadSilu(args), z);
      act.push_back(bf16 ? golden::DecodeAs(DType::kBF16, RoundF64ToBf16(a)) : a);
      const double s = 1.0 / (1.0 + std::exp(-double{z}));
      slope.push_back(s * (1.0 + double{z} * (1.0 - s)));
    }
  }

  // The chunk of channel n, and its element for row t.
  int64_t Chunk(int64_t n) const { return n / width % linear::kViews; }
  int64_t At(int64_t t, int64_t n) const {
    return (3 * t + n / (linear::kViews * width)) * width + n % width;
  }

  const TensorView& weight;
  linear::Shape shape;
  int64_t width;
  std::vector<double> act, slope;  // [T, K]
};

void Put(const MutableTensorView& output, int64_t index, double value) {
  if (output.present()) output.as<double>()[index] = value;
}

}  // namespace

absl::Status AdalnForwardGolden(const KernelArgs& args) {
  const FpEnvironment environment;
  RLK_RETURN_IF_ERROR(golden::RequireF64(args));
  const Reference ref(args);
  const auto [rows, outputs, inputs] = ref.shape;
  const bool table = args.signature->outputs.front().name == "table";
  std::vector<double> w(static_cast<size_t>(inputs));
  for (int64_t n = 0; n < outputs; ++n) {
    for (int64_t k = 0; k < inputs; ++k) w[k] = Element(ref.weight, n * inputs + k);
    for (int64_t t = 0; t < rows; ++t) {
      double sum = Element(args.Input("bias"), n);
      for (int64_t k = 0; k < inputs; ++k) sum += ref.act[t * inputs + k] * w[k];
      if (table) {
        Put(args.Output("table"), t * outputs + n, sum);
      } else {
        Put(args.Output(adaln::kChunkNames[ref.Chunk(n)]), ref.At(t, n), sum);
      }
    }
  }
  return absl::OkStatus();
}

absl::Status AdalnBackwardGolden(const KernelArgs& args) {
  const FpEnvironment environment;
  RLK_RETURN_IF_ERROR(golden::RequireF64(args));
  const Reference ref(args);
  const auto [rows, outputs, inputs] = ref.shape;
  std::vector<double> d_act(static_cast<size_t>(rows * inputs), 0.0);
  std::vector<double> dw(static_cast<size_t>(inputs));
  for (int64_t n = 0; n < outputs; ++n) {
    const TensorView& grad = args.Input(adaln::kGradientNames[ref.Chunk(n)]);
    double db = 0;
    std::fill(dw.begin(), dw.end(), 0.0);
    for (int64_t t = 0; t < rows; ++t) {
      const double g = grad.present() ? Element(grad, ref.At(t, n)) : 0.0;
      db += g;
      for (int64_t k = 0; k < inputs; ++k) {
        d_act[t * inputs + k] += g * Element(ref.weight, n * inputs + k);
        dw[k] += g * ref.act[t * inputs + k];
      }
    }
    Put(args.Output("grad_bias"), n, db);
    for (int64_t k = 0; k < inputs; ++k) Put(args.Output("grad_weight"), n * inputs + k, dw[k]);
  }
  for (size_t i = 0; i < d_act.size(); ++i) {
    Put(args.Output("grad_temb"), static_cast<int64_t>(i), d_act[i] * ref.slope[i]);
  }
  return absl::OkStatus();
}

}  // namespace rlk
