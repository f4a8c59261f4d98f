#include "server/tensors/tensor_store.h"

#include <map>

#include "tests/unit/tensors/store_harness.h"

namespace rlk::test {
namespace {

using server::NewTensor;
using server::TensorInfo;
using std::chrono::milliseconds;

const std::vector<float> kValues = {1, 2, 3, 4, 5, 6};

TensorArg View(const TensorInfo& info, Dims shape, Dims strides, uint64_t offset,
               DType dtype = DType::kF32) {
  TensorArg arg;
  arg.source = TensorSource::kResident;
  arg.dtype = dtype;
  arg.shape = shape;
  arg.strides = strides;
  arg.resident = info.handle;
  arg.resident.offset = offset;
  return arg;
}

TEST(TensorStoreTest, KeepsBitsOfEveryDTypeAndShape) {
  StoreHarness h;
  const auto owner = NewPrincipal();
  for (const std::string& device : {h.host->info().uuid, h.gpu->info().uuid}) {
    NewTensor tensor;
    tensor.device_uuid = device;
    tensor.label = "weights";
    const auto info = h.Put(owner, kValues, {2, 3}, tensor);
    ASSERT_TRUE(info.ok()) << info.status();
    EXPECT_EQ(info->handle.id.size(), 16u);
    EXPECT_EQ(info->handle.server_id, kServerId);
    EXPECT_EQ(info->handle.generation, 1u);
    EXPECT_EQ(info->device_uuid, device);
    EXPECT_EQ(info->label, "weights");
    EXPECT_EQ(info->bytes, 24);
    const TensorView view{DType::kF32, {2, 3}, {3, 1}, kValues.data()};
    EXPECT_EQ(info->digest, ComputeDigest(view));
    EXPECT_EQ(*h.Get(owner.get(), info->handle), kValues);
  }
  for (const Dims& shape : {Dims{}, Dims{0}, Dims{3, 0, 5}, Dims{1, 1, 1, 1, 1, 1, 1, 1}}) {
    const std::vector<float> values(static_cast<size_t>(ElementCount(shape)), 7);
    const auto info = h.Put(owner, values, shape);
    ASSERT_TRUE(info.ok()) << info.status();
    EXPECT_EQ(*h.Get(owner.get(), info->handle), values);
  }
}

TEST(TensorStoreTest, GoesToTheFirstGpuUnlessToldOtherwise) {
  StoreHarness h;
  const auto owner = NewPrincipal();
  NewTensor tensor;
  tensor.dtype = DType::kU8;
  tensor.shape = {0};
  auto upload = h.store->Upload(owner, tensor);
  ASSERT_TRUE(upload.ok());
  EXPECT_EQ((*upload)->Finish(std::nullopt)->device_uuid, h.gpu->info().uuid);
  tensor.device_uuid = "GPU-nowhere";
  EXPECT_EQ(ReasonOf(h.store->Upload(owner, tensor).status()), Reason::kDeviceNotFound);
}

TEST(TensorStoreTest, RefusesHeadersThatAreNone) {
  StoreHarness h;
  const auto owner = NewPrincipal();
  struct Case {
    const char* name;
    NewTensor tensor;
    Reason reason;
  } const cases[] = {
      {"no dtype", {.shape = {1}}, Reason::kDtypeNotAllowed},
      {"a negative size", {.dtype = DType::kF32, .shape = {2, -1}}, Reason::kShapeMismatch},
      {"beyond 64 bits",
       {.dtype = DType::kF64, .shape = {INT64_MAX / 2, 3}},
       Reason::kLimitExceeded},
      {"beyond 64 bits beside a zero",
       {.dtype = DType::kF64, .shape = {0, INT64_MAX, INT64_MAX}},
       Reason::kLimitExceeded},
      {"just beyond 64 bits",
       {.dtype = DType::kF64, .shape = {int64_t{1} << 60}},
       Reason::kLimitExceeded},
      {"above the budget",
       {.dtype = DType::kU8, .shape = {int64_t{5} << 30}},
       Reason::kLimitExceeded},
      {"a negative lease",
       {.dtype = DType::kU8, .shape = {1}, .lease_ms = -1},
       Reason::kLimitExceeded},
  };
  for (const Case& c : cases) {
    const auto refused = h.store->Upload(owner, c.tensor);
    EXPECT_EQ(refused.status().code(), absl::StatusCode::kInvalidArgument) << c.name;
    EXPECT_EQ(ReasonOf(refused.status()), c.reason) << c.name << ": " << refused.status();
  }
  EXPECT_EQ(h.store->usage().tensors, 0);
  EXPECT_EQ(h.store->Upload(nullptr, {.dtype = DType::kU8, .shape = {1}}).status().code(),
            absl::StatusCode::kUnauthenticated);
}

TEST(TensorStoreTest, AnInterruptedUploadLeavesNothing) {
  StoreHarness h;
  const auto owner = NewPrincipal();
  const std::span<const std::byte> all = std::as_bytes(std::span(kValues));
  for (const size_t sent : {size_t{0}, size_t{1}, size_t{23}, size_t{24}, size_t{25}}) {
    auto upload = h.store->Upload(owner, {.dtype = DType::kF32, .shape = {6}});
    ASSERT_TRUE(upload.ok());
    EXPECT_EQ(h.store->usage(owner->id()).tensors, 1) << "reserved before a byte is read";
    const std::vector<std::byte> bytes(25);
    const std::span<const std::byte> piece(bytes.data(), sent);
    const absl::Status written = (*upload)->Write({&piece, 1});
    if (sent > all.size()) {
      EXPECT_EQ(ReasonOf(written), Reason::kPayloadSizeMismatch);
    } else {
      EXPECT_TRUE(written.ok());
    }
    if (sent < all.size()) {
      EXPECT_EQ(ReasonOf((*upload)->Finish(std::nullopt).status()), Reason::kPayloadSizeMismatch);
    }
    EXPECT_TRUE(h.store->List(owner.get(), "", 10)->empty());
    upload->reset();
    EXPECT_EQ(h.store->usage().tensors, 0);
    EXPECT_EQ(h.memory(), 0);
  }
}

TEST(TensorStoreTest, AWrongDigestIsDataLossAndLeavesNothing) {
  StoreHarness h;
  const auto owner = NewPrincipal();
  const TensorView view{DType::kF32, {6}, {1}, kValues.data()};
  const std::string digest = ComputeDigest(view).Text();
  std::string wrong = digest;
  wrong.back() = wrong.back() == '0' ? '1' : '0';
  for (const auto& [expected, ok] :
       {std::pair(digest, true), std::pair(wrong, false), std::pair(std::string(), false)}) {
    auto upload = h.store->Upload(owner, {.dtype = DType::kF32, .shape = {6}});
    const std::span<const std::byte> piece = std::as_bytes(std::span(kValues));
    ASSERT_TRUE((*upload)->Write({&piece, 1}).ok());
    const auto info = (*upload)->Finish(expected);
    EXPECT_EQ(info.ok(), ok) << expected;
    EXPECT_EQ(info.status().code(), ok ? absl::StatusCode::kOk : absl::StatusCode::kDataLoss);
  }
  EXPECT_EQ(h.store->List(owner.get(), "", 10)->size(), 1u);
}

// Whatever another client tries, it is told what it would be told of a tensor that never was.
TEST(TensorStoreTest, NobodyElseCanReachATensor) {
  StoreHarness h;
  const auto owner = NewPrincipal(), other = NewPrincipal();
  const TensorInfo info = *h.Put(owner, kValues, {6});
  TensorHandle invented = info.handle;
  invented.id = std::string(16, 'x');
  const server::PlannedOutput output{DType::kF32, {6}, true};
  using Attempt =
      std::function<absl::Status(const std::shared_ptr<const Principal>&, const TensorHandle&)>;
  const std::map<std::string, Attempt> attempts = {
      {"read",
       [&](const auto& who, const auto& handle) {
         return h.store->Download(who.get(), handle, 0).status();
       }},
      {"read in a call",
       [&](const auto& who, const auto& handle) {
         TensorInfo named = info;
         named.handle = handle;
         TensorArg arg = View(named, {6}, {1}, 0);
         return h.store->Resolve(who.get(), "x", arg);
       }},
      {"write",
       [&](const auto& who, const auto& handle) {
         return h.store->Reserve(who, "y", output, handle, h.host->info()).status();
       }},
      {"locate",
       [&](const auto& who, const auto& handle) {
         return h.store->Locate(who.get(), "y", handle).status();
       }},
      {"describe",
       [&](const auto& who, const auto& handle) {
         return h.store->Describe(who.get(), handle).status();
       }},
      {"renew", [&](const auto& who,
                    const auto& handle) { return h.store->Renew(who.get(), handle, 1).status(); }},
      {"free",
       [&](const auto& who, const auto& handle) {
         return h.store->Release(who.get(), {&handle, 1});
       }},
  };
  for (const auto& [name, attempt] : attempts) {
    const absl::Status foreign = attempt(other, info.handle);
    const absl::Status unknown = attempt(owner, invented);
    EXPECT_EQ(foreign.code(), absl::StatusCode::kNotFound) << name << ": " << foreign;
    EXPECT_EQ(ReasonOf(foreign), Reason::kTensorNotFound) << name;
    EXPECT_EQ(unknown.code(), absl::StatusCode::kNotFound) << name;
    EXPECT_EQ(GetErrorDetail(foreign)->allowed, GetErrorDetail(unknown)->allowed) << name;
    TensorHandle elsewhere = info.handle;
    elsewhere.server_id = std::string(32, 'f');
    EXPECT_EQ(ReasonOf(attempt(owner, elsewhere)), Reason::kWrongServer) << name;
    TensorHandle stale = info.handle;
    stale.generation = 2;
    EXPECT_EQ(ReasonOf(attempt(owner, stale)), Reason::kTensorNotFound) << name;
    EXPECT_EQ(attempt(nullptr, info.handle).code(), absl::StatusCode::kUnauthenticated) << name;
  }
  // By its content it is not found either, nor listed.
  EXPECT_FALSE(h.store->Find(other.get(), info.digest->Text(), "")->has_value());
  EXPECT_TRUE(h.store->List(other.get(), "", 10)->empty());
  EXPECT_EQ(*h.Get(owner.get(), info.handle), kValues);
}

TEST(TensorStoreTest, ViewsStayWithinTheirTensor) {
  StoreHarness h;
  const auto owner = NewPrincipal();
  const TensorInfo info = *h.Put(owner, kValues, {2, 3});
  struct Case {
    const char* name;
    Dims shape, strides;
    uint64_t offset;
    Reason reason;  // kUnknown: allowed
    int64_t bytes;
  } const cases[] = {
      {"all", {2, 3}, {3, 1}, 0, Reason::kUnknown, 24},
      {"the last row", {3}, {1}, 12, Reason::kUnknown, 12},
      {"transposed", {3, 2}, {1, 3}, 0, Reason::kUnknown, 24},
      {"a column, expanded", {2, 1000}, {3, 0}, 8, Reason::kUnknown, 16},
      {"nothing, at the end", {0, 7}, {7, 1}, 24, Reason::kUnknown, 0},
      {"one more", {7}, {1}, 0, Reason::kOffsetOutOfRange, 0},
      {"one too far", {6}, {1}, 4, Reason::kOffsetOutOfRange, 0},
      {"beyond", {0}, {1}, 25, Reason::kOffsetOutOfRange, 0},
      {"an offset of 2^64", {1}, {1}, UINT64_MAX, Reason::kOffsetOutOfRange, 0},
      {"an offset that wraps to 0", {2}, {1}, UINT64_MAX - 7, Reason::kOffsetOutOfRange, 0},
      {"a stride that reaches out", {2}, {6}, 0, Reason::kOffsetOutOfRange, 0},
      {"strides beyond 64 bits",
       {3, 3},
       {INT64_MAX / 2, INT64_MAX / 2},
       0,
       Reason::kInvalidStrides,
       0},
      {"a stride whose bytes are beyond 64 bits",
       {2},
       {INT64_MAX / 3},
       0,
       Reason::kInvalidStrides,
       0},
  };
  for (const Case& c : cases) {
    TensorArg arg = View(info, c.shape, c.strides, c.offset);
    const absl::Status status = h.store->Resolve(owner.get(), "x", arg);
    EXPECT_EQ(ReasonOf(status), c.reason) << c.name << ": " << status;
    EXPECT_EQ(status.ok(), c.reason == Reason::kUnknown) << c.name;
    if (!status.ok()) {
      EXPECT_EQ(arg.pin, nullptr) << c.name;
      continue;
    }
    EXPECT_EQ(arg.data.size, c.bytes) << c.name;
    if (c.bytes > 0) {
      ASSERT_EQ(arg.data.pieces.size(), 1u) << c.name;
      EXPECT_EQ(arg.data.pieces[0].data(), arg.memory->data() + c.offset) << c.name;
    }
    EXPECT_EQ(arg.digest.has_value(), std::string_view(c.name) == "all") << c.name;
  }
  TensorArg other = View(info, {2, 3}, {3, 1}, 0, DType::kI32);
  EXPECT_EQ(ReasonOf(h.store->Resolve(owner.get(), "x", other)), Reason::kDtypeNotAllowed);
  TensorArg whole = View(info, {}, {}, 0, DType::kUnspecified);
  ASSERT_TRUE(h.store->Resolve(owner.get(), "x", whole).ok());
  EXPECT_EQ(whole.shape, Dims({2, 3}));
  EXPECT_EQ(whole.dtype, DType::kF32);
  EXPECT_EQ(whole.digest, info.digest);
}

TEST(TensorStoreTest, ReadersKeepWritersAwayAndMemoryAlive) {
  StoreHarness h;
  const auto owner = NewPrincipal();
  const TensorInfo info = *h.Put(owner, kValues, {6});
  const server::PlannedOutput output{DType::kF32, {6}, true};
  const auto reserve = [&] {
    return h.store->Reserve(owner, "y", output, info.handle, h.host->info());
  };
  {
    TensorArg reader = View(info, {6}, {1}, 0);
    ASSERT_TRUE(h.store->Resolve(owner.get(), "x", reader).ok());
    const auto refused = reserve();
    EXPECT_EQ(refused.status().code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_EQ(ReasonOf(refused.status()), Reason::kTensorBusy);
    EXPECT_GT(GetErrorDetail(refused.status())->retry_after_ms, 0);
  }
  {
    auto writer = reserve();
    ASSERT_TRUE(writer.ok()) << writer.status();
    EXPECT_EQ(ReasonOf(reserve().status()), Reason::kTensorBusy);
    TensorArg reader = View(info, {6}, {1}, 0);
    EXPECT_EQ(ReasonOf(h.store->Resolve(owner.get(), "x", reader)), Reason::kTensorBusy);
    EXPECT_EQ(ReasonOf(h.Get(owner.get(), info.handle).status()), Reason::kTensorBusy);
  }
  auto download = h.store->Download(owner.get(), info.handle, 0);
  ASSERT_TRUE(download.ok());
  const HostBytes bytes = *(*download)->Next(24);
  ASSERT_TRUE(h.store->Release(owner.get(), {&info.handle, 1}).ok());
  EXPECT_FALSE(h.store->Describe(owner.get(), info.handle).ok());
  download->reset();
  EXPECT_EQ(h.store->usage().tensors, 1) << "the transport still has a piece";
  EXPECT_EQ(std::memcmp(bytes.pieces[0].data(), kValues.data(), 24), 0);
}

TEST(TensorStoreTest, GenerationsAndPoison) {
  StoreHarness h;
  const auto owner = NewPrincipal();
  const TensorInfo info = *h.Put(owner, kValues, {6});
  const server::PlannedOutput output{DType::kF32, {6}, true};
  TensorHandle handle = info.handle;
  const auto reserve = [&](const TensorHandle& named) {
    return h.store->Reserve(owner, "y", output, named, h.host->info());
  };
  TensorHandle unexpected = handle;
  unexpected.generation = 0;
  EXPECT_EQ(reserve(unexpected).status().code(), absl::StatusCode::kInvalidArgument);

  // Given up before the launch: as it was.
  { auto writer = *reserve(handle); }
  EXPECT_EQ(*h.Get(owner.get(), handle), kValues);

  auto writer = *reserve(handle);
  writer->OnLaunch();
  std::memset(writer->memory()->data(), 0, 24);
  OutputTensor written;
  writer->Commit(std::nullopt, written);
  handle = *written.resident;
  writer.reset();
  EXPECT_EQ(handle.generation, 2u);
  EXPECT_EQ(*h.Get(owner.get(), handle), std::vector<float>(6, 0));
  EXPECT_FALSE(h.store->Describe(owner.get(), handle)->digest.has_value());
  // A retry with the old generation is refused, and so is a read.
  EXPECT_EQ(ReasonOf(reserve(info.handle).status()), Reason::kTensorNotFound);
  EXPECT_EQ(ReasonOf(h.Get(owner.get(), info.handle).status()), Reason::kTensorNotFound);

  writer = *reserve(handle);
  writer->OnLaunch();
  writer->Abandon();
  EXPECT_TRUE(h.store->Describe(owner.get(), handle)->poisoned);
  EXPECT_EQ(ReasonOf(reserve(handle).status()), Reason::kTensorPoisoned);
  EXPECT_EQ(ReasonOf(h.Get(owner.get(), handle).status()), Reason::kTensorPoisoned);
  TensorArg arg = View(info, {6}, {1}, 0);
  arg.resident = handle;
  EXPECT_EQ(ReasonOf(h.store->Resolve(owner.get(), "x", arg)), Reason::kTensorPoisoned);
  writer.reset();
  EXPECT_TRUE(h.store->Release(owner.get(), {&handle, 1}).ok());
  EXPECT_EQ(h.memory(), 0);
}

TEST(TensorStoreTest, OutputsFitTheTensorThatTakesThem) {
  StoreHarness h;
  const auto owner = NewPrincipal();
  const TensorInfo info = *h.Put(owner, kValues, {6});
  struct Case {
    const char* name;
    DType dtype;
    Dims shape;
    uint64_t offset;
    Reason reason;
  } const cases[] = {
      {"all", DType::kF32, {6}, 0, Reason::kUnknown},
      {"two in the middle", DType::kF32, {2}, 8, Reason::kUnknown},
      {"too many", DType::kF32, {7}, 0, Reason::kOffsetOutOfRange},
      {"too far", DType::kF32, {2}, 20, Reason::kOffsetOutOfRange},
      {"an offset that wraps", DType::kF32, {2}, UINT64_MAX - 3, Reason::kOffsetOutOfRange},
      {"misaligned", DType::kF32, {2}, 2, Reason::kMisaligned},
      {"another dtype", DType::kBF16, {2}, 0, Reason::kDtypeNotAllowed},
  };
  for (const Case& c : cases) {
    TensorHandle into = info.handle;
    into.offset = c.offset;
    const auto place = h.store->Reserve(owner, "y", {c.dtype, c.shape, true}, into, h.host->info());
    EXPECT_EQ(ReasonOf(place.status()), c.reason) << c.name << ": " << place.status();
  }
  const auto elsewhere =
      h.store->Reserve(owner, "y", {DType::kF32, {6}, true}, info.handle, h.gpu->info());
  EXPECT_EQ(ReasonOf(elsewhere.status()), Reason::kPlacementUnavailable);
}

TEST(TensorStoreTest, WhatIsThereAlreadyNeedNotBeSent) {
  StoreHarness h;
  const auto owner = NewPrincipal();
  const TensorInfo info = *h.Put(owner, kValues, {6});
  const std::string digest = info.digest->Text(), host = h.host->info().uuid;
  EXPECT_FALSE((*h.store->Find(owner.get(), digest, h.gpu->info().uuid)).has_value());
  EXPECT_FALSE((*h.store->Find(owner.get(), digest, "")).has_value())
      << "an upload would go to the GPU";
  EXPECT_EQ(ReasonOf(h.store->Find(owner.get(), digest, "nowhere").status()),
            Reason::kDeviceNotFound);
  EXPECT_FALSE((*h.store->Find(owner.get(), "xxh3-tree4k-v1:0", host)).has_value());
  const auto found = *h.store->Find(owner.get(), digest, host);
  ASSERT_TRUE(found.has_value());
  EXPECT_EQ(found->handle.id, info.handle.id);
  EXPECT_EQ(found->references, 2);
  // Shared, so nobody may write into it.
  EXPECT_EQ(
      ReasonOf(h.store->Reserve(owner, "y", {DType::kF32, {6}, true}, info.handle, h.host->info())
                   .status()),
      Reason::kTensorBusy);
  ASSERT_TRUE(h.store->Release(owner.get(), {&info.handle, 1}).ok());
  EXPECT_EQ(*h.Get(owner.get(), info.handle), kValues);
  ASSERT_TRUE(h.store->Release(owner.get(), {&info.handle, 1}).ok());
  EXPECT_EQ(h.memory(), 0);
}

// Whoever shares a tensor has it until its own release.
TEST(TensorStoreTest, ALeaseEndsNobodyElsesTensor) {
  StoreHarness h;
  const auto owner = NewPrincipal();
  const std::string host = h.host->info().uuid;
  const TensorInfo leased = *h.Put(owner, kValues, {6}, {.lease_ms = 1000});
  const std::string digest = leased.digest->Text();
  EXPECT_FALSE((*h.store->Find(owner.get(), digest, host)).has_value());
  ASSERT_TRUE(h.store->Renew(owner.get(), leased.handle, 0).ok());
  ASSERT_TRUE((*h.store->Find(owner.get(), digest, host)).has_value());
  EXPECT_EQ(ReasonOf(h.store->Renew(owner.get(), leased.handle, 1000).status()),
            Reason::kTensorBusy);
  EXPECT_TRUE(h.store->Renew(owner.get(), leased.handle, 0).ok());
  ASSERT_TRUE(h.store->Release(owner.get(), {&leased.handle, 1}).ok());
  EXPECT_TRUE(h.store->Renew(owner.get(), leased.handle, 1000).ok()) << "it is one's own again";
}

TEST(TensorStoreTest, ReleasesAllOrNone) {
  StoreHarness h;
  const auto owner = NewPrincipal();
  const TensorInfo a = *h.Put(owner, kValues, {6}), b = *h.Put(owner, kValues, {6});
  TensorHandle unknown = a.handle;
  unknown.id = "nothing";
  const std::vector<TensorHandle> with_unknown = {a.handle, unknown};
  const std::vector<TensorHandle> twice = {a.handle, b.handle, a.handle};
  EXPECT_EQ(ReasonOf(h.store->Release(owner.get(), with_unknown)), Reason::kTensorNotFound);
  EXPECT_EQ(ReasonOf(h.store->Release(owner.get(), twice)), Reason::kTensorNotFound);
  EXPECT_EQ(h.store->usage().tensors, 2);
  EXPECT_TRUE(h.store->Release(owner.get(), std::vector{a.handle, b.handle}).ok());
  EXPECT_EQ(h.store->usage().tensors, 0);
}

TEST(TensorStoreTest, ListsInPages) {
  StoreHarness h;
  const auto owner = NewPrincipal();
  std::set<std::string> ids;
  for (int i = 0; i < 10; ++i) ids.insert(h.Put(owner, kValues, {6})->handle.id);
  std::vector<std::string> listed;
  for (std::string after;;) {
    const auto page = *h.store->List(owner.get(), after, 3);
    for (const TensorInfo& info : page) listed.push_back(info.handle.id);
    if (page.size() < 3) break;
    after = listed.back();
  }
  EXPECT_EQ(listed, std::vector<std::string>(ids.begin(), ids.end()));
}

TEST(TensorStoreTest, LeasesOfTensorsAndOwnersEnd) {
  StoreHarness h;
  const auto owner = NewPrincipal();
  const TensorInfo leased = *h.Put(owner, kValues, {6}, {.lease_ms = 1000});
  const TensorInfo unleased = *h.Put(owner, kValues, {6});
  EXPECT_EQ(leased.lease_ms, 0) << "the lease begins when the tensor is there";
  EXPECT_EQ(h.store->Describe(owner.get(), leased.handle)->lease_ms, 1000);
  TestClock::Advance(milliseconds(900));
  ASSERT_TRUE(h.store->Renew(owner.get(), leased.handle, 2000).ok());
  TestClock::Advance(milliseconds(1999));
  h.store->Sweep();
  EXPECT_TRUE(h.Get(owner.get(), leased.handle).ok());
  TestClock::Advance(milliseconds(1));
  EXPECT_EQ(ReasonOf(h.Get(owner.get(), leased.handle).status()), Reason::kTensorNotFound);
  h.store->Sweep();
  EXPECT_EQ(h.store->usage().tensors, 1);
  owner->End();
  h.store->ReleaseOwner(owner->id());
  EXPECT_FALSE(h.store->Describe(owner.get(), unleased.handle).ok());
  EXPECT_EQ(h.memory(), 0);
  // What was on its way when the owner ended is not kept.
  const auto late = NewPrincipal();
  auto upload = h.store->Upload(late, {.dtype = DType::kU8, .shape = {0}});
  late->End();
  h.store->ReleaseOwner(late->id());
  ASSERT_TRUE((*upload)->Finish(std::nullopt).ok());
  upload->reset();
  EXPECT_EQ(h.store->usage().tensors, 0);
}

}  // namespace
}  // namespace rlk::test
