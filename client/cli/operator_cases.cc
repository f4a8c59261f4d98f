#include "client/cli/operator_cases.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <set>

#include "client/cli/elements.h"
#include "client/cli/numbers.h"
#include "client/cli/random.h"
#include "client/cli/render.h"
#include "client/cli/value.h"
#include "kernels/core/counter_random.h"
#include "kernels/core/status.h"
#include "proto/wire/signatures.h"

namespace rlk::cli {
namespace {

// Where nothing says another size. A letter with a factor counts parts of a dimension.
int64_t DefaultSize(const DimPattern& dim) {
  if (dim.factor > 1) return 64;
  switch (dim.letter) {
    case 'H':
    case 'K':
    case 'N':
      return 4096;
    default:
      return 256;
  }
}

Dims ShapeOf(const DimsPattern& dims, const CaseSizes& sizes) {
  Dims shape;
  if (dims.leading) {
    shape.push_back(sizes.batch);
    shape.push_back(sizes.seq);
    if (dims.dims.empty()) shape.push_back(sizes.vocab);
  }
  for (const DimPattern& dim : dims.dims) {
    int64_t size = 1;
    if (const auto named = sizes.letters.find(dim.letter); named != sizes.letters.end()) {
      size = named->second;
    } else if (dim.letter == 'T') {
      size = sizes.batch * sizes.seq;
    } else if (dim.letter != 0) {
      size = DefaultSize(dim);
    }
    shape.push_back(dim.factor * size);
  }
  return shape;
}

bool Allows(const TensorSpec& spec, DType dtype) {
  return std::find(spec.dtypes.begin(), spec.dtypes.end(), dtype) != spec.dtypes.end();
}

DType DTypeOf(const MethodSignature& signature, const TensorSpec& spec, DType wanted) {
  if (Allows(spec, wanted)) return wanted;
  if (spec.same_dtype_as >= 0) {
    const TensorSpec& same = signature.inputs[static_cast<size_t>(spec.same_dtype_as)];
    return DTypeOf(signature, same, wanted);
  }
  return spec.dtypes.front();
}

void SetElement(client::Tensor& tensor, int64_t i, double value) {
  const auto at = static_cast<size_t>(i);
  const auto single = static_cast<float>(value);
  switch (tensor.dtype()) {
    case DType::kF64:
      tensor.mutable_as<double>()[at] = value;
      break;
    case DType::kF32:
      tensor.mutable_as<float>()[at] = single;
      break;
    case DType::kBF16:
      tensor.mutable_as<uint16_t>()[at] = ToBf16(single);
      break;
    case DType::kF16:
      tensor.mutable_as<uint16_t>()[at] = ToF16(single);
      break;
    default:
      break;
  }
}

// Every element of an integer tensor.
absl::StatusOr<client::Tensor> Tokens(client::Tensor tensor, int64_t value) {
  if (tensor.dtype() == DType::kI32 && value == static_cast<int32_t>(value)) {
    for (int32_t& element : tensor.mutable_as<int32_t>()) element = static_cast<int32_t>(value);
    return tensor;
  }
  if (tensor.dtype() == DType::kI64) {
    for (int64_t& element : tensor.mutable_as<int64_t>()) element = value;
    return tensor;
  }
  return InvalidArgument(Reason::kUnknownOption, "--token-value", std::to_string(value),
                         "what I32 or I64 holds",
                         "the value is none of " + std::string(DTypeName(tensor.dtype())));
}

// Timesteps are fractions: 24 random bits of [0, 1).
double Fraction(uint64_t seed, int64_t i) {
  return static_cast<double>(RandomBits(seed, static_cast<uint64_t>(i)) >> 40) * 0x1p-24;
}

absl::Status CheckDType(const std::vector<OperatorCase>& cases, const std::string& operator_name,
                        DType wanted) {
  std::set<std::string> allowed;
  for (const OperatorCase& each : cases) {
    for (const TensorSpec& spec : each.signature.inputs) {
      if (Allows(spec, wanted)) return absl::OkStatus();
      for (const DType dtype : spec.dtypes) allowed.insert(std::string(DTypeName(dtype)));
    }
  }
  return InvalidArgument(Reason::kDtypeNotAllowed, "--dtype", DTypeName(wanted),
                         client::JoinNames({allowed.begin(), allowed.end()}),
                         "no input of " + operator_name + " takes it");
}

bool HasName(const MethodSignature& signature, const std::string& name) {
  const auto is = [&name](const auto& spec) { return spec.name == name; };
  return std::any_of(signature.inputs.begin(), signature.inputs.end(), is) ||
         std::any_of(signature.attributes.begin(), signature.attributes.end(), is);
}

absl::Status AddWords(const std::vector<std::string>& words, std::vector<OperatorCase>& cases) {
  for (const std::string& word : words) {
    RLK_ASSIGN_OR_RETURN(const auto name_value, SplitNameValue(word));
    bool known = false;
    for (OperatorCase& each : cases) {
      if (!HasName(each.signature, name_value.first)) continue;
      RLK_RETURN_IF_ERROR(AddArgument(each.signature, word, each.call));
      known = true;
    }
    if (!known) return AddArgument(cases.front().signature, word, cases.front().call);
  }
  return absl::OkStatus();
}

absl::Status AddInputs(const CaseOptions& options, OperatorCase& each) {
  for (size_t i = 0; i < each.signature.inputs.size(); ++i) {
    const TensorSpec& spec = each.signature.inputs[i];
    const bool given = std::any_of(each.call.request.inputs.begin(), each.call.request.inputs.end(),
                                   [&](const auto& input) { return input.first == spec.name; });
    if (given) continue;
    RLK_ASSIGN_OR_RETURN(client::Tensor tensor,
                         MakeInput(spec, DTypeOf(each.signature, spec, options.dtype),
                                   ShapeOf(spec.dims, options.sizes), options.seed + i, options));
    each.call.request.inputs.emplace_back(spec.name, tensor.ref());
    each.call.inputs.push_back({spec.name, std::move(tensor)});
  }
  return absl::OkStatus();
}

// A matrix without rows of the batch: the weights of a linear layer.
bool IsWeights(const DimsPattern& dims) {
  return !dims.leading && dims.dims.size() == 2 && dims.dims[0].letter != 'T' &&
         dims.dims[0].letter != 0 && dims.dims[1].letter != 0;
}

// Sums over the columns of such weights are as large as what they weigh, at any width; the
// tolerances are of that magnitude.
std::string ScaleOf(const TensorSpec& spec, DType dtype, const Dims& shape) {
  if (!IsFloat(dtype) || !IsWeights(spec.dims) || shape[1] == 0) return "";
  char text[40];
  std::snprintf(text, sizeof(text), ":%.17g", 1 / std::sqrt(static_cast<double>(shape[1])));
  return text;
}

}  // namespace

absl::StatusOr<client::Tensor> MakeInput(const TensorSpec& spec, DType dtype, const Dims& shape,
                                         uint64_t seed, const CaseOptions& options) {
  const bool fraction = spec.name == "timestep";
  if (!options.constant && !fraction) {
    std::string name(DTypeName(dtype));
    std::transform(name.begin(), name.end(), name.begin(),
                   [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
    return MakeRandom("random:" + ShapeText(shape) + ":" + name + ":" + std::to_string(seed) +
                      ScaleOf(spec, dtype, shape));
  }
  RLK_ASSIGN_OR_RETURN(client::Tensor tensor, client::Tensor::Allocate(dtype, shape.span()));
  if (!IsFloat(dtype)) return Tokens(std::move(tensor), options.token_value);
  for (int64_t i = 0; i < tensor.elements(); ++i) {
    SetElement(tensor, i, options.constant ? options.constant_value : Fraction(seed, i));
  }
  return tensor;
}

absl::StatusOr<std::vector<OperatorCase>> MakeCases(const std::string& operator_name,
                                                    const std::vector<std::string>& words,
                                                    const CaseOptions& options) {
  RLK_ASSIGN_OR_RETURN(const auto methods, wire::CompileSignatures(wire::OperatorFiles()));
  std::vector<OperatorCase> cases;
  std::vector<MethodSignature> forwards;
  std::set<std::string> names;
  for (const wire::MethodBinding& method : methods) {
    names.insert(method.signature.operator_name);
    if (method.signature.operator_name != operator_name ||
        method.signature.direction != Direction::kForward) {
      continue;
    }
    forwards.push_back(method.signature);
    cases.push_back({method.signature, {}});
    cases.back().call.request.method = method.signature.method;
  }
  if (cases.empty()) {
    return InvalidArgument(Reason::kUnknownOperator, "OPERATOR", operator_name,
                           client::JoinNames({names.begin(), names.end()}),
                           "there is no such operator");
  }
  RLK_RETURN_IF_ERROR(CheckCaseOptions(options, forwards));
  RLK_RETURN_IF_ERROR(CheckDType(cases, operator_name, options.dtype));
  RLK_RETURN_IF_ERROR(AddWords(options.attributes, cases));
  RLK_RETURN_IF_ERROR(AddWords(words, cases));
  for (OperatorCase& each : cases) RLK_RETURN_IF_ERROR(AddInputs(options, each));
  return cases;
}

}  // namespace rlk::cli
