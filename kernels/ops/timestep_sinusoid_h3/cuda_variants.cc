#include "kernels/ops/timestep_sinusoid_h3/cuda_variants.h"

#include <utility>

#include "kernels/ops/timestep_sinusoid_h3/cuda_launch.h"

namespace rlk {
namespace {

using timestep_sinusoid::kH3Contract;
using timestep_sinusoid::kPortableContract;

// H3Digest of CUDA 13.0's libdevice. Empty: not known yet, and the contract is not offered.
constexpr char kH3Digest[] = "";

}  // namespace

bool HasH3Functions(int ordinal) {
  const absl::StatusOr<std::string> digest = timestep_sinusoid::H3Digest(ordinal);
  return digest.ok() && *digest == kH3Digest;
}

std::vector<Variant> TimestepSinusoidCudaVariants(bool backward, bool offer_h3) {
  Variant portable;
  portable.backend = Backend::kCuda;
  portable.capability_min = 80;
  portable.kernel = backward ? "timestep_sinusoid_backward_cuda" : "timestep_sinusoid_forward_cuda";
  portable.launch = backward ? &timestep_sinusoid::LaunchPortableBackward
                             : &timestep_sinusoid::LaunchPortableForward;
  Variant h3 = portable;
  portable.contracts = {
      {kPortableContract, ClaimLevel::kL3Portable, {90}, ClaimLevel::kL1BatchInvariant}};
  std::vector<Variant> variants = {std::move(portable)};
  if (!offer_h3) return variants;
  h3.kernel += "_libdevice";
  h3.launch = backward ? &timestep_sinusoid::LaunchH3Backward : &timestep_sinusoid::LaunchH3Forward;
  h3.contracts = {
      {kH3Contract, ClaimLevel::kL1BatchInvariant, {90}, ClaimLevel::kL1BatchInvariant}};
  variants.push_back(std::move(h3));
  return variants;
}

}  // namespace rlk
