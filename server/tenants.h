// The sessions of the server and what they hold.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "kernels/core/limits.h"
#include "server/engine/device.h"
#include "server/sessions/session_table.h"
#include "server/tensors/arena_store.h"
#include "server/tensors/holdings.h"
#include "server/tensors/tensor_store.h"

namespace rlk::server {

struct Tenants {
  Tenants(const Limits& limits, const std::string& server_id, const std::vector<Device*>& devices)
      : tensors({.limits = limits, .server_id = server_id}, devices),
        arenas(limits, server_id, devices),
        holdings(&tensors, &arenas),
        sessions(
            limits,
            [this](const Session& session) {
              tensors.ReleaseOwner(session.id());
              arenas.ReleaseOwner(session.id());
            },
            nullptr, server_id) {}

  TensorStore tensors;
  ArenaStore arenas;
  Holdings holdings;
  // Last: at its end all sessions end, and what they hold goes.
  SessionTable sessions;
};

}  // namespace rlk::server
