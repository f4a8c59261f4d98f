#include "server/parity/exception_status.h"

#include <exception>
#include <new>
#include <string>
#include <utility>

#include "kernels/core/status.h"

namespace rlk::server {

absl::Status StatusOfException() {
  std::string what = "an exception of no known type";
  try {
    throw;
  } catch (const std::bad_alloc&) {
    return MakeError(absl::StatusCode::kResourceExhausted,
                     {Reason::kBytesExhausted, "server", {}, {}, 100},
                     "the host has no memory for the call");
  } catch (const std::exception& exception) {
    what = exception.what();
  } catch (...) {
  }
  return MakeError(absl::StatusCode::kInternal, {Reason::kInternal, "server", std::move(what), {}},
                   "an exception ended the call");
}

}  // namespace rlk::server
