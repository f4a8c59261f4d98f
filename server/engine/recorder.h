// What the engine tells one who takes calls down.
#pragma once

#include <cstdint>

#include "kernels/registry/call.h"

namespace rlk::server {

// Thread-safe; called on the threads that run calls, so nothing of it waits for a file.
class CallRecorder {
 public:
  virtual ~CallRecorder() = default;

  // Whether OnCall wants the bytes of an input with this digest.
  virtual bool WantsBytes(const Digest& digest, int64_t bytes) = 0;

  // A call ended. `result` is null where it failed; otherwise its report has the digests of inputs
  // and outputs, one for each. Inputs have their bytes, but for those on a GPU that were not
  // wanted: valid as long as this runs, those of inline tensors as long as their owner.
  virtual void OnCall(const Call& call, const CallResult* result) = 0;
};

}  // namespace rlk::server
