// CheckParity and CheckInvariance: messages in, messages out. What they do is server/parity's.
#pragma once

#include <functional>
#include <memory>

#include "absl/status/statusor.h"
#include "rlk/v1/parity_check.pb.h"
#include "server/engine/engine.h"
#include "server/parity/comparison.h"
#include "server/parity/interrupt.h"
#include "server/rpc/peer.h"
#include "server/rpc/server_facts.h"
#include "server/sessions/session.h"
#include "server/tensors/tensor_store.h"

namespace rlk::server {

// Nothing is owned; everything outlives the checks.
struct ParityCheckContext {
  Engine* engine = nullptr;
  TensorStore* store = nullptr;
  PeerList* peers = nullptr;
  ServerFacts facts;
  // Of every comparison that a caller gets.
  std::function<void(const Comparison& comparison)> on_comparison;
};

// They wait for calls, so they run on threads of a pool. `session` is null without one; resident
// tensors are then not found.
absl::StatusOr<rlk::v1::CheckParityResponse> RunCheckParity(
    const ParityCheckContext& context, const std::shared_ptr<Session>& session,
    const rlk::v1::CheckParityRequest& request, const Interrupt& interrupt);
absl::StatusOr<rlk::v1::CheckInvarianceResponse> RunCheckInvariance(
    const ParityCheckContext& context, const std::shared_ptr<Session>& session,
    const rlk::v1::CheckInvarianceRequest& request, const Interrupt& interrupt);

}  // namespace rlk::server
