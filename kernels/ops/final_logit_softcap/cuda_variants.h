// The CUDA variants of final_logit_softcap, in a build that has them. They offer
// kSoftcapPortableContract with claim L3.
#pragma once

#include <vector>

#include "kernels/registry/registry.h"

namespace rlk {

std::vector<Variant> SoftcapForwardCudaVariants();
std::vector<Variant> SoftcapBackwardCudaVariants();

}  // namespace rlk
