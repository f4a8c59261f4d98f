#include "kernels/cuda/launch.h"
#include "kernels/device/vector_access.cuh"
#include "kernels/device/warp.cuh"
#include "kernels/ops/final_logit_softcap/kernels.cuh"
#include "tests/gpu/device_memory.h"
#include "tests/gpu/function_kernels.h"

namespace rlk::gpu_test {
namespace {

constexpr unsigned kThreads = 256;
constexpr unsigned kBlocks = 132 * 16;

__device__ uint64_t Mix(uint64_t z) {
  z += 0x9e3779b97f4a7c15ull;
  z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ull;
  z = (z ^ z >> 27) * 0x94d049bb133111ebull;
  return z ^ z >> 31;
}

// *sum += body(i) over 0 <= i < count.
template <typename Body>
__global__ void __launch_bounds__(kThreads)
    SumKernel(Body body, uint64_t count, unsigned long long* sum) {
  uint64_t part = 0;
  const uint64_t step = uint64_t{gridDim.x} * kThreads;
  for (uint64_t i = uint64_t{blockIdx.x} * kThreads + threadIdx.x; i < count; i += step) {
    part += body(i);
  }
  part = device::WarpSum(part);
  if (threadIdx.x % 32 == 0) atomicAdd(sum, static_cast<unsigned long long>(part));
}

template <typename Body>
uint64_t Sum(Body body, uint64_t count) {
  const cuda::DeviceBuffer sum = NewBuffer(sizeof(unsigned long long));
  Fill(sum.data(), 0, sum.bytes());
  const cuda::Stream stream = NewStream();
  const absl::Status launched =
      cuda::Launch(SumKernel<Body>, kBlocks, kThreads, stream.get(), body, count,
                   reinterpret_cast<unsigned long long*>(sum.data()));
  RLK_GPU_CHECK(launched.ok() ? cudaSuccess : cudaErrorUnknown);
  RLK_GPU_CHECK(cudaStreamSynchronize(stream.get()));
  return Download<uint64_t>(sum.data(), 1).front();
}

template <arith::Function kFunction>
struct FunctionTerm {
  __device__ uint64_t operator()(uint64_t i) const {
    const auto input = static_cast<uint32_t>(i);
    return arith::DigestTerm(input, arith::FunctionBits<kFunction>(input));
  }
};

template <arith::Function kFunction>
uint64_t AllInputs() {
  return Sum(FunctionTerm<kFunction>(), uint64_t{1} << 32);
}

struct ReciprocalWrong {
  __device__ uint64_t operator()(uint64_t i) const {
    const float d = __uint_as_float(0x3f800000u + static_cast<uint32_t>(i));
    return __float_as_uint(arith::RcpOneToTwo(d)) != __float_as_uint(__frcp_rn(d));
  }
};

// The quotient of the streaming kernels for a magnitude.
__device__ float UniformQuotient(float magnitude, const softcap::Cap& cap) {
  return arith::Mul(-0.5f, softcap::MinusTwoQuotients(magnitude, cap));
}

__device__ bool QuotientWrong(float magnitude, const softcap::Cap& cap) {
  return __float_as_uint(UniformQuotient(magnitude, cap)) !=
         __float_as_uint(__fdiv_rn(magnitude, cap.cap));
}

struct SignificandWrong {
  softcap::Cap cap;
  __device__ uint64_t operator()(uint64_t i) const {
    // Two binades: the quotient falls on both sides of a power of two.
    return QuotientWrong(__uint_as_float(0x3f800000u + static_cast<uint32_t>(i)), cap);
  }
};

struct RandomCapWrong {
  uint64_t seed;
  __device__ uint64_t operator()(uint64_t i) const {
    const uint64_t draw = Mix(seed + (i >> 24));
    const float c = __uint_as_float(0x3f800000u | (static_cast<uint32_t>(draw) & 0x7fffffu));
    const softcap::Cap cap = softcap::MakeCap(c);
    return QuotientWrong(__uint_as_float(0x3f800000u + (static_cast<uint32_t>(i) & 0xffffffu)),
                         cap);
  }
};

struct RangeWrong {
  softcap::Cap cap;
  uint32_t step;
  __device__ uint64_t operator()(uint64_t i) const {
    const float magnitude = __uint_as_float(static_cast<uint32_t>(i) * step);
    if (magnitude != 0.0f && !(magnitude >= 0x1p-100f)) return 0;
    if (!(magnitude <= cap.bound)) return 0;
    return QuotientWrong(magnitude, cap);
  }
};

struct ToBf16Wrong {
  __device__ uint64_t operator()(uint64_t i) const {
    const float x = __uint_as_float(static_cast<uint32_t>(i));
    const uint32_t pair = device::PackPair<device::Bf16>(x, -x);
    const uint16_t one = device::FromFloat<device::Bf16>(x).bits;
    const uint16_t expected = arith::FloatToBf16(x);
    return one != expected || (pair & 0xffffu) != expected ||
           (pair >> 16) != arith::FloatToBf16(-x);
  }
};

struct ToF16Wrong {
  __device__ uint64_t operator()(uint64_t i) const {
    const float x = __uint_as_float(static_cast<uint32_t>(i));
    const uint32_t pair = device::PackPair<device::F16>(x, -x);
    const uint16_t one = device::FromFloat<device::F16>(x).bits;
    const uint16_t expected = arith::FloatToF16(x);
    return one != expected || (pair & 0xffffu) != expected || (pair >> 16) != arith::FloatToF16(-x);
  }
};

struct FromF16Wrong {
  __device__ uint64_t operator()(uint64_t i) const {
    const auto bits = static_cast<uint16_t>(i);
    const float expected = arith::F16ToFloat(bits);
    float low, high;
    device::UnpackPair<device::F16>(bits | static_cast<uint32_t>(bits) << 16, low, high);
    const float one = device::ToFloat(device::F16{bits});
    const auto same = [expected](float x) {
      return arith::FloatBits(arith::Canonical(x)) == arith::FloatBits(arith::Canonical(expected));
    };
    return !same(low) || !same(high) || !same(one);
  }
};

template <typename T>
__global__ void __launch_bounds__(kThreads)
    FillPatternsKernel(T* x, uint64_t first, uint64_t step, int64_t count) {
  const int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i < count) x[i] = static_cast<T>(first + static_cast<uint64_t>(i) * step);
}

__global__ void __launch_bounds__(kThreads)
    FillGradientsKernel(float* grad_y, bool of_pattern, uint64_t first, uint64_t step,
                        int64_t count) {
  const int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i >= count) return;
  const auto pattern = static_cast<uint32_t>(first + static_cast<uint64_t>(i) * step);
  grad_y[i] = of_pattern ? __uint_as_float(pattern * 0x9e3779b1u) : 1.0f;
}

template <typename T>
struct ResultTerm {
  const T* results;
  uint64_t first, step;
  __device__ uint64_t operator()(uint64_t k) const {
    return arith::DigestTerm(static_cast<uint32_t>(first + k * step), results[k]);
  }
};

void CheckLaunch(const absl::Status& status) {
  Check(status.ok() ? cudaSuccess : cudaErrorUnknown, "a launch of a test kernel");
}

unsigned Blocks(int64_t count) { return static_cast<unsigned>((count - 1) / kThreads + 1); }

template <typename T>
void AddTerms(const void* results, uint64_t first, uint64_t step, int64_t count,
              unsigned long long* sum, cudaStream_t stream) {
  CheckLaunch(cuda::Launch(SumKernel<ResultTerm<T>>, kBlocks, kThreads, stream,
                           ResultTerm<T>{static_cast<const T*>(results), first, step},
                           static_cast<uint64_t>(count), sum));
}

}  // namespace

void FillPatterns(void* x, int64_t element_bytes, uint64_t first, uint64_t step, int64_t count,
                  cudaStream_t stream) {
  if (element_bytes == 2) {
    CheckLaunch(cuda::Launch(FillPatternsKernel<uint16_t>, Blocks(count), kThreads, stream,
                             static_cast<uint16_t*>(x), first, step, count));
  } else {
    CheckLaunch(cuda::Launch(FillPatternsKernel<uint32_t>, Blocks(count), kThreads, stream,
                             static_cast<uint32_t*>(x), first, step, count));
  }
}

void FillGradients(float* grad_y, bool of_pattern, uint64_t first, uint64_t step, int64_t count,
                   cudaStream_t stream) {
  CheckLaunch(cuda::Launch(FillGradientsKernel, Blocks(count), kThreads, stream, grad_y, of_pattern,
                           first, step, count));
}

void AddDigestTerms(const void* results, int64_t element_bytes, uint64_t first, uint64_t step,
                    int64_t count, unsigned long long* sum, cudaStream_t stream) {
  if (element_bytes == 2) {
    AddTerms<uint16_t>(results, first, step, count, sum, stream);
  } else {
    AddTerms<uint32_t>(results, first, step, count, sum, stream);
  }
}

uint64_t DeviceFunctionDigest(arith::Function function) {
  switch (function) {
    case arith::Function::kExp:
      return AllInputs<arith::Function::kExp>();
    case arith::Function::kTanh:
      return AllInputs<arith::Function::kTanh>();
    case arith::Function::kSigmoid:
      return AllInputs<arith::Function::kSigmoid>();
    case arith::Function::kSilu:
      return AllInputs<arith::Function::kSilu>();
    case arith::Function::kRsqrt:
      return AllInputs<arith::Function::kRsqrt>();
    case arith::Function::kLog1p:
      return AllInputs<arith::Function::kLog1p>();
    case arith::Function::kSin:
      return AllInputs<arith::Function::kSin>();
    case arith::Function::kCos:
      return AllInputs<arith::Function::kCos>();
  }
  return 0;
}

uint64_t CountWrongReciprocals() { return Sum(ReciprocalWrong(), (uint64_t{1} << 23) + 1); }

uint64_t CountWrongQuotients(float cap) {
  return Sum(SignificandWrong{softcap::MakeCap(cap)}, uint64_t{1} << 24);
}

uint64_t CountWrongQuotientsOfRandomCaps(int64_t caps, uint64_t seed) {
  return Sum(RandomCapWrong{seed}, static_cast<uint64_t>(caps) << 24);
}

uint64_t CountWrongQuotientsInRange(float cap, uint32_t step) {
  return Sum(RangeWrong{softcap::MakeCap(cap), step}, (uint64_t{1} << 31) / step);
}

uint64_t CountWrongToBf16() { return Sum(ToBf16Wrong(), uint64_t{1} << 32); }
uint64_t CountWrongToF16() { return Sum(ToF16Wrong(), uint64_t{1} << 32); }
uint64_t CountWrongFromF16() { return Sum(FromF16Wrong(), uint64_t{1} << 16); }

}  // namespace rlk::gpu_test
