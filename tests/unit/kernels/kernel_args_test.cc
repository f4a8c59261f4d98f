#include "kernels/registry/kernel_args.h"

#include "gtest/gtest.h"

namespace rlk {
namespace {

class KernelArgsTest : public testing::Test {
 protected:
  KernelArgsTest() {
    for (const char* name : {"x", "bias", "parts"}) {
      TensorSpec spec;
      spec.name = name;
      signature_.inputs.push_back(spec);
    }
    TensorSpec y;
    y.name = "y";
    signature_.outputs = {y};
    AttributeSpec eps, count;
    eps.name = "eps";
    count.name = "count";
    signature_.attributes = {eps, count};
    attributes_[0].number = 0.5;
    attributes_[1].integer = 7;
    views_[0].dtype = DType::kF32;
    views_[1].dtype = views_[2].dtype = DType::kBF16;
    output_.dtype = DType::kF16;
    args_.signature = &signature_;
    args_.inputs = views_;
    args_.input_begin = begin_;
    args_.outputs = {&output_, 1};
    args_.attributes = attributes_;
  }

  MethodSignature signature_;
  TensorView views_[3];
  int32_t begin_[4] = {0, 1, 1, 3};  // bias is absent, parts has two tensors
  MutableTensorView output_;
  AttributeValue attributes_[2];
  KernelArgs args_;
};

TEST_F(KernelArgsTest, FindsByName) {
  EXPECT_EQ(args_.Input("x").dtype, DType::kF32);
  EXPECT_FALSE(args_.Input("bias").present());
  EXPECT_EQ(args_.Inputs("parts").size(), 2u);
  EXPECT_EQ(args_.Output("y").dtype, DType::kF16);
  EXPECT_EQ(args_.F32("eps"), 0.5f);
  EXPECT_EQ(args_.I64("count"), 7);
}

TEST_F(KernelArgsTest, AnUnknownNameIsABug) {
  EXPECT_DEATH(args_.Input("w"), "unknown input \"w\"");
  EXPECT_DEATH(args_.Output("z"), "unknown output \"z\"");
  EXPECT_DEATH(args_.F32("cap"), "unknown attribute \"cap\"");
}

}  // namespace
}  // namespace rlk
