#include "server/tensors/slot_map.h"

#include <algorithm>
#include <iterator>

namespace rlk::server {

std::shared_ptr<Slot> SlotMap::Take(int64_t bytes) {
  if (bytes > INT64_MAX - kSlotAlignment) return nullptr;
  const int64_t size =
      (std::max<int64_t>(bytes, 1) + kSlotAlignment - 1) / kSlotAlignment * kSlotAlignment;
  const auto place = std::find_if(free_.begin(), free_.end(),
                                  [size](const auto& range) { return range.second >= size; });
  if (place == free_.end()) return nullptr;
  auto slot = std::make_shared<Slot>();
  slot->generation = next_++;
  slot->offset = place->first;
  slot->bytes = size;
  if (place->second > size) free_.emplace(place->first + size, place->second - size);
  free_.erase(place);
  slots_.emplace(slot->generation, slot);
  return slot;
}

std::shared_ptr<Slot> SlotMap::Find(uint64_t generation) const {
  const auto found = slots_.find(generation);
  return found == slots_.end() ? nullptr : found->second;
}

void SlotMap::Free(const std::shared_ptr<Slot>& slot) {
  slot->freed = true;
  slots_.erase(slot->generation);
  if (!slot->busy()) GiveBack(slot->offset, slot->bytes);
}

void SlotMap::Leave(const Slot& slot) {
  if (slot.freed && !slot.busy()) GiveBack(slot.offset, slot.bytes);
}

int64_t SlotMap::largest() const {
  int64_t largest = 0;
  for (const auto& [offset, bytes] : free_) largest = std::max(largest, bytes);
  return largest;
}

void SlotMap::GiveBack(int64_t offset, int64_t bytes) {
  auto place = free_.emplace(offset, bytes).first;
  const auto next = std::next(place);
  if (next != free_.end() && place->first + place->second == next->first) {
    place->second += next->second;
    free_.erase(next);
  }
  if (place == free_.begin()) return;
  const auto previous = std::prev(place);
  if (previous->first + previous->second != place->first) return;
  previous->second += place->second;
  free_.erase(place);
}

}  // namespace rlk::server
