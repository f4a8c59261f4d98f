// Tensors in a device's memory: compared there where the device can, on the host where it cannot,
// with one result.
#include <sstream>

#include "kernels/core/status.h"
#include "server/engine/host_residents.h"
#include "server/parity/digests.h"
#include "tests/unit/parity/parity_data.h"

namespace rlk::test {
namespace {

using server::Comparison;
using server::ParityTensor;

DeviceInfo Gpu() {
  DeviceInfo info;
  info.kind = DeviceKind::kCuda;
  info.name = "a device of the test";
  return info;
}

// What a GPU's would do, in memory that the host can reach.
class HostInspector final : public server::Inspector {
 public:
  absl::StatusOr<Digest> ComputeDigest(const TensorView& tensor) override {
    ++looks;
    return rlk::ComputeDigest(tensor);
  }
  absl::StatusOr<std::vector<Digest>> ComputeRowDigests(const TensorView& tensor) override {
    ++looks;
    return rlk::ComputeRowDigests(tensor);
  }
  absl::StatusOr<compare::Stats> Compare(const compare::Spec& spec, const TensorView& left,
                                         const TensorView& right) override {
    ++looks;
    compare::Stats stats;
    compare::Accumulate(spec, left.data, right.data, nullptr, 0, left.elements(), nullptr, stats);
    return stats;
  }
  absl::StatusOr<compare::RowStats> CompareRows(const TensorView& left, const TensorView& right,
                                                int rows_max) override {
    ++looks;
    const int64_t columns = left.shape[left.shape.rank() - 1];
    return compare::CompareRows(left.dtype, left.data, right.data, left.elements() / columns,
                                columns, rows_max, nullptr);
  }
  int looks = 0;
};

class TestDevice final : public server::Device {
 public:
  explicit TestDevice(server::Inspector* inspector) : inspector_(inspector) {}
  const DeviceInfo& info() const override { return info_; }
  absl::StatusOr<std::unique_ptr<server::Lane>> NewLane() override {
    return absl::UnimplementedError("the test launches nothing");
  }
  bool runs_inline() const override { return false; }
  bool healthy() const override { return true; }
  int64_t memory_bytes_in_use() const override { return 0; }
  absl::StatusOr<std::shared_ptr<ResidentMemory>> AllocateResident(int64_t bytes) override {
    return residents_->Allocate(bytes);
  }
  absl::StatusOr<std::unique_ptr<server::Transfer>> NewTransfer() override {
    return server::MakeHostTransfer();
  }
  server::Inspector* inspector() const override { return inspector_; }
  int64_t resident_bytes_in_use() const override { return residents_->bytes_in_use(); }

 private:
  const DeviceInfo info_ = Gpu();
  const std::shared_ptr<server::HostResidents> residents_ = server::HostResidents::Make(info_);
  server::Inspector* const inspector_;
};

std::string Everything(const Comparison& c) {
  std::ostringstream text;
  text << c.triage.hint << c.left.digest->Text() << c.right.digest->Text();
  for (const int64_t count : c.stats.counts) text << "," << count;
  text << "|" << std::hexfloat << c.stats.sums.error_squared << "|" << c.row_stats.mismatched << "|"
       << c.row_stats.last_column;
  if (c.first_mismatch) text << c.first_mismatch->left_bits << c.first_mismatch->right_bits;
  return text.str();
}

TEST(ParityDevice, AnyPlaceGivesOneResult) {
  const std::vector<double> x = Normals(64 * 300, 1);
  std::vector<double> changed = x;
  for (size_t i = 0; i < changed.size(); i += 97) changed[i] *= 1.25;
  const ParityTensor left = TensorOf(DType::kBF16, {64, 300}, x);
  const ParityTensor right = TensorOf(DType::kBF16, {64, 300}, changed);
  const Comparison host = Compared(left, right);
  EXPECT_EQ(host.compared_on, DeviceKind::kHost);
  HostInspector inspector;
  TestDevice looking(&inspector), blind(nullptr);
  for (server::Device* device :
       {static_cast<server::Device*>(&looking), static_cast<server::Device*>(&blind)}) {
    const int64_t before = device->resident_bytes_in_use();
    for (const bool both : {true, false}) {
      const auto a = server::ToDevice(left, device);
      const auto b = both ? server::ToDevice(right, device) : right;
      ASSERT_TRUE(a.ok() && b.ok());
      const Comparison comparison = Compared(*a, *b);
      EXPECT_EQ(Everything(comparison), Everything(host));
      EXPECT_EQ(comparison.compared_on, device == &looking ? DeviceKind::kCuda : DeviceKind::kHost);
      // The reference of another dtype is rounded on the host.
      const ParityTensor gold = TensorOf(DType::kF64, {64, 300}, x.data());
      EXPECT_TRUE(Compared(*a, gold,
                           {.judgment = server::Judgment::kAccuracy,
                            .tolerance = server::ToleranceRow{OpClass::kReduction, false}})
                      .passed);
    }
    EXPECT_EQ(device->resident_bytes_in_use(), before);
  }
  EXPECT_GT(inspector.looks, 0);
}

TEST(ParityDevice, StridedViewsOfDeviceMemoryAreGathered) {
  const std::vector<double> x = Normals(6 * 10, 2);
  TestDevice device(nullptr);
  const auto whole = server::ToDevice(TensorOf(DType::kF32, {6, 10}, x), &device);
  ASSERT_TRUE(whole.ok());
  // Columns 2, 4, 6 of rows 1 to 4, transposed.
  TensorArg view;
  view.dtype = DType::kF32;
  view.shape = {3, 4};
  view.strides = {2, 10};
  view.source = TensorSource::kResident;
  view.memory = whole->memory;
  view.memory_offset = 4 * 12;
  server::Device* devices[] = {&device};
  const auto gathered = server::MakeParityTensor("x", view, devices);
  ASSERT_TRUE(gathered.ok()) << gathered.status();
  std::vector<double> expected;
  for (size_t c = 0; c < 3; ++c) {
    for (size_t r = 0; r < 4; ++r) expected.push_back(x[(1 + r) * 10 + 2 + 2 * c]);
  }
  const Comparison comparison = Compared(*gathered, TensorOf(DType::kF32, {3, 4}, expected));
  EXPECT_TRUE(comparison.passed) << comparison.triage.hint;
  EXPECT_EQ(comparison.stats.compared, 12);
  // One element, named a thousand million times.
  view.shape = {1000, 1000, 1000};
  view.strides = {0, 0, 0};
  const auto detail = GetErrorDetail(server::MakeParityTensor("x", view, devices).status());
  ASSERT_TRUE(detail.has_value());
  EXPECT_EQ(detail->reason, Reason::kLimitExceeded);
  EXPECT_EQ(detail->field, "x");
}

// A kernel would fault on them, and with it the device of everybody.
TEST(ParityDevice, ViewsThatBeginInsideAnElementAreRefused) {
  TestDevice device(nullptr);
  server::Device* devices[] = {&device};
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF64, DType::kI64, DType::kU8}) {
    const auto size = static_cast<int64_t>(DTypeSize(dtype));
    const std::vector<uint64_t> zeros(4);
    const auto whole = server::ToDevice(TensorOf(dtype, {4}, zeros.data()), &device);
    ASSERT_TRUE(whole.ok());
    for (const bool strided : {false, true}) {
      for (int64_t offset = 0; offset <= 2 * size; ++offset) {
        TensorArg view;
        view.dtype = dtype;
        view.shape = {strided ? 1 : 2, strided ? 2 : 1};
        view.strides = {1, 1};
        view.source = TensorSource::kResident;
        view.memory = whole->memory;
        view.memory_offset = offset;
        view.resident.offset = static_cast<uint64_t>(offset);
        const absl::Status status = server::MakeParityTensor("x", view, devices).status();
        const bool aligned = offset % size == 0;
        EXPECT_EQ(status.ok(), aligned) << DTypeName(dtype) << " at " << offset << ": " << status;
        if (aligned) continue;
        const auto detail = GetErrorDetail(status);
        ASSERT_TRUE(detail.has_value());
        EXPECT_EQ(detail->reason, Reason::kMisaligned);
        EXPECT_EQ(detail->field, "x");
        EXPECT_EQ(detail->allowed, "a multiple of " + std::to_string(size));
      }
    }
  }
}

}  // namespace
}  // namespace rlk::test
