#include "server/tensors/weights_file.h"

#include <openssl/sha.h>
#include <stdlib.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "server/sessions/random_id.h"
#include "tests/unit/tensors/store_harness.h"

namespace rlk::test {
namespace {

using server::ExpectedTensor;
using server::LoadWeights;
namespace fs = std::filesystem;

std::string Sha256Of(const std::string& bytes) {
  unsigned char digest[SHA256_DIGEST_LENGTH];
  SHA256(reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size(), digest);
  return server::HexText({reinterpret_cast<const char*>(digest), sizeof(digest)});
}

std::string Safetensors(const std::string& header, const std::string& data) {
  const uint64_t size = header.size();
  return std::string(reinterpret_cast<const char*>(&size), 8) + header + data;
}

class WeightsFileTest : public testing::Test {
 protected:
  WeightsFileTest() {
    char path[] = "/tmp/rlk-weights-XXXXXX";
    if (mkdtemp(path) == nullptr) abort();
    base_ = path;
    fs::create_directories(base_ / "root/models");
    Write("root/models/a.safetensors", Safetensors(kHeader, data_));
  }
  ~WeightsFileTest() override { fs::remove_all(base_); }

  void Write(const std::string& name, const std::string& bytes) {
    std::ofstream(base_ / name, std::ios::binary) << bytes;
  }
  std::vector<ExpectedTensor> Manifest() const {
    return {{"w", DType::kF32, {2, 2}, Sha256Of(data_.substr(0, 16))},
            {"b", DType::kBF16, {3}, Sha256Of(data_.substr(16, 6))}};
  }
  absl::StatusOr<std::vector<server::TensorInfo>> Load(
      const std::string& path, const std::vector<ExpectedTensor>& manifest) {
    return LoadWeights((base_ / "root").string(), path, manifest, h_.host->info().uuid, 0, owner_,
                       *h_.store);
  }

  static constexpr char kHeader[] =
      R"({"__metadata__":{"format":"pt"},"w":{"dtype":"F32","shape":[2,2],"data_offsets":[0,16]},)"
      R"("b":{"dtype":"BF16","shape":[3],"data_offsets":[16,22]}})";
  const std::string data_ = std::string("0123456789abcdef") + "uvwxyz";
  fs::path base_;
  StoreHarness h_;
  std::shared_ptr<TestPrincipal> owner_ = NewPrincipal();
};

TEST_F(WeightsFileTest, LoadsWhatTheManifestNames) {
  const auto loaded = Load("models/a.safetensors", Manifest());
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  ASSERT_EQ(loaded->size(), 2u);
  EXPECT_EQ((*loaded)[0].label, "w");
  EXPECT_EQ((*loaded)[1].shape, Dims({3}));
  EXPECT_EQ((*loaded)[1].dtype, DType::kBF16);
  const auto values = *h_.Get(owner_.get(), (*loaded)[0].handle);
  EXPECT_EQ(std::memcmp(values.data(), data_.data(), 16), 0);
}

TEST_F(WeightsFileTest, RefusesAnyMismatchAndKeepsNothing) {
  struct Case {
    const char* name;
    std::function<void(std::vector<ExpectedTensor>&)> change;
    const char* field;
  } const cases[] = {
      {"a key that is not there", [](auto& m) { m[1].key = "missing"; }, "manifest[missing].key"},
      {"the metadata", [](auto& m) { m[1].key = "__metadata__"; }, "manifest[__metadata__].key"},
      {"another dtype", [](auto& m) { m[1].dtype = DType::kF16; }, "manifest[b].dtype"},
      {"another shape",
       [](auto& m) {
         m[1].shape = {3, 1};
       },
       "manifest[b].shape"},
      {"another digest", [](auto& m) { m[1].sha256 = m[0].sha256; }, "manifest[b].sha256"},
      {"no digest", [](auto& m) { m[1].sha256.clear(); }, "manifest[b].sha256"},
  };
  for (const Case& c : cases) {
    auto manifest = Manifest();
    c.change(manifest);
    const auto refused = Load("models/a.safetensors", manifest);
    EXPECT_EQ(refused.status().code(), absl::StatusCode::kFailedPrecondition) << c.name;
    EXPECT_EQ(ReasonOf(refused.status()), Reason::kFileMismatch) << c.name;
    EXPECT_EQ(GetErrorDetail(refused.status())->field, c.field);
    EXPECT_EQ(h_.store->usage().tensors, 0) << c.name;
  }
}

TEST_F(WeightsFileTest, OpensNothingOutsideItsRoot) {
  Write("secret.safetensors", Safetensors(kHeader, data_));
  fs::create_symlink(base_ / "secret.safetensors", base_ / "root/link.safetensors");
  fs::create_symlink(base_ / "root/models", base_ / "root/alias");
  fs::create_symlink("models/a.safetensors", base_ / "root/inside.safetensors");
  for (const std::string& path :
       {std::string("../secret.safetensors"), std::string("models/../../secret.safetensors"),
        (base_ / "root/models/a.safetensors").string(), std::string("link.safetensors"),
        std::string("inside.safetensors"), std::string("alias/a.safetensors"), std::string(),
        std::string("models"), std::string("nothing"), std::string("/proc/self/root/etc/passwd")}) {
    const auto refused = Load(path, Manifest());
    EXPECT_EQ(refused.status().code(), absl::StatusCode::kNotFound) << path;
    EXPECT_EQ(ReasonOf(refused.status()), Reason::kFilesUnavailable) << path;
  }
}

TEST_F(WeightsFileTest, RefusesFilesThatAreNone) {
  const std::string good(kHeader);
  const auto with = [&good](const std::string& from, const std::string& to) {
    std::string text = good;
    text.replace(text.find(from), from.size(), to);
    return text;
  };
  const std::pair<const char*, std::string> cases[] = {
      {"empty", ""},
      {"seven bytes", "1234567"},
      {"a header beyond the file", std::string("\xff\xff\xff\xff\xff\xff\xff\x7f", 8) + good},
      {"a huge header", std::string("\xff\xff\xff\xff\xff\xff\xff\xff", 8)},
      {"no JSON", Safetensors("{", data_)},
      {"a list", Safetensors("[]", data_)},
      {"nested", Safetensors(std::string(100000, '['), data_)},
      {"offsets beyond the data", Safetensors(with("[16,22]", "[17,23]"), data_)},
      {"offsets of another size", Safetensors(with("[16,22]", "[16,21]"), data_)},
      {"offsets in the wrong order", Safetensors(with("[16,22]", "[22,16]"), data_)},
      {"negative offsets", Safetensors(with("[16,22]", "[-1,5]"), data_)},
      {"an offset of 2^64", Safetensors(with("[16,22]", "[18446744073709551600,22]"), data_)},
      {"three offsets", Safetensors(with("[16,22]", "[16,22,23]"), data_)},
      {"a shape that overflows",
       Safetensors(with("[3]", "[3]")
                       .replace(good.find("\"shape\":[3]"), 11, "\"shape\":[9223372036854775807]"),
                   data_)},
      {"cut data", Safetensors(good, data_.substr(0, 20))},
  };
  for (const auto& [name, bytes] : cases) {
    Write("root/bad.safetensors", bytes);
    const auto refused = Load("bad.safetensors", Manifest());
    EXPECT_FALSE(refused.ok()) << name;
    const Reason reason = ReasonOf(refused.status());
    EXPECT_TRUE(reason == Reason::kMalformedMessage || reason == Reason::kFileMismatch)
        << name << ": " << refused.status();
    EXPECT_EQ(h_.store->usage().tensors, 0) << name;
  }
}

}  // namespace
}  // namespace rlk::test
