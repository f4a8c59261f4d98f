// Large inputs of calls, copied once into memory that the server shares. Internal.
#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "client/cpp/arena.h"
#include "client/cpp/client.h"

namespace rlk::client {

// Thread-safe. Its arenas are used by one call at a time, and again by later ones.
class Staging {
 public:
  // The memory of one call's inputs, until it goes.
  class Use {
   public:
    Use(Staging* staging, ArenaSlot slot) : staging_(staging), slot_(std::move(slot)) {}
    Use(Use&& other) noexcept
        : staging_(std::exchange(other.staging_, nullptr)), slot_(std::move(other.slot_)) {}
    Use& operator=(Use&&) = delete;
    ~Use();
    const ArenaSlot& slot() const { return slot_; }
    // The server may still read it: nothing else is ever staged there.
    void Discard() { staging_ = nullptr; }

   private:
    Staging* staging_;
    ArenaSlot slot_;
  };

  // Copies the large inputs and names their places in `request`. Nothing where the server offers no
  // host arenas to this client; where it offers them and they are not to be had now, `problem` says
  // so, and the next call tries again.
  absl::StatusOr<std::optional<Use>> Stage(const Client& client, CallRequest& request,
                                           std::string* problem);

 private:
  // An error says that they could not be had now.
  absl::StatusOr<bool> Offers(const Client& client);
  absl::StatusOr<ArenaSlot> Take(const Client& client, int64_t bytes);

  std::mutex mutex_;
  std::optional<bool> offers_;   // guarded by mutex_
  std::vector<ArenaSlot> idle_;  // guarded by mutex_; each is a whole arena
};

}  // namespace rlk::client
