#include "kernels/cuda/upload.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "kernels/core/status.h"
#include "kernels/cuda/status.h"

namespace rlk::cuda {

absl::Status UploadStaging::Create(int64_t bytes) {
  RLK_ASSIGN_OR_RETURN(memory_, PinnedBuffer::Allocate(bytes));
  half_bytes_ = bytes / static_cast<int64_t>(halves_.size());
  for (Half& half : halves_) {
    RLK_ASSIGN_OR_RETURN(half.copied, Event::Create(Event::Timing::kOff));
  }
  return absl::OkStatus();
}

void UploadStaging::Reset() {
  current_ = 0;
  used_ = 0;
  for (Half& half : halves_) half.in_flight = false;
}

absl::Status UploadStaging::Upload(std::span<const std::span<const std::byte>> pieces,
                                   std::byte* to, cudaStream_t stream) {
  int64_t begin = used_;
  for (std::span<const std::byte> piece : pieces) {
    while (!piece.empty()) {
      if (used_ == half_bytes_) {
        RLK_RETURN_IF_ERROR(Flush(begin, to, stream));
        to += used_ - begin;
        RLK_RETURN_IF_ERROR(NextHalf(stream));
        begin = 0;
      }
      const auto size = std::min(static_cast<int64_t>(piece.size()), half_bytes_ - used_);
      std::memcpy(base() + used_, piece.data(), static_cast<size_t>(size));
      used_ += size;
      piece = piece.subspan(static_cast<size_t>(size));
    }
  }
  return Flush(begin, to, stream);
}

absl::Status UploadStaging::Flush(int64_t begin, std::byte* to, cudaStream_t stream) {
  if (used_ == begin) return absl::OkStatus();
  RLK_CUDA_RETURN_IF_ERROR(cudaMemcpyAsync(to, base() + begin, static_cast<size_t>(used_ - begin),
                                           cudaMemcpyHostToDevice, stream));
  return absl::OkStatus();
}

absl::Status UploadStaging::NextHalf(cudaStream_t stream) {
  RLK_RETURN_IF_ERROR(halves_[current_].copied.Record(stream));
  halves_[current_].in_flight = true;
  current_ = (current_ + 1) % halves_.size();
  used_ = 0;
  return std::exchange(halves_[current_].in_flight, false) ? halves_[current_].copied.Wait()
                                                           : absl::OkStatus();
}

void UploadStaging::Leak() {
  memory_.Leak();
  for (Half& half : halves_) half.copied.Leak();
}

}  // namespace rlk::cuda
