#include "client/cpp/staging.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

#include "client/cpp/uploaded_inputs.h"
#include "kernels/core/status.h"

namespace rlk::client {
namespace {

constexpr int64_t kUnit = 256;
constexpr int64_t kArenaBytesMin = int64_t{16} << 20;
constexpr size_t kIdleMax = 4;

int64_t Rounded(int64_t bytes) { return (bytes + kUnit - 1) / kUnit * kUnit; }

// Bytes of an input that is to be staged; 0 for those that stay where they are.
absl::StatusOr<int64_t> StagedBytes(const std::string& name, const TensorRef& input) {
  if (input.resident || input.arena) return 0;
  RLK_ASSIGN_OR_RETURN(const int64_t bytes, SourceBytes(input, name));
  return bytes < kUploadFrom ? 0 : bytes;
}

}  // namespace

Staging::Use::~Use() {
  if (staging_ == nullptr) return;
  const std::lock_guard lock(staging_->mutex_);
  if (staging_->idle_.size() < kIdleMax) staging_->idle_.push_back(std::move(slot_));
}

absl::StatusOr<bool> Staging::Offers(const Client& client) {
  {
    const std::lock_guard lock(mutex_);
    if (offers_) return *offers_;
  }
  // Not on a connection without the side socket, and not where the server says that it has none.
  const absl::Status side = client.SideStatus();
  bool offers = false;
  if (!absl::IsFailedPrecondition(side)) {
    RLK_ASSIGN_OR_RETURN(const auto info, client.GetInfo());
    offers = std::any_of(info.capabilities().begin(), info.capabilities().end(),
                         [](const rlk::v1::Capability& capability) {
                           return capability.name() == "host_arena" && capability.available();
                         });
    // Not remembered: it may be had later.
    if (offers) RLK_RETURN_IF_ERROR(side);
  }
  const std::lock_guard lock(mutex_);
  offers_ = offers;
  return offers;
}

absl::StatusOr<ArenaSlot> Staging::Take(const Client& client, int64_t bytes) {
  std::vector<ArenaSlot> smaller;  // given back without the mutex
  {
    const std::lock_guard lock(mutex_);
    for (auto slot = idle_.begin(); slot != idle_.end(); ++slot) {
      if (slot->size() < bytes) continue;
      ArenaSlot taken = std::move(*slot);
      idle_.erase(slot);
      return taken;
    }
    smaller.swap(idle_);
  }
  smaller.clear();
  const auto size = static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(bytes)));
  RLK_ASSIGN_OR_RETURN(const Arena arena,
                       client.OpenArena(ArenaKind::kHostInput, std::max(size, kArenaBytesMin)));
  return arena.Take(arena.size());
}

absl::StatusOr<std::optional<Staging::Use>> Staging::Stage(const Client& client,
                                                           CallRequest& request,
                                                           std::string* problem) {
  const absl::StatusOr<bool> offers = Offers(client);
  if (!offers.ok()) *problem = "host_arena: " + std::string(offers.status().message());
  if (!offers.ok() || !*offers) return std::optional<Use>();
  int64_t total = 0;
  for (const auto& [name, input] : request.inputs) {
    RLK_ASSIGN_OR_RETURN(const int64_t bytes, StagedBytes(name, input));
    // No host has so much memory; streams will say what is wrong.
    if (bytes > INT64_MAX / 4 - total) return std::optional<Use>();
    total += Rounded(bytes);
  }
  absl::StatusOr<ArenaSlot> slot = Take(client, total);
  if (!slot.ok()) {
    *problem = "host_arena: " + std::string(slot.status().message());
    return std::optional<Use>();
  }
  std::optional<Use> use(std::in_place, this, *std::move(slot));
  std::byte* const base = use->slot().mutable_bytes().data();
  int64_t offset = 0;
  for (auto& [name, input] : request.inputs) {
    RLK_ASSIGN_OR_RETURN(const int64_t bytes, StagedBytes(name, input));
    if (bytes == 0) continue;
    std::memcpy(base + offset, input.data, static_cast<size_t>(bytes));
    input.data = nullptr;
    input.owner.reset();
    input.arena = use->slot().place(offset);
    offset += Rounded(bytes);
  }
  return use;
}

}  // namespace rlk::client
