// Exhaustive work on the device, one call for each claim of the function tests.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "kernels/arith/function_digest.h"

namespace rlk::gpu_test {

// Sum of DigestTerm over all 2^32 inputs.
uint64_t DeviceFunctionDigest(arith::Function function);

// Inputs 1 <= d <= 2 for which the three-instruction reciprocal is not 1 / d rounded.
uint64_t CountWrongReciprocals();

// Over all 2^24 significands and signs of x at one exponent: inputs for which the uniform division
// of the softcap kernels is not the rounded quotient x / cap.
uint64_t CountWrongQuotients(float cap);
// The same for `caps` caps whose significands are drawn from the seed.
uint64_t CountWrongQuotientsOfRandomCaps(int64_t caps, uint64_t seed);
// Over all x with 2^-100 <= |x| <= 10 cap, one in `step` patterns, and zero.
uint64_t CountWrongQuotientsInRange(float cap, uint32_t step);

// Inputs (all 2^32) for which the hardware's conversion is not that of kernels/arith.
uint64_t CountWrongToBf16();
uint64_t CountWrongToF16();
// All 65,536 inputs, NaN payloads not compared.
uint64_t CountWrongFromF16();

// The inputs of tests/golden/digests_softcap.json, on the device: patterns first + k step for
// 0 <= k < count, as 16- or 32-bit elements, and the gradient of each pattern.
void FillPatterns(void* x, int64_t element_bytes, uint64_t first, uint64_t step, int64_t count,
                  cudaStream_t stream);
void FillGradients(float* grad_y, bool of_pattern, uint64_t first, uint64_t step, int64_t count,
                   cudaStream_t stream);
// *sum += DigestTerm of each pattern and its result.
void AddDigestTerms(const void* results, int64_t element_bytes, uint64_t first, uint64_t step,
                    int64_t count, unsigned long long* sum, cudaStream_t stream);

}  // namespace rlk::gpu_test
