// The cpu kernels and the digest, with the memcpy floor of the same run: bytes per second are those
// read and written by one pass over the tensors. `--benchmark_filter=` picks.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "kernels/builtin.h"
#include "kernels/core/parallel.h"
#include "kernels/digest/digest.h"
#include "kernels/registry/kernel_args.h"
#include "kernels/registry/registry.h"
#include "proto/wire/signatures.h"

namespace rlk {
namespace {

void CheckOk(const absl::Status& status) {
  if (status.ok()) return;
  std::fprintf(stderr, "%s\n", status.ToString().c_str());
  std::abort();
}

const Registry& BoundRegistry() {
  static const std::unique_ptr<Registry> registry = [] {
    auto made = std::make_unique<Registry>();
    RegisterBuiltin({}, *made);
    auto bindings = wire::CompileSignatures(wire::OperatorFiles());
    CheckOk(bindings.status());
    std::vector<MethodSignature> signatures;
    for (wire::MethodBinding& binding : *bindings) signatures.push_back(binding.signature);
    CheckOk(made->Bind(std::move(signatures)));
    return made;
  }();
  return *registry;
}

ThreadPool& Pool(int threads) {
  static ThreadPool one(1);
  static ThreadPool all(std::max(1, static_cast<int>(std::thread::hardware_concurrency())));
  return threads == 1 ? one : all;
}

const Variant& CpuVariant(const Method& method) {
  for (const Variant& variant : method.decl.variants) {
    if (variant.backend == Backend::kCpu) return variant;
  }
  std::abort();
}

// Values of about the size of logits, the same in every run.
std::vector<std::byte> Logits(DType dtype, int64_t elements) {
  std::vector<std::byte> bytes(static_cast<size_t>(elements * DTypeSize(dtype)));
  uint32_t state = 1;
  for (int64_t i = 0; i < elements; ++i) {
    state = state * 1664525u + 1013904223u;
    const float value = (static_cast<float>(state >> 8) * 0x1p-24f - 0.5f) * 80.0f;
    uint32_t bits;
    std::memcpy(&bits, &value, 4);
    std::byte* to = bytes.data() + i * DTypeSize(dtype);
    if (dtype == DType::kF32) std::memcpy(to, &bits, 4);
    // Cutting is enough: every pattern in this range is an ordinary number.
    const auto high = static_cast<uint16_t>(bits >> 16);
    if (dtype == DType::kBF16) std::memcpy(to, &high, 2);
  }
  return bytes;
}

// One launch of a method's cpu variant. Backward takes the FP32 gradient.
class Launch {
 public:
  Launch(const char* method, DType dtype, int64_t elements, int threads)
      : method_(BoundRegistry().Find(method)), variant_(CpuVariant(*method_)) {
    const bool backward = method_->signature.direction == Direction::kBackward;
    const Dims shape = {elements};
    x_ = Logits(dtype, elements);
    inputs_.push_back({dtype, shape, ContiguousStrides(shape), x_.data()});
    input_begin_ = {0, 1};
    DType out = DType::kF32;
    if (backward) {
      grad_ = Logits(DType::kF32, elements);
      inputs_.push_back({DType::kF32, shape, ContiguousStrides(shape), grad_.data()});
      input_begin_.push_back(2);
      out = dtype;
    }
    y_.resize(static_cast<size_t>(elements * DTypeSize(out)));
    outputs_.push_back({out, shape, y_.data()});
    for (const AttributeSpec& spec : method_->signature.attributes) {
      AttributeValue value;
      value.kind = spec.kind;
      value.number = spec.default_number.value_or(0);
      value.integer = static_cast<int64_t>(DType::kF32);
      attributes_.push_back(value);
    }
    args_.signature = &method_->signature;
    args_.contract = method_->decl.contracts.front().id;
    args_.inputs = inputs_;
    args_.input_begin = input_begin_;
    args_.outputs = outputs_;
    args_.attributes = attributes_;
    args_.pool = &Pool(threads);
    if (variant_.workspace_bytes != nullptr) {
      workspace_.resize(static_cast<size_t>(variant_.workspace_bytes(args_)));
      args_.workspace = workspace_;
    }
  }

  void Run() { CheckOk(variant_.launch(args_)); }
  int64_t bytes() const { return static_cast<int64_t>(x_.size() + grad_.size() + y_.size()); }

 private:
  const Method* method_;
  const Variant& variant_;
  std::vector<std::byte> x_, grad_, y_, workspace_;
  std::vector<TensorView> inputs_;
  std::vector<int32_t> input_begin_;
  std::vector<MutableTensorView> outputs_;
  std::vector<AttributeValue> attributes_;
  KernelArgs args_;
};

void Softcap(benchmark::State& state, const char* method, DType dtype) {
  const int64_t elements = state.range(0);
  Launch launch(method, dtype, elements, static_cast<int>(state.range(1)));
  for (auto _ : state) launch.Run();
  state.SetBytesProcessed(state.iterations() * launch.bytes());
  state.SetItemsProcessed(state.iterations() * elements);
}

// The floor: the same number of bytes read and written.
void Memcpy(benchmark::State& state) {
  const auto bytes = static_cast<size_t>(state.range(0));
  const std::vector<std::byte> from(bytes, std::byte{1});
  std::vector<std::byte> to(bytes);
  for (auto _ : state) {
    std::memcpy(to.data(), from.data(), bytes);
    benchmark::ClobberMemory();
  }
  state.SetBytesProcessed(state.iterations() * state.range(0) * 2);
}

void TensorDigest(benchmark::State& state) {
  const int64_t elements = state.range(0) / 4;
  const std::vector<std::byte> data = Logits(DType::kF32, elements);
  const Dims shape = {elements};
  const TensorView view = {DType::kF32, shape, ContiguousStrides(shape), data.data()};
  ThreadPool& pool = Pool(static_cast<int>(state.range(1)));
  for (auto _ : state) benchmark::DoNotOptimize(ComputeDigest(view, &pool));
  state.SetBytesProcessed(state.iterations() * state.range(0));
}

constexpr int64_t kSmall = 32, kCache = 1 << 16, kLarge = 1 << 24;
constexpr char kForward[] = "final_logit_softcap.forward";
constexpr char kBackward[] = "final_logit_softcap.backward";

BENCHMARK(Memcpy)->Arg(kSmall * 4)->Arg(kCache * 4)->Arg(kLarge * 4)->UseRealTime();
// Second argument: threads; 0 takes all cores.
BENCHMARK_CAPTURE(Softcap, forward_f32, kForward, DType::kF32)
    ->ArgsProduct({{kSmall, kCache, kLarge}, {1, 0}})
    ->UseRealTime();
BENCHMARK_CAPTURE(Softcap, forward_bf16, kForward, DType::kBF16)
    ->ArgsProduct({{kSmall, kCache, kLarge}, {1, 0}})
    ->UseRealTime();
BENCHMARK_CAPTURE(Softcap, backward_f32, kBackward, DType::kF32)
    ->ArgsProduct({{kSmall, kCache, kLarge}, {1, 0}})
    ->UseRealTime();
BENCHMARK_CAPTURE(Softcap, backward_bf16, kBackward, DType::kBF16)
    ->ArgsProduct({{kSmall, kCache, kLarge}, {1, 0}})
    ->UseRealTime();
BENCHMARK(TensorDigest)->ArgsProduct({{kSmall * 4, kCache * 4, kLarge * 4}, {1, 0}})->UseRealTime();

}  // namespace
}  // namespace rlk
