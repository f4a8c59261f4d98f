#include <iostream>
#include <string>
#include <vector>

#include "client/cli/command.h"

int main(int argc, char** argv) {
  return rlk::cli::RunCommand(std::vector<std::string>(argv + 1, argv + argc), std::cout,
                              std::cerr);
}
