// What a thread of a check makes of an exception of the standard library.
#pragma once

#include "absl/status/status.h"

namespace rlk::server {

// Of the exception that is being handled: called in a catch block alone. Memory that the host does
// not have is RESOURCE_EXHAUSTED (kBytesExhausted) with RetryInfo, all else INTERNAL with what the
// exception says.
absl::Status StatusOfException();

}  // namespace rlk::server
