// FP64 reference. It shares no code with the kernels. Contracts of F32 operands declare no cast;
// those of BF16 operands none but that of the output.
#include <cmath>
#include <cstdint>
#include <vector>

#include "kernels/core/fp_environment.h"
#include "kernels/core/status.h"
#include "kernels/ops/det_linear/det_linear.h"
#include "kernels/registry/golden_reader.h"

namespace rlk {
namespace {

// rlk.v1.LinearActivation.
constexpr int64_t kNone = 1;

std::vector<double> Read(const TensorView& tensor) {
  std::vector<double> values(static_cast<size_t>(tensor.elements()));
  for (size_t i = 0; i < values.size(); ++i) {
    values[i] = golden::Element(tensor, static_cast<int64_t>(i));
  }
  return values;
}

void Put(const MutableTensorView& output, size_t index, double value) {
  if (output.present()) output.as<double>()[index] = value;
}

double Sigmoid(double z) { return 1.0 / (1.0 + std::exp(-z)); }

// grad_y times the slope of the activation.
std::vector<double> Gradient(const KernelArgs& args) {
  std::vector<double> g = Read(args.Input("grad_y"));
  if (args.I64("activation") == kNone) return g;
  const std::vector<double> pre = Read(args.Input("pre"));
  for (size_t i = 0; i < g.size(); ++i) {
    const double s = Sigmoid(pre[i]);
    g[i] *= s * (1 + pre[i] * (1 - s));
  }
  return g;
}

size_t Size(const TensorView& tensor, int dim) { return static_cast<size_t>(tensor.shape[dim]); }

}  // namespace

absl::Status DetLinearForwardGolden(const KernelArgs& args) {
  const FpEnvironment environment;
  RLK_RETURN_IF_ERROR(golden::RequireF64(args));
  const std::vector<double> x = Read(args.Input("x")), w = Read(args.Input("weight"));
  const TensorView& bias = args.Input("bias");
  const size_t rows = Size(args.Input("x"), 0), inputs = Size(args.Input("x"), 1);
  const size_t outputs = Size(args.Input("weight"), 0);
  for (size_t t = 0; t < rows; ++t) {
    for (size_t n = 0; n < outputs; ++n) {
      double v = bias.present() ? golden::Element(bias, static_cast<int64_t>(n)) : 0.0;
      for (size_t k = 0; k < inputs; ++k) v += x[t * inputs + k] * w[n * inputs + k];
      Put(args.Output("pre"), t * outputs + n, v);
      if (args.I64("activation") != kNone) v *= Sigmoid(v);
      Put(args.Output("y"), t * outputs + n, v);
    }
  }
  return absl::OkStatus();
}

absl::Status DetLinearBackwardInputGolden(const KernelArgs& args) {
  const FpEnvironment environment;
  RLK_RETURN_IF_ERROR(golden::RequireF64(args));
  const std::vector<double> g = Gradient(args), w = Read(args.Input("weight"));
  const size_t rows = Size(args.Input("grad_y"), 0), outputs = Size(args.Input("grad_y"), 1);
  const size_t inputs = Size(args.Input("weight"), 1);
  for (size_t t = 0; t < rows; ++t) {
    std::vector<double> sum(inputs, 0.0);
    for (size_t n = 0; n < outputs; ++n) {
      for (size_t k = 0; k < inputs; ++k) sum[k] += g[t * outputs + n] * w[n * inputs + k];
    }
    for (size_t k = 0; k < inputs; ++k) Put(args.Output("grad_x"), t * inputs + k, sum[k]);
  }
  return absl::OkStatus();
}

absl::Status DetLinearBackwardWeightGolden(const KernelArgs& args) {
  const FpEnvironment environment;
  RLK_RETURN_IF_ERROR(golden::RequireF64(args));
  const std::vector<double> g = Gradient(args), x = Read(args.Input("x"));
  const size_t rows = Size(args.Input("grad_y"), 0), outputs = Size(args.Input("grad_y"), 1);
  const size_t inputs = Size(args.Input("x"), 1);
  std::vector<double> dw(outputs * inputs, 0.0), db(outputs, 0.0);
  if (args.Input("dweight_acc_in").present()) dw = Read(args.Input("dweight_acc_in"));
  if (args.Input("dbias_acc_in").present()) db = Read(args.Input("dbias_acc_in"));
  for (size_t t = 0; t < rows; ++t) {
    for (size_t n = 0; n < outputs; ++n) {
      db[n] += g[t * outputs + n];
      for (size_t k = 0; k < inputs; ++k) {
        dw[n * inputs + k] += g[t * outputs + n] * x[t * inputs + k];
      }
    }
  }
  for (const char* name : {"grad_weight", "dweight_acc"}) {
    for (size_t i = 0; i < dw.size(); ++i) Put(args.Output(name), i, dw[i]);
  }
  for (const char* name : {"grad_bias", "dbias_acc"}) {
    for (size_t i = 0; i < db.size(); ++i) Put(args.Output(name), i, db[i]);
  }
  return absl::OkStatus();
}

}  // namespace rlk
