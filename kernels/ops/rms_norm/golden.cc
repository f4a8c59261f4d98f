// FP64 reference. It shares no code with the kernels. A declared cast (contract hf-v1) is made
// where the contract has it, from the FP64 value.
#include <cmath>
#include <cstdint>
#include <string_view>
#include <vector>

#include "kernels/core/fp_environment.h"
#include "kernels/core/status.h"
#include "kernels/ops/rms_norm/rms_norm.h"
#include "kernels/registry/golden_reader.h"
#include "kernels/registry/golden_variant.h"

namespace rlk {
namespace {

using golden::DecodeAs;
using golden::Element;

double RoundTo(DType dtype, double value) {
  if (dtype == DType::kF16) return DecodeAs(dtype, RoundF64ToF16(value));
  if (dtype == DType::kBF16) return DecodeAs(dtype, RoundF64ToBf16(value));
  return value;  // FP32 casts are the arithmetic's own precision
}

std::vector<double> Row(const TensorView& tensor, int64_t row, int64_t length) {
  std::vector<double> values(static_cast<size_t>(length));
  for (int64_t h = 0; h < length; ++h) values[h] = Element(tensor, row * length + h);
  return values;
}

double Sigmoid(double z) { return 1.0 / (1.0 + std::exp(-z)); }

// One call in FP64.
struct Reference {
  explicit Reference(const KernelArgs& args)
      : args(args),
        signature(*args.signature),
        x(args.Input("x")),
        length(x.shape[x.shape.rank() - 1]),
        rows(x.elements() / length),
        hf(args.contract.ends_with("/hf-v1")),
        gated(HasInput("gate")),
        round_weight(hf && (!gated || args.Input("weight").dtype == x.dtype)),
        sigmoid(gated && args.I64("activation") == 3) {
    double offset = 1;  // qwen3_next_rms_norm
    for (const AttributeSpec& spec : signature.attributes) {
      if (spec.name == "weight_offset") offset = args.F32("weight_offset");
    }
    w = Row(args.Input("weight"), 0, length);
    for (double& value : w) value += offset;
  }

  bool HasInput(std::string_view name) const {
    for (const TensorSpec& spec : signature.inputs) {
      if (spec.name == name) return true;
    }
    return false;
  }

  double Statistic(const std::vector<double>& values) const {
    double sum = 0;
    for (double value : values) sum += value * value;
    return 1.0 / std::sqrt(sum / static_cast<double>(length) + args.F32("eps"));
  }

  double Act(double z) const { return sigmoid ? Sigmoid(z) : z * Sigmoid(z); }
  double ActSlope(double z) const {
    const double s = Sigmoid(z);
    return sigmoid ? s * (1 - s) : s * (1 + z * (1 - s));
  }
  double Cast(double value) const { return hf ? RoundTo(x.dtype, value) : value; }
  double CastWeighted(double value) const { return round_weight ? RoundTo(x.dtype, value) : value; }

  const KernelArgs& args;
  const MethodSignature& signature;
  const TensorView& x;
  int64_t length, rows;
  bool hf, gated, round_weight, sigmoid;
  std::vector<double> w;
};

void Put(const MutableTensorView& output, int64_t index, double value) {
  if (output.present()) output.as<double>()[index] = value;
}

}  // namespace

absl::Status RmsNormForwardGolden(const KernelArgs& args) {
  const FpEnvironment environment;
  RLK_RETURN_IF_ERROR(golden::RequireF64(args));
  const Reference ref(args);
  for (int64_t i = 0; i < ref.rows; ++i) {
    const std::vector<double> x = Row(ref.x, i, ref.length);
    const double r = ref.Statistic(x);
    Put(args.Output("rstd"), i, r);
    for (int64_t h = 0; h < ref.length; ++h) {
      double y = ref.Cast(x[h] * r) * ref.w[h];
      if (ref.gated) {
        const double z = Element(args.Input("gate"), i * ref.length + h);
        y = ref.CastWeighted(y) * ref.Act(z);
      }
      Put(args.Output("y"), i * ref.length + h, y);
    }
  }
  return absl::OkStatus();
}

absl::Status RmsNormBackwardGolden(const KernelArgs& args) {
  const FpEnvironment environment;
  RLK_RETURN_IF_ERROR(golden::RequireF64(args));
  const Reference ref(args);
  const auto length = static_cast<size_t>(ref.length);
  std::vector<double> fold(length, 0.0), xh(length), g(length);
  if (args.Input("dweight_acc_in").present())
    fold = Row(args.Input("dweight_acc_in"), 0, ref.length);
  for (int64_t i = 0; i < ref.rows; ++i) {
    const std::vector<double> x = Row(ref.x, i, ref.length);
    const std::vector<double> dy = Row(args.Input("grad_y"), i, ref.length);
    const double r =
        args.Input("rstd").present() ? Element(args.Input("rstd"), i) : ref.Statistic(x);
    double dot = 0;
    for (int64_t h = 0; h < ref.length; ++h) {
      xh[h] = x[h] * r;
      const double n = ref.Cast(xh[h]);
      double dm = dy[h];
      if (ref.gated) {
        const double z = Element(args.Input("gate"), i * ref.length + h);
        const double m = ref.CastWeighted(ref.w[h] * n);
        Put(args.Output("grad_gate"), i * ref.length + h, dy[h] * m * ref.ActSlope(z));
        dm = ref.CastWeighted(dy[h] * ref.Act(z));
      }
      g[h] = ref.Cast(dm * ref.w[h]);
      fold[h] += ref.CastWeighted(dm * n);
      dot += g[h] * xh[h];
    }
    for (int64_t h = 0; h < ref.length; ++h) {
      Put(args.Output("grad_x"), i * ref.length + h,
          r * (g[h] - xh[h] * dot / static_cast<double>(ref.length)));
    }
  }
  for (int64_t h = 0; h < ref.length; ++h) {
    Put(args.Output("grad_weight"), h, fold[h]);
    Put(args.Output("dweight_acc"), h, fold[h]);
  }
  return absl::OkStatus();
}

}  // namespace rlk
