// Building and cutting messages by hand, for the codec's tests.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "google/protobuf/message.h"
#include "gtest/gtest.h"
#include "kernels/core/status.h"
#include "kernels/registry/call.h"
#include "kernels/registry/registry.h"
#include "proto/wire/bytes.h"
#include "proto/wire/signatures.h"
#include "proto/wire/wire_format.h"

namespace rlk::wire {

// Serialised fields; `value` is the content.
inline std::string VarintField(int number, uint64_t value) {
  std::string out;
  AppendVarint(MakeTag(number, WireType::kVarint), out);
  AppendVarint(value, out);
  return out;
}
inline std::string BytesField(int number, std::string_view value) {
  std::string out;
  AppendVarint(MakeTag(number, WireType::kBytes), out);
  AppendVarint(value.size(), out);
  return out.append(value);
}

// `bytes` must outlive the result. With `piece_bytes` 0, one piece.
inline InputBytes Pieces(std::string_view bytes, size_t piece_bytes = 0) {
  const auto* data = reinterpret_cast<const std::byte*>(bytes.data());
  InputBytes input;
  if (piece_bytes == 0) piece_bytes = bytes.size();
  for (size_t at = 0; at < bytes.size(); at += piece_bytes) {
    input.pieces.emplace_back(data + at, std::min(piece_bytes, bytes.size() - at));
  }
  return input;
}

inline std::string Flatten(const OutputBytes& pieces) {
  std::string flat;
  for (const OutputPiece& piece : pieces) {
    flat.append(piece.text);
    flat.append(reinterpret_cast<const char*>(piece.payload.data()), piece.payload.size());
  }
  return flat;
}

inline std::string Flatten(const HostBytes& bytes) {
  std::string flat;
  for (const auto& piece : bytes.pieces) {
    flat.append(reinterpret_cast<const char*>(piece.data()), piece.size());
  }
  return flat;
}

// `text` must outlive the result.
inline HostBytes AsHostBytes(std::string_view text) {
  HostBytes bytes;
  bytes.pieces.push_back({reinterpret_cast<const std::byte*>(text.data()), text.size()});
  bytes.size = static_cast<int64_t>(text.size());
  return bytes;
}

// Methods of `file` with their signatures, without kernels.
inline std::vector<std::unique_ptr<Method>> BindMethods(
    const std::vector<const google::protobuf::FileDescriptor*>& files) {
  std::vector<std::unique_ptr<Method>> methods;
  auto bindings = CompileSignatures(files);
  EXPECT_TRUE(bindings.ok()) << std::string(bindings.status().message());
  if (!bindings.ok()) return methods;
  for (MethodBinding& binding : *bindings) {
    methods.push_back(std::make_unique<Method>());
    methods.back()->decl.method = binding.signature.method;
    methods.back()->signature = std::move(binding.signature);
  }
  return methods;
}

struct ExpectedError {
  Reason reason = Reason::kUnknown;
  std::string_view field;
};

inline void ExpectError(const absl::Status& status, const ExpectedError& expected) {
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  const auto detail = GetErrorDetail(status);
  ASSERT_TRUE(detail.has_value()) << std::string(status.message());
  EXPECT_EQ(ReasonName(detail->reason), ReasonName(expected.reason))
      << std::string(status.message());
  EXPECT_EQ(detail->field, expected.field) << std::string(status.message());
}

}  // namespace rlk::wire
