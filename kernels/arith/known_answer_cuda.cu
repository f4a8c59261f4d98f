#include <cstdint>
#include <vector>

#include "kernels/arith/known_answer.h"
#include "kernels/core/status.h"
#include "kernels/cuda/buffer.h"
#include "kernels/cuda/device_guard.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/status.h"
#include "kernels/cuda/stream.h"
#include "kernels/device/vector_access.cuh"

namespace rlk::arith {
namespace {

constexpr int kThreads = 128;

// The kernels cast with the hardware's instructions: where those differ from the arithmetic of
// convert.h, their bits are the answer that is judged.
__device__ uint32_t Evaluate(const KnownAnswer& vector) {
  const uint32_t bits = EvaluateKnownAnswer(vector);
  const float a = BitsFloat(vector.a);
  uint32_t hardware = bits;
  if (vector.op == KnownAnswerOp::kToBf16) hardware = device::FromFloat<device::Bf16>(a).bits;
  if (vector.op == KnownAnswerOp::kToF16) hardware = device::FromFloat<device::F16>(a).bits;
  return hardware;
}

// vectors, results: [count].
__global__ void __launch_bounds__(kThreads)
    KnownAnswersKernel(const KnownAnswer* vectors, uint32_t* results, int count) {
  const int i = static_cast<int>(blockIdx.x * kThreads + threadIdx.x);
  if (i < count) results[i] = Evaluate(vectors[i]);
}

}  // namespace

absl::StatusOr<int> CudaKnownAnswers(int ordinal) {
  const cuda::DeviceGuard guard(ordinal);
  RLK_CUDA_RETURN_IF_ERROR(guard.error());
  RLK_ASSIGN_OR_RETURN(const cuda::Stream stream, cuda::Stream::Create());
  // In memory, so that the device computes what the compiler could have folded.
  RLK_ASSIGN_OR_RETURN(const cuda::DeviceBuffer vectors,
                       cuda::DeviceBuffer::Allocate(sizeof(kKnownAnswers)));
  RLK_ASSIGN_OR_RETURN(const cuda::DeviceBuffer results,
                       cuda::DeviceBuffer::Allocate(kKnownAnswerCount * sizeof(uint32_t)));
  RLK_CUDA_RETURN_IF_ERROR(cudaMemcpyAsync(vectors.data(), kKnownAnswers, sizeof(kKnownAnswers),
                                           cudaMemcpyHostToDevice, stream.get()));
  RLK_ASSIGN_OR_RETURN(const unsigned blocks, cuda::GridBlocks(kKnownAnswerCount, kThreads));
  RLK_RETURN_IF_ERROR(cuda::Launch(KnownAnswersKernel, blocks, kThreads, stream.get(),
                                   reinterpret_cast<const KnownAnswer*>(vectors.data()),
                                   reinterpret_cast<uint32_t*>(results.data()), kKnownAnswerCount));
  std::vector<uint32_t> host(kKnownAnswerCount);
  RLK_CUDA_RETURN_IF_ERROR(cudaMemcpyAsync(host.data(), results.data(),
                                           host.size() * sizeof(uint32_t), cudaMemcpyDeviceToHost,
                                           stream.get()));
  RLK_CUDA_RETURN_IF_ERROR(cudaStreamSynchronize(stream.get()));
  return CompareKnownAnswers(host);
}

}  // namespace rlk::arith
