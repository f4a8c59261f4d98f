#include <cstddef>
#include <cstdint>

#include "tests/fuzz/path_check.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  rlk::fuzz::CheckPath({data, size});
  return 0;
}
