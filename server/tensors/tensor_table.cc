#include "server/tensors/tensor_table.h"

#include <algorithm>
#include <utility>

#include "kernels/core/checked_math.h"
#include "kernels/core/status.h"
#include "server/sessions/random_id.h"

namespace rlk::server {

absl::Status TensorNotFound(std::string_view field, const TensorHandle& handle) {
  return MakeError(absl::StatusCode::kNotFound,
                   {Reason::kTensorNotFound, std::string(field), HexText(handle.id),
                    "a tensor of this session, of the present generation"},
                   "the session has no such tensor");
}

absl::Status NoPrincipal(std::string_view field) {
  return MakeError(
      absl::StatusCode::kUnauthenticated,
      {Reason::kUnauthenticated, std::string(field), {}, "metadata rlk-session with a token"},
      "tensors on the server need a session");
}

absl::Status TensorBusy(std::string_view field, const char* why) {
  constexpr int64_t kRetryMs = 10;
  return MakeError(absl::StatusCode::kFailedPrecondition,
                   {Reason::kTensorBusy, std::string(field), {}, {}, kRetryMs}, why);
}

std::optional<int64_t> SpanBytes(DType dtype, const Dims& shape, const Dims& strides) {
  if (shape.rank() != strides.rank()) return std::nullopt;
  std::optional<int64_t> span = 1;
  bool empty = false;
  for (int i = 0; i < shape.rank(); ++i) {
    if (shape[i] < 0 || strides[i] < 0) return std::nullopt;
    empty = empty || shape[i] == 0;
    if (shape[i] == 0 || !span) continue;
    const std::optional<int64_t> reach = CheckedMul(shape[i] - 1, strides[i]);
    span = reach ? CheckedAdd(*span, *reach) : std::nullopt;
  }
  if (empty) return 0;
  return span ? CheckedMul(*span, DTypeSize(dtype)) : std::nullopt;
}

absl::Status CheckRange(std::string_view field, uint64_t offset, int64_t bytes, int64_t size) {
  if (bytes <= size && offset <= static_cast<uint64_t>(size - bytes)) return absl::OkStatus();
  return InvalidArgument(Reason::kOffsetOutOfRange, field,
                         std::to_string(bytes) + " bytes at offset " + std::to_string(offset),
                         "within the " + std::to_string(size) + " bytes of the tensor",
                         "the view reaches beyond the tensor");
}

StoredTensorRef TensorTable::New(const Principal& principal, DType dtype, const Dims& shape,
                                 std::shared_ptr<ResidentMemory> memory) const {
  auto tensor = std::make_shared<StoredTensor>();
  tensor->id = RandomId();
  tensor->owner = principal.id();
  tensor->dtype = dtype;
  tensor->shape = shape;
  tensor->memory = std::move(memory);
  return tensor;
}

void TensorTable::Insert(const Principal& principal, const StoredTensorRef& tensor,
                         int64_t lease_ms) {
  const std::lock_guard lock(mutex_);
  // TakeOwner comes after the end and takes this mutex: either it finds the tensor or we see the
  // end.
  if (principal.ended()) return;
  owners_[tensor->owner].emplace(tensor->id, tensor);
  SetLease(tensor, lease_ms);
}

absl::StatusOr<StoredTensorRef> TensorTable::Find(const Principal* principal,
                                                  std::string_view field,
                                                  const TensorHandle& handle) const {
  if (principal == nullptr) return NoPrincipal(field);
  if (!handle.server_id.empty() && handle.server_id != server_id_) {
    return MakeError(absl::StatusCode::kFailedPrecondition,
                     {Reason::kWrongServer, std::string(field), handle.server_id, server_id_},
                     "another server issued the handle");
  }
  const auto owner = owners_.find(principal->id());
  if (owner == owners_.end()) return TensorNotFound(field, handle);
  const auto found = owner->second.find(handle.id);
  if (found == owner->second.end()) return TensorNotFound(field, handle);
  const StoredTensorRef& tensor = found->second;
  const bool stale = handle.generation != 0 && handle.generation != tensor->generation;
  if (stale || (tensor->deadline && *tensor->deadline <= Now())) {
    return TensorNotFound(field, handle);
  }
  return tensor;
}

absl::StatusOr<StoredTensorRef> TensorTable::FindReadable(const Principal* principal,
                                                          std::string_view field,
                                                          const TensorHandle& handle) const {
  RLK_ASSIGN_OR_RETURN(StoredTensorRef tensor, Find(principal, field, handle));
  if (tensor->poisoned) {
    return MakeError(
        absl::StatusCode::kFailedPrecondition,
        {Reason::kTensorPoisoned, std::string(field), HexText(handle.id), "to release the tensor"},
        "a call that wrote into the tensor failed; its bytes are undefined");
  }
  if (tensor->writing) return TensorBusy(field, "a call is writing into the tensor");
  return tensor;
}

TensorInfo TensorTable::Info(const StoredTensor& tensor) const {
  TensorInfo info;
  info.handle = {tensor.id, server_id_, tensor.generation};
  info.dtype = tensor.dtype;
  info.shape = tensor.shape;
  info.bytes = ByteCount(tensor.shape, tensor.dtype);
  info.digest = tensor.digest;
  info.device_uuid = tensor.memory->device().uuid;
  info.label = tensor.label;
  info.poisoned = tensor.poisoned;
  info.references = tensor.references;
  info.synthetic = tensor.synthetic;
  if (tensor.deadline) {
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(*tensor.deadline - Now());
    info.lease_ms = std::max<int64_t>(left.count(), 1);
  }
  return info;
}

void TensorTable::SetLease(const StoredTensorRef& tensor, int64_t lease_ms) {
  if (tensor->deadline) leases_.erase({*tensor->deadline, tensor->owner, tensor->id});
  tensor->deadline.reset();
  if (lease_ms == 0) return;
  tensor->deadline = Now() + std::chrono::milliseconds(lease_ms);
  leases_.emplace(*tensor->deadline, tensor->owner, tensor->id);
}

void TensorTable::Remove(const StoredTensorRef& tensor) {
  SetLease(tensor, 0);
  const auto owner = owners_.find(tensor->owner);
  if (owner == owners_.end()) return;
  owner->second.erase(tensor->id);
  if (owner->second.empty()) owners_.erase(owner);
}

std::map<std::string, StoredTensorRef>* TensorTable::TensorsOf(uint64_t owner) {
  const auto found = owners_.find(owner);
  return found == owners_.end() ? nullptr : &found->second;
}

std::shared_ptr<const void> TensorTable::Pin(const StoredTensorRef& tensor) {
  ++tensor->readers;
  return std::shared_ptr<const void>(tensor.get(),
                                     [table = shared_from_this(), tensor](const void*) {
                                       const std::lock_guard lock(table->mutex_);
                                       --tensor->readers;
                                     });
}

std::vector<StoredTensorRef> TensorTable::TakeOwner(uint64_t owner) {
  std::vector<StoredTensorRef> taken;
  const std::lock_guard lock(mutex_);
  const auto found = owners_.find(owner);
  if (found == owners_.end()) return taken;
  for (const auto& [id, tensor] : found->second) {
    SetLease(tensor, 0);
    taken.push_back(tensor);
  }
  owners_.erase(found);
  return taken;
}

std::vector<StoredTensorRef> TensorTable::TakeExpired() {
  std::vector<StoredTensorRef> taken;
  const std::lock_guard lock(mutex_);
  const LeaseClock::time_point now = Now();
  while (!leases_.empty() && std::get<0>(*leases_.begin()) <= now) {
    const auto& [deadline, owner, id] = *leases_.begin();
    const StoredTensorRef tensor = owners_.at(owner).at(id);
    taken.push_back(tensor);
    Remove(tensor);
  }
  return taken;
}

namespace {

class NewOutput final : public ResidentOutput {
 public:
  NewOutput(std::shared_ptr<TensorTable> table, std::shared_ptr<const Principal> principal,
            StoredTensorRef tensor)
      : table_(std::move(table)), principal_(std::move(principal)), tensor_(std::move(tensor)) {}

  const std::shared_ptr<ResidentMemory>& memory() const override { return tensor_->memory; }
  int64_t offset() const override { return 0; }
  void OnLaunch() override {}
  void Commit(const std::optional<Digest>& digest, OutputTensor& output) override {
    // Nobody else knows the tensor yet.
    tensor_->digest = digest;
    table_->Insert(*principal_, tensor_, 0);
    output.resident = {tensor_->id, table_->server_id(), tensor_->generation};
  }
  void Abandon() override {}

 private:
  const std::shared_ptr<TensorTable> table_;
  const std::shared_ptr<const Principal> principal_;
  const StoredTensorRef tensor_;
};

class InPlaceOutput final : public ResidentOutput {
 public:
  InPlaceOutput(std::shared_ptr<TensorTable> table, StoredTensorRef tensor, int64_t offset,
                bool whole)
      : table_(std::move(table)), tensor_(std::move(tensor)), offset_(offset), whole_(whole) {}
  ~InPlaceOutput() override { Abandon(); }

  const std::shared_ptr<ResidentMemory>& memory() const override { return tensor_->memory; }
  int64_t offset() const override { return offset_; }
  void OnLaunch() override {
    const std::lock_guard lock(table_->mutex());
    launched_ = true;
  }
  void Commit(const std::optional<Digest>& digest, OutputTensor& output) override {
    const std::lock_guard lock(table_->mutex());
    done_ = true;
    tensor_->writing = false;
    tensor_->digest = whole_ ? digest : std::nullopt;
    if (whole_) tensor_->synthetic.clear();
    output.resident = {tensor_->id, table_->server_id(), ++tensor_->generation};
  }
  void Abandon() override {
    const std::lock_guard lock(table_->mutex());
    if (std::exchange(done_, true)) return;
    tensor_->writing = false;
    if (!launched_) return;
    tensor_->poisoned = true;
    tensor_->digest.reset();
  }

 private:
  const std::shared_ptr<TensorTable> table_;
  const StoredTensorRef tensor_;
  const int64_t offset_;
  const bool whole_;
  bool launched_ = false;
  bool done_ = false;
};

}  // namespace

std::unique_ptr<ResidentOutput> MakeNewOutput(std::shared_ptr<TensorTable> table,
                                              std::shared_ptr<const Principal> principal,
                                              StoredTensorRef tensor) {
  return std::make_unique<NewOutput>(std::move(table), std::move(principal), std::move(tensor));
}

std::unique_ptr<ResidentOutput> MakeInPlaceOutput(std::shared_ptr<TensorTable> table,
                                                  StoredTensorRef tensor, int64_t offset,
                                                  bool whole) {
  return std::make_unique<InPlaceOutput>(std::move(table), std::move(tensor), offset, whole);
}

}  // namespace rlk::server
