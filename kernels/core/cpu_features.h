// Which of the compiled instruction sets this CPU has.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

namespace rlk {

// Levels of the x86-64 ABI that host loops are compiled for. kBase is the only one elsewhere.
enum class Isa : uint8_t { kBase = 0, kV3 = 1, kV4 = 2 };
inline constexpr int kIsaCount = 3;

constexpr std::string_view IsaName(Isa isa) {
  constexpr std::string_view kNames[kIsaCount] = {"x86-64", "x86-64-v3", "x86-64-v4"};
  return kNames[static_cast<int>(isa)];
}

// Those this CPU has, ascending; never empty.
std::span<const Isa> AvailableIsas();

// The highest of them. Bits do not depend on it.
inline Isa BestIsa() { return AvailableIsas().back(); }

// Of three tables with the same loops, the one that was compiled for `isa`.
template <typename Table>
const Table& PickByIsa(Isa isa, const Table& base, const Table& v3, const Table& v4) {
  switch (isa) {
    case Isa::kV4:
      return v4;
    case Isa::kV3:
      return v3;
    case Isa::kBase:
      break;
  }
  return base;
}

}  // namespace rlk
