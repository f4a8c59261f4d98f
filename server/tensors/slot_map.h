// The slots of one arena: which parts of it are whose, by a number that is never given twice.
// Not thread-safe.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <unordered_map>

namespace rlk::server {

// Slots begin at multiples of this.
inline constexpr int64_t kSlotAlignment = 256;

struct Slot {
  uint64_t generation = 0;
  int64_t offset = 0;
  int64_t bytes = 0;
  // Calls that use it.
  int64_t readers = 0;
  bool writing = false;
  // Its name is gone; the bytes are in use until the last call is done.
  bool freed = false;

  bool busy() const { return readers > 0 || writing; }
};

class SlotMap {
 public:
  explicit SlotMap(int64_t bytes) : free_{{0, bytes}} {}

  // The first free place that is large enough; at least one unit. Null where there is none.
  std::shared_ptr<Slot> Take(int64_t bytes);
  // Null where no slot has this generation.
  std::shared_ptr<Slot> Find(uint64_t generation) const;
  // Takes the name away, and the place too unless a call uses it.
  void Free(const std::shared_ptr<Slot>& slot);
  // A call that used the slot is done.
  void Leave(const Slot& slot);

  int64_t count() const { return static_cast<int64_t>(slots_.size()); }
  // Of the largest free place.
  int64_t largest() const;

 private:
  void GiveBack(int64_t offset, int64_t bytes);

  uint64_t next_ = 1;
  std::unordered_map<uint64_t, std::shared_ptr<Slot>> slots_;
  std::map<int64_t, int64_t> free_;  // bytes by offset; neighbours are joined
};

}  // namespace rlk::server
