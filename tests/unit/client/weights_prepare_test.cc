#include "client/cli/weights_prepare.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <openssl/sha.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <string>

#include "client/cli/safetensors.h"
#include "kernels/core/status.h"

namespace rlk::cli {
namespace {

namespace fs = std::filesystem;
using client::H3Sizes;
using testing::HasSubstr;

constexpr H3Sizes kSizes = {.channels = 8, .hidden = 12, .embedding = 16, .width = 4};

class WeightsPrepareTest : public testing::Test {
 protected:
  WeightsPrepareTest() {
    char path[] = "/tmp/rlk-prepare-XXXXXX";
    if (mkdtemp(path) == nullptr) abort();
    folder_ = path;
    Make();
  }
  ~WeightsPrepareTest() override { fs::remove_all(folder_); }

  void Make(const SyntheticOptions& options = {.sizes = kSizes}) {
    fs::remove_all(folder_);
    const absl::Status written = WriteSyntheticH3(folder_, options);
    ASSERT_TRUE(written.ok()) << written;
  }
  std::string Path(const std::string& name) const { return folder_ + "/" + name; }
  std::string Read(const std::string& name) const {
    std::ifstream in(Path(name), std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }
  void Write(const std::string& name, const std::string& bytes) const {
    std::ofstream(Path(name), std::ios::binary | std::ios::trunc) << bytes;
  }
  // The first place; the new text has the size of the old.
  void Edit(const std::string& name, const std::string& from, const std::string& to) const {
    std::string bytes = Read(name);
    const size_t at = bytes.find(from);
    ASSERT_NE(at, std::string::npos) << from;
    bytes.replace(at, from.size(), to);
    Write(name, bytes);
  }
  absl::StatusOr<rlk::v1::WeightsManifest> Prepare(const PrepareOptions& options = {}) const {
    return PrepareH3Weights(folder_, options);
  }

  static constexpr char kIndex[] = "model.safetensors.index.json";
  static constexpr char kLast[] = "model-00003-of-00003.safetensors";
  std::string folder_;
};

TEST_F(WeightsPrepareTest, NamesEachTensorWithItsFileAndBytes) {
  const auto manifest = Prepare();
  ASSERT_TRUE(manifest.ok()) << manifest.status();
  EXPECT_EQ(manifest->synthetic(), "seed 1");
  EXPECT_EQ(client::SizesOf(*manifest), kSizes);
  ASSERT_EQ(manifest->tensors_size(), 6);
  for (const auto& entry : manifest->tensors()) {
    const auto tensor = ReadSafetensors(Path(entry.tensor().path()), entry.tensor().key());
    ASSERT_TRUE(tensor.ok()) << tensor.status();
    const std::string bytes(reinterpret_cast<const char*>(tensor->bytes().data()),
                            tensor->bytes().size());
    EXPECT_EQ(entry.tensor().sha256(), Sha256Hex(bytes)) << entry.role();
  }
  EXPECT_EQ(manifest->tensors(4).role(), "weight");
  EXPECT_EQ(manifest->tensors(4).tensor().key(), "transformer_blocks.0.adaln_proj.linear.weight");
  EXPECT_EQ(manifest->tensors(4).tensor().dtype(), rlk::v1::DATA_TYPE_BF16);
}

TEST_F(WeightsPrepareTest, TheSameSeedMakesTheSameFiles) {
  const std::string first = Read(kLast);
  Make();
  EXPECT_EQ(Read(kLast), first);
  Make({.sizes = kSizes, .seed = 2});
  EXPECT_NE(Read(kLast), first);
}

TEST_F(WeightsPrepareTest, TakesTheBlockThatIsAskedForAndNamesThatAreGiven) {
  Make({.sizes = kSizes, .block = 17});
  EXPECT_FALSE(Prepare().ok());
  const auto block = Prepare({.block = 17});
  ASSERT_TRUE(block.ok()) << block.status();
  EXPECT_EQ(block->tensors(5).tensor().key(), "transformer_blocks.17.adaln_proj.linear.bias");
  // 7 is no end of 17.
  EXPECT_FALSE(Prepare({.block = 7}).ok());
  const std::string prefix = "transformer_blocks.17.adaln_proj.linear.";
  const auto named = Prepare({.names = {{"weight", prefix + "weight"}, {"bias", prefix + "bias"}}});
  EXPECT_TRUE(named.ok()) << named.status();
}

TEST_F(WeightsPrepareTest, OneFileNeedsNoIndex) {
  Make({.sizes = kSizes, .shards = 1});
  fs::remove(Path(kIndex));
  const auto manifest = Prepare();
  ASSERT_TRUE(manifest.ok()) << manifest.status();
  EXPECT_EQ(manifest->tensors(0).tensor().path(), "model-00001-of-00001.safetensors");
}

TEST_F(WeightsPrepareTest, RefusesFoldersByWhatIsWrongInThem) {
  const struct {
    const char* name;
    std::function<void()> spoil;
    const char* told;
  } cases[] = {
      {"no index", [this] { fs::remove(Path(kIndex)); }, "0 indices and 3"},
      {"two indices", [this] { Write("b.safetensors.index.json", "{}"); }, "2 indices"},
      {"no JSON", [this] { Write(kIndex, "{"); }, "not JSON"},
      {"no map", [this] { Write(kIndex, "{\"weight_map\":{}}"); }, "maps no tensors"},
      {"a file elsewhere",
       [this] { Write(kIndex, "{\"weight_map\":{\"a\":\"../x.safetensors\"}}"); },
       "beside the index"},
      {"truncated",
       [this] {
         const std::string bytes = Read(kLast);
         Write(kLast, bytes.substr(0, bytes.size() - 2));
       },
       kLast},
      {"swapped files", [this] { Write(kLast, Read("model-00002-of-00003.safetensors")); }, kLast},
      {"a symbolic link",
       [this] {
         fs::rename(Path(kLast), Path("blob"));
         fs::create_symlink("blob", Path(kLast));
       },
       kLast},
      {"a file that is gone", [this] { fs::remove(Path(kLast)); }, kLast},
      {"a tensor of another name", [this] { Edit(kLast, ".bias\"", ".bios\""); }, "linear.bios"},
      {"a tensor of another name in the index",
       [this] { Edit(kIndex, "linear_2.weight", "linear_3.weight"); }, "w2"},
      {"retyped", [this] { Edit(kLast, "BF16", "F16\""); }, kLast},
      {"another dtype of the same size", [this] { Edit(kLast, "\"BF16\"", "\"I16\" "); },
       "adaln_proj.linear"},
      {"two labels", [this] { Edit(kLast, "seed 1", "seed 2"); }, kLast},
      {"no label in one", [this] { Edit(kLast, "rlk.synthetic", "rlk.synthetik"); }, kLast},
  };
  for (const auto& c : cases) {
    Make();
    c.spoil();
    const auto refused = Prepare();
    EXPECT_FALSE(refused.ok()) << c.name;
    EXPECT_THAT(refused.status().ToString(), HasSubstr(c.told)) << c.name;
  }
}

TEST_F(WeightsPrepareTest, FilesWithoutALabelMustHaveTheModelsSizes) {
  for (const char* name :
       {"model-00001-of-00003.safetensors", "model-00002-of-00003.safetensors", kLast}) {
    Edit(name, "rlk.synthetic", "rlk.synthetik");
  }
  const auto refused = Prepare();
  ASSERT_FALSE(refused.ok());
  EXPECT_THAT(std::string(refused.status().message()), HasSubstr("5376"));
  EXPECT_THAT(std::string(refused.status().message()), HasSubstr("time_embedder.linear_1.weight"));
}

TEST_F(WeightsPrepareTest, RefusesSizesThatNoOperatorTakes) {
  for (const H3Sizes& sizes :
       {H3Sizes{6, 12, 16, 4}, H3Sizes{8, 10, 16, 4}, H3Sizes{8, 12, 12, 4}, H3Sizes{8, 12, 16, 0},
        H3Sizes{0, 12, 16, 4}, H3Sizes{8, 12, int64_t{1} << 40, 4}}) {
    EXPECT_EQ(WriteSyntheticH3(folder_, {.sizes = sizes}).code(),
              absl::StatusCode::kInvalidArgument);
  }
}

TEST(H3Manifest, RefusesTextsThatAreNone) {
  const std::string tensors = R"("tensors":[]})";
  const std::pair<std::string, const char*> cases[] = {
      {"", "manifest"},
      {"[]", "manifest"},
      {R"({"format":"rlk-weights-v1","model":"minimax-h3","other":1,"tensors":[]})", "manifest"},
      {R"({"format":"rlk-weights-v1","model":"a","model":"minimax-h3",)" + tensors, "manifest"},
      {R"({"format":"rlk-weights-v2","model":"minimax-h3",)" + tensors, "format"},
      {R"({"format":"rlk-weights-v1","model":"minimax-h4",)" + tensors, "model"},
      {R"({"format":"rlk-weights-v1","model":"minimax-h3",)" + tensors, "tensors"},
  };
  for (const auto& [text, field] : cases) {
    const auto refused = client::ParseH3Manifest(text);
    ASSERT_FALSE(refused.ok()) << text;
    EXPECT_EQ(GetErrorDetail(refused.status())->field, field) << text;
  }
}

TEST(H3Manifest, EvidenceAboutTheModelTakesNoMadeUpWeights) {
  rlk::v1::WeightsManifest manifest;
  EXPECT_TRUE(client::RequireRealWeights(manifest).ok());
  manifest.set_synthetic("seed 1");
  const absl::Status refused = client::RequireRealWeights(manifest);
  EXPECT_EQ(refused.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(GetErrorDetail(refused)->reason, Reason::kSyntheticWeights);
}

}  // namespace
}  // namespace rlk::cli
