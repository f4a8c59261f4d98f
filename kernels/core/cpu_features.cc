#include "kernels/core/cpu_features.h"

#include <array>
#include <cstddef>

namespace rlk {
namespace {

struct IsaList {
  std::array<Isa, kIsaCount> isas = {Isa::kBase};
  size_t count = 1;
};

IsaList Detect() {
  IsaList list;
#if defined(__x86_64__)
  __builtin_cpu_init();
#if defined(__clang__)
  const bool v3 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
                  __builtin_cpu_supports("bmi") && __builtin_cpu_supports("bmi2");
  const bool v4 = v3 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                  __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx512dq") &&
                  __builtin_cpu_supports("avx512vl");
#else
  const bool v3 = __builtin_cpu_supports("x86-64-v3");
  const bool v4 = __builtin_cpu_supports("x86-64-v4");
#endif
  if (v3) list.isas[list.count++] = Isa::kV3;
  if (v3 && v4) list.isas[list.count++] = Isa::kV4;
#endif
  return list;
}

}  // namespace

std::span<const Isa> AvailableIsas() {
  static const IsaList list = Detect();
  return {list.isas.data(), list.count};
}

}  // namespace rlk
