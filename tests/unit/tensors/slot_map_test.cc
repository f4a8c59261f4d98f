// Places of slots in an arena.
#include "server/tensors/slot_map.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <map>
#include <memory>
#include <set>

namespace rlk::test {
namespace {

using server::Slot;
using server::SlotMap;

TEST(SlotMapTest, PlacesNeverOverlapAndNumbersAreNeverGivenTwice) {
  constexpr int64_t kBytes = 64 << 10;
  SlotMap map(kBytes);
  std::map<int64_t, std::shared_ptr<Slot>> held;  // by offset
  std::set<uint64_t> numbers;
  uint64_t state = 7;
  const auto random = [&state](uint64_t below) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (state >> 33) % below;
  };
  for (int step = 0; step < 20'000; ++step) {
    if (random(2) == 0) {
      const auto bytes = static_cast<int64_t>(random(6000));
      const std::shared_ptr<Slot> slot = map.Take(bytes);
      if (slot == nullptr) {
        ASSERT_LT(map.largest(), std::max<int64_t>(bytes, 1));
        continue;
      }
      ASSERT_TRUE(numbers.insert(slot->generation).second);
      ASSERT_EQ(slot->offset % server::kSlotAlignment, 0);
      ASSERT_GE(slot->bytes, std::max<int64_t>(bytes, 1));
      ASSERT_LE(slot->offset + slot->bytes, kBytes);
      const auto next = held.lower_bound(slot->offset);
      if (next != held.end()) {
        ASSERT_LE(slot->offset + slot->bytes, next->first);
      }
      if (next != held.begin()) {
        const Slot& before = *std::prev(next)->second;
        ASSERT_LE(before.offset + before.bytes, slot->offset);
      }
      held.emplace(slot->offset, slot);
    } else if (!held.empty()) {
      const auto victim = std::next(held.begin(), static_cast<int64_t>(random(held.size())));
      ASSERT_EQ(map.Find(victim->second->generation), victim->second);
      map.Free(victim->second);
      ASSERT_EQ(map.Find(victim->second->generation), nullptr);
      held.erase(victim);
    }
    ASSERT_EQ(map.count(), static_cast<int64_t>(held.size()));
  }
  for (const auto& [offset, slot] : held) map.Free(slot);
  EXPECT_EQ(map.largest(), kBytes);
  EXPECT_EQ(map.Take(INT64_MAX), nullptr);
}

TEST(SlotMapTest, APlaceInUseIsGivenToNobodyBeforeItsLastCall) {
  SlotMap map(1024);
  const std::shared_ptr<Slot> slot = map.Take(1024);
  slot->readers = 2;
  map.Free(slot);
  EXPECT_EQ(map.Find(slot->generation), nullptr);
  EXPECT_EQ(map.Take(1), nullptr);
  --slot->readers;
  map.Leave(*slot);
  EXPECT_EQ(map.Take(1), nullptr);
  --slot->readers;
  map.Leave(*slot);
  EXPECT_NE(map.Take(1024), nullptr);
}

}  // namespace
}  // namespace rlk::test
