// What every JSON text of a file has to be, whoever reads it then.
#pragma once

#include <cstddef>
#include <string>

namespace rlk::client {

// What is wrong with a text that is no JSON, nests deeper than `depth_max`, or gives a key twice,
// where readers would take the last; empty where nothing is.
std::string StrictJsonProblem(const std::string& text, size_t depth_max);

}  // namespace rlk::client
