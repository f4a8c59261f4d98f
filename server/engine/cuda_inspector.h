// Digests and comparisons of resident tensors on a CUDA device. Internal to the CUDA device; CUDA
// headers stay in the implementation.
#pragma once

#include <memory>

#include "server/engine/cuda_residents.h"
#include "server/engine/device.h"

namespace rlk::server {

// Its stream and memory are made when they are first needed. Scratch memory counts on the account
// while a look takes it.
std::unique_ptr<Inspector> MakeCudaInspector(std::shared_ptr<CudaAccount> account);

}  // namespace rlk::server
