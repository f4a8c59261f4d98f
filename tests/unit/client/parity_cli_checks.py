"""Checks of `rlk parity` and `rlk check-operator`; cli_test.py runs them."""

import os

NORM = ["rms_norm.forward", "x=random:9x48:f32:1", "weight=random:48:f32:2"]
# Small enough for a busy machine; the defaults are those of RL-Kernel.
SIZES = ["--batch", "1", "--seq", "4", "--vocab", "33", "--normalized-dim", "32", "--k-dim", "40",
         "--n-dim", "12", "--size", "D=16", "--size", "M=20"]
OPERATORS = {
    "final_logit_softcap": ("fp32", "fp16", "bf16"),
    "rms_norm": ("fp32", "bf16"),
    "qwen3_next_rms_norm": ("bf16",),
    "rms_norm_gated": ("fp16",),
    "det_linear": ("fp32", "bf16"),
    "timestep_sinusoid_h3": ("fp32",),
    "timestep_mlp_fp32": ("fp32",),
    "adaln_projection_3mod": ("fp32", "bf16"),
}
OUTPUT_FIELDS = {"output_index", "shape", "candidate_dtype", "gold_dtype", "atol", "rtol",
                 "max_abs_error", "mean_abs_error", "max_rel_error", "passed", "judgment",
                 "comparison_lhs_role", "comparison_rhs_role", "message"}


def check_parity(check, rlk, directory):
    same = rlk.json("parity", "check", *NORM, "--left", "cpu", "--right", "cpu", "--check-grad")
    check("parity check passes", same["passed"] and same["first_difference"] == "", same)
    check("parity check has gradients",
          [each["output"] for each in same["outputs"]] == ["y", "grad_x", "grad_weight"], same)
    check("parity check says who", same["left"]["methods"][0]["report"]["backend"] == "cpu", same)
    accurate = rlk.json("parity", "check", *NORM, "--right", "golden", "--judgment", "accuracy",
                        "--grad-mode", "ones")
    check("parity check by accuracy", accurate["passed"] and
          not accurate["outputs"][0]["comparison"]["rule"]["bitwise"], accurate)
    # The folds of the two contracts have other orders.
    rows = ["rms_norm.forward", "x=random:300x48:f32:1", "weight=random:48:f32:2", "--check-grad"]
    other = rlk.json("parity", "check", *rows, "--left", "cpu:rms_norm/leftfold-v1", "--right",
                     "cpu:rms_norm/chunk128-v1", code=1)
    check("parity check names the first difference",
          other["first_difference"] == "rms_norm.backward grad_weight", other)
    first = other["outputs"][2]["comparison"]["first_mismatch"]
    check("parity check has both patterns", first["left_bits"] != first["right_bits"], first)
    text = rlk("parity", "check", *rows, "--left", "cpu:rms_norm/leftfold-v1", "--right",
               "cpu:rms_norm/chunk128-v1")
    check("parity check as text", "FAILED at rms_norm.backward grad_weight" in text.stdout,
          text.stdout)
    out = os.path.join(directory, "norm.safetensors")
    rlk.json("call", *NORM, "--out", out)
    given = rlk.json("parity", "check", *NORM, "--right-tensor", f"y={out}#y")
    check("parity check takes tensors", given["passed"] and given["right"]["where"] == "provided",
          given)


def check_invariance(check, rlk):
    result = rlk.json("parity", "invariance", *NORM, "--repeats", "5", "--check-grad")
    check("parity invariance passes", result["passed"] and len(result["axes"]) == 14, result)
    few = rlk.json("parity", "invariance", *NORM, "--axes", "slice,pad", "--backend", "cpu",
                   "--contract", "rms_norm/chunk128-v1")
    check("parity invariance takes axes", [axis["axis"] for axis in few["axes"]] ==
          ["slice", "pad"], few)
    text = rlk("parity", "invariance", *NORM, "--axes", "permute").stdout
    check("parity invariance as text", "permute" in text and "passed" in text, text)


def check_operators(check, rlk):
    for name, dtypes in OPERATORS.items():
        for dtype in dtypes:
            suite = rlk.json("check-operator", name, "--dtype", dtype, "--check-grad", *SIZES)
            check(f"check-operator {name} {dtype}", suite.get("passed") is True, suite)
    suite = rlk.json("check-operator", "rms_norm", "--candidate", "cpu", "--candidate", "golden",
                     "--check-grad", *SIZES, code=1)
    check("check-operator needs a candidate beside the reference",
          suite["error"]["field"] == "judgment", suite)
    suite = rlk.json("check-operator", "rms_norm", "eps=1e-5", "--candidate", "cpu",
                     "--check-grad", "--seed", "7", "--input-mode", "constant", *SIZES)
    candidate = suite["candidates"][0]
    check("check-operator has RL-Kernel's fields",
          suite["total_candidates"] == suite["passed_candidates"] == 1 and
          suite["pass_rate"] == 1 and candidate["total_outputs"] == 3 and
          candidate["backend_provenance"]["actual_backend"] == "cpu", suite)
    cases = candidate["cases"]
    check("check-operator has a case for each method",
          [case["case_name"] for case in cases] == ["rms_norm.forward", "rms_norm.backward"],
          cases)
    check("check-operator's outputs have RL-Kernel's fields",
          all(OUTPUT_FIELDS <= set(output) for case in cases for output in case["outputs"]), cases)
    check("check-operator judges gradients by their own row",
          cases[1]["outputs"][0]["judgment"].startswith("gradient_accuracy/"), cases[1])
    check("check-operator as text", "1 of 1 candidates passed" in
          rlk("check-operator", "final_logit_softcap", *SIZES).stdout)


USAGE = [
    (("parity",), "policy, digests, check, invariance"),
    (("parity", "sideways"), "check, invariance"),
    (("parity", "check"), "OPERATOR.METHOD"),
    (("parity", "check", *NORM, "--judgment", "taste"), "accuracy, invariance, parity"),
    (("parity", "check", *NORM, "--grad-mode", "twos"), "ones, random"),
    (("parity", "check", *NORM, "--right-tensor", "y"), "NAME=VALUE"),
    (("parity", "invariance", *NORM, "--axes", "slice,sideways"), "neighbours"),
    (("check-operator",), "OPERATOR"),
    (("check-operator", "nobody"), "rms_norm"),
    (("check-operator", "rms_norm", "--dtype", "fp8"), "fp32, bf16, fp16"),
    (("check-operator", "timestep_mlp_fp32", "--dtype", "bf16"), "F32"),
    (("check-operator", "rms_norm", "--size", "K"), "LETTER=N"),
    (("check-operator", "rms_norm", "softcap=3"), "eps"),
]


def run(check, rlk, directory):
    check_parity(check, rlk, directory)
    check_invariance(check, rlk)
    check_operators(check, rlk)
    for words, expected in USAGE:
        error = rlk.json(*words, code=2).get("error", {})
        check(f"usage error of {' '.join(words)[:60]}", expected in error.get("message", ""), error)
