// The same calls from several threads at once.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "server/parity/call_runner.h"

namespace rlk::server {

// Of one caller: its first run, or one whose bytes were not those of the first.
struct ConcurrentRun {
  int64_t caller = 0, round = 0;
  MethodRun run;
  // Further runs of the caller with the same bytes; they were not kept.
  int64_t repeated = 0;
};

// One thread for each call, which runs it `rounds` times; all begin together. The runs come in the
// order of callers and rounds. The first error ends all and is returned; an exception in a thread
// is one. RESOURCE_EXHAUSTED where a thread cannot be had.
absl::StatusOr<std::vector<ConcurrentRun>> RunConcurrently(CallRunner& runner,
                                                           const std::vector<ValueCall>& calls,
                                                           int64_t rounds, CheckContext& context);

}  // namespace rlk::server
