// What the tests of arenas share: a server with a side socket, and a client with arenas.
#pragma once

#include <cstring>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "client/cpp/client.h"
#include "kernels/core/status.h"
#include "tests/integration/peer.h"
#include "tests/integration/side_peer.h"

namespace rlk::test {

using client::Arena;
using client::ArenaKind;
using client::ArenaSlot;
using client::CallRequest;
using client::Client;

inline constexpr int64_t kMiB = int64_t{1} << 20;

inline Reason ReasonOf(const absl::Status& status) {
  const auto detail = GetErrorDetail(status);
  return detail ? detail->reason : Reason::kUnknown;
}

class ArenaTest : public testing::Test {
 protected:
  ArenaTest() { Start({}); }

  void Start(const Limits& limits, std::vector<uint32_t> uids = {}) {
    server_.reset();
    server::Options options = TestOptions();
    options.unix_path = dir_.File("socket");
    options.limits = limits;
    options.side_uids = std::move(uids);
    server_.emplace(options);
  }
  std::string address() const { return "unix:" + dir_.File("socket"); }
  std::string side() const { return dir_.File("socket") + ".side"; }

  TempDir dir_;
  std::optional<TestServer> server_;
  std::string reason_;
  bool got_descriptor_ = false;
};

// A client with an arena for inputs and one for outputs.
struct Shared {
  explicit Shared(const std::string& address, int64_t bytes = 4 * kMiB)
      : client(*Client::Connect(address)),
        in(*client.OpenArena(ArenaKind::kHostInput, bytes)),
        out(*client.OpenArena(ArenaKind::kHostOutput, bytes)) {}

  CallRequest Softcap(const ArenaSlot& x, int64_t elements) const {
    CallRequest request{.method = "final_logit_softcap.forward"};
    request.inputs = {{"x", x.ref(DType::kF32, {elements})}};
    return request;
  }

  Client client;
  Arena in, out;
};

inline void Place(const char* output, const rlk::v1::ArenaRef& place, CallRequest& request) {
  *(*request.options.mutable_outputs())[output].mutable_arena() = place;
}

inline void FillLogits(std::span<std::byte> bytes) {
  float next = -40;
  for (size_t at = 0; at + sizeof(float) <= bytes.size(); at += sizeof(float)) {
    std::memcpy(bytes.data() + at, &next, sizeof(float));
    next = next > 40 ? -40 : next + 0.03f;
  }
}

inline std::string Bytes(std::span<const std::byte> bytes, size_t size) {
  return std::string(reinterpret_cast<const char*>(bytes.data()), size);
}

}  // namespace rlk::test
