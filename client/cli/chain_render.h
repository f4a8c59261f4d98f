// What the check of a chain found, as JSON and as Markdown.
#pragma once

#include <string>

#include "client/cli/render.h"
#include "client/cpp/h3_chain.h"

namespace rlk::cli {

// Where the weights came from.
struct ChainSource {
  std::string manifest;  // its path
  std::string sha256;    // of the manifest
  std::string server;
  std::string provenance_id, version;
};

Json ChainJson(const client::H3Report& report, const ChainSource& source);
std::string ChainMarkdown(const client::H3Report& report, const ChainSource& source);

}  // namespace rlk::cli
