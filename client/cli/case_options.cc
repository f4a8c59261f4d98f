#include "client/cli/case_options.h"

#include <algorithm>
#include <optional>
#include <set>

#include "absl/strings/str_cat.h"
#include "client/cli/elements.h"
#include "client/cli/numbers.h"
#include "kernels/core/status.h"

namespace rlk::cli {
namespace {

constexpr int64_t kSizeMax = int64_t{1} << 31;

template <typename Condition>
bool AnyInput(const MethodSignature& signature, const Condition& condition) {
  return std::any_of(signature.inputs.begin(), signature.inputs.end(), condition);
}

bool HasLetter(const MethodSignature& signature, char letter) {
  return AnyInput(signature, [letter](const TensorSpec& input) {
    return std::any_of(input.dims.dims.begin(), input.dims.dims.end(),
                       [letter](const DimPattern& dim) { return dim.letter == letter; });
  });
}

bool HasBatch(const MethodSignature& signature) {
  return HasLetter(signature, 'T') ||
         AnyInput(signature, [](const TensorSpec& input) { return input.dims.leading; });
}

bool HasVocabulary(const MethodSignature& signature) {
  return AnyInput(signature, [](const TensorSpec& input) {
    return input.dims.leading && input.dims.dims.empty();
  });
}

bool HasIntegers(const MethodSignature& signature) {
  return AnyInput(signature, [](const TensorSpec& input) {
    return !input.dtypes.empty() && std::none_of(input.dtypes.begin(), input.dtypes.end(),
                                                 [](DType dtype) { return IsFloat(dtype); });
  });
}

bool HasAttribute(const MethodSignature& signature, const std::string& name) {
  return std::any_of(signature.attributes.begin(), signature.attributes.end(),
                     [&name](const AttributeSpec& attribute) { return attribute.name == name; });
}

// What an option of RL-Kernel's is to one of our methods.
struct Meaning {
  const char* option;
  // That a method has, or lacks.
  const char* what;
  bool (*has)(const MethodSignature& signature);
};

template <char kLetter>
bool Has(const MethodSignature& signature) {
  return HasLetter(signature, kLetter);
}

bool None(const MethodSignature&) { return false; }

constexpr Meaning kMeanings[] = {
    {"--batch", "leading dimensions and no T", HasBatch},
    {"--seq", "leading dimensions and no T", HasBatch},
    {"--vocab", "vocabulary (an input of leading dimensions alone)", HasVocabulary},
    {"--normalized-dim", "dimension H", Has<'H'>},
    {"--k-dim", "dimension K", Has<'K'>},
    {"--n-dim", "dimension N", Has<'N'>},
    // Of attention and of rotary embeddings.
    {"--n-heads", "heads", None},
    {"--head-dim", "heads", None},
    {"--theta", "attribute theta",
     [](const MethodSignature& s) { return HasAttribute(s, "theta"); }},
    {"--eps", "attribute eps", [](const MethodSignature& s) { return HasAttribute(s, "eps"); }},
    {"--token-value", "integers among its inputs", HasIntegers},
};
// Those that set an attribute of their own name.
constexpr const char* kAttributeOptions[] = {"--theta", "--eps"};

bool AnyOf(const std::vector<MethodSignature>& forwards, const Meaning& meaning) {
  return std::any_of(forwards.begin(), forwards.end(), meaning.has);
}

// "--batch, --seq, --size LETTER=N of H, NAME=VALUE of eps, weight_offset".
std::string WhatApplies(const std::vector<MethodSignature>& forwards) {
  std::string text;
  for (const Meaning& meaning : kMeanings) {
    if (!AnyOf(forwards, meaning)) continue;
    absl::StrAppend(&text, text.empty() ? "" : ", ", meaning.option);
  }
  std::set<char> letters;
  std::set<std::string> attributes;
  for (const MethodSignature& forward : forwards) {
    for (const TensorSpec& input : forward.inputs) {
      for (const DimPattern& dim : input.dims.dims) {
        if (dim.letter != 0) letters.insert(dim.letter);
      }
    }
    for (const AttributeSpec& attribute : forward.attributes) attributes.insert(attribute.name);
  }
  const char* between = text.empty() ? "--size LETTER=N of " : "; --size LETTER=N of ";
  for (const char letter : letters) {
    absl::StrAppend(&text, between, std::string(1, letter));
    between = ", ";
  }
  between = "; NAME=VALUE of ";
  for (const std::string& attribute : attributes) {
    absl::StrAppend(&text, between, attribute);
    between = ", ";
  }
  return text;
}

absl::Status ReadSizes(const Args& args, CaseOptions& options) {
  CaseSizes& sizes = options.sizes;
  const auto read = [&args](const char* option, int64_t fallback) {
    return args.GetInteger(option, fallback, 1, kSizeMax);
  };
  RLK_ASSIGN_OR_RETURN(sizes.batch, read("--batch", sizes.batch));
  RLK_ASSIGN_OR_RETURN(sizes.seq, read("--seq", sizes.seq));
  RLK_ASSIGN_OR_RETURN(sizes.vocab, read("--vocab", sizes.vocab));
  for (const auto& [option, letter] :
       {std::pair{"--normalized-dim", 'H'}, {"--k-dim", 'K'}, {"--n-dim", 'N'}}) {
    if (!args.Has(option)) continue;
    RLK_ASSIGN_OR_RETURN(sizes.letters[letter], read(option, 1));
  }
  for (const std::string& text : args.GetAll("--size")) {
    const auto size = text.size() > 2 && text[1] == '=' ? ParseInteger<int64_t>(text.substr(2))
                                                        : std::optional<int64_t>();
    if (!size || *size < 1 || *size > kSizeMax) {
      return InvalidArgument(Reason::kUnknownOption, "--size", text, "LETTER=N, as in D=256",
                             "this is no size of a dimension");
    }
    sizes.letters[text[0]] = *size;
    options.given.emplace_back("--size", text);
  }
  return absl::OkStatus();
}

absl::Status ReadValues(const Args& args, CaseOptions& options) {
  const std::string mode = args.Get("--input-mode", "random");
  if (mode != "random" && mode != "constant") {
    return InvalidArgument(Reason::kUnknownOption, "--input-mode", mode, "random, constant",
                           "the value is not allowed");
  }
  options.constant = mode == "constant";
  for (const char* option : {"--constant-value", "--token-value"}) {
    if (options.constant || !args.Has(option)) continue;
    return InvalidArgument(Reason::kUnknownOption, option, args.Get(option),
                           "--input-mode constant beside it", "random inputs have no such value");
  }
  const auto constant = ParseNumber(args.Get("--constant-value", "0.25"));
  if (!constant) {
    return InvalidArgument(Reason::kUnknownOption, "--constant-value", args.Get("--constant-value"),
                           "a number", "the value is not allowed");
  }
  options.constant_value = *constant;
  RLK_ASSIGN_OR_RETURN(options.token_value,
                       args.GetInteger("--token-value", 0, INT64_MIN, INT64_MAX));
  return absl::OkStatus();
}

}  // namespace

std::vector<OptionSpec> CaseOptionSpecs() {
  std::vector<OptionSpec> specs = {{"--dtype"},      {"--size", true, true}, {"--seed"},
                                   {"--input-mode"}, {"--constant-value"},   {"--arch-key"}};
  for (const Meaning& meaning : kMeanings) specs.push_back({meaning.option});
  return specs;
}

absl::StatusOr<CaseOptions> ReadCaseOptions(const Args& args) {
  CaseOptions options;
  RLK_RETURN_IF_ERROR(ReadSizes(args, options));
  const std::string dtype = args.Get("--dtype", "fp32");
  // RL-Kernel's names beside ours.
  options.dtype = dtype == "fp32"   ? DType::kF32
                  : dtype == "fp16" ? DType::kF16
                                    : DTypeFromText(dtype);
  if (!IsFloat(options.dtype)) {
    return InvalidArgument(Reason::kUnknownOption, "--dtype", dtype, "fp32, bf16, fp16",
                           "the dtype is not allowed");
  }
  RLK_ASSIGN_OR_RETURN(const int64_t seed, args.GetInteger("--seed", 123, 0, INT64_MAX));
  options.seed = static_cast<uint64_t>(seed);
  RLK_RETURN_IF_ERROR(ReadValues(args, options));
  if (const std::string key = args.Get("--arch-key", "none"); key != "none") {
    return InvalidArgument(Reason::kUnknownOption, "--arch-key", key, "none",
                           "the tolerance contract has the same rows for every architecture");
  }
  for (const Meaning& meaning : kMeanings) {
    if (args.Has(meaning.option)) {
      options.given.emplace_back(meaning.option, args.Get(meaning.option));
    }
  }
  for (const char* option : kAttributeOptions) {
    if (!args.Has(option)) continue;
    options.attributes.push_back(absl::StrCat(option + 2, "=", args.Get(option)));
  }
  return options;
}

absl::Status CheckCaseOptions(const CaseOptions& options,
                              const std::vector<MethodSignature>& forwards) {
  for (const auto& [option, value] : options.given) {
    std::string lacks;
    if (option == "--size") {
      const char letter = value[0];
      const bool has = std::any_of(
          forwards.begin(), forwards.end(),
          [letter](const MethodSignature& forward) { return HasLetter(forward, letter); });
      if (!has) lacks = absl::StrCat("dimension ", std::string(1, letter));
    }
    for (const Meaning& meaning : kMeanings) {
      if (option == meaning.option && !AnyOf(forwards, meaning)) lacks = meaning.what;
    }
    if (lacks.empty()) continue;
    return InvalidArgument(Reason::kUnknownOption, option, value, WhatApplies(forwards),
                           absl::StrCat(forwards.front().operator_name, " has no ", lacks));
  }
  return absl::OkStatus();
}

}  // namespace rlk::cli
