// What the metadata of an error says where its maker had nothing more precise to say.
#pragma once

#include <string_view>

#include "kernels/core/status.h"

namespace rlk::server {

struct ErrorTexts {
  std::string_view field, value, allowed;
};

// None of the three is empty: every error that a caller gets names a field, its value and what is
// allowed. server/rpc/README.md lists them.
ErrorTexts TextsOf(Reason reason);

}  // namespace rlk::server
