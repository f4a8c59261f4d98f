// Calls of det_linear as kernels/linear takes them.
#include "kernels/linear/k128.h"
#include "kernels/ops/det_linear/det_linear.h"

namespace rlk::det_linear {

linear::Shape ReadShape(const KernelArgs& args, Kind kind) {
  const TensorView& first = args.Input(kind == Kind::kForward ? "x" : "grad_y");
  const TensorView& second = args.Input(kind == Kind::kBackwardWeight ? "x" : "weight");
  linear::Shape shape;
  shape.rows = first.shape[0];
  shape.inputs = second.shape[1];
  shape.outputs = kind == Kind::kForward ? second.shape[0] : first.shape[1];
  return shape;
}

linear::Activation ReadActivation(const KernelArgs& args) {
  return static_cast<linear::Activation>(args.I64("activation"));
}

int64_t ReadFoldParts(const KernelArgs& args, Kind kind) {
  const int64_t asked = args.I64("fold_parts");
  if (args.contract != kK128Contract) return asked == 0 ? 1 : asked;
  const linear::Shape shape = ReadShape(args, kind);
  return linear::K128Parts(asked, kind == Kind::kForward ? shape.inputs : shape.outputs);
}

linear::Operand OperandOf(const TensorView& tensor) { return {tensor.dtype, tensor.data}; }

linear::Result ResultOf(const MutableTensorView& tensor) { return {tensor.dtype, tensor.data}; }

linear::Fp32Forward ReadFp32Forward(const KernelArgs& args) {
  linear::Fp32Forward problem;
  problem.shape = ReadShape(args, Kind::kForward);
  problem.x = args.Input("x").as<float>();
  problem.weight = args.Input("weight").as<float>();
  problem.bias = args.Input("bias").as<float>();
  problem.activation = ReadActivation(args);
  problem.y = args.Output("y").as<float>();
  problem.pre = args.Output("pre").as<float>();
  return problem;
}

linear::BackwardInput ReadBackwardInput(const KernelArgs& args) {
  linear::BackwardInput problem;
  problem.shape = ReadShape(args, Kind::kBackwardInput);
  problem.weight = OperandOf(args.Input("weight"));
  problem.grad_x = ResultOf(args.Output("grad_x"));
  return problem;
}

linear::BackwardWeight ReadBackwardWeight(const KernelArgs& args) {
  linear::BackwardWeight problem;
  problem.shape = ReadShape(args, Kind::kBackwardWeight);
  problem.x = OperandOf(args.Input("x"));
  problem.weight_carry = args.Input("dweight_acc_in").as<float>();
  problem.bias_carry = args.Input("dbias_acc_in").as<float>();
  problem.grad_weight = ResultOf(args.Output("grad_weight"));
  problem.weight_acc = args.Output("dweight_acc").as<float>();
  problem.grad_bias = ResultOf(args.Output("grad_bias"));
  problem.bias_acc = args.Output("dbias_acc").as<float>();
  return problem;
}

}  // namespace rlk::det_linear
