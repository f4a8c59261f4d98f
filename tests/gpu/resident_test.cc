// Tensors that stay in device memory: their bytes in and out, and calls that read and write them
// where they lie.
#include <gtest/gtest.h>

#include <cstring>
#include <future>
#include <memory>
#include <string>
#include <vector>

#include "kernels/builtin.h"
#include "kernels/core/status.h"
#include "server/engine/cuda_device.h"
#include "server/engine/engine.h"
#include "server/engine/host_device.h"
#include "server/tensors/tensor_store.h"
#include "tests/gpu/softcap_runner.h"

namespace rlk::gpu_test {
namespace {

using server::TensorInfo;

class Owner final : public Principal {
 public:
  Owner() : Principal(1) {}
  bool ended() const override { return false; }
};

class GpuResident : public testing::Test {
 protected:
  void SetUp() override {
    std::vector<std::unique_ptr<server::Device>> devices;
    devices.push_back(server::MakeHostDevice({.poison_outputs = true}));
    auto cuda =
        server::MakeCudaDevice({.device_bytes_max = int64_t{2} << 30, .poison_outputs = true});
    ASSERT_TRUE(cuda.ok()) << cuda.status();
    devices.push_back(*std::move(cuda));
    cuda_ = devices[1].get();
    store_ = std::make_unique<server::TensorStore>(
        server::TensorStoreOptions{.limits = {}, .server_id = std::string(32, '0')},
        std::vector<server::Device*>{devices[0].get(), cuda_});
    engine_ = std::make_unique<server::Engine>(BuiltinRegistry(), server::EngineOptions(),
                                               server::ToleranceContract::Builtin(),
                                               std::move(devices), nullptr, store_.get());
    ASSERT_TRUE(engine_->Start().ok());
  }

  // In chunks of many pieces, as a transport gives them.
  absl::StatusOr<TensorInfo> Put(DType dtype, Dims shape, const std::vector<uint8_t>& bytes) {
    RLK_ASSIGN_OR_RETURN(auto upload, store_->Upload(owner_, {.dtype = dtype, .shape = shape}));
    constexpr size_t kChunk = size_t{1} << 20, kPiece = 8191;
    for (size_t at = 0; at < bytes.size(); at += kChunk) {
      std::vector<std::span<const std::byte>> pieces;
      const size_t end = std::min(bytes.size(), at + kChunk);
      for (size_t p = at; p < end; p += kPiece) {
        pieces.emplace_back(reinterpret_cast<const std::byte*>(bytes.data()) + p,
                            std::min(kPiece, end - p));
      }
      RLK_RETURN_IF_ERROR(upload->Write(pieces));
    }
    return upload->Finish(std::nullopt);
  }

  std::vector<uint8_t> Get(const TensorHandle& handle) {
    auto download = store_->Download(owner_.get(), handle, 0);
    EXPECT_TRUE(download.ok()) << download.status();
    std::vector<uint8_t> all;
    while (download.ok() && (*download)->bytes_left() > 0) {
      const auto bytes = (*download)->Next(int64_t{1} << 20);
      EXPECT_TRUE(bytes.ok()) << bytes.status();
      if (!bytes.ok()) break;
      for (const auto& piece : bytes->pieces) {
        const auto* data = reinterpret_cast<const uint8_t*>(piece.data());
        all.insert(all.end(), data, data + piece.size());
      }
    }
    return all;
  }

  absl::StatusOr<CallResult> Forward(const TensorInfo& x, std::optional<TensorHandle> into,
                                     const std::string& backend = "") {
    Call call;
    call.method = BuiltinRegistry().Find("final_logit_softcap.forward");
    call.principal = owner_;
    TensorArg arg;
    arg.source = TensorSource::kResident;
    arg.resident = x.handle;
    call.inputs = {arg};
    call.options.backend = backend;
    call.options.digest_tensors = true;
    call.options.outputs["y"] = {PlacementKind::kResident, {}, std::move(into)};
    std::promise<absl::StatusOr<CallResult>> promise;
    engine_->Submit(std::move(call), [&promise](absl::StatusOr<CallResult> done) {
      promise.set_value(std::move(done));
    });
    return promise.get_future().get();
  }

  std::shared_ptr<Owner> owner_ = std::make_shared<Owner>();
  server::Device* cuda_ = nullptr;
  std::unique_ptr<server::TensorStore> store_;
  std::unique_ptr<server::Engine> engine_;
};

std::vector<uint8_t> Pattern(size_t bytes) {
  std::vector<uint8_t> all(bytes);
  for (size_t i = 0; i < bytes; ++i) all[i] = static_cast<uint8_t>((i * 2654435761u) >> 11);
  return all;
}

TEST_F(GpuResident, BytesPassInAndOutOfDeviceMemory) {
  for (const size_t size : {size_t{0}, size_t{1}, size_t{255}, size_t{1} << 20,
                            (size_t{1} << 20) + 1, size_t{37} << 20}) {
    const std::vector<uint8_t> bytes = Pattern(size);
    const auto info = Put(DType::kU8, {static_cast<int64_t>(size)}, bytes);
    ASSERT_TRUE(info.ok()) << info.status();
    EXPECT_EQ(info->device_uuid, cuda_->info().uuid);
    EXPECT_EQ(cuda_->resident_bytes_in_use() >= static_cast<int64_t>(size), true);
    EXPECT_TRUE(Get(info->handle) == bytes) << size;
    EXPECT_TRUE(store_->Release(owner_.get(), {&info->handle, 1}).ok());
    EXPECT_EQ(cuda_->resident_bytes_in_use(), 0);
  }
}

TEST_F(GpuResident, CallsReadAndWriteWhereTensorsLie) {
  const std::vector<uint8_t> bits = Pattern(int64_t{1} << 17);
  const TensorInfo x = *Put(DType::kBF16, {1 << 16}, bits);
  const auto kept = Forward(x, std::nullopt);
  ASSERT_TRUE(kept.ok()) << kept.status();
  EXPECT_EQ(kept->report.device.uuid, cuda_->info().uuid);
  EXPECT_EQ(kept->report.phases.stage_in, 0);
  // The digest of the device is that of the bytes that come back, and of the input as uploaded.
  const TensorHandle y = *kept->outputs[0].resident;
  const std::vector<uint8_t> bytes = Get(y);
  const TensorView view{DType::kF32, {1 << 16}, {1}, bytes.data()};
  EXPECT_EQ(kept->report.output_digests[0].tensor, ComputeDigest(view));
  EXPECT_EQ(kept->report.input_digests[0].tensor, x.digest);
  // In place, the same bits again.
  const auto updated = Forward(x, y);
  ASSERT_TRUE(updated.ok()) << updated.status();
  EXPECT_EQ(updated->outputs[0].resident->id, y.id);
  EXPECT_EQ(updated->outputs[0].resident->generation, 2u);
  EXPECT_TRUE(Get(*updated->outputs[0].resident) == bytes);
  EXPECT_EQ(Forward(x, y).status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(Forward(x, std::nullopt, "cpu").status().code(), absl::StatusCode::kFailedPrecondition);
}

TEST_F(GpuResident, DeviceMemoryIsBoundedAndComesBack) {
  std::vector<TensorHandle> handles;
  for (;;) {
    auto upload = store_->Upload(owner_, {.dtype = DType::kU8, .shape = {int64_t{256} << 20}});
    if (!upload.ok()) {
      EXPECT_EQ(upload.status().code(), absl::StatusCode::kResourceExhausted) << upload.status();
      break;
    }
    const std::vector<std::byte> chunk(size_t{1} << 20);
    const std::span<const std::byte> piece(chunk);
    while ((*upload)->bytes_left() > 0) ASSERT_TRUE((*upload)->Write({&piece, 1}).ok());
    handles.push_back((*upload)->Finish(std::nullopt)->handle);
    ASSERT_LE(handles.size(), 8u);
  }
  EXPECT_GE(handles.size(), 4u);
  EXPECT_TRUE(store_->Release(owner_.get(), handles).ok());
  EXPECT_EQ(cuda_->resident_bytes_in_use(), 0);
  EXPECT_EQ(store_->usage().bytes, 0);
}

}  // namespace
}  // namespace rlk::gpu_test
