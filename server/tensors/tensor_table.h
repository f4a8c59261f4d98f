// The entries of the store and who may see them; internal to this folder. Entries, pins and
// reservations share the table's mutex and keep the table alive.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <tuple>
#include <unordered_map>
#include <vector>

#include "absl/status/statusor.h"
#include "server/tensors/tensor_store.h"

namespace rlk::server {

// All fields but the constant ones are guarded by the table's mutex.
struct StoredTensor {
  std::string id;
  uint64_t owner = 0;
  DType dtype = DType::kUnspecified;
  Dims shape;
  std::shared_ptr<ResidentMemory> memory;
  std::string label;
  std::string synthetic;

  std::optional<Digest> digest;
  uint64_t generation = 1;
  int64_t references = 1;
  int64_t readers = 0;
  bool writing = false;
  bool poisoned = false;
  std::optional<LeaseClock::time_point> deadline;
};
using StoredTensorRef = std::shared_ptr<StoredTensor>;

class TensorTable : public std::enable_shared_from_this<TensorTable> {
 public:
  TensorTable(std::string server_id, LeaseClock::time_point (*now)())
      : server_id_(std::move(server_id)), now_(now) {}

  // The names of a new tensor, which lies in no list yet.
  StoredTensorRef New(const Principal& principal, DType dtype, const Dims& shape,
                      std::shared_ptr<ResidentMemory> memory) const;
  // Lists it, unless its owner has ended.
  void Insert(const Principal& principal, const StoredTensorRef& tensor, int64_t lease_ms);

  // With the mutex held. NOT_FOUND alike for what is unknown, foreign, stale or past its lease.
  absl::StatusOr<StoredTensorRef> Find(const Principal* principal, std::string_view field,
                                       const TensorHandle& handle) const;
  // The same, usable: neither poisoned nor being written.
  absl::StatusOr<StoredTensorRef> FindReadable(const Principal* principal, std::string_view field,
                                               const TensorHandle& handle) const;
  TensorInfo Info(const StoredTensor& tensor) const;
  void SetLease(const StoredTensorRef& tensor, int64_t lease_ms);
  // Takes it out of the lists; the caller drops the reference without the mutex.
  void Remove(const StoredTensorRef& tensor);
  std::map<std::string, StoredTensorRef>* TensorsOf(uint64_t owner);
  // Keeps writers away until the last copy goes.
  std::shared_ptr<const void> Pin(const StoredTensorRef& tensor);

  // Takes the mutex.
  std::vector<StoredTensorRef> TakeOwner(uint64_t owner);
  std::vector<StoredTensorRef> TakeExpired();

  const std::string& server_id() const { return server_id_; }
  std::mutex& mutex() { return mutex_; }

 private:
  LeaseClock::time_point Now() const { return now_ == nullptr ? LeaseClock::now() : now_(); }

  const std::string server_id_;
  LeaseClock::time_point (*const now_)();
  mutable std::mutex mutex_;
  std::unordered_map<uint64_t, std::map<std::string, StoredTensorRef>> owners_;
  std::set<std::tuple<LeaseClock::time_point, uint64_t, std::string>> leases_;
};

absl::Status TensorNotFound(std::string_view field, const TensorHandle& handle);
absl::Status NoPrincipal(std::string_view field);
// FAILED_PRECONDITION (kTensorBusy) with RetryInfo.
absl::Status TensorBusy(std::string_view field, const char* why);

// Bytes of the elements that a view spans, from its first to its last: nothing where it overflows.
std::optional<int64_t> SpanBytes(DType dtype, const Dims& shape, const Dims& strides);

// INVALID_ARGUMENT (kOffsetOutOfRange) unless [offset, offset + bytes) lies in `size` bytes.
absl::Status CheckRange(std::string_view field, uint64_t offset, int64_t bytes, int64_t size);

// A place for an output: a new tensor, which is listed when it is committed.
std::unique_ptr<ResidentOutput> MakeNewOutput(std::shared_ptr<TensorTable> table,
                                              std::shared_ptr<const Principal> principal,
                                              StoredTensorRef tensor);
// A tensor that is written into; `writing` is set already.
std::unique_ptr<ResidentOutput> MakeInPlaceOutput(std::shared_ptr<TensorTable> table,
                                                  StoredTensorRef tensor, int64_t offset,
                                                  bool whole);

}  // namespace rlk::server
