#include "client/cpp/version.h"

namespace rlk::client {

const char* Version() { return RLK_VERSION; }

}  // namespace rlk::client
