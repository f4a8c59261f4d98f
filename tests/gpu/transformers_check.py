"""How far the RMSNorm family on the GPU server is from transformers' modules on the same GPU.

    python3 transformers_check.py --bin DIR/bin --python DIR/python --out FILE

Counts the elements that differ, and by how many units in the last place, for each dtype. Skipped,
with the reason, where the host's Python has no torch or no transformers with Qwen3-Next.
--device says otherwise for a host without a GPU.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile

import server_check

# More may differ only where the contract says so: leftfold-v1 multiplies in another place.
SHARE_16, SHARE_ANY = 0.02, 0.9
ULPS_MAX = 64


def distances(actual, expected):
    """Of each element, in units in the last place."""
    import torch

    integer = {4: torch.int32, 2: torch.int16}[actual.element_size()]
    magnitude = 2 ** (8 * actual.element_size() - 1) - 1

    def ordered(tensor):
        bits = tensor.contiguous().view(integer).to(torch.int64)
        return torch.where(bits < 0, -(bits & magnitude), bits)

    return (ordered(actual) - ordered(expected)).abs()


def cases(client, device: str):
    """(name, what rlk gives, what transformers gives, the share that may differ)."""
    import rlk
    import torch
    from transformers.models.qwen3_next import modeling_qwen3_next as modeling

    def make(dtype, *shape, seed):
        generator = torch.Generator().manual_seed(seed)
        return torch.randn(*shape, generator=generator).to(dtype).to(device)

    for dtype in (torch.float32, torch.bfloat16, torch.float16):
        share = SHARE_ANY if dtype == torch.float32 else SHARE_16
        name = str(dtype).removeprefix("torch.")
        x, weight = make(dtype, 4096, 2048, seed=0), make(dtype, 2048, seed=1)
        norm = modeling.Qwen3NextRMSNorm(2048, eps=1e-6).to(device, dtype)
        with torch.no_grad():
            norm.weight.copy_(weight)
            expected = norm(x)
        actual = rlk.qwen3_next_rms_norm(client, x, weight).y
        yield f"qwen3_next_rms_norm {name}", actual, expected, share
        x, gate = make(dtype, 65536, 128, seed=2), make(dtype, 65536, 128, seed=3)
        weight = make(dtype, 128, seed=4)
        gated = modeling.Qwen3NextRMSNormGated(128, eps=1e-6).to(device, dtype)
        with torch.no_grad():
            gated.weight.copy_(weight)
            expected = gated(x, gate)
        for contract, allowed in (("hf-v1", share), ("leftfold-v1", SHARE_ANY)):
            actual = rlk.rms_norm_gated(client, x, weight, gate,
                                        contract=f"rms_norm_gated/{contract}").y
            yield f"rms_norm_gated/{contract} {name}", actual, expected, allowed


def compare(options: argparse.Namespace) -> tuple[dict, bool]:
    import rlk
    import torch

    found, passed = {}, True
    with tempfile.TemporaryDirectory() as folder:
        server = server_check.Server(os.path.join(options.bin, "rlk-server"), folder)
        try:
            with rlk.connect("unix:" + server.addresses["unix"]) as client:
                for name, actual, expected, share in cases(client, options.device):
                    actual = actual.to(expected.device)
                    distance = distances(actual, expected)
                    differing, most = int((distance != 0).sum()), int(distance.max())
                    close = torch.allclose(actual, expected, rtol=2e-2, atol=2e-2)
                    good = close and differing <= share * distance.numel()
                    # Near 0 a unit is tiny: all but a thousandth are judged by units.
                    rank = int(0.999 * distance.numel())
                    good = good and int(distance.flatten().kthvalue(rank).values) <= ULPS_MAX
                    passed = passed and good
                    found[name] = {"elements": distance.numel(), "differing": differing,
                                   "max_ulp": most, "passed": good}
                    print(f"{'ok ' if good else 'FAILED'} {name}: {differing} of "
                          f"{distance.numel()} differ from transformers', by {most} ulp at most",
                          flush=True)
        finally:
            code = server.stop()
    return found, passed and code == 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name in ("--bin", "--python", "--out"):
        parser.add_argument(name, required=True)
    parser.add_argument("--device", default="cuda", help="where torch computes")
    options = parser.parse_args()
    sys.path.insert(0, options.python)
    try:
        import rlk  # noqa: F401
        import torch  # noqa: F401
        from transformers.models.qwen3_next import modeling_qwen3_next  # noqa: F401
    except ImportError as error:
        print(f"skipped: the comparison needs what is not here: {error}")
        found, passed = {"skipped": str(error)}, True
    else:
        found, passed = compare(options)
    with open(options.out, "w", encoding="utf-8") as file:
        json.dump(found, file, indent=1)
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(main())
