// Calls of final_logit_softcap as the engine makes them, without the engine.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <random>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/arith/convert.h"
#include "kernels/core/cpu_features.h"
#include "kernels/core/parallel.h"
#include "kernels/ops/final_logit_softcap/final_logit_softcap.h"

namespace rlk::test {

inline TensorView View(DType dtype, const Dims& shape, const void* data) {
  return {dtype, shape, ContiguousStrides(shape), data};
}

inline const MethodSignature& SoftcapSignature(bool backward) {
  static const auto make = [](std::vector<const char*> inputs, std::vector<const char*> attributes,
                              const char* output) {
    MethodSignature signature;
    for (const char* name : inputs) signature.inputs.emplace_back().name = name;
    for (const char* name : attributes) signature.attributes.emplace_back().name = name;
    signature.outputs.emplace_back().name = output;
    return signature;
  };
  static const MethodSignature forward_signature = make({"x"}, {"softcap", "output_dtype"}, "y");
  static const MethodSignature backward_signature = make({"x", "grad_y"}, {"softcap"}, "grad_x");
  return backward ? backward_signature : forward_signature;
}

inline constexpr std::byte kCanary{0xa5};
inline constexpr int64_t kGuardBytes = 64;

// One call. The output lies between guards, and all of it holds the canary before the launch.
class SoftcapCall {
 public:
  using Launch = absl::Status (*)(const KernelArgs&);

  TensorView x;
  TensorView grad_y;  // present for backward
  DType output = DType::kF32;
  float softcap = 30.0f;
  ThreadPool* pool = nullptr;

  // The bytes of the output; fails the test on an error or a damaged guard.
  std::vector<std::byte> Run(Launch launch) const {
    return RunWith([&](const KernelArgs& args) { return launch(args); });
  }

  std::vector<std::byte> RunCpu() const {
    return Run(grad_y.present() ? &LaunchSoftcapBackwardCpu : &LaunchSoftcapForwardCpu);
  }

  std::vector<std::byte> RunIsa(Isa isa) const {
    return RunWith([&](const KernelArgs& args) {
      return grad_y.present() ? RunSoftcapBackwardCpu(args, isa) : RunSoftcapForwardCpu(args, isa);
    });
  }

  // The FP64 reference.
  std::vector<double> RunGolden() const {
    SoftcapCall call = *this;
    call.output = DType::kF64;
    const std::vector<std::byte> bytes =
        call.Run(grad_y.present() ? &SoftcapBackwardGolden : &SoftcapForwardGolden);
    std::vector<double> values(bytes.size() / sizeof(double));
    if (!bytes.empty()) memcpy(values.data(), bytes.data(), bytes.size());
    return values;
  }

 private:
  template <typename Launcher>
  std::vector<std::byte> RunWith(const Launcher& launch) const {
    const bool backward = grad_y.present();
    const MethodSignature& signature = SoftcapSignature(backward);
    MutableTensorView result{output, x.shape, nullptr};
    const int64_t bytes = result.bytes();
    std::vector<std::byte> memory(static_cast<size_t>(bytes + 2 * kGuardBytes), kCanary);
    result.data = memory.data() + kGuardBytes;
    const std::vector<TensorView> inputs =
        backward ? std::vector<TensorView>{x, grad_y} : std::vector<TensorView>{x};
    const std::vector<int32_t> begin =
        backward ? std::vector<int32_t>{0, 1, 2} : std::vector<int32_t>{0, 1};
    std::vector<AttributeValue> attributes(signature.attributes.size());
    attributes[0].number = softcap;
    KernelArgs args;
    args.signature = &signature;
    args.contract = kSoftcapPortableContract;
    args.inputs = inputs;
    args.input_begin = begin;
    args.outputs = {&result, 1};
    args.attributes = attributes;
    args.pool = pool;
    const absl::Status status = launch(args);
    EXPECT_TRUE(status.ok()) << status;
    for (int64_t i = 0; i < kGuardBytes; ++i) {
      EXPECT_EQ(memory[static_cast<size_t>(i)], kCanary);
      EXPECT_EQ(memory[static_cast<size_t>(kGuardBytes + bytes + i)], kCanary);
    }
    return {memory.begin() + kGuardBytes, memory.end() - kGuardBytes};
  }
};

// Elements of a float dtype, from FP32 values.
inline std::vector<std::byte> Encode(DType dtype, const std::vector<float>& values) {
  std::vector<std::byte> bytes(values.size() * static_cast<size_t>(DTypeSize(dtype)));
  for (size_t i = 0; i < values.size(); ++i) {
    if (dtype == DType::kF32) {
      memcpy(&bytes[4 * i], &values[i], 4);
    } else {
      const uint16_t bits =
          dtype == DType::kF16 ? arith::FloatToF16(values[i]) : arith::FloatToBf16(values[i]);
      memcpy(&bytes[2 * i], &bits, 2);
    }
  }
  return bytes;
}

inline std::vector<float> DecodeAll(DType dtype, const std::vector<std::byte>& bytes) {
  std::vector<float> values(bytes.size() / static_cast<size_t>(DTypeSize(dtype)));
  for (size_t i = 0; i < values.size(); ++i) {
    if (dtype == DType::kF32) {
      memcpy(&values[i], &bytes[4 * i], 4);
    } else {
      uint16_t bits;
      memcpy(&bits, &bytes[2 * i], 2);
      values[i] = dtype == DType::kF16 ? arith::F16ToFloat(bits) : arith::Bf16ToFloat(bits);
    }
  }
  return values;
}

// Values that cover the linear part, the transition and saturation.
inline std::vector<float> RandomValues(int64_t count, float scale, uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<float> values(static_cast<size_t>(count));
  for (float& value : values) {
    value = scale * (static_cast<float>(random() >> 8) * 0x1p-23f - 1.0f);
  }
  return values;
}

inline constexpr DType kSoftcapDTypes[] = {DType::kF32, DType::kF16, DType::kBF16};

}  // namespace rlk::test
