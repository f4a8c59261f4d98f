"""Checks of `rlk parity` and `rlk check-operator`; cli_test.py runs them."""

import os

NORM = ["rms_norm.forward", "x=random:9x48:f32:1", "weight=random:48:f32:2"]
# Small enough for a busy machine; the defaults are those of RL-Kernel. Each operator takes the
# options that mean something for it.
LEADING = ["--batch", "1", "--seq", "4"]
NORM_SIZES = [*LEADING, "--normalized-dim", "32"]
LINEAR_SIZES = [*LEADING, "--k-dim", "40"]
OPERATORS = {
    "final_logit_softcap": (("fp32", "fp16", "bf16"), [*LEADING, "--vocab", "33"]),
    "rms_norm": (("fp32", "bf16"), NORM_SIZES),
    "qwen3_next_rms_norm": (("bf16",), NORM_SIZES),
    "rms_norm_gated": (("fp16",), NORM_SIZES),
    "det_linear": (("fp32", "bf16"), [*LINEAR_SIZES, "--n-dim", "12"]),
    "timestep_sinusoid_h3": (("fp32",), LEADING),
    "timestep_mlp_fp32": (("fp32",), [*LINEAR_SIZES, "--size", "M=20", "--n-dim", "12"]),
    "adaln_projection_3mod": (("fp32", "bf16"), [*NORM_SIZES, "--size", "D=16"]),
}
OUTPUT_FIELDS = {"output_index", "shape", "candidate_dtype", "gold_dtype", "atol", "rtol",
                 "max_abs_error", "mean_abs_error", "max_rel_error", "passed", "judgment",
                 "comparison_lhs_role", "comparison_rhs_role", "message"}
PROVENANCE_FIELDS = {"backend_profile", "requested_backend", "actual_backend", "execution_dtype",
                     "accumulation_dtype", "output_dtype", "reference_dtype",
                     "candidate_tf32_enabled", "reference_tf32_enabled"}


def check_parity(check, rlk, directory):
    same = rlk.json("parity", "check", *NORM, "--left", "cpu", "--right", "cpu", "--check-grad")
    check("parity check passes", same["passed"] and same["first_difference"] == "", same)
    check("parity check has gradients",
          [each["output"] for each in same["outputs"]] == ["y", "grad_x", "grad_weight"], same)
    check("parity check says who", same["left"]["methods"][0]["report"]["backend"] == "cpu" and
          same["left"]["methods"][0]["report"]["claim"] == "L3", same)
    counts = same["outputs"][0]["comparison"]["counts"]
    check("parity check counts as rlk compare does",
          counts["compared"] == 9 * 48 and counts["mismatched"] == 0, same)
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
    for name, (dtypes, sizes) in OPERATORS.items():
        for dtype in dtypes:
            suite = rlk.json("check-operator", name, "--dtype", dtype, "--check-grad", *sizes)
            check(f"check-operator {name} {dtype}", suite.get("passed") is True, suite)
        # By default, too, where sums are longer; the reference of det_linear takes too long there.
        if name == "det_linear":
            continue
        suite = rlk.json("check-operator", name, "--dtype", dtypes[0], "--check-grad")
        check(f"check-operator {name} by default", suite.get("passed") is True, suite)
    suite = rlk.json("check-operator", "rms_norm", "--candidate", "cpu", "--candidate", "golden",
                     "--check-grad", *NORM_SIZES, code=1)
    check("check-operator needs a candidate beside the reference",
          suite["error"]["field"] == "judgment", suite)
    suite = rlk.json("check-operator", "rms_norm", "eps=1e-5", "--candidate", "cpu",
                     "--check-grad", "--seed", "7", "--input-mode", "constant", *NORM_SIZES)
    candidate = suite["candidates"][0]
    provenance = candidate["backend_provenance"]
    check("check-operator has RL-Kernel's fields",
          suite["total_candidates"] == suite["passed_candidates"] == 1 and
          suite["pass_rate"] == 1 and candidate["total_outputs"] == 3 and
          PROVENANCE_FIELDS <= set(provenance), suite)
    check("check-operator says what ran",
          provenance["actual_backend"] == "cpu" and provenance["backend_profile"] == "cpu_f32" and
          provenance["device"]["kind"] == "cpu" and provenance["output_dtype"] == "F32" and
          len(provenance["tolerance_contract_sha256"]) == 64, provenance)
    cases = candidate["cases"]
    check("check-operator has a case for each method",
          [case["case_name"] for case in cases] == ["rms_norm.forward", "rms_norm.backward"],
          cases)
    check("check-operator's outputs have RL-Kernel's fields",
          all(OUTPUT_FIELDS <= set(output) for case in cases for output in case["outputs"]), cases)
    check("check-operator judges gradients by their own row",
          [case["outputs"][0]["judgment"] for case in cases] ==
          ["forward_accuracy", "gradient_accuracy"] and
          cases[1]["outputs"][0]["tolerance_row"] == "gradient_accuracy/reduction/float32", cases)
    check("check-operator as text", "1 of 1 candidates passed" in
          rlk("check-operator", "final_logit_softcap", *LEADING, "--vocab", "33").stdout)


def check_operator_options(check, rlk):
    """RL-Kernel's other options: what they do, and that none is passed over."""
    named = rlk.json("check-operator", "--op", "rms_norm", "weight_offset=1", *NORM_SIZES)
    check("check-operator takes --op", named["candidates"][0]["cases"][0]["case_name"] ==
          "rms_norm.forward", named)
    errors = {}
    for eps in ("1e-6", "4"):
        suite = rlk.json("check-operator", "rms_norm", "--eps", eps, *NORM_SIZES)
        errors[eps] = suite["candidates"][0]["cases"][0]["outputs"][0]["mean_abs_error"]
    check("check-operator hands --eps on", errors["1e-6"] != errors["4"], errors)
    for device in ("auto", "cpu", "cpu:0", "cpu-0"):
        suite = rlk.json("check-operator", "rms_norm", "--device", device, "--arch-key", "none",
                         *NORM_SIZES)
        check(f"check-operator on device {device}", suite.get("passed") is True, suite)
    error = rlk.json("check-operator", "rms_norm", "--device", "npu", *NORM_SIZES, code=1)["error"]
    check("check-operator names the devices", error["field"] == "--device" and
          error["reason"] == "DEVICE_NOT_FOUND" and "cpu:0" in error["allowed"], error)


USAGE = [
    (("parity",), "policy, digests, check, invariance"),
    (("parity", "sideways"), "check, invariance"),
    (("parity", "check"), "OPERATOR.METHOD"),
    (("parity", "check", *NORM, "--judgment", "taste"), "accuracy, invariance, parity"),
    (("parity", "check", *NORM, "--grad-mode", "twos"), "ones, random"),
    (("parity", "check", *NORM, "--right-tensor", "y"), "NAME=VALUE"),
    (("parity", "invariance", *NORM, "--axes", "slice,sideways"), "neighbours"),
    # Nothing that is given is passed over.
    (("parity", "check", *NORM, "--left", "cpu", "--left-tensor", "y=1"), "beside --left-tensor"),
    (("parity", "check", *NORM, "--right-server", "x:1", "--right-tensor", "y=1"),
     "beside --right-tensor"),
    (("parity", "check", *NORM, "--axes", "slice"), "--judgment"),
    (("parity", "invariance", *NORM, "--left", "cpu"), "--backend"),
    (("check-operator",), "OPERATOR"),
    (("check-operator", "x=1"), "OPERATOR"),
    (("check-operator", "--op", "nobody"), "rms_norm"),
    (("check-operator", "rms_norm", "--op", "rms_norm"), "named twice"),
    (("check-operator", "rms_norm", "--vocab", "33"),
     "rms_norm has no vocabulary"),
    (("check-operator", "rms_norm", "--k-dim", "8"),
     "--batch, --seq, --normalized-dim, --eps; --size LETTER=N of H; NAME=VALUE of"),
    (("check-operator", "final_logit_softcap", "--normalized-dim", "8"), "--batch, --seq, --vocab"),
    (("check-operator", "final_logit_softcap", "--eps", "1e-5"), "has no attribute eps"),
    (("check-operator", "timestep_sinusoid_h3", "--theta", "1e4"), "max_period"),
    (("check-operator", "rms_norm", "--n-heads", "8"), "has no heads"),
    (("check-operator", "rms_norm", "--head-dim", "8"), "has no heads"),
    (("check-operator", "det_linear", "--size", "H=8"), "has no dimension H"),
    (("check-operator", "rms_norm", "--eps", "1e-5", "eps=1e-5"), "given twice"),
    (("check-operator", "rms_norm", "--constant-value", "1"), "--input-mode constant"),
    (("check-operator", "rms_norm", "--token-value", "1"), "--input-mode constant"),
    (("check-operator", "rms_norm", "--input-mode", "constant", "--token-value", "1"),
     "has no integers"),
    (("check-operator", "rms_norm", "--arch-key", "sm90"), "the same rows"),
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
    check_operator_options(check, rlk)
    for words, expected in USAGE:
        error = rlk.json(*words, code=2).get("error", {})
        check(f"usage error of {' '.join(words)[:60]}", expected in error.get("message", ""), error)
