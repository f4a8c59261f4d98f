// Writes the API's committed baselines: rlk_dump_api FOLDER writes FOLDER/api.binpb and
// FOLDER/signatures.txt.
#include <cstdio>
#include <fstream>
#include <string>

#include "proto/wire/signatures.h"

namespace {

bool Write(const std::string& path, const std::string& bytes) {
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file << bytes;
  file.close();
  if (!file) {
    fprintf(stderr, "cannot write %s\n", path.c_str());
    return false;
  }
  printf("wrote %s, %zu bytes\n", path.c_str(), bytes.size());
  return true;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    fprintf(stderr, "usage: rlk_dump_api FOLDER\n");
    return 2;
  }
  const auto bindings = rlk::wire::CompileSignatures(rlk::wire::OperatorFiles());
  if (!bindings.ok()) {
    fprintf(stderr, "%s\n", std::string(bindings.status().message()).c_str());
    return 1;
  }
  const std::string folder = argv[1];
  const bool ok = Write(folder + "/api.binpb", rlk::wire::SerializeApi()) &&
                  Write(folder + "/signatures.txt", rlk::wire::DumpSignatures(*bindings));
  return ok ? 0 : 1;
}
