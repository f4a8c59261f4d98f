// FP64 reference. It shares no code with the kernels.
#include <cmath>
#include <cstdint>
#include <vector>

#include "kernels/core/fp_environment.h"
#include "kernels/core/status.h"
#include "kernels/ops/timestep_mlp_fp32/timestep_mlp_fp32.h"
#include "kernels/registry/golden_reader.h"

namespace rlk {
namespace {

using Matrix = std::vector<double>;  // row-major

Matrix Read(const TensorView& tensor) {
  Matrix values(static_cast<size_t>(tensor.elements()));
  for (size_t i = 0; i < values.size(); ++i) {
    values[i] = golden::Element(tensor, static_cast<int64_t>(i));
  }
  return values;
}

void Put(const MutableTensorView& output, const Matrix& values) {
  if (!output.present()) return;
  for (size_t i = 0; i < values.size(); ++i) output.as<double>()[i] = values[i];
}

double Sigmoid(double z) { return 1.0 / (1.0 + std::exp(-z)); }

struct Reference {
  explicit Reference(const KernelArgs& args)
      : x(Read(args.Input("x"))),
        w1(Read(args.Input("w1"))),
        b1(Read(args.Input("b1"))),
        w2(Read(args.Input("w2"))),
        rows(static_cast<size_t>(args.Input("x").shape[0])),
        inputs(static_cast<size_t>(args.Input("x").shape[1])),
        hidden(static_cast<size_t>(args.Input("w1").shape[0])),
        outputs(static_cast<size_t>(args.Input("w2").shape[0])) {}

  // x [rows, k] times w [n, k] transposed, plus bias [n].
  Matrix Layer(const Matrix& in, const Matrix& w, const Matrix& bias, size_t k) const {
    const size_t n = bias.size();
    Matrix out(rows * n);
    for (size_t i = 0; i < out.size(); ++i) {
      double v = bias[i % n];
      for (size_t j = 0; j < k; ++j) v += in[i / n * k + j] * w[i % n * k + j];
      out[i] = v;
    }
    return out;
  }
  // g [rows, n] times w [n, k].
  Matrix Back(const Matrix& g, const Matrix& w, size_t n, size_t k) const {
    Matrix out(rows * k, 0.0);
    for (size_t i = 0; i < rows * n; ++i) {
      for (size_t j = 0; j < k; ++j) out[i / n * k + j] += g[i] * w[i % n * k + j];
    }
    return out;
  }
  // g [rows, n] transposed times in [rows, k].
  Matrix Weight(const Matrix& g, const Matrix& in, size_t n, size_t k) const {
    Matrix out(n * k, 0.0);
    for (size_t i = 0; i < rows * n; ++i) {
      for (size_t j = 0; j < k; ++j) out[i % n * k + j] += g[i] * in[i / n * k + j];
    }
    return out;
  }
  Matrix Bias(const Matrix& g, size_t n) const {
    Matrix out(n, 0.0);
    for (size_t i = 0; i < rows * n; ++i) out[i % n] += g[i];
    return out;
  }

  Matrix x, w1, b1, w2;
  size_t rows, inputs, hidden, outputs;
};

}  // namespace

absl::Status TimestepMlpForwardGolden(const KernelArgs& args) {
  const FpEnvironment environment;
  RLK_RETURN_IF_ERROR(golden::RequireF64(args));
  const Reference ref(args);
  const Matrix pre = ref.Layer(ref.x, ref.w1, ref.b1, ref.inputs);
  Put(args.Output("pre"), pre);
  Matrix hidden = pre;
  for (double& z : hidden) z *= Sigmoid(z);
  Put(args.Output("y"), ref.Layer(hidden, ref.w2, Read(args.Input("b2")), ref.hidden));
  return absl::OkStatus();
}

absl::Status TimestepMlpBackwardGolden(const KernelArgs& args) {
  const FpEnvironment environment;
  RLK_RETURN_IF_ERROR(golden::RequireF64(args));
  const Reference ref(args);
  const Matrix g = Read(args.Input("grad_y"));
  const Matrix pre = args.Input("pre").present() ? Read(args.Input("pre"))
                                                 : ref.Layer(ref.x, ref.w1, ref.b1, ref.inputs);
  Matrix hidden = pre;
  Matrix d = ref.Back(g, ref.w2, ref.outputs, ref.hidden);
  for (size_t i = 0; i < pre.size(); ++i) {
    const double s = Sigmoid(pre[i]);
    hidden[i] = pre[i] * s;
    d[i] *= s * (1 + pre[i] * (1 - s));
  }
  Put(args.Output("grad_w2"), ref.Weight(g, hidden, ref.outputs, ref.hidden));
  Put(args.Output("grad_b2"), ref.Bias(g, ref.outputs));
  Put(args.Output("grad_w1"), ref.Weight(d, ref.x, ref.hidden, ref.inputs));
  Put(args.Output("grad_b1"), ref.Bias(d, ref.hidden));
  Put(args.Output("grad_x"), ref.Back(d, ref.w1, ref.hidden, ref.inputs));
  return absl::OkStatus();
}

}  // namespace rlk
