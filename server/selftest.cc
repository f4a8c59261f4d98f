#include "server/selftest.h"

#include <cstring>
#include <future>
#include <string_view>
#include <utility>

#include "kernels/arith/convert.h"

namespace rlk::server {
namespace {

// Digests of the default contract's outputs for the inputs below. They are frozen with the
// contract: a new one goes in with a new method, an old one never changes.
struct StoredDigest {
  std::string_view method, output, digest;
};

constexpr StoredDigest kStored[] = {
    {"final_logit_softcap.forward", "y", "xxh3-tree4k-v1:a9f78574fef176ddd3696de63df3d56f"},
    {"final_logit_softcap.backward", "grad_x", "xxh3-tree4k-v1:165c3e4a7f9080be8d99dfe84ae0af09"},
    {"rms_norm.forward", "y", "xxh3-tree4k-v1:6135f8d15a3cc6c4bad2741692bd783b"},
    {"rms_norm.backward", "grad_weight", "xxh3-tree4k-v1:1bf90d50d21fe370bcb23725201ad9f3"},
    {"rms_norm.backward", "grad_x", "xxh3-tree4k-v1:449584e3ec36516229273939c1526daf"},
    {"qwen3_next_rms_norm.forward", "y", "xxh3-tree4k-v1:d6192e73774eec712598e38a885ae5bc"},
    {"qwen3_next_rms_norm.backward", "grad_weight",
     "xxh3-tree4k-v1:1bf90d50d21fe370bcb23725201ad9f3"},
    {"qwen3_next_rms_norm.backward", "grad_x", "xxh3-tree4k-v1:8a649a710913e2693be08c0bc97b2bce"},
    {"rms_norm_gated.forward", "y", "xxh3-tree4k-v1:020160df089ce06a04d14e4946e55dc6"},
    {"rms_norm_gated.backward", "grad_gate", "xxh3-tree4k-v1:f0b74ac32281fe45c13bd163bc2c4a75"},
    {"rms_norm_gated.backward", "grad_weight", "xxh3-tree4k-v1:bc5e522767b2e9c8bca778189f9805ed"},
    {"rms_norm_gated.backward", "grad_x", "xxh3-tree4k-v1:7144fea40f8581f754e5ccb130e0923d"},
    {"det_linear.forward", "y", "xxh3-tree4k-v1:f2ec75b7e7e8d505f43d1d2fb9197a7d"},
    {"det_linear.backward_input", "grad_x", "xxh3-tree4k-v1:d3349dcb57664903e8af4e7bf4c160d8"},
    {"det_linear.backward_weight", "grad_weight",
     "xxh3-tree4k-v1:c1c590b3b32498243a5401327350d435"},
    {"timestep_sinusoid_h3.forward", "embedding",
     "xxh3-tree4k-v1:5311c09729d8a78d39aeb1548fdccbb8"},
    {"timestep_sinusoid_h3.backward", "grad_timestep",
     "xxh3-tree4k-v1:3918b8d9eb48117909e1de41bdc0e91e"},
    {"timestep_mlp_fp32.forward", "y", "xxh3-tree4k-v1:e007806a10740c2307a6490175123026"},
    {"timestep_mlp_fp32.backward", "grad_x", "xxh3-tree4k-v1:2d019f6a435f2ef8ed6de5046ad6823c"},
    {"timestep_mlp_fp32.backward", "grad_w1", "xxh3-tree4k-v1:8148f20bc17e0482e674ac6f6a9ae4fd"},
    {"timestep_mlp_fp32.backward", "grad_b1", "xxh3-tree4k-v1:489010f52e9dadfb2d8db89af36490d0"},
    {"timestep_mlp_fp32.backward", "grad_w2", "xxh3-tree4k-v1:3e79fd5b97f5c9cb5440583fae74532d"},
    {"timestep_mlp_fp32.backward", "grad_b2", "xxh3-tree4k-v1:2e4f49d16f959a3fe95ddb0c65b843a8"},
    {"adaln_projection_3mod.forward", "gate_mlp",
     "xxh3-tree4k-v1:d3d018907c9fd2abd11e35e6649f1eef"},
    {"adaln_projection_3mod.forward", "gate_msa",
     "xxh3-tree4k-v1:c615879c1bb7bb48b7a9b2ec25e1e233"},
    {"adaln_projection_3mod.forward", "scale_mlp",
     "xxh3-tree4k-v1:575a82125daeea0a77439ce5526c7a11"},
    {"adaln_projection_3mod.forward", "scale_msa",
     "xxh3-tree4k-v1:f2c7b9355627ddc623a7593588134d66"},
    {"adaln_projection_3mod.forward", "shift_mlp",
     "xxh3-tree4k-v1:26e2e85688a0b49205e4cd8b48c6ff8d"},
    {"adaln_projection_3mod.forward", "shift_msa",
     "xxh3-tree4k-v1:fe0ecc3f565063a87e7c74828dee424c"},
    {"adaln_projection_3mod.forward_table", "table",
     "xxh3-tree4k-v1:1728bd53818b1b93b1a379a8f0387257"},
    {"adaln_projection_3mod.backward", "grad_bias",
     "xxh3-tree4k-v1:9690d8b568963f2ad9864f1f8a638707"},
    {"adaln_projection_3mod.backward", "grad_temb",
     "xxh3-tree4k-v1:e2d8caa4a93ff97ff872a4896ef4b505"},
    {"adaln_projection_3mod.backward", "grad_weight",
     "xxh3-tree4k-v1:0d94b8d5e3c1f7ea520767aa80cacb37"},
};

// Fixed FP32 values in [-128, 128) from a linear congruence: many lie in the bend of the functions,
// some in saturation. Exact in binary, so every machine makes the same bytes.
std::vector<float> FixedValues(int64_t count, uint32_t seed) {
  std::vector<float> values(static_cast<size_t>(count));
  uint32_t state = seed;
  for (float& value : values) {
    state = state * 1664525u + 1013904223u;
    value = static_cast<float>(static_cast<int32_t>(state >> 8) - (1 << 23)) * 0x1p-16f;
  }
  return values;
}

// A leading "..." is 3 rows and a letter is 257, more than one vector register wide and with a
// tail; an operator of elements alone gets the same [3, 257].
constexpr int64_t kFixedRows = 3, kFixedSize = 257;

// The inputs of a linear are whole 16-byte chunks: K and M (F32) and D (BF16) are not 257. A table
// of D inputs has many channels: nine rows are enough.
int64_t LetterSize(char letter, bool table) {
  if (letter == 'D') return 264;
  if (letter == 'T' && table) return 9;
  return letter == 'K' || letter == 'M' ? 260 : kFixedSize;
}

bool IsTable(const MethodSignature& signature) {
  for (const TensorSpec& spec : signature.inputs) {
    for (const DimPattern& dim : spec.dims.dims) {
      if (dim.letter == 'D') return true;
    }
  }
  return false;
}

Dims FixedShape(const DimsPattern& dims, bool table) {
  Dims shape;
  if (dims.leading) shape.push_back(kFixedRows);
  if (dims.leading && dims.dims.empty()) shape.push_back(kFixedSize);
  for (const DimPattern& dim : dims.dims) {
    shape.push_back(dim.letter == 0 ? dim.factor : dim.factor * LetterSize(dim.letter, table));
  }
  return shape;
}

// The first that the input allows.
DType FixedDType(const MethodSignature& signature, const TensorSpec& spec) {
  if (!spec.dtypes.empty()) return spec.dtypes.front();
  return FixedDType(signature, signature.inputs[static_cast<size_t>(spec.same_dtype_as)]);
}

HostBytes FixedBytes(DType dtype, const std::vector<float>& values) {
  const auto size = static_cast<size_t>(DTypeSize(dtype));
  auto bytes = std::make_shared<std::vector<std::byte>>(values.size() * size);
  for (size_t i = 0; i < values.size(); ++i) {
    const uint32_t bits =
        dtype == DType::kBF16 ? arith::FloatToBf16(values[i]) : arith::FloatBits(values[i]);
    std::memcpy(bytes->data() + i * size, &bits, size);
  }
  HostBytes data;
  data.pieces.push_back(*bytes);
  data.size = static_cast<int64_t>(bytes->size());
  data.owner = std::move(bytes);
  return data;
}

Call FixedCall(const Method& method, Backend backend) {
  Call call;
  call.method = &method;
  for (size_t i = 0; i < method.signature.inputs.size(); ++i) {
    const TensorSpec& spec = method.signature.inputs[i];
    // Of several optional gradients a method needs one: all are given.
    if (spec.optional && spec.name.rfind("grad_", 0) != 0) continue;
    TensorArg tensor;
    tensor.spec = static_cast<int32_t>(i);
    tensor.dtype = FixedDType(method.signature, spec);
    tensor.shape = FixedShape(spec.dims, IsTable(method.signature));
    tensor.strides = ContiguousStrides(tensor.shape);
    std::vector<float> values =
        FixedValues(ElementCount(tensor.shape), static_cast<uint32_t>(i + 1));
    // Timesteps are fractions.
    if (spec.name == "timestep") {
      for (float& value : values) value = value * 0x1p-8f + 0.5f;
    }
    tensor.data = FixedBytes(tensor.dtype, values);
    call.message_bytes += tensor.data.size;
    call.inputs.push_back(std::move(tensor));
  }
  call.options.backend = std::string(BackendName(backend));
  call.options.digest_tensors = true;
  // No message carries it: some fixed inputs are larger than one.
  call.in_process = true;
  call.received = std::chrono::steady_clock::now();
  return call;
}

std::string_view StoredFor(std::string_view method, std::string_view output) {
  for (const StoredDigest& stored : kStored) {
    if (stored.method == method && stored.output == output) return stored.digest;
  }
  return {};
}

void Judge(const absl::StatusOr<CallResult>& result, SelftestOutcome& outcome) {
  if (!result.ok()) {
    outcome.detail = std::string(result.status().message());
    return;
  }
  outcome.result = SelftestResult::kPass;
  for (const NamedDigest& digest : result->report.output_digests) {
    const std::string got = digest.tensor ? digest.tensor->Text() : "no digest";
    const std::string_view want = StoredFor(outcome.method, digest.name);
    if (got == want) continue;
    outcome.result = SelftestResult::kMismatch;
    outcome.detail = digest.name + ": got " + got + ", stored " + std::string(want);
  }
  if (result->report.output_digests.empty()) {
    outcome.result = SelftestResult::kError;
    outcome.detail = "no output digest";
  }
}

bool HasVariant(const Method& method, Backend backend) {
  for (const Variant& variant : method.decl.variants) {
    if (variant.backend != backend) continue;
    for (const ContractClaim& claim : variant.contracts) {
      if (claim.contract == method.decl.contracts.front().id) return true;
    }
  }
  return false;
}

}  // namespace

std::vector<SelftestCase> SelftestCases(const Registry& registry) {
  std::vector<SelftestCase> cases;
  for (const auto& method : registry.methods()) {
    for (int i = 0; i < kBackendCount; ++i) {
      const auto backend = static_cast<Backend>(i);
      if (backend == Backend::kGolden || !registry.backend(backend).available ||
          !HasVariant(*method, backend)) {
        continue;
      }
      cases.push_back({method.get(), backend});
    }
  }
  return cases;
}

SelftestOutcome RunSelftestCase(Engine& engine, const SelftestCase& which) {
  // A copy: metrics count the calls of the registry's own methods, and this is no caller's call.
  const Method method = *which.method;
  SelftestOutcome outcome;
  outcome.operator_name = method.signature.operator_name;
  outcome.method = method.decl.method;
  outcome.backend = std::string(BackendName(which.backend));
  // Shared: the engine's thread may still be inside set_value when the result is here.
  auto done = std::make_shared<std::promise<absl::StatusOr<CallResult>>>();
  std::future<absl::StatusOr<CallResult>> result = done->get_future();
  engine.Submit(FixedCall(method, which.backend), [done](absl::StatusOr<CallResult> outcome) {
    done->set_value(std::move(outcome));
  });
  Judge(result.get(), outcome);
  return outcome;
}

std::vector<SelftestOutcome> RunSelftest(Engine& engine) {
  std::vector<SelftestOutcome> outcomes;
  for (const SelftestCase& which : SelftestCases(engine.registry())) {
    outcomes.push_back(RunSelftestCase(engine, which));
  }
  return outcomes;
}

SelftestLoop::SelftestLoop(Engine* engine, Metrics* metrics, const Logger* logger,
                           std::chrono::nanoseconds interval)
    : engine_(engine), metrics_(metrics), logger_(logger), interval_(interval), thread_([this] {
        Run();
      }) {}

SelftestLoop::~SelftestLoop() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_all();
  thread_.join();
}

void SelftestLoop::Run() {
  const std::vector<SelftestCase> cases = SelftestCases(engine_->registry());
  if (cases.empty()) return;
  // The first round shows soon that the machine is sound. Those after it are spread out, so that a
  // caller waits for one fixed input at most.
  const auto pause = interval_ / static_cast<int64_t>(cases.size());
  for (size_t i = 0;; ++i) {
    Tell(RunSelftestCase(*engine_, cases[i % cases.size()]));
    std::unique_lock lock(mutex_);
    if (i + 1 >= cases.size()) wake_.wait_for(lock, pause, [this] { return stopping_; });
    if (stopping_) return;
  }
}

void SelftestLoop::Tell(const SelftestOutcome& outcome) {
  // A server that drains refuses the self-test like every call; that says nothing about bits.
  if (outcome.result == SelftestResult::kError && !engine_->serving()) return;
  metrics_->OnSelftest(outcome.operator_name, outcome.result);
  if (outcome.result == SelftestResult::kPass) return;
  logger_->Error(
      "self-test failed",
      {{"method", outcome.method}, {"backend", outcome.backend}, {"detail", outcome.detail}});
}

}  // namespace rlk::server
