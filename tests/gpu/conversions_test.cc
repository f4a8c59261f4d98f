// The casts that the kernels use are those of kernels/arith, for every input.
#include <gtest/gtest.h>

#include "tests/gpu/function_kernels.h"

namespace rlk::gpu_test {
namespace {

TEST(Conversions, F32ToBf16ForAllInputs) { EXPECT_EQ(CountWrongToBf16(), 0u); }
TEST(Conversions, F32ToF16ForAllInputs) { EXPECT_EQ(CountWrongToF16(), 0u); }
TEST(Conversions, F16ToF32ForAllInputs) { EXPECT_EQ(CountWrongFromF16(), 0u); }

}  // namespace
}  // namespace rlk::gpu_test
