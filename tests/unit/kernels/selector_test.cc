#include "kernels/registry/selector.h"

#include <functional>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/core/status.h"

namespace rlk {
namespace {

using testing::HasSubstr;

constexpr char kPortable[] = "op/portable-v1";
constexpr char kFast[] = "op/fast-v1";  // cuda_sm90 alone, claim L1
constexpr char kGolden[] = "op/golden-f64";

absl::Status Launch(const KernelArgs&) { return absl::OkStatus(); }
absl::Status RefusesShape(const KernelArgs&) {
  return absl::InvalidArgumentError("the last size is no multiple of 8");
}

const ContractClaim kMeasuredOn90 = {
    kPortable, ClaimLevel::kL3Portable, {90}, ClaimLevel::kL1BatchInvariant};

Variant MakeVariant(Backend backend, const char* kernel, std::vector<ContractClaim> contracts,
                    int capability_min = 0) {
  Variant variant;
  variant.backend = backend;
  variant.kernel = kernel;
  variant.contracts = std::move(contracts);
  variant.capability_min = capability_min;
  variant.launch = &Launch;
  return variant;
}

MethodDecl Decl() {
  MethodDecl decl;
  decl.method = "op.forward";
  decl.contracts = {{kPortable, ""}, {kFast, ""}, {kGolden, ""}};
  decl.variants = {
      MakeVariant(Backend::kCpu, "op_cpu", {{kPortable, ClaimLevel::kL3Portable}}),
      MakeVariant(Backend::kGolden, "op_golden", {{kGolden, ClaimLevel::kL1BatchInvariant}}),
      MakeVariant(Backend::kCuda, "op_cuda", {{kPortable, ClaimLevel::kL3Portable}}, 80),
      MakeVariant(Backend::kCudaSm90, "op_sm90",
                  {{kPortable, ClaimLevel::kL3Portable}, {kFast, ClaimLevel::kL1BatchInvariant}},
                  90),
  };
  return decl;
}

struct World {
  MethodDecl decl = Decl();
  std::array<BackendState, kBackendCount> backends;
  SelectionQuery query;

  World() {
    for (BackendState& state : backends) state.available = true;
    query.has_cuda = true;
    query.device = {.compute_capability = 90, .shared_bytes_per_block = 227 << 10};
  }
  BackendState& backend(Backend b) { return backends[static_cast<size_t>(b)]; }
  void FailToLoad(Backend b) { backend(b) = {false, true, "known answers failed", 0}; }
  void NoDevice() {
    query.has_cuda = false;
    query.device.compute_capability = 0;
    backend(Backend::kCuda) = {false, false, "no driver", 0};
    backend(Backend::kCudaSm90) = {false, false, "no driver", 0};
    backend(Backend::kCublasLt) = {false, false, "no driver", 0};
  }
  Variant& variant(Backend b) {
    for (Variant& variant : decl.variants) {
      if (variant.backend == b) return variant;
    }
    abort();
  }
  absl::StatusOr<Selection> Run() {
    registry_ = std::make_unique<Registry>();
    for (int b = 0; b < kBackendCount; ++b) {
      registry_->SetBackend(static_cast<Backend>(b), backends[static_cast<size_t>(b)]);
    }
    registry_->Add(decl);
    MethodSignature signature;
    signature.method = decl.method;
    EXPECT_TRUE(registry_->Bind({signature}).ok());
    return Select(*registry_, *registry_->Find(decl.method), query, {});
  }

 private:
  std::unique_ptr<Registry> registry_;  // the selection points into it
};

struct Chosen {
  const char* name;
  std::function<void(World&)> setup;
  const char* kernel;
  const char* contract;
  ClaimLevel claim;
  // "backend: reason" of each rejection, in order.
  std::vector<std::string> rejected;
  // Backend of the fallback, or "".
  std::string fallback_from;
};

TEST(Select, ChoosesTheFirstApplicableVariant) {
  const std::vector<Chosen> cases = {
      {"priority puts cuda_sm90 first",
       [](World&) {},
       "op_sm90",
       kPortable,
       ClaimLevel::kL3Portable,
       {},
       ""},
      {"no device: a rejection with its reason, no fallback, in STRICT",
       [](World& w) { w.NoDevice(); },
       "op_cpu",
       kPortable,
       ClaimLevel::kL3Portable,
       {"cuda_sm90: no driver", "cuda: no driver"},
       ""},
      {"the device is not healthy now",
       [](World& w) { w.query.has_cuda = false; },
       "op_cpu",
       kPortable,
       ClaimLevel::kL3Portable,
       {"cuda_sm90: no healthy CUDA device", "cuda: no healthy CUDA device"},
       ""},
      {"capability below",
       [](World& w) { w.query.device.compute_capability = 80; },
       "op_cuda",
       kPortable,
       ClaimLevel::kL3Portable,
       {"cuda_sm90: needs compute capability 90 or more, the device has 80"},
       ""},
      {"capability above",
       [](World& w) {
         w.query.device.compute_capability = 100;
         w.variant(Backend::kCudaSm90).capability_max = 90;
       },
       "op_cuda",
       kPortable,
       ClaimLevel::kL3Portable,
       {"cuda_sm90: needs compute capability 90 or less, the device has 100"},
       ""},
      {"less shared memory than its kernels take",
       [](World& w) {
         w.query.device.shared_bytes_per_block = 99 << 10;
         w.variant(Backend::kCudaSm90).shared_bytes_per_block = 137 << 10;
         w.variant(Backend::kCuda).shared_bytes_per_block = 99 << 10;
       },
       "op_cuda",
       kPortable,
       ClaimLevel::kL3Portable,
       {"cuda_sm90: needs 140288 bytes of shared memory a block, the device has 101376"},
       ""},
      {"a shape that does not apply",
       [](World& w) { w.variant(Backend::kCudaSm90).applicable = &RefusesShape; },
       "op_cuda",
       kPortable,
       ClaimLevel::kL3Portable,
       {"cuda_sm90: the last size is no multiple of 8"},
       ""},
      {"a device whose tensor core has another law",
       [](World& w) {
         w.variant(Backend::kCudaSm90).needs_step_law = true;
         w.backend(Backend::kCudaSm90).step_law_reason = "another law";
       },
       "op_cuda",
       kPortable,
       ClaimLevel::kL3Portable,
       {"cuda_sm90: another law"},
       ""},
      {"a contract that higher backends do not offer",
       [](World& w) {
         w.query.contract = kPortable;
         w.variant(Backend::kCudaSm90).contracts = {{kFast, ClaimLevel::kL1BatchInvariant}};
       },
       "op_cuda",
       kPortable,
       ClaimLevel::kL3Portable,
       {"cuda_sm90: does not offer contract op/portable-v1"},
       ""},
      {"a contract by name",
       [](World& w) { w.query.contract = kFast; },
       "op_sm90",
       kFast,
       ClaimLevel::kL1BatchInvariant,
       {},
       ""},
      {"a claim below the minimum is passed over",
       [](World& w) {
         w.query.minimum_claim = ClaimLevel::kL3Portable;
         w.variant(Backend::kCudaSm90).contracts = {{kPortable, ClaimLevel::kL1BatchInvariant}};
       },
       "op_cuda",
       kPortable,
       ClaimLevel::kL3Portable,
       {"cuda_sm90: claim L1 is below the minimum L3"},
       ""},
      {"a backend by name",
       [](World& w) { w.query.backend = "cpu"; },
       "op_cpu",
       kPortable,
       ClaimLevel::kL3Portable,
       {},
       ""},
      {"golden by name gets the first contract that it offers",
       [](World& w) { w.query.backend = "golden"; },
       "op_golden",
       kGolden,
       ClaimLevel::kL1BatchInvariant,
       {},
       ""},
      {"AUTO reports the fallback",
       [](World& w) {
         w.query.allow_fallback = true;
         w.FailToLoad(Backend::kCudaSm90);
       },
       "op_cuda",
       kPortable,
       ClaimLevel::kL3Portable,
       {"cuda_sm90: known answers failed"},
       "cuda_sm90"},
      {"AUTO names the highest backend that failed",
       [](World& w) {
         w.query.allow_fallback = true;
         w.FailToLoad(Backend::kCudaSm90);
         w.FailToLoad(Backend::kCuda);
       },
       "op_cpu",
       kPortable,
       ClaimLevel::kL3Portable,
       {"cuda_sm90: known answers failed", "cuda: known answers failed"},
       "cuda_sm90"},
      {"a failed backend that does not apply is no fallback, in STRICT",
       [](World& w) {
         w.FailToLoad(Backend::kCudaSm90);
         w.query.device.compute_capability = 80;
       },
       "op_cuda",
       kPortable,
       ClaimLevel::kL3Portable,
       {"cuda_sm90: needs compute capability 90 or more, the device has 80"},
       ""},
      {"a failed lower backend does not matter",
       [](World& w) { w.FailToLoad(Backend::kCpu); },
       "op_sm90",
       kPortable,
       ClaimLevel::kL3Portable,
       {},
       ""},
      {"the backend asked by name is not a fallback from a failed one",
       [](World& w) {
         w.FailToLoad(Backend::kCudaSm90);
         w.query.backend = "cpu";
       },
       "op_cpu",
       kPortable,
       ClaimLevel::kL3Portable,
       {},
       ""},
      {"a GPU that the claim was measured on",
       [](World& w) { w.variant(Backend::kCudaSm90).contracts = {kMeasuredOn90}; },
       "op_sm90",
       kPortable,
       ClaimLevel::kL3Portable,
       {},
       ""},
      {"another GPU has the lower claim",
       [](World& w) {
         w.variant(Backend::kCudaSm90).contracts = {kMeasuredOn90};
         w.query.device.compute_capability = 100;
       },
       "op_sm90",
       kPortable,
       ClaimLevel::kL1BatchInvariant,
       {},
       ""},
      {"another GPU is passed over where its claim is below the minimum",
       [](World& w) {
         w.variant(Backend::kCudaSm90).contracts = {kMeasuredOn90};
         w.query.device.compute_capability = 100;
         w.query.minimum_claim = ClaimLevel::kL3Portable;
       },
       "op_cuda",
       kPortable,
       ClaimLevel::kL3Portable,
       {"cuda_sm90: claim L1 is below the minimum L3"},
       ""},
      {"a provider's bits where they are asked for",
       [](World& w) {
         w.query.minimum_claim = ClaimLevel::kL2Provider;
         w.variant(Backend::kCuda).contracts = {{kPortable, ClaimLevel::kL2Provider}};
       },
       "op_cuda",
       kPortable,
       ClaimLevel::kL2Provider,
       {"cuda_sm90: claim L3 does not include the minimum L2"},
       ""},
      {"no minimum takes any claim",
       [](World& w) {
         w.query.minimum_claim = ClaimLevel::kNone;
         w.variant(Backend::kCudaSm90).contracts = {{kPortable, ClaimLevel::kNone}};
       },
       "op_sm90",
       kPortable,
       ClaimLevel::kNone,
       {},
       ""},
  };
  for (const Chosen& c : cases) {
    SCOPED_TRACE(c.name);
    World world;
    c.setup(world);
    const absl::StatusOr<Selection> selection = world.Run();
    if (!selection.ok()) {
      ADD_FAILURE() << selection.status();
      continue;
    }
    EXPECT_EQ(selection->variant->kernel, c.kernel);
    EXPECT_EQ(selection->contract->id, c.contract);
    EXPECT_EQ(selection->claim, c.claim);
    std::vector<std::string> rejected;
    for (const Rejection& rejection : selection->rejected) {
      rejected.push_back(std::string(BackendName(rejection.backend)) + ": " + rejection.reason);
    }
    EXPECT_EQ(rejected, c.rejected);
    const std::string from =
        selection->fallback ? std::string(BackendName(selection->fallback->from)) : "";
    EXPECT_EQ(from, c.fallback_from);
  }
}

struct Refused {
  const char* name;
  std::function<void(World&)> setup;
  absl::StatusCode code;
  Reason reason;
  const char* field;
  const char* value;
  const char* allowed;
  const char* said;
};

TEST(Select, RefusesWithReasonFieldValueAndAllowedSet) {
  constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;
  constexpr auto kPrecondition = absl::StatusCode::kFailedPrecondition;
  const std::vector<Refused> cases = {
      {"unknown contract", [](World& w) { w.query.contract = "op/portable-v9"; }, kInvalid,
       Reason::kUnknownContract, "options.contract", "op/portable-v9",
       "op/portable-v1, op/fast-v1, op/golden-f64", "op/portable-v9"},
      {"unknown backend", [](World& w) { w.query.backend = "tpu"; }, kInvalid,
       Reason::kUnknownBackend, "options.backend", "tpu", "cuda_sm90, cuda, cpu, golden, cublaslt",
       "tpu"},
      {"unknown backend before an unavailable contract",
       [](World& w) {
         w.query.backend = "CPU";
         w.query.contract = kFast;
       },
       kInvalid, Reason::kUnknownBackend, "options.backend", "CPU",
       "cuda_sm90, cuda, cpu, golden, cublaslt", "CPU"},
      {"known backend without a device",
       [](World& w) {
         w.NoDevice();
         w.query.backend = "cuda";
       },
       kPrecondition, Reason::kBackendUnavailable, "options.backend", "cuda", "cpu, golden",
       "no driver"},
      {"known backend that was not offered",
       [](World& w) {
         w.backend(Backend::kGolden) = {false, false, "not offered: --backends", 0};
         w.query.backend = "golden";
       },
       kPrecondition, Reason::kBackendUnavailable, "options.backend", "golden",
       "cuda_sm90, cuda, cpu, cublaslt", "not offered: --backends"},
      {"named backend failed to load, in AUTO too",
       [](World& w) {
         w.FailToLoad(Backend::kCuda);
         w.query.backend = "cuda";
         w.query.allow_fallback = true;
       },
       kPrecondition, Reason::kBackendUnavailable, "options.backend", "cuda",
       "cuda_sm90, cpu, golden, cublaslt", "known answers failed"},
      {"named backend has no variant of the method",
       [](World& w) {
         w.decl.variants.erase(w.decl.variants.begin() + 2);
         w.query.backend = "cuda";
       },
       kPrecondition, Reason::kBackendUnavailable, "options.backend", "cuda", "",
       "no backend can run op.forward"},
      {"named backend refuses the shape",
       [](World& w) {
         w.variant(Backend::kCuda).applicable = &RefusesShape;
         w.query.backend = "cuda";
       },
       kPrecondition, Reason::kBackendUnavailable, "options.backend", "cuda", "", "multiple of 8"},
      {"known contract that the named backend does not offer",
       [](World& w) {
         w.query.contract = kFast;
         w.query.backend = "cpu";
       },
       kPrecondition, Reason::kContractUnavailable, "options.contract", kFast, kPortable,
       "does not offer contract op/fast-v1"},
      {"known contract of an absent device",
       [](World& w) {
         w.NoDevice();
         w.query.contract = kFast;
       },
       kPrecondition, Reason::kContractUnavailable, "options.contract", kFast, kPortable,
       "no driver"},
      {"golden's contract without golden's name", [](World& w) { w.query.contract = kGolden; },
       kPrecondition, Reason::kContractUnavailable, "options.contract", kGolden,
       "op/portable-v1, op/fast-v1", "does not offer contract op/golden-f64"},
      {"claim below the minimum",
       [](World& w) {
         w.query.contract = kFast;
         w.query.minimum_claim = ClaimLevel::kL3Portable;
       },
       kPrecondition, Reason::kClaimTooLow, "options.minimum_claim", "L3", "at most L1",
       "claim L1 is below the minimum L3"},
      {"bits that are portable where a provider's are asked for",
       [](World& w) { w.query.minimum_claim = ClaimLevel::kL2Provider; }, kPrecondition,
       Reason::kClaimTooLow, "options.minimum_claim", "L2", "L0, L1, L3",
       "claim L3 does not include the minimum L2"},
      {"STRICT refuses a fallback", [](World& w) { w.FailToLoad(Backend::kCudaSm90); },
       kPrecondition, Reason::kFallbackRefused, "options.mode", "STRICT", "AUTO",
       "cuda_sm90 applies but failed to load (known answers failed)"},
      {"nothing is left",
       [](World& w) {
         w.NoDevice();
         w.FailToLoad(Backend::kCpu);
       },
       kPrecondition, Reason::kBackendUnavailable, "options.backend", "", "",
       "known answers failed"},
  };
  for (const Refused& c : cases) {
    SCOPED_TRACE(c.name);
    World world;
    c.setup(world);
    const absl::StatusOr<Selection> selection = world.Run();
    ASSERT_FALSE(selection.ok()) << selection->variant->kernel;
    EXPECT_EQ(selection.status().code(), c.code) << selection.status();
    const std::optional<ErrorDetail> detail = GetErrorDetail(selection.status());
    ASSERT_TRUE(detail.has_value());
    EXPECT_EQ(ReasonName(detail->reason), ReasonName(c.reason)) << selection.status();
    EXPECT_EQ(detail->field, c.field);
    EXPECT_EQ(detail->value, c.value);
    EXPECT_EQ(detail->allowed, c.allowed);
    EXPECT_THAT(std::string(selection.status().message()), HasSubstr(c.said));
  }
}

TEST(Select, IsPure) {
  World world;
  world.query.device.compute_capability = 80;
  for (int i = 0; i < 3; ++i) {
    const absl::StatusOr<Selection> selection = world.Run();
    ASSERT_TRUE(selection.ok());
    EXPECT_EQ(selection->variant->kernel, "op_cuda");
    EXPECT_EQ(selection->rejected.size(), 1u);
  }
}

}  // namespace
}  // namespace rlk
