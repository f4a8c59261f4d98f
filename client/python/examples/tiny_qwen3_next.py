"""A tiny Qwen3-Next whose norms run on an rlk server: it trains, and rollout meets trainer.

    python client/python/examples/tiny_qwen3_next.py --start build/quickstart/server/rlk-server
    python client/python/examples/tiny_qwen3_next.py --server HOST:PORT --reference HOST:PORT

First the same model trains three times from the same random weights: with its norms on the first
server, on the second by its backend `cpu`, and by transformers' own code. The first two must have
the same losses and the same weights at the end, bit for bit. Then a rollout samples from the
trained model, the trainer computes the log-probabilities of what was sampled, and
ParityService.ComparePolicy says how far apart they are: with both sides on the server, exactly 0.

Exits with 0 where that is so, else with 1. Needs torch and transformers with Qwen3-Next (5.0 or
newer); the README beside this says what the output means.
"""

from __future__ import annotations

import argparse
import contextlib
import copy
import importlib.util
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from typing import Any, Dict, Iterator, List, NamedTuple, Optional, Tuple

import torch
import transformers

import rlk
import rlk.reporting
import rlk.torch

VOCABULARY = 256
PROMPT = 8
# Every feature of the real one, at its smallest: three layers of linear attention with gated norms,
# one of full attention with norms of queries and keys, experts.
CONFIG = {
    "vocab_size": VOCABULARY,
    "hidden_size": 128,
    "intermediate_size": 128,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
    "linear_key_head_dim": 32,
    "linear_value_head_dim": 32,
    "num_experts": 4,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 64,
    "shared_expert_intermediate_size": 64,
    "max_position_embeddings": 512,
    "attn_implementation": "eager",
}
METRICS = (
    ("difference.mismatched", "tokens whose log-probability differs"),
    ("difference.max_abs", "largest difference of a log-probability"),
    ("kl.k3", "KL (k3)"),
    ("ratios.token.max", "largest importance ratio"),
    ("ratios.effective_sample_size", "effective sample size"),
)


class Side(NamedTuple):
    """Who computes the norms: a server by a backend, or transformers itself."""

    name: str
    client: Optional[rlk.Client] = None
    backend: Optional[str] = None

    def replace(self, model: torch.nn.Module) -> Optional[rlk.torch.Replaced]:
        """Gives the norms of the model to this side."""
        if self.client is None:
            return None
        return rlk.torch.replace(model, self.client, backend=self.backend)

    def used(self) -> str:
        """The backend that its calls run on, and where."""
        x = torch.ones(1, 8)
        report = rlk.qwen3_next_rms_norm(self.client, x, x[0], backend=self.backend).report
        return f"{report.backend} on {report.device.name or report.device.kind}"


class Trained(NamedTuple):
    """What a training left."""

    model: torch.nn.Module
    losses: List[torch.Tensor]
    step_seconds: float  # median
    digest: str  # of all weights at the end


def build(options: argparse.Namespace) -> torch.nn.Module:
    """The model with random weights, those of norms too: untrained they are 0 or 1."""
    torch.manual_seed(options.seed)
    config = transformers.Qwen3NextConfig(**CONFIG)
    # Each token by itself: groups of tokens would change the shapes of torch's products.
    config._experts_implementation = "batched_mm"
    model = transformers.Qwen3NextForCausalLM(config)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "norm" in name:
                parameter.add_(torch.randn_like(parameter) * 0.1)
    return model.to(options.device, getattr(torch, options.dtype))


def batch(options: argparse.Namespace, step: int) -> torch.Tensor:
    """Token ids that can be learned: each is a function of the one before, one in eight is not."""
    generator = torch.Generator().manual_seed(options.seed * 1000 + step)
    shape = (options.batch, options.length)
    ids = torch.randint(0, VOCABULARY, shape, generator=generator)
    noise = torch.rand(shape, generator=generator) < 0.125
    for at in range(1, options.length):
        ids[:, at] = torch.where(noise[:, at], ids[:, at], (5 * ids[:, at - 1] + 3) % VOCABULARY)
    return ids.to(options.device)


def train(model: torch.nn.Module, side: Side, options: argparse.Namespace) -> Trained:
    """AdamW for some steps with the norms of the side."""
    side.replace(model)
    model.train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=options.learning_rate)
    losses, seconds = [], []
    for step in range(options.steps):
        ids = batch(options, step)
        start = time.perf_counter()
        optimizer.zero_grad()
        loss = model(ids, labels=ids, use_cache=False).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        losses.append(loss.detach().cpu())
        seconds.append(time.perf_counter() - start)
    rlk.torch.restore(model)
    flat = torch.cat([p.detach().reshape(-1).cpu() for p in model.parameters()])
    return Trained(model, losses, statistics.median(seconds), rlk.digest(flat))


def logprobs(logits: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
    """Of every token after the first, under the logits before it."""
    found = torch.log_softmax(logits[:, :-1].float(), dim=-1)
    return found.gather(-1, ids[:, 1:, None]).squeeze(-1)


def sample(logits: torch.Tensor, generator: torch.Generator) -> Tuple[torch.Tensor, torch.Tensor]:
    """A token of each row's distribution, and its log-probability."""
    found = torch.log_softmax(logits.float(), dim=-1)
    token = torch.multinomial(found.exp().cpu(), 1, generator=generator).to(logits.device)
    return token.squeeze(-1), found.gather(-1, token).squeeze(-1)


@torch.no_grad()
def rollout(
    model: torch.nn.Module, options: argparse.Namespace, cached: bool
) -> Tuple[torch.Tensor, torch.Tensor]:
    """Samples a continuation of each prompt; token ids, and log-probabilities as they were sampled.

    Without a cache every step computes the whole, in the shape that the trainer has: what differs
    from it then is the norms' doing alone. With a cache torch multiplies matrices of other shapes,
    and its sums come in other orders.
    """
    model.eval()
    generator = torch.Generator().manual_seed(options.seed)
    ids = batch(options, options.steps)
    ids[:, PROMPT:] = 0
    chosen = torch.zeros(ids.shape, device=ids.device)
    past: Any = None
    for at in range(PROMPT, options.length):
        if cached:
            given = ids[:, :at] if past is None else ids[:, at - 1 : at]
            out = model(given, past_key_values=past, use_cache=True)
            past, logits = out.past_key_values, out.logits[:, -1]
        else:
            logits = model(ids, use_cache=False).logits[:, at - 1]
        ids[:, at], chosen[:, at] = sample(logits, generator)
    return ids, chosen[:, 1:]


def compare(
    trained: torch.nn.Module,
    sides: Tuple[Side, Side],
    client: rlk.Client,
    options: argparse.Namespace,
    cached: bool = False,
) -> Tuple[rlk.Record, Dict[str, torch.Tensor]]:
    """Rollout by one side, the trainer's log-probabilities of its tokens by the other."""
    actor, trainer = copy.deepcopy(trained), copy.deepcopy(trained)
    sides[0].replace(actor)
    sides[1].replace(trainer)
    ids, chosen = rollout(actor, options, cached)
    computed = logprobs(trainer.train()(ids, use_cache=False).logits, ids).detach()
    mask = torch.zeros(chosen.shape, dtype=torch.bool)
    mask[:, PROMPT - 1 :] = True  # the prompt was not sampled
    tensors = {"rollout": chosen.cpu(), "trainer": computed.cpu(), "mask": mask}
    found = client.compare_policy(**tensors, execution_dtype=getattr(torch, options.dtype))
    return found, tensors


def value(record: Any, path: str) -> Any:
    """The field at a dotted path."""
    for name in path.split("."):
        record = getattr(record, name)
    return record


def show_training(runs: Dict[str, Trained], calls: int) -> bool:
    """Prints losses; whether the two servers have the same bits."""
    first, second, own = runs.values()
    print(f"\n{'step':>4}  " + "  ".join(f"{name:>24}" for name in runs))
    for step, losses in enumerate(zip(first.losses, second.losses, own.losses)):
        print(f"{step:>4}  " + "  ".join(f"{loss.item():>24.9f}" for loss in losses))
    # Digests, for which NaN is as good a value as any: == would say that it differs from itself.
    equal = rlk.digest(torch.stack(first.losses)) == rlk.digest(torch.stack(second.losses))
    weights = first.digest == second.digest
    print(f"losses of both servers: {'the same bits' if equal else 'DIFFERENT BITS'}")
    print(f"weights after the last step: {'the same bits' if weights else 'DIFFERENT BITS'}")
    for name, run in runs.items():
        print(f"  {name:<24} {run.digest}  {run.step_seconds * 1e3:.0f} ms a step")
    print(f"  {calls} norms: {calls} calls forward and {calls} backward in each step")
    return equal and weights


def show_policies(policies: Dict[str, rlk.Record]) -> None:
    """Prints the metrics of every comparison."""
    for name, found in policies.items():
        print(f"\nrollout | trainer: {name}  ({found.tokens} tokens)")
        for path, words in METRICS:
            print(f"  {words:<45} {value(found, path):.9g}")
        for metric in ("train/train_rollout_logprob_abs_diff", "rollout_corr/log_ppl_abs_diff"):
            print(f"  {metric:<45} {found.metrics[metric]:.9g}")


@contextlib.contextmanager
def started(program: str, *flags: str) -> Iterator[str]:
    """A server on a free port; its address."""
    with tempfile.TemporaryDirectory() as folder:
        command = [
            program,
            "--listen=127.0.0.1:0",
            f"--unix={os.path.join(folder, 'rlk.sock')}",
            "--metrics=127.0.0.1:0",
            *flags,
        ]
        with (
            open(os.path.join(folder, "log"), "wb") as log,
            subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log) as process,
        ):
            try:
                line = process.stdout.readline()  # printed when it serves
                if not line:
                    raise SystemExit(f"{program} did not start: {open(log.name).read()[-2000:]}")
                try:
                    listen = json.loads(line)["listen"]
                except (ValueError, KeyError, TypeError):
                    raise SystemExit(f"{program} is no rlk-server: it printed {line!r}") from None
                yield listen if isinstance(listen, str) else listen[0]
            finally:
                process.send_signal(signal.SIGTERM)


def run(first: Side, second: Side, options: argparse.Namespace) -> int:
    """The whole; the exit code."""
    own = Side("transformers")
    replaced = first.replace(build(options))
    print(replaced)
    for side in (first, second):
        print(f"{side.name}: {side.used()}")
    runs = {side.name: train(build(options), side, options) for side in (first, second, own)}
    passed = show_training(runs, len(replaced.replacements))
    trained = runs[first.name].model
    pairs = {
        f"{one.name} | {other.name}": ((one, other), cached)
        for one, other, cached in (
            (first, first, False),
            (first, second, False),
            (own, first, False),
        )
    }
    pairs[f"{first.name}, decoding with a cache | {first.name}"] = ((first, first), True)
    report = rlk.reporting.Report("A tiny Qwen3-Next", server=first.client.info())
    policies = {}
    for name, (sides, cached) in pairs.items():
        policies[name], tensors = compare(trained, sides, first.client, options, cached)
        report.add(policies[name], label=name, **tensors)
    show_policies(policies)
    for name in list(pairs)[:2]:
        if policies[name].difference.mismatched:
            print(f"FAILED: {name} differ")
            passed = False
    for path in options.report:
        report.write(path)
        print(f"report: {path}")
    print("\nok" if passed else "\nFAILED")
    return 0 if passed else 1


def count(text: str) -> int:
    """A number of things, of which there is one at least."""
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text} is less than 1")
    return number


def length(text: str) -> int:
    """Tokens of a sequence: a rollout samples those after the prompt."""
    number = int(text)
    if number <= PROMPT:
        raise argparse.ArgumentTypeError(f"{text} leaves no token after the prompt of {PROMPT}")
    return number


def program(path: str) -> str:
    """A file that can be run."""
    if not (os.path.isfile(path) and os.access(path, os.X_OK)):
        raise argparse.ArgumentTypeError(f"{path} is no program")
    return path


def device(name: str) -> str:
    """One that torch can use here."""
    try:
        torch.zeros(1, device=name).cpu()
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        raise argparse.ArgumentTypeError(f"{name}: {str(error).splitlines()[0]}") from None
    return name


def report(path: str) -> str:
    """A file that a report can be written to: known before hours of training, not after."""
    folder, name = os.path.split(path)
    if os.path.splitext(name)[1] not in (".html", ".md", ".json"):
        raise argparse.ArgumentTypeError(f"{path} does not end in .html, .md or .json")
    if name.endswith(".html") and importlib.util.find_spec("matplotlib") is None:
        raise argparse.ArgumentTypeError("pages need matplotlib: pip install 'rlk[report]'")
    if not os.access(folder or ".", os.W_OK):
        raise argparse.ArgumentTypeError(f"{folder or '.'} is no folder that may be written")
    return path


def arguments(words: Optional[List[str]]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--start", type=program, metavar="PROGRAM", help="rlk-server: starts both servers")
    parser.add_argument("--server", help="address of the first server, instead of --start")
    parser.add_argument("--reference", help="address of the second server, which has backend cpu")
    parser.add_argument("--backend", help="of the first server; by default it selects")
    parser.add_argument("--device", type=device, default="cpu", help="of torch: cpu or cuda")
    parser.add_argument("--dtype", default="float32", choices=("float32", "bfloat16"))
    parser.add_argument("--steps", type=count, default=8)
    parser.add_argument("--batch", type=count, default=8)
    parser.add_argument("--length", type=length, default=48, help=f"over {PROMPT}")
    parser.add_argument("--learning-rate", type=float, default=3e-3)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--report",
        action="append",
        type=report,
        default=[],
        metavar="FILE",
        help=".html, .md or .json of the comparisons; repeatable",
    )
    options = parser.parse_args(words)
    if bool(options.start) == bool(options.server and options.reference):
        parser.error("give --start, or --server and --reference")
    return options


def main(words: Optional[List[str]] = None) -> int:
    options = arguments(words)
    # What torch computes must not depend on the run either; where it cannot promise that, it warns.
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    torch.use_deterministic_algorithms(True, warn_only=True)
    transformers.logging.set_verbosity_error()
    with contextlib.ExitStack() as stack:
        addresses = (options.server, options.reference)
        if options.start:
            addresses = (
                stack.enter_context(started(options.start)),
                stack.enter_context(started(options.start, "--backends=cpu")),
            )
        clients = [stack.enter_context(rlk.connect(address)) for address in addresses]
        for client in clients:
            client.wait_ready(60)
        first = Side("server", clients[0], options.backend)
        second = Side("reference server (cpu)", clients[1], "cpu")
        print(
            f"torch {torch.__version__}, transformers {transformers.__version__}, "
            f"{options.dtype} on {options.device}"
        )
        return run(first, second, options)


if __name__ == "__main__":
    sys.exit(main())
