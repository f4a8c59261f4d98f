// Digests of tensors wherever they lie: on a GPU where it is the GPU's.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/digest/digest.h"
#include "server/parity/interrupt.h"
#include "server/parity/parity_tensor.h"

namespace rlk::server {

// Of a digest's text; nullopt where it is none.
std::optional<Digest> ParseDigest(std::string_view text);

absl::StatusOr<Digest> DigestOf(const ParityTensor& tensor, const Interrupt& interrupt);

// Of the tensor after every NaN in it is made the canonical one.
absl::StatusOr<Digest> CanonicalNanDigestOf(const ParityTensor& tensor, const Interrupt& interrupt);

// Of rows [first, first + count) along the last dimension, each as a tensor of shape
// [last dimension].
absl::StatusOr<std::vector<Digest>> RowDigestsOf(const ParityTensor& tensor, int64_t first,
                                                 int64_t count, const Interrupt& interrupt);

}  // namespace rlk::server
