// What `rlk bench load` calls: operators and transports by name.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/cpp/client.h"

namespace rlk::cli {

struct LoadKind {
  const char* name;
  const char* meaning;
  // Makes the tensors of one client, on the server too, and the call of it. The call is for one
  // thread at a time; `client` outlives it.
  absl::StatusOr<std::function<absl::Status()>> (*prepare)(const client::Client& client);
};

const std::vector<LoadKind>& LoadKinds();

// One part of a mix.
struct MixPart {
  const LoadKind* kind = nullptr;
  int64_t weight = 1;
};

// "NAME[=WEIGHT],...". INVALID_ARGUMENT, with the allowed names, where it is none.
absl::StatusOr<std::vector<MixPart>> ParseMix(const std::string& text);

// Which part is the one of call number `call`: the same for the same seed in every run.
size_t PartOfCall(const std::vector<MixPart>& mix, uint64_t seed, int64_t call);

}  // namespace rlk::cli
