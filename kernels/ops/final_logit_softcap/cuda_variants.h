// The CUDA variants of final_logit_softcap, in a build that has them. They offer
// kSoftcapPortableContract: with claim L3 on GPUs of a compute capability that it was measured on,
// with L1 on others.
#pragma once

#include <vector>

#include "kernels/registry/registry.h"

namespace rlk {

std::vector<Variant> SoftcapForwardCudaVariants();
std::vector<Variant> SoftcapBackwardCudaVariants();

}  // namespace rlk
