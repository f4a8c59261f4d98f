// rlk-server: executes deterministic kernels for callers over gRPC.
#include "server/serve.h"

int main(int argc, char** argv) {
  return rlk::server::RunServer(std::vector<std::string>(argv + 1, argv + argc));
}
