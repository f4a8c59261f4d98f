// The version of this library and of the `rlk` command: that of the project in CMakeLists.txt.
#pragma once

namespace rlk::client {

// "MAJOR.MINOR.PATCH".
const char* Version();

}  // namespace rlk::client
