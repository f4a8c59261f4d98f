#include "kernels/core/fp_environment.h"

#if defined(__x86_64__)
#include <immintrin.h>
#elif !defined(__aarch64__)
#error "rlk: say how this architecture sets rounding and subnormals"
#endif

namespace rlk {

#if defined(__x86_64__)

FpEnvironment::FpEnvironment() : saved_(_mm_getcsr()) {
  // Exceptions masked, no flags raised, round to nearest, flush-to-zero and denormals-are-zero off.
  _mm_setcsr(0x1f80);
}

FpEnvironment::~FpEnvironment() { _mm_setcsr(static_cast<uint32_t>(saved_)); }

#else

FpEnvironment::FpEnvironment() {
  asm volatile("mrs %0, fpcr" : "=r"(saved_));
  asm volatile("msr fpcr, %0" : : "r"(uint64_t{0}) : "memory");
}

FpEnvironment::~FpEnvironment() { asm volatile("msr fpcr, %0" : : "r"(saved_) : "memory"); }

#endif

}  // namespace rlk
