// What a kernel is launched with: views by name, attributes, workspace, stream. Nothing here owns.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "kernels/core/parallel.h"
#include "kernels/core/stream_ref.h"
#include "kernels/core/tensor_view.h"
#include "kernels/registry/signature.h"

namespace rlk {

struct KernelArgs {
  const MethodSignature* signature = nullptr;
  std::string_view contract;
  // All given tensors in signature order; those of input spec i are
  // [input_begin[i], input_begin[i + 1]). An absent optional tensor has an empty range.
  std::span<const TensorView> inputs;
  std::span<const int32_t> input_begin;
  // One per output spec; not present() when it is not wanted.
  std::span<const MutableTensorView> outputs;
  // One per attribute spec.
  std::span<const AttributeValue> attributes;
  // On the device of the backend; at least Variant::workspace_bytes, 256-byte aligned.
  std::span<std::byte> workspace;
  StreamRef stream;
  // Host backends only.
  ThreadPool* pool = nullptr;

  // Lookups by the signature's names. The name must exist: an unknown one is a bug of the kernel
  // and aborts. Input returns a view that is not present() for an absent optional tensor.
  const TensorView& Input(std::string_view name) const;
  std::span<const TensorView> Inputs(std::string_view name) const;
  const MutableTensorView& Output(std::string_view name) const;
  float F32(std::string_view name) const;
  int64_t I64(std::string_view name) const;
};

}  // namespace rlk
