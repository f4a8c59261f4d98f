// The known-answer check of a backend: it is offered only when every vector gives the stored bits.
#pragma once

#include <cstdint>
#include <span>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/arith/known_answer_vectors.h"

namespace rlk::arith {

// INTERNAL, naming the first vector whose bits are wrong; `results` are those of kKnownAnswers, in
// order. Returns how many passed: all.
absl::StatusOr<int> CompareKnownAnswers(std::span<const uint32_t> results);

// Evaluates the vectors on this CPU, with the loops of every instruction set it has. Runs in the
// calling thread's floating-point environment as a kernel sets it.
absl::StatusOr<int> CpuKnownAnswers();

// Evaluates the vectors on a CUDA device. Defined in a build with CUDA only.
absl::StatusOr<int> CudaKnownAnswers(int ordinal);

}  // namespace rlk::arith
