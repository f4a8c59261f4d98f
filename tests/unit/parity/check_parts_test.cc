// Layouts, generated tensors, and calls of gradients.
#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/core/status.h"
#include "kernels/digest/digest.h"
#include "server/parity/gradients.h"
#include "server/parity/invariance_axis.h"
#include "server/parity/rows.h"
#include "tests/support/golden_json.h"
#include "tests/unit/parity/probe_op.h"

namespace rlk::server {
namespace {

constexpr InvarianceAxis kLayoutAxes[] = {InvarianceAxis::kSlice, InvarianceAxis::kPad,
                                          InvarianceAxis::kPermute, InvarianceAxis::kNeighbours};

TEST(InvarianceLayouts, HaveRowsOfTheCallAndFillersAlone) {
  for (const InvarianceAxis axis : kLayoutAxes) {
    for (const int64_t rows : {1, 2, 3, 5, 64, 1000}) {
      std::set<std::string> names;
      for (const NamedLayout& layout : LayoutsOf(axis, rows, 5)) {
        EXPECT_TRUE(names.insert(layout.name).second) << layout.name;
        std::set<int64_t> seen;
        int64_t fillers = 0;
        const Layout made = layout.make();
        for (const LayoutRow& row : made) {
          if (row.filler) {
            ++fillers;
            continue;
          }
          EXPECT_TRUE(row.row >= 0 && row.row < rows) << layout.name;
          EXPECT_TRUE(seen.insert(row.row).second) << layout.name << " has a row twice";
        }
        if (axis == InvarianceAxis::kPermute) {
          EXPECT_EQ(seen.size(), size_t(rows));
          EXPECT_EQ(fillers, 0);
        }
        if (axis == InvarianceAxis::kSlice) {
          EXPECT_EQ(fillers, 0);
          EXPECT_LT(seen.size(), size_t(rows)) << layout.name << " is the call itself";
        }
        if (axis == InvarianceAxis::kPad) {
          EXPECT_EQ(seen.size(), size_t(rows));
          EXPECT_GT(fillers, 0);
        }
        if (axis == InvarianceAxis::kNeighbours) {
          EXPECT_EQ(made.size(), size_t(rows));
        }
      }
      EXPECT_EQ(names.empty(), rows < 2 && axis != InvarianceAxis::kPad);
    }
  }
}

// The seed alone decides, however often and in whatever order layouts are made.
TEST(InvarianceLayouts, AreTheSameWheneverTheyAreMade) {
  const auto same = [](const Layout& a, const Layout& b) {
    return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                      [](const LayoutRow& x, const LayoutRow& y) {
                        return x.row == y.row && x.filler == y.filler;
                      });
  };
  for (const InvarianceAxis axis : kLayoutAxes) {
    const std::vector<NamedLayout> layouts = LayoutsOf(axis, 100, 5);
    const std::vector<NamedLayout> again = LayoutsOf(axis, 100, 5);
    ASSERT_EQ(layouts.size(), again.size());
    std::vector<Layout> made(layouts.size());
    for (size_t i = layouts.size(); i > 0; --i) made[i - 1] = layouts[i - 1].make();
    for (size_t i = 0; i < layouts.size(); ++i) {
      EXPECT_EQ(layouts[i].name, again[i].name);
      EXPECT_TRUE(same(made[i], layouts[i].make())) << layouts[i].name;
      EXPECT_TRUE(same(made[i], again[i].make())) << layouts[i].name;
      for (size_t j = 0; j < i; ++j) {
        EXPECT_FALSE(same(made[i], made[j])) << layouts[i].name << ", " << layouts[j].name;
      }
    }
  }
}

TEST(InvarianceLayouts, ChunksAreFewAndSmallerThanTheCall) {
  EXPECT_TRUE(ChunkSizes(1).empty());
  for (const int64_t rows : {2, 3, 10, 63, 64, 65, 129, 100'000}) {
    const std::vector<int64_t> sizes = ChunkSizes(rows);
    ASSERT_FALSE(sizes.empty()) << rows;
    for (const int64_t size : sizes) {
      EXPECT_LT(size, rows);
      EXPECT_LE((rows + size - 1) / size, kChunksMax);
    }
  }
}

TEST(RowModel, LaysOutRowsAndFillersFromTheTensorsOwnElements) {
  const auto registry = test::MakeProbeRegistry();
  const ValueCall base = test::ProbeCall(*registry, 5, test::Fault::kNone);
  const auto axis = FindRowAxis(*registry, "probe");
  ASSERT_TRUE(axis.has_value());
  EXPECT_EQ(axis->Text(), "T");
  const auto model = RowModel::Make(base, *axis);
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_EQ(model->rows(), 5);
  const Layout layout = {{4, false}, {0, true}, {2, false}};
  const auto call = model->LayOut(base, layout, 3);
  ASSERT_TRUE(call.ok()) << call.status();
  const HostTensor& x = *InputOf(*call, "x");
  const HostTensor& from = *InputOf(base, "x");
  EXPECT_EQ(x.shape, (Dims{3, 6}));
  const auto* got = reinterpret_cast<const float*>(x.data.get());
  const auto* had = reinterpret_cast<const float*>(from.data.get());
  const std::set<float> elements(had, had + 30);
  for (int k = 0; k < 6; ++k) {
    EXPECT_EQ(got[k], had[4 * 6 + k]);
    EXPECT_EQ(elements.count(got[6 + k]), 1u);
    EXPECT_EQ(got[12 + k], had[2 * 6 + k]);
  }
  // The weight has no rows.
  EXPECT_EQ(InputOf(*call, "weight")->data, InputOf(base, "weight")->data);
}

TEST(NormalTensor, IsTheClientsRandomTensor) {
  const nlohmann::json vectors = test::LoadGolden("random_vectors.json").at("vectors");
  int compared = 0;
  for (const auto& vector : vectors) {
    // random:SHAPE:DTYPE:SEED, without a scale.
    const auto spec = vector.at("spec").get<std::string>();
    const size_t seed = spec.rfind(':');
    if (std::count(spec.begin(), spec.end(), ':') != 3) continue;
    for (const DType dtype :
         {DType::kF32, DType::kF16, DType::kBF16, DType::kF64, DType::kI32, DType::kI64}) {
      if (vector.at("dtype") != DTypeName(dtype)) continue;
      Dims shape;
      for (const int64_t size : vector.at("shape")) shape.push_back(size);
      const auto tensor = NormalTensor(dtype, shape, std::stoull(spec.substr(seed + 1)));
      ASSERT_TRUE(tensor.ok()) << tensor.status();
      EXPECT_EQ(ComputeDigest(tensor->view()).Text(), vector.at("digest").get<std::string>())
          << spec;
      ++compared;
    }
  }
  EXPECT_GE(compared, 3);
  EXPECT_FALSE(NormalTensor(DType::kBool, {2}, 1).ok());
}

TEST(Gradients, SayWhichInputNothingGives) {
  const auto registry = test::MakeProbeRegistry();
  ValueCall call = test::ProbeCall(*registry, 3, test::Fault::kNone);
  const Method* backward = registry->Find("probe.backward");
  const auto made = BackwardCall(call, {}, *backward, {}, {});
  EXPECT_EQ(GetErrorDetail(made.status())->reason, Reason::kMissingTensor);
  EXPECT_EQ(GetErrorDetail(made.status())->field, "grad_y");
  const auto none = BackwardMethods(*registry, *backward);
  EXPECT_EQ(GetErrorDetail(none.status())->field, "grad_grad_x");
}

}  // namespace
}  // namespace rlk::server
