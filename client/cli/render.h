// Text tables and JSON of what the server says.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "client/cpp/tensor.h"
#include "google/protobuf/descriptor.h"
#include "rlk/v1/call.pb.h"

namespace rlk::cli {

using Json = nlohmann::ordered_json;

// Indented text of a document, in ASCII: what is not, and control characters, are written as
// \uNNNN. Bytes that are not UTF-8 are replaced.
std::string Dump(const Json& json);

// Columns as wide as their widest cell, two spaces between, the last one not padded. Cells are made
// printable: a line end in one would look like a row.
class Table {
 public:
  explicit Table(std::vector<std::string> header) { rows_.push_back(std::move(header)); }
  void Add(std::vector<std::string> row);
  std::string Text(int indent = 0) const;

 private:
  std::vector<std::vector<std::string>> rows_;
};

// "2x3x257"; "scalar".
std::string ShapeText(const Dims& shape);

// The first `count` elements. JSON has no NaN and no infinities: they are strings there.
std::string FirstText(const client::Tensor& tensor, int64_t count);
Json FirstJson(const client::Tensor& tensor, int64_t count);

// {"code", "message", "reason", "field", "value", "allowed", "retry_after_ms"}.
Json StatusJson(const absl::Status& status);

Json ReportJson(const rlk::v1::CallReport& report);
std::string ReportText(const rlk::v1::CallReport& report);

// CLAIM_LEVEL_L3_PORTABLE -> "L3"; "none" for unspecified.
std::string ClaimText(rlk::v1::ClaimLevel claim);
std::string DTypeText(rlk::v1::DataType dtype);
Json DeviceJson(const rlk::v1::DeviceRef& device);
std::string DeviceText(const rlk::v1::DeviceRef& device);
// MODE_STRICT -> "strict".
std::string EnumText(const google::protobuf::EnumDescriptor* descriptor, int number);

// A number that may not be finite.
Json NumberJson(double value);
// printf-like "%.3g".
std::string Short(double value);

}  // namespace rlk::cli
