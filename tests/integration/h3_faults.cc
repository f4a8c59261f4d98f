#include "tests/integration/h3_faults.h"

#include <array>
#include <cmath>
#include <cstring>
#include <map>
#include <utility>
#include <vector>

#include "client/cpp/h3_stages.h"
#include "kernels/builtin.h"
#include "kernels/core/status.h"

namespace rlk::test {
namespace {

std::map<std::string, LaunchFn>& Launches() {
  static std::map<std::string, LaunchFn> launches;
  return launches;
}

bool IsBf16(const MutableTensorView& view) { return view.dtype == DType::kBF16; }

// By an amount that no tolerance covers.
void Spoil(const MutableTensorView& view, int64_t at) {
  if (IsBf16(view)) {
    view.as<uint16_t>()[at] ^= 0x4000;  // the exponent's highest bit
  } else {
    view.as<float>()[at] += 1 + std::fabs(view.as<float>()[at]);
  }
}

void NextUp(const MutableTensorView& view) {
  if (IsBf16(view)) {
    view.as<uint16_t>()[0] ^= 1;
  } else {
    view.as<float>()[0] = std::nextafter(view.as<float>()[0], 1e9f);
  }
}

void Plant(const KernelArgs& args) {
  const MutableTensorView* first = nullptr;
  const MutableTensorView* last = nullptr;
  for (const MutableTensorView& output : args.outputs) {
    if (!output.present()) continue;
    if (first == nullptr) first = &output;
    last = &output;
  }
  const int launch = ++Planted().launches;
  switch (Planted().fault) {
    case Fault::kOneElement:
      return Spoil(*first, first->elements() / 2);
    case Fault::kLastOutput:
      for (int64_t i = 0; i < last->elements(); ++i) Spoil(*last, i);
      return;
    case Fault::kUnwritten:
      std::memset(
          first->data, 0xA5,
          static_cast<size_t>(first->elements()) * static_cast<size_t>(DTypeSize(first->dtype)));
      return;
    case Fault::kNan:
      if (IsBf16(*first)) {
        first->as<uint16_t>()[0] = 0x7fff;
      } else {
        first->as<float>()[0] = std::nanf("");
      }
      return;
    case Fault::kByRows:
      if (args.inputs[0].shape[0] > 1) NextUp(*first);
      return;
    case Fault::kThirdLaunch:
      if (launch == 3) NextUp(*first);
      return;
    case Fault::kNoFault:
      return;
  }
}

// A kernel is a function pointer, so each stage has a launcher of its own.
template <size_t kStage>
absl::Status FaultyLaunch(const KernelArgs& args) {
  const std::string method = client::H3Stages()[kStage].method;
  RLK_RETURN_IF_ERROR(Launches().at(method)(args));
  if (method == Planted().method) Plant(args);
  return absl::OkStatus();
}

template <size_t... kStages>
std::array<LaunchFn, sizeof...(kStages)> FaultyLaunches(std::index_sequence<kStages...>) {
  return {&FaultyLaunch<kStages>...};
}

}  // namespace

PlantedFault& Planted() {
  static PlantedFault planted;
  return planted;
}

void FillFaulty(Registry& registry) {
  const auto launches = FaultyLaunches(std::make_index_sequence<6>());
  Registry builtin;
  RegisterBuiltin({}, builtin);
  for (const Backend backend : {Backend::kCpu, Backend::kGolden}) {
    registry.SetBackend(backend, builtin.backend(backend));
  }
  for (const auto& method : builtin.methods()) {
    MethodDecl decl = method->decl;
    for (size_t stage = 0; stage < launches.size(); ++stage) {
      if (decl.method != client::H3Stages()[stage].method) continue;
      for (Variant& variant : decl.variants) {
        if (variant.backend != Backend::kCpu) continue;
        Launches()[decl.method] = variant.launch;
        variant.launch = launches[stage];
      }
    }
    registry.Add(std::move(decl));
  }
}

void FillGpu(Registry& registry) {
  Registry builtin;
  RegisterBuiltin({}, builtin);
  for (const Backend backend : {Backend::kCpu, Backend::kGolden}) {
    registry.SetBackend(backend, builtin.backend(backend));
  }
  BackendState cuda;
  cuda.available = true;
  registry.SetBackend(Backend::kCuda, cuda);
  for (const auto& method : builtin.methods()) {
    MethodDecl decl = method->decl;
    std::vector<Variant> variants;
    for (const Variant& variant : decl.variants) {
      if (variant.backend == Backend::kCpu) {
        variants.push_back(variant);
        variants.back().backend = Backend::kCuda;
      }
    }
    for (const Variant& variant : decl.variants) {
      if (variant.backend == Backend::kCpu || variant.backend == Backend::kGolden) {
        variants.push_back(variant);
      }
    }
    decl.variants = std::move(variants);
    registry.Add(std::move(decl));
  }
}

}  // namespace rlk::test
