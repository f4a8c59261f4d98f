// A stream of a device, named without CUDA headers.
#pragma once

namespace rlk {

// The handle is a cudaStream_t for CUDA backends and null for the host.
struct StreamRef {
  void* handle = nullptr;
};

}  // namespace rlk
