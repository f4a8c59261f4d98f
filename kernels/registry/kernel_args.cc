#include "kernels/registry/kernel_args.h"

#include <cstdio>
#include <cstdlib>

namespace rlk {
namespace {

[[noreturn]] void UnknownName(const char* kind, std::string_view name) {
  fprintf(stderr, "rlk: a kernel asked for the unknown %s \"%.*s\"\n", kind,
          static_cast<int>(name.size()), name.data());
  abort();
}

template <typename Spec>
size_t IndexOf(const std::vector<Spec>& specs, std::string_view name, const char* kind) {
  for (size_t i = 0; i < specs.size(); ++i) {
    if (specs[i].name == name) return i;
  }
  UnknownName(kind, name);
}

}  // namespace

std::span<const TensorView> KernelArgs::Inputs(std::string_view name) const {
  const size_t i = IndexOf(signature->inputs, name, "input");
  return inputs.subspan(input_begin[i], input_begin[i + 1] - input_begin[i]);
}

const TensorView& KernelArgs::Input(std::string_view name) const {
  static const TensorView kAbsent;
  const std::span<const TensorView> given = Inputs(name);
  return given.empty() ? kAbsent : given.front();
}

const MutableTensorView& KernelArgs::Output(std::string_view name) const {
  return outputs[IndexOf(signature->outputs, name, "output")];
}

float KernelArgs::F32(std::string_view name) const {
  return static_cast<float>(attributes[IndexOf(signature->attributes, name, "attribute")].number);
}

int64_t KernelArgs::I64(std::string_view name) const {
  return attributes[IndexOf(signature->attributes, name, "attribute")].integer;
}

}  // namespace rlk
