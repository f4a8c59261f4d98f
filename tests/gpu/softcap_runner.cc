#include "tests/gpu/softcap_runner.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <thread>

#include "kernels/arith/convert.h"
#include "kernels/builtin.h"
#include "kernels/core/parallel.h"
#include "proto/wire/signatures.h"
#include "server/engine/cuda_device.h"

namespace rlk::gpu_test {
namespace {

void RequireOk(const absl::Status& status) {
  if (status.ok()) return;
  std::fprintf(stderr, "%s\n", status.ToString().c_str());
  std::abort();
}

ThreadPool& Pool() {
  static auto* pool = new ThreadPool(std::max(1u, std::thread::hardware_concurrency()));
  return *pool;
}

const Variant& FindVariant(const Method& method, Backend backend) {
  for (const Variant& variant : method.decl.variants) {
    if (variant.backend == backend) return variant;
  }
  std::fprintf(stderr, "%s has no variant on %s\n", method.decl.method.c_str(),
               std::string(BackendName(backend)).c_str());
  std::abort();
}

// Puts inputs and outputs where the signature has them, and launches.
void Launch(const char* name, Backend backend, std::vector<TensorView> inputs,
            std::vector<MutableTensorView> outputs, float cap, cudaStream_t stream) {
  const Method* method = BuiltinRegistry().Find(name);
  if (method == nullptr) std::abort();
  const MethodSignature& signature = method->signature;
  std::vector<int32_t> input_begin;
  for (size_t i = 0; i <= inputs.size(); ++i) input_begin.push_back(static_cast<int32_t>(i));
  std::vector<AttributeValue> attributes;
  for (const AttributeSpec& spec : signature.attributes) {
    AttributeValue value;
    value.kind = spec.kind;
    if (spec.name == "softcap") value.number = cap;
    if (spec.kind == AttributeKind::kDType) {
      value.integer = static_cast<int64_t>(outputs.front().dtype);
    }
    attributes.push_back(value);
  }
  KernelArgs args;
  args.signature = &signature;
  args.contract = method->decl.contracts.front().id;
  args.inputs = inputs;
  args.input_begin = input_begin;
  args.outputs = outputs;
  args.attributes = attributes;
  args.stream = {stream};
  args.pool = backend == Backend::kCpu ? &Pool() : nullptr;
  RequireOk(FindVariant(*method, backend).launch(args));
}

}  // namespace

const Registry& BuiltinRegistry() {
  static const Registry* registry = [] {
    const server::CudaProbe probe = server::ProbeCuda();
    BuiltinOptions options;
    options.has_cuda = !probe.devices.empty();
    options.cuda_reason = probe.reason;
    if (options.has_cuda) {
      options.compute_capability = probe.devices.front().compute_capability;
      options.cuda_ordinal = probe.devices.front().ordinal;
    }
    auto built = std::make_unique<Registry>();
    RegisterBuiltin(options, *built);
    auto bindings = wire::CompileSignatures(wire::OperatorFiles());
    RequireOk(bindings.status());
    std::vector<MethodSignature> signatures;
    for (wire::MethodBinding& binding : *bindings) {
      signatures.push_back(std::move(binding.signature));
    }
    RequireOk(built->Bind(std::move(signatures)));
    return built.release();
  }();
  return *registry;
}

void LaunchCuda(const Forward& call, cudaStream_t stream) {
  Launch("final_logit_softcap.forward", Backend::kCuda, {call.x}, {call.y}, call.cap, stream);
}
void LaunchCuda(const Backward& call, cudaStream_t stream) {
  Launch("final_logit_softcap.backward", Backend::kCuda, {call.x, call.grad_y}, {call.grad_x},
         call.cap, stream);
}
void RunCpu(const Forward& call) {
  Launch("final_logit_softcap.forward", Backend::kCpu, {call.x}, {call.y}, call.cap, nullptr);
}
void RunCpu(const Backward& call) {
  Launch("final_logit_softcap.backward", Backend::kCpu, {call.x, call.grad_y}, {call.grad_x},
         call.cap, nullptr);
}

TensorView View(DType dtype, int64_t count, const void* data) {
  return {dtype, Dims{count}, Dims{1}, data};
}
MutableTensorView MutableView(DType dtype, int64_t count, void* data) {
  return {dtype, Dims{count}, data};
}

std::vector<uint8_t> NormalValues(DType dtype, int64_t count, float scale, uint64_t seed) {
  std::mt19937_64 generator(seed);
  std::normal_distribution<float> normal(0.0f, scale);
  const int64_t size = DTypeSize(dtype);
  std::vector<uint8_t> bytes(static_cast<size_t>(count * size));
  for (int64_t i = 0; i < count; ++i) {
    const float value = normal(generator);
    const uint32_t bits = dtype == DType::kF32    ? arith::FloatBits(value)
                          : dtype == DType::kBF16 ? arith::FloatToBf16(value)
                                                  : arith::FloatToF16(value);
    std::memcpy(bytes.data() + i * size, &bits, static_cast<size_t>(size));
  }
  return bytes;
}

std::vector<uint8_t> RandomBits(DType dtype, int64_t count, uint64_t seed) {
  std::mt19937_64 generator(seed);
  std::vector<uint8_t> bytes(static_cast<size_t>(count * DTypeSize(dtype)));
  for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(generator() >> 32);
  return bytes;
}

void ExpectSameBytes(const std::vector<uint8_t>& actual, const std::vector<uint8_t>& expected,
                     int64_t element_bytes, const char* what) {
  ASSERT_EQ(actual.size(), expected.size()) << what;
  if (std::memcmp(actual.data(), expected.data(), actual.size()) == 0) return;
  const auto at = std::mismatch(actual.begin(), actual.end(), expected.begin());
  const auto element = (at.first - actual.begin()) / element_bytes;
  uint32_t actual_bits = 0, expected_bits = 0;
  std::memcpy(&actual_bits, actual.data() + element * element_bytes,
              static_cast<size_t>(element_bytes));
  std::memcpy(&expected_bits, expected.data() + element * element_bytes,
              static_cast<size_t>(element_bytes));
  FAIL() << what << ": element " << element << " is " << std::hex << actual_bits << ", expected "
         << expected_bits;
}

}  // namespace rlk::gpu_test
