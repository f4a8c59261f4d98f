// Host loops over the function set, one copy for each instruction set; the bits are equal.
#pragma once

#include <cstdint>

#include "kernels/arith/function_digest.h"
#include "kernels/arith/known_answer_vectors.h"

namespace rlk {
enum class Isa : uint8_t;  // kernels/core/cpu_features.h
}

namespace rlk::arith {

struct FunctionLoops {
  // Sum of DigestTerm over the input patterns begin .. end - 1 (end <= 2^32).
  uint64_t (*digest[kFunctionCount])(uint64_t begin, uint64_t end);
  // bits[k] = FunctionBits(first + k * step), modulo 2^32.
  void (*evaluate[kFunctionCount])(uint32_t first, uint32_t step, int64_t count, uint32_t* bits);
  // results[k] = EvaluateKnownAnswer(vectors[k]).
  void (*known_answers)(const KnownAnswer* vectors, int64_t count, uint32_t* results);
};

// The loops for one of AvailableIsas().
const FunctionLoops& GetFunctionLoops(Isa isa);

}  // namespace rlk::arith
