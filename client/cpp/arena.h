// Memory that a server on this host shares with the client: tensors in it are not sent.
//
//   absl::StatusOr<Arena> in = client->OpenArena(ArenaKind::kHostInput, 64 << 20);
//   absl::StatusOr<Arena> out = client->OpenArena(ArenaKind::kHostOutput, 64 << 20);
//   absl::StatusOr<ArenaSlot> x = in->Take(bytes), y = out->Take(bytes);
//   ... write x->mutable_bytes() ...
//   request.inputs.push_back({"x", x->ref(DType::kF32, {rows, columns})});
//   *(*request.options.mutable_outputs())["y"].mutable_arena() = y->place();
//   client->Call(request);  ... read y->bytes() ...
//
// A call may read what is written into a slot while it runs (its report says LIVE), unless its
// options ask for INPUT_CAPTURE_SNAPSHOT or for digests. Work on a GPU that writes a slot has to be
// done before the call; that of the server is done when the call returns.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "client/cpp/tensor.h"
#include "kernels/core/dtype.h"
#include "kernels/core/tensor_view.h"
#include "rlk/v1/tensor.pb.h"

namespace rlk::client {

enum class ArenaKind : uint8_t {
  kHostInput,   // the client writes, calls read
  kHostOutput,  // calls write, client and calls read
  kDevice,      // memory of a GPU, which both sides read and write
};

// An output in a slot, as the reply describes it.
struct PlacedTensor {
  DType dtype = DType::kUnspecified;
  Dims shape = {};
  rlk::v1::ArenaRef place;
};

// A part of an arena for one tensor or several; freed when it goes. Movable. It keeps the arena's
// mapping alive, but not the session.
class ArenaSlot {
 public:
  ArenaSlot(ArenaSlot&&) noexcept;
  ArenaSlot& operator=(ArenaSlot&&) noexcept;
  ~ArenaSlot();

  int64_t size() const { return size_; }
  // The first byte, 256-byte aligned: an address of this process, for kDevice one of the GPU.
  void* data() const { return data_; }
  // Of host memory; empty for kDevice.
  std::span<const std::byte> bytes() const;
  // Of kHostInput; empty for the others.
  std::span<std::byte> mutable_bytes() const;

  // A place in it, `offset` bytes from its start.
  rlk::v1::ArenaRef place(int64_t offset = 0) const;
  // The tensor there, as an input of a call.
  TensorRef ref(DType dtype, const Dims& shape, int64_t offset = 0,
                const std::optional<Dims>& strides = std::nullopt) const;

 private:
  friend class Arena;
  struct Owner;
  ArenaSlot(std::shared_ptr<Owner> arena, uint64_t generation, int64_t offset, int64_t size,
            void* data);
  void Free();

  std::shared_ptr<Owner> arena_;
  uint64_t generation_ = 0;
  int64_t offset_ = 0, size_ = 0;
  void* data_ = nullptr;
};

// Copies share one arena, which is unmapped and given back when the last of them and of its slots
// goes. Thread-safe.
class Arena {
 public:
  ArenaKind kind() const;
  int64_t size() const;
  // Of kDevice.
  const std::string& device_uuid() const;

  // RESOURCE_EXHAUSTED where no free place is large enough.
  absl::StatusOr<ArenaSlot> Take(int64_t bytes) const;

 private:
  friend class Client;
  friend class ArenaSlot;
  using Owner = ArenaSlot::Owner;
  explicit Arena(std::shared_ptr<Owner> owner) : owner_(std::move(owner)) {}
  static absl::StatusOr<Arena> Open(std::shared_ptr<class SideConnection> side, ArenaKind kind,
                                    int64_t bytes, const std::string& device_uuid);

  std::shared_ptr<Owner> owner_;
};

}  // namespace rlk::client
