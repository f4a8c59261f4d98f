// The one generic validator: a call against its method's signature. No operator repeats it by
// hand. Everything a client can get wrong is an error that names the field, its value and what is
// allowed; sizes come from outside and every product of them is checked before it is used.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/core/limits.h"
#include "kernels/core/tensor_view.h"
#include "kernels/registry/call.h"
#include "kernels/registry/kernel_args.h"
#include "kernels/registry/signature.h"

namespace rlk::server {

struct ContractCheckOptions {
  Limits limits;
  // Refuses calls whose inline tensors, or whose reply's tensors and row digests, are above
  // limits.inline_bytes_max. The wire has refused request messages above it.
  bool refuse_large_replies = true;
  // Whether outputs can stay on the server.
  enum class Residents {
    kUnavailable,
    kNeedSession,
    kAvailable
  } residents = Residents::kUnavailable;
  // Whether they can lie in arenas; for sessions alone.
  bool arenas = false;
};

// An output that the call will produce; dtype kUnspecified where it is not wanted.
struct PlannedOutput {
  DType dtype = DType::kUnspecified;
  Dims shape;
  // It stays on the server, by itself or in an arena.
  bool resident = false;
  // Nobody asked for that, but the reply would have been too large.
  bool moved = false;

  bool wanted() const { return dtype != DType::kUnspecified; }
};

// What the check found out. Everything here follows from the call's header alone.
struct CheckedCall {
  // By attribute spec index: converted to the arithmetic's type, defaults applied.
  std::vector<AttributeValue> attributes;
  // Tensors of input spec i are inputs [input_begin[i], input_begin[i + 1]) of the call.
  std::vector<int32_t> input_begin;
  // Headers of the inputs in call order; data is null.
  std::vector<TensorView> input_views;
  // By output spec index.
  std::vector<PlannedOutput> outputs;
  // Stored bytes of all inputs; logical bytes of all wanted outputs.
  int64_t input_bytes = 0;
  int64_t output_bytes = 0;
  // Of the inputs, what came with the call.
  int64_t inline_bytes = 0;
  // Elements of the largest tensor, inputs and outputs.
  int64_t elements_max = 0;
};

// Checks presence, dtypes, dims, strides, payload sizes, alignment, attributes, wanted outputs,
// placements and limits, in that order, and returns the first error. Sources must be resolved.
// INVALID_ARGUMENT for what the request says; FAILED_PRECONDITION (kPlacementUnavailable) for
// placements that this server does not have; UNAUTHENTICATED for those that need a session;
// INTERNAL where the signature itself cannot be honoured.
absl::StatusOr<CheckedCall> CheckCall(const Call& call, const ContractCheckOptions& options);

// The attribute half, by attribute spec index. `input_dtype(spec)` is the dtype of the first tensor
// of an input spec, kUnspecified where it is absent.
absl::StatusOr<std::vector<AttributeValue>> CheckAttributes(
    const MethodSignature& signature, const std::vector<Call::GivenAttribute>& given,
    std::span<const DType> input_dtypes);

// "F32, F16".
std::string DTypeList(const std::vector<DType>& dtypes);
// "[2, 3]".
std::string ShapeText(const Dims& shape);
// Shortest decimal that reads back as the same double.
std::string NumberText(double value);

}  // namespace rlk::server
