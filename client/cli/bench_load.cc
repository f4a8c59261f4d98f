// rlk bench load: many clients, a mix of operators and transports, a fixed number of calls.
#include <algorithm>
#include <cmath>
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
  if (args.Has("--rate")) {
    const auto rate = ParseNumber(args.Get("--rate"));
    if (!rate || !(*rate > 0 && *rate <= 1e7)) {
      return NotAllowed(args, "--rate", "calls a second, in (0, 1e7]");
    }
    plan.rate = *rate;
  }
  const std::string arrivals = args.Get("--arrivals", "uniform");
  if ((arrivals != "uniform" && arrivals != "poisson") ||
      (args.Has("--arrivals") && plan.rate == 0)) {
    return NotAllowed(args, "--arrivals", "uniform, poisson; with --rate");
  }
  plan.poisson = arrivals == "poisson";
  RLK_ASSIGN_OR_RETURN(plan.mix, ParseMix(args.Get("--mix", kDefaultMix)));
  options.servers[0] = ServerAddress(args);
  options.servers[1] = args.Get("--against", options.servers[0]);
  if (args.Has("--against") && options.blocks == 1) {
    return NotAllowed(args, "--against", "an address; with --blocks of 2 or more");
  }
  return options;
}

// Blocks of the two runs alternate, and so does which of them begins, so that a change of the
// machine's speed meets both.
absl::StatusOr<std::vector<Run>> RunAll(const LoadOptions& options,
                                        const client::ClientOptions& client_options) {
  const LoadPlan& plan = options.plan;
  std::vector<Run> runs = {{"a", options.servers[0]}};
  if (options.blocks > 1) runs.push_back({"b", options.servers[1]});
  std::vector<LoadClients> clients;
  for (const Run& run : runs) {
    RLK_ASSIGN_OR_RETURN(LoadClients connected,
                         LoadClients::Connect(run.server, client_options, plan));
    clients.push_back(std::move(connected));
  }
  LoadPlan warm_up = plan;
  warm_up.rate = 0;
  for (const LoadClients& of_run : clients) RunLoad(warm_up, plan.warm_up_calls, of_run.calls());
  for (int64_t block = 0; block < options.blocks; ++block) {
    for (size_t turn = 0; turn < runs.size(); ++turn) {
      const size_t at = block % 2 == 0 ? turn : runs.size() - 1 - turn;
      runs[at].blocks.push_back(RunLoad(plan, plan.calls, clients[at].calls()));
    }
  }
  return runs;
}

// As Short, but no exponent for what is large.
std::string NumberText(double value) {
  return value >= 1000 ? std::to_string(std::llround(value)) : Short(value);
}

double Us(int64_t ns) { return static_cast<double>(ns) * kMicrosecond; }

Json LatencyJson(const LatencyHistogram& latency) {
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

// What two runs are compared by.
struct Measure {
  const char* name;
  double (*of)(const LoadBlock&);
};

constexpr Measure kMeasures[] = {
    {"calls_per_second", [](const LoadBlock& block) { return block.CallsPerSecond(); }},
    {"p50_us", [](const LoadBlock& block) { return Us(block.all.latency.Percentile(0.5)); }},
    {"p99_us", [](const LoadBlock& block) { return Us(block.all.latency.Percentile(0.99)); }},
};

struct Summary {
  double median = 0;
  // (largest - smallest) / median.
  double spread = 0;
};

Summary Summarize(const Run& run, const Measure& measure) {
  std::vector<double> values;
  for (const LoadBlock& block : run.blocks) values.push_back(measure.of(block));
  std::sort(values.begin(), values.end());
  const size_t middle = values.size() / 2;
  const double median =
      values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
  return {median, median > 0 ? (values.back() - values.front()) / median : 0};
}

// How far the second median is from the first one, as a part of the smaller.
double Difference(const std::vector<Run>& runs, const Measure& measure) {
  const double a = Summarize(runs[0], measure).median;
  const double b = Summarize(runs[1], measure).median;
  return std::min(a, b) > 0 ? std::abs(a - b) / std::min(a, b) : 0;
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
          {"seed", plan.seed},
          {"mix", std::move(mix)}};
}

std::string ReportJson(const LoadOptions& options, const std::vector<Run>& runs) {
  Json runs_json = Json::array();
  for (const Run& run : runs) {
    Json blocks = Json::array(), median = Json::object(), spread = Json::object();
    for (const LoadBlock& block : run.blocks) blocks.push_back(BlockJson(options.plan, block));
    for (const Measure& measure : kMeasures) {
      const Summary summary = Summarize(run, measure);
      median[measure.name] = summary.median;
      spread[measure.name] = summary.spread;
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
    for (const Measure& measure : kMeasures) difference[measure.name] = Difference(runs, measure);
  }
  return Dump({{"schema", kSchema},
               {"plan", PlanJson(options)},
               {"runs", std::move(runs_json)},
               {"difference_of_medians", std::move(difference)}});
}

std::string Percent(double part) { return Short(100 * part) + " %"; }

void AddRow(const std::string& name, const LoadCounts& counts, Table& table) {
  int64_t errors = 0;
  for (const auto& [code, count] : counts.errors) errors += count;
  const LatencyHistogram& latency = counts.latency;
  table.Add({name, std::to_string(latency.count()), std::to_string(errors),
             NumberText(Us(latency.Percentile(0.5))), NumberText(Us(latency.Percentile(0.9))),
             NumberText(Us(latency.Percentile(0.99))), NumberText(Us(latency.Percentile(0.999))),
             NumberText(Us(latency.max()))});
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
      const Summary summary = Summarize(run, measure);
      table.Add({run.name, run.server, measure.name, NumberText(summary.median),
                 Percent(summary.spread)});
    }
  }
  text += table.Text();
  if (runs.size() == 2) {
    text += "\nmedians differ by:";
    for (const Measure& measure : kMeasures) {
      text += std::string(" ") + measure.name + " " + Percent(Difference(runs, measure));
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
  const auto runs = RunAll(*options, *client_options);
  if (!runs.ok()) return ConnectError(runs.status());
  Outcome outcome;
  outcome.json = ReportJson(*options, *runs);
  outcome.text = ReportText(*options, *runs);
  for (const Run& run : *runs) {
    for (const LoadBlock& block : run.blocks) {
      if (block.first_error.empty() || outcome.exit_code != kExitOk) continue;
      outcome.exit_code = kExitRefused;
      outcome.failures.push_back("calls failed; one of them: " + block.first_error);
    }
  }
  return outcome;
}

}  // namespace rlk::cli
