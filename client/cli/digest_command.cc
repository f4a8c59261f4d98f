#include "client/cli/command.h"
#include "client/cli/render.h"
#include "client/cli/value.h"
#include "kernels/digest/digest.h"

namespace rlk::cli {

Outcome RunDigest(const Args& args) {
  if (args.positional().size() != 1) {
    return UsageError(absl::InvalidArgumentError("rlk digest takes one FILE[#KEY] or random:..."));
  }
  const std::string& source = args.positional()[0];
  const auto tensor = LoadTensor(source);
  if (!tensor.ok()) return UsageError(tensor.status());
  const std::string digest = ComputeDigest(tensor->view()).Text();
  Outcome outcome;
  outcome.json =
      Dump({{"source", source},
            {"dtype", std::string(DTypeName(tensor->dtype()))},
            {"shape", std::vector<int64_t>(tensor->shape().begin(), tensor->shape().end())},
            {"digest", digest}});
  outcome.text = digest + "  " + std::string(DTypeName(tensor->dtype())) + "  " +
                 ShapeText(tensor->shape()) + "  " + source + "\n";
  return outcome;
}

}  // namespace rlk::cli
