// Fixture of the call decoder's tests: decodes messages in pieces of 7 bytes, and a valid request
// in which every field is set.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "proto/wire/call_codec.h"
#include "proto/wire/call_parts.h"
#include "rlk/v1/activation.pb.h"
#include "test_messages.pb.h"
#include "tests/unit/wire/wire_testing.h"

namespace rlk::wire {

inline constexpr char kForward[] = "final_logit_softcap.forward";
inline constexpr char kBackward[] = "final_logit_softcap.backward";

class DecodeCallTest : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    auto files = OperatorFiles();
    files.push_back(rlk::test::Everything::descriptor()->file());
    methods_ = new auto(BindMethods(files));
  }
  static void TearDownTestSuite() { delete methods_; }

  static const Method& Find(std::string_view name) {
    for (const auto& method : *methods_) {
      if (method->signature.method == name) return *method;
    }
    ADD_FAILURE() << "no method " << name;
    return *methods_->front();
  }

  // Pieces of 7 bytes, so that everything straddles. The bytes outlive the call.
  static absl::StatusOr<Call> DecodeBytes(std::string_view method,
                                          const google::protobuf::Descriptor* type,
                                          std::string bytes, const Limits& limits = Limits()) {
    auto owner = std::make_shared<std::string>(std::move(bytes));
    InputBytes input = Pieces(*owner, 7);
    input.owner = owner;
    return DecodeCall(Find(method), type, input, limits);
  }
  // By the short way alone.
  template <typename M>
  static std::optional<Call> DecodeCommon(std::string_view method, const M& message,
                                          const Limits& limits = Limits()) {
    const std::string bytes = message.SerializeAsString();
    return DecodeCommonCall(Find(method), Pieces(bytes, 7), limits);
  }
  template <typename M>
  static absl::StatusOr<Call> Decode(std::string_view method, const M& message,
                                     const Limits& limits = Limits()) {
    return DecodeBytes(method, M::descriptor(), message.SerializeAsString(), limits);
  }

 private:
  static inline std::vector<std::unique_ptr<Method>>* methods_ = nullptr;
};

inline void Fill(rlk::v1::Tensor* tensor, rlk::v1::DataType dtype, std::vector<int64_t> shape,
                 size_t bytes) {
  tensor->set_dtype(dtype);
  for (const int64_t size : shape) tensor->add_shape(size);
  std::string data(bytes, 0);
  for (size_t i = 0; i < bytes; ++i) data[i] = static_cast<char>(i);
  tensor->set_data(data);
}

inline rlk::v1::FinalLogitSoftcapForwardRequest ValidRequest() {
  rlk::v1::FinalLogitSoftcapForwardRequest request;
  Fill(request.mutable_x(), rlk::v1::DATA_TYPE_F32, {2, 3}, 24);
  request.set_softcap(20.5);
  request.set_output_dtype(rlk::v1::DATA_TYPE_F32);
  rlk::v1::CallOptions& options = *request.mutable_options();
  options.set_contract("c");
  options.set_backend("cpu");
  options.set_mode(rlk::v1::MODE_AUTO);
  options.set_minimum_claim(rlk::v1::CLAIM_LEVEL_L3_PORTABLE);
  options.set_device_uuid("GPU-1");
  options.add_digests(rlk::v1::DIGEST_SCOPE_TENSOR);
  options.add_digests(rlk::v1::DIGEST_SCOPE_ROWS);
  options.set_input_capture(rlk::v1::INPUT_CAPTURE_SNAPSHOT);
  options.set_verification(rlk::v1::VERIFICATION_REFERENCE);
  options.add_wanted_outputs("y");
  options.add_wanted_outputs("y");
  rlk::v1::ArenaRef& arena = *(*options.mutable_outputs())["y"].mutable_arena();
  arena.set_arena("arena");
  arena.set_generation(5);
  arena.set_offset(256);
  return request;
}

}  // namespace rlk::wire
