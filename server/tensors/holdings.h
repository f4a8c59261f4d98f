// What sessions hold, as the engine sees it: resident tensors and slots of arenas.
#pragma once

#include <memory>
#include <optional>
#include <string_view>

#include "server/engine/residents.h"
#include "server/tensors/arena_store.h"
#include "server/tensors/tensor_store.h"

namespace rlk::server {

// Both outlive it.
class Holdings final : public TensorResolver {
 public:
  Holdings(TensorStore* tensors, ArenaStore* arenas) : tensors_(tensors), arenas_(arenas) {}

  absl::Status Resolve(const Principal* principal, std::string_view field,
                       TensorArg& tensor) override {
    return tensor.source == TensorSource::kArena ? arenas_->Resolve(principal, field, tensor)
                                                 : tensors_->Resolve(principal, field, tensor);
  }
  absl::StatusOr<DeviceInfo> Locate(const Principal* principal, std::string_view field,
                                    const TensorHandle& handle) override {
    return tensors_->Locate(principal, field, handle);
  }
  absl::StatusOr<std::unique_ptr<ResidentOutput>> Reserve(
      const std::shared_ptr<const Principal>& principal, std::string_view field,
      const PlannedOutput& output, const std::optional<TensorHandle>& into,
      const DeviceInfo& device) override {
    return tensors_->Reserve(principal, field, output, into, device);
  }
  bool has_arenas() const override { return true; }
  absl::StatusOr<DeviceInfo> LocateSlot(const Principal* principal, std::string_view field,
                                        const ArenaSlot& slot) override {
    return arenas_->Locate(principal, field, slot);
  }
  absl::StatusOr<std::unique_ptr<ResidentOutput>> ReserveSlot(
      const std::shared_ptr<const Principal>& principal, std::string_view field,
      const PlannedOutput& output, const ArenaSlot& slot, const DeviceInfo& device) override {
    return arenas_->Reserve(principal.get(), field, output, slot, device);
  }

 private:
  TensorStore* const tensors_;
  ArenaStore* const arenas_;
};

}  // namespace rlk::server
