// Broken invariants of ours end the process; protobuf's own check would throw.
#pragma once

#include <cstdio>
#include <cstdlib>
#include <string>

namespace rlk::wire {

inline void Check(bool ok, const char* what) {
  if (ok) [[likely]]
    return;
  fprintf(stderr, "broken invariant in proto/wire: %s\n", what);
  std::abort();
}

inline void Check(bool ok, const char* what, const std::string& name) {
  if (ok) [[likely]]
    return;
  Check(false, (name + " " + what).c_str());
}

}  // namespace rlk::wire
