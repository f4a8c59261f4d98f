// rlk bench load: many clients, a mix of operators and transports, a fixed number of calls.
#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>
#include <vector>

#include "client/cli/command.h"
#include "client/cli/load_run.h"
#include "client/cli/numbers.h"
#include "client/cli/render.h"
#include "kernels/core/status.h"

namespace rlk::cli {
namespace {

constexpr char kSchema[] = "rlk.bench.load/v1";
constexpr char kDefaultMix[] = "small=4,softcap=2,rms_norm=2,resident=1";
constexpr double kMicrosecond = 1e-3;  // of nanoseconds

struct LoadOptions {
  LoadPlan plan;
  // Above 1, two runs alternate.
  int64_t blocks = 1;
  // Parts of a block between which they alternate.
  int64_t turns = 1;
  // Of the first run and of the second one.
  std::string servers[2];
};

struct Run {
  const char* name;
  std::string server;
  std::vector<LoadBlock> blocks = {};
};

absl::Status NotAllowed(const Args& args, const char* option, const char* allowed) {
  return InvalidArgument(Reason::kUnknownOption, option, args.Get(option), allowed,
                         "the value is not allowed");
}

// The rate and how calls arrive at it, of a plan whose calls are known.
absl::Status ParseArrivals(const Args& args, LoadPlan& plan) {
  constexpr double kDaySeconds = 86400;
  if (args.Has("--rate")) {
    const auto rate = ParseNumber(args.Get("--rate"));
    if (!rate || !(*rate > 0 && *rate <= 1e7) ||
        static_cast<double>(plan.calls) > *rate * kDaySeconds) {
      return NotAllowed(args, "--rate",
                        "calls a second, in (0, 1e7], and all calls of a block within a day");
    }
    plan.rate = *rate;
  }
  const std::string arrivals = args.Get("--arrivals", "uniform");
  if ((arrivals != "uniform" && arrivals != "poisson") ||
      (args.Has("--arrivals") && plan.rate == 0)) {
    return NotAllowed(args, "--arrivals", "uniform, poisson; with --rate");
  }
  plan.poisson = arrivals == "poisson";
  return absl::OkStatus();
}

// Short turns, so that a change of the machine's speed meets both runs alike; but each client has
// many calls in each, because at the end of a turn the others wait for the last one.
int64_t TurnsOf(const LoadPlan& plan, int64_t blocks) {
  constexpr int64_t kTurnsMax = 200, kCallsOfClient = 25;
  if (blocks == 1) return 1;
  return std::clamp<int64_t>(plan.calls / (plan.clients * kCallsOfClient), 1, kTurnsMax);
}

absl::StatusOr<LoadOptions> ParseLoad(const Args& args) {
  LoadOptions options;
  LoadPlan& plan = options.plan;
  RLK_ASSIGN_OR_RETURN(plan.calls, args.GetInteger("--calls", plan.calls, 1, 100'000'000));
  RLK_ASSIGN_OR_RETURN(
      plan.warm_up_calls,
      args.GetInteger("--warm-up", std::min<int64_t>(plan.calls, 1000), 0, 100'000'000));
  RLK_ASSIGN_OR_RETURN(plan.clients, args.GetInteger("--clients", plan.clients, 1, 256));
  RLK_ASSIGN_OR_RETURN(options.blocks, args.GetInteger("--blocks", 1, 1, 1000));
  RLK_ASSIGN_OR_RETURN(const int64_t seed, args.GetInteger("--seed", 1, 0, INT64_MAX));
  plan.seed = static_cast<uint64_t>(seed);
  RLK_RETURN_IF_ERROR(ParseArrivals(args, plan));
  RLK_ASSIGN_OR_RETURN(plan.mix, ParseMix(args.Get("--mix", kDefaultMix)));
  options.servers[0] = ServerAddress(args);
  options.servers[1] = args.Get("--against", options.servers[0]);
  if (args.Has("--against") && options.blocks == 1) {
    return NotAllowed(args, "--against", "an address; with --blocks of 2 or more");
  }
  RLK_ASSIGN_OR_RETURN(options.turns, args.GetInteger("--turns", TurnsOf(plan, options.blocks), 1,
                                                      std::min<int64_t>(plan.calls, 10'000)));
  if (args.Has("--turns") && options.blocks == 1) {
    return NotAllowed(args, "--turns", "a number of turns; with --blocks of 2 or more");
  }
  return options;
}

// The two runs alternate turn by turn, and so does which of them begins.
void RunBlock(const LoadOptions& options, const std::vector<LoadClients>& clients, int64_t block,
              std::vector<Run>& runs) {
  for (Run& run : runs) run.blocks.emplace_back();
  for (int64_t turn = 0; turn < options.turns; ++turn) {
    const CallRange range = TurnOf(options.plan.calls, turn, options.turns);
    for (size_t i = 0; i < runs.size(); ++i) {
      const size_t at = (block + turn) % 2 == 0 ? i : runs.size() - 1 - i;
      runs[at].blocks.back().Merge(RunLoad(options.plan, range, clients[at].calls()));
    }
  }
}

std::vector<Run> RunAll(const LoadOptions& options, const std::vector<LoadClients>& clients) {
  std::vector<Run> runs = {{"a", options.servers[0]}};
  if (clients.size() > 1) runs.push_back({"b", options.servers[1]});
  LoadPlan warm_up = options.plan;
  warm_up.rate = 0;
  for (const LoadClients& of_run : clients) {
    RunLoad(warm_up, {0, options.plan.warm_up_calls}, of_run.calls());
  }
  for (int64_t block = 0; block < options.blocks; ++block) RunBlock(options, clients, block, runs);
  return runs;
}

// As Short, but no exponent for what is large.
std::string NumberText(double value) {
  return value >= 1000 ? std::to_string(std::llround(value)) : Short(value);
}

double Us(int64_t ns) { return static_cast<double>(ns) * kMicrosecond; }

// Null where nothing was measured.
Json LatencyJson(const LatencyHistogram& latency) {
  if (latency.count() == 0) return nullptr;
  return {{"min", Us(latency.min())},
          {"mean", latency.mean() * kMicrosecond},
          {"p50", Us(latency.Percentile(0.5))},
          {"p90", Us(latency.Percentile(0.9))},
          {"p99", Us(latency.Percentile(0.99))},
          {"p999", Us(latency.Percentile(0.999))},
          {"max", Us(latency.max())}};
}

Json CountsJson(const LoadCounts& counts) {
  Json errors = Json::object();
  for (const auto& [code, count] : counts.errors) errors[code] = count;
  return {{"calls", counts.latency.count()},
          {"errors", std::move(errors)},
          {"latency_us", LatencyJson(counts.latency)}};
}

Json BlockJson(const LoadPlan& plan, const LoadBlock& block) {
  Json json = CountsJson(block.all);
  json["seconds"] = block.seconds;
  json["calls_per_second"] = block.CallsPerSecond();
  json["behind_us"] = plan.rate > 0 ? LatencyJson(block.behind) : Json(nullptr);
  Json kinds = Json::object();
  for (size_t i = 0; i < plan.mix.size(); ++i) {
    kinds[plan.mix[i].kind->name] = CountsJson(block.parts[i]);
  }
  json["kinds"] = std::move(kinds);
  return json;
}

// What two runs are compared by; a latency where there is one.
struct Measure {
  const char* name;
  bool latency;
  double (*of)(const LoadBlock&);
};

constexpr Measure kMeasures[] = {
    {"calls_per_second", false, [](const LoadBlock& block) { return block.CallsPerSecond(); }},
    {"p50_us", true, [](const LoadBlock& block) { return Us(block.all.latency.Percentile(0.5)); }},
    {"p99_us", true, [](const LoadBlock& block) { return Us(block.all.latency.Percentile(0.99)); }},
};

struct Summary {
  double median = 0;
  // (largest - smallest) / median.
  double spread = 0;
};

// Of the blocks that have the measure; absent where none has.
std::optional<Summary> Summarize(const Run& run, const Measure& measure) {
  std::vector<double> values;
  for (const LoadBlock& block : run.blocks) {
    if (measure.latency && block.all.latency.count() == 0) continue;
    values.push_back(measure.of(block));
  }
  if (values.empty()) return std::nullopt;
  std::sort(values.begin(), values.end());
  const size_t middle = values.size() / 2;
  const double median =
      values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
  return Summary{median, median > 0 ? (values.back() - values.front()) / median : 0};
}

// How far the second median is from the first one, as a part of the smaller; absent where one of
// them has nothing to compare.
std::optional<double> Difference(const std::vector<Run>& runs, const Measure& measure) {
  const std::optional<Summary> a = Summarize(runs[0], measure), b = Summarize(runs[1], measure);
  if (!a || !b || !(std::min(a->median, b->median) > 0)) return std::nullopt;
  return std::abs(a->median - b->median) / std::min(a->median, b->median);
}

Json PlanJson(const LoadOptions& options) {
  const LoadPlan& plan = options.plan;
  Json mix = Json::array();
  for (const MixPart& part : plan.mix) {
    mix.push_back(
        {{"kind", part.kind->name}, {"weight", part.weight}, {"meaning", part.kind->meaning}});
  }
  return {{"loop", plan.rate > 0 ? "open" : "closed"},
          {"rate", plan.rate > 0 ? Json(plan.rate) : Json(nullptr)},
          {"arrivals", plan.rate == 0 ? Json(nullptr) : Json(plan.poisson ? "poisson" : "uniform")},
          {"calls", plan.calls},
          {"warm_up_calls", plan.warm_up_calls},
          {"clients", plan.clients},
          {"blocks", options.blocks},
          {"turns", options.turns},
          {"seed", plan.seed},
          {"mix", std::move(mix)}};
}

std::string ReportJson(const LoadOptions& options, const std::vector<Run>& runs) {
  Json runs_json = Json::array();
  for (const Run& run : runs) {
    Json blocks = Json::array(), median = Json::object(), spread = Json::object();
    for (const LoadBlock& block : run.blocks) blocks.push_back(BlockJson(options.plan, block));
    for (const Measure& measure : kMeasures) {
      const std::optional<Summary> summary = Summarize(run, measure);
      median[measure.name] = summary ? Json(summary->median) : Json(nullptr);
      spread[measure.name] = summary ? Json(summary->spread) : Json(nullptr);
    }
    runs_json.push_back({{"name", run.name},
                         {"server", run.server},
                         {"median", std::move(median)},
                         {"spread", std::move(spread)},
                         {"blocks", std::move(blocks)}});
  }
  Json difference = nullptr;
  if (runs.size() == 2) {
    difference = Json::object();
    for (const Measure& measure : kMeasures) {
      const std::optional<double> part = Difference(runs, measure);
      difference[measure.name] = part ? Json(*part) : Json(nullptr);
    }
  }
  return Dump({{"schema", kSchema},
               {"plan", PlanJson(options)},
               {"runs", std::move(runs_json)},
               {"difference_of_medians", std::move(difference)}});
}

constexpr char kNothing[] = "-";

std::string Percent(double part) { return Short(100 * part) + " %"; }

void AddRow(const std::string& name, const LoadCounts& counts, Table& table) {
  std::vector<std::string> row = {name, std::to_string(counts.latency.count()),
                                  std::to_string(counts.failed())};
  for (const double fraction : {0.5, 0.9, 0.99, 0.999, 1.0}) {
    row.push_back(counts.latency.count() == 0
                      ? kNothing
                      : NumberText(Us(counts.latency.Percentile(fraction))));
  }
  table.Add(std::move(row));
}

std::string KindsText(const LoadPlan& plan, const std::vector<Run>& runs) {
  Table table({"kind", "calls", "errors", "p50 us", "p90 us", "p99 us", "p99.9 us", "max us"});
  LoadCounts all;
  LatencyHistogram behind;
  for (size_t i = 0; i < plan.mix.size(); ++i) {
    LoadCounts kind;
    for (const Run& run : runs) {
      for (const LoadBlock& block : run.blocks) kind.Merge(block.parts[i]);
    }
    AddRow(plan.mix[i].kind->name, kind, table);
    all.Merge(kind);
  }
  AddRow("all", all, table);
  for (const Run& run : runs) {
    for (const LoadBlock& block : run.blocks) behind.Merge(block.behind);
  }
  std::string text = table.Text();
  if (plan.rate > 0) {
    text += "\nsent behind the time that was due: p50 " + NumberText(Us(behind.Percentile(0.5))) +
            " us, p99 " + NumberText(Us(behind.Percentile(0.99))) + " us, max " +
            NumberText(Us(behind.max())) + " us\n";
  }
  return text;
}

std::string ReportText(const LoadOptions& options, const std::vector<Run>& runs) {
  const LoadPlan& plan = options.plan;
  std::string text = std::to_string(plan.clients) + " clients, " +
                     (plan.rate > 0 ? "open loop at " + NumberText(plan.rate) +
                                          " calls/s, latency from the time due"
                                    : std::string("closed loop")) +
                     "\n\n" + KindsText(plan, runs) + "\n";
  Table table({"run", "server", "measure", "median", "spread of blocks"});
  for (const Run& run : runs) {
    for (const Measure& measure : kMeasures) {
      const std::optional<Summary> summary = Summarize(run, measure);
      table.Add({run.name, run.server, measure.name,
                 summary ? NumberText(summary->median) : kNothing,
                 summary ? Percent(summary->spread) : kNothing});
    }
  }
  text += table.Text();
  if (runs.size() == 2) {
    text += "\nmedians differ by:";
    for (const Measure& measure : kMeasures) {
      const std::optional<double> part = Difference(runs, measure);
      text += std::string(" ") + measure.name + " " + (part ? Percent(*part) : kNothing);
    }
    text += "\n";
  }
  return text;
}

}  // namespace

Outcome RunBenchLoad(const Args& args) {
  const auto options = ParseLoad(args);
  if (!options.ok()) return UsageError(options.status());
  const auto client_options = ClientOptionsOf(args);
  if (!client_options.ok()) return UsageError(client_options.status());
  std::vector<LoadClients> clients;
  for (int64_t run = 0; run < std::min<int64_t>(options->blocks, 2); ++run) {
    auto connected = LoadClients::Connect(options->servers[run], *client_options, options->plan);
    if (!connected.ok()) return ConnectError(connected.status());
    clients.push_back(*std::move(connected));
    // What the server refuses of the tensors that stay there is no wrong word of the command line.
    const absl::Status prepared = clients.back().Prepare(options->plan);
    if (!prepared.ok()) return CallError(prepared);
  }
  const std::vector<Run> runs = RunAll(*options, clients);
  Outcome outcome;
  outcome.json = ReportJson(*options, runs);
  outcome.text = ReportText(*options, runs);
  int64_t failed = 0;
  std::string first_error;
  for (const Run& run : runs) {
    for (const LoadBlock& block : run.blocks) {
      failed += block.all.failed();
      if (first_error.empty()) first_error = block.first_error;
    }
  }
  if (failed > 0) {
    outcome.exit_code = kExitRefused;
    outcome.failures.push_back(std::to_string(failed) +
                               " calls failed; one of them: " + first_error);
  }
  return outcome;
}

}  // namespace rlk::cli
