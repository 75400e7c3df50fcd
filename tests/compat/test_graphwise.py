"""
Graphs that cannot be built anew are held against what TensorFlow's own mixed precision makes of
them.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

import pytest

from policytool.numerics.check_results import checks
from policytool.numerics.verdicts import answers as answering
from policytool.numerics.verdicts.safety import SafetyRule
from policytool.numerics.verdicts.tolerances import Tolerances
from policytool.releases import graph_ops
from policytool.support.text import codec
from tests.compat.asking import SECONDS, run_script
from tests.helpers.paths import FIXTURES

pytestmark = pytest.mark.compat

CHILD: Final = Path(__file__).with_name("rewrites.py")
TF1: Final = str(FIXTURES / "tf1.15" / "default_float32")
EXPORTED: Final = str(FIXTURES / "keras3.15" / "default_float32.export")
MIXED: Final = str(FIXTURES / "keras3.15" / "global_mixed_float16.export")
LOOPS: Final = str(FIXTURES / "keras3.15" / "loops.export")
UNTRACED: Final = str(FIXTURES / "tf2.12" / "default_float32")

POLICIES: Final = ("mixed_float16", "mixed_bfloat16")
RUNNING: Final = (
    "dense",
    "unsigned",
    "bare",
    "pooled",
    "stateful",
    "nothing",
    "unknown_class",
    TF1,
    EXPORTED,
    MIXED,
    LOOPS,
)

MEDDLING: Final = {
    "TF_AUTO_MIXED_PRECISION_GRAPH_REWRITE_ALLOWLIST_REMOVE": "MatMul",
    "TF_AUTO_MIXED_PRECISION_GRAPH_REWRITE_DENYLIST_ADD": "MatMul",
}
"""With these in force the rewrite would change hardly anything here."""

Answers = dict[str, dict[str, Any]]


@pytest.fixture(scope="module")
def answers(compat_python: Path, tmp_path_factory: pytest.TempPathFactory) -> Answers:
    """Return what one child measured of all cases."""
    scratch = tmp_path_factory.mktemp("rewrites")
    results = scratch / "results.json"
    cases = (TF1, EXPORTED, MIXED, LOOPS, UNTRACED)
    run_script(compat_python, CHILD, scratch, results, *cases, seconds=SECONDS, **MEDDLING)
    result: Answers = json.loads(results.read_text(encoding="utf-8"))
    return result


def signature(answers: Answers, case: str, policy: str) -> dict[str, Any]:
    """Return what was measured of the one signature of a case, the first of several."""
    answer = answers[case][policy]
    if answer.get("code") == "no-rewrite" and policy == "mixed_bfloat16":
        pytest.skip(answer["message"])
    assert "code" not in answer, answer
    result: dict[str, Any] = answer["signatures"][0]
    assert result["refused"] is None, result
    return result


def call(found: dict[str, Any], path: str) -> dict[str, Any]:
    """Return what was measured of a scope."""
    result: dict[str, Any] = next(item for item in found["calls"] if item["path"] == path)
    return result


def reductions(one: dict[str, Any]) -> dict[str, float]:
    """Return the reductions of a call's only output."""
    (output,) = one["outputs"]
    result: dict[str, float] = output["accumulated"]
    return result


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("case", RUNNING, ids=lambda case: Path(case).name)
def test_rewritten(answers: Answers, case: str, policy: str) -> None:
    """Nothing changed that TensorFlow's lists deny, and everything is measured that was found."""
    result = signature(answers, case, policy)
    rewrite = codec.read(checks.GraphRewrite, result["rewrite"])
    assert rewrite.ops == sum(rewrite.by_type.values())
    assert bool(rewrite.ops) == (rewrite.unchanged is None) == bool(rewrite.casts)
    assert "deny" not in {
        graph_ops.amp_list(op, policy.removeprefix("mixed_")) for op in rewrite.by_type
    }
    assert result["outputs"]
    assert all(
        output["accumulated"]["elements"] for item in result["calls"] for output in item["outputs"]
    )
    assert [item["path"] for item in result["calls"]] == list(
        dict.fromkeys(item["path"] for item in result["calls"])
    )


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize(
    ("case", "paths"),
    [
        ("dense", ["first", "second"]),
        ("unsigned", ["first", "second"]),
        ("bare", ["MatMul", "Relu", "MatMul_1"]),
        ("unknown_class", ["sequential/gone", "sequential/head"]),
        (TF1, ["model/dense", "model/dense_1", "model/activation"]),
        (EXPORTED, ["functional_1/dense_1", "functional_1/dense_1_2", "functional_1/activation_1"]),
    ],
    ids=[
        "module",
        "module without signatures",
        "module without scopes",
        "unknown class",
        "TF 1",
        "Keras 3 export",
    ],
)
def test_layers_of_a_graph_are_reported_by_scope(
    answers: Answers, case: str, paths: list[str], policy: str
) -> None:
    """Each layer has its compute dtype, and differs only by rounding."""
    result = signature(answers, case, policy)
    dtype = policy.removeprefix("mixed_")
    assert [item["path"] for item in result["calls"]] == paths
    for one in result["calls"]:
        assert (one["compute_reference"], one["compute_candidate"]) == ("float32", dtype)
        assert one["depth"] > 0 or one["class_name"] == "Relu"
        assert 0 < reductions(one)["largest_error"] < 0.1 * reductions(one)["largest_candidate"]


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize(
    "case", [case for case in RUNNING if case != "stateful"], ids=lambda case: Path(case).name
)
def test_signature_passes_if_only_rounding_differs(
    answers: Answers, case: str, policy: str
) -> None:
    """A signature is checked like any other run."""
    device = dict.fromkeys(("model", "compute_capability", "memory", "driver", "cuda", "cudnn")) | {
        "name": "cpu",
        "kind": "cpu",
    }
    actual = {**signature(answers, case, policy), "device": device}
    (run,) = answering.runs_from_json([actual], Tolerances(), SafetyRule())
    assert run.verdict.passed, run.verdict
    assert not run.missing


def test_emulated_float16_rounds_like_numpy(answers: Answers) -> None:
    """On a CPU, float16 equals rounding with NumPy before and after each product in float32."""
    result = signature(answers, "dense", "mixed_float16")
    assert result["rewrite"]["option"] == "auto_mixed_precision_cpu"
    (output,) = result["outputs"]
    assert output["accumulated"]["largest_error"] == pytest.approx(
        answers["oracle"]["emulated"], rel=1e-3
    )


def test_twins_run_once(answers: Answers) -> None:
    """Signatures run by themselves unless graph, inputs, variables and outputs are the same."""
    assert {
        item["signature"]: item["aliases"]
        for item in answers["twins"]["mixed_float16"]["signatures"]
    } == {
        "serving_default": ["a_twin"],
        **{name: [] for name in ("input", "op", "output", "variable")},
    }
    assert signature(answers, EXPORTED, "mixed_float16")["aliases"] == ["serve"]
    assert signature(answers, LOOPS, "mixed_float16")["aliases"] == ["serve"]


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("case", RUNNING, ids=lambda case: Path(case).name)
def test_kept_ops_compute_in_float32(answers: Answers, case: str, policy: str) -> None:
    result = signature(answers, case, policy)
    rewrite = codec.read(checks.GraphRewrite, result["rewrite"])
    assert rewrite.dtype == policy.removeprefix("mixed_")
    assert (
        sum(sum(kept_entry.ops.values()) for kept_entry in rewrite.kept) + rewrite.ops
        <= rewrite.total
    )
    whole = {kept_entry.scope for kept_entry in rewrite.kept if kept_entry.is_whole}
    assert all(
        item["compute_candidate"] == item["compute_reference"]
        for item in result["calls"]
        if item["path"] in whole
    )


def test_rewrite_converts_mean_only_for_bfloat16(answers: Answers) -> None:
    """
    In float16, TensorFlow does not convert a mean over many tens. In bfloat16, the result is that
    of the op in TensorFlow.
    """
    assert (graph_ops.amp_list("Mean", "float16"), graph_ops.amp_list("Mean", "bfloat16")) == (
        "deny",
        "infer",
    )
    wide = signature(answers, "pooled", "mixed_float16")
    assert "Mean" not in wide["rewrite"]["by_type"]
    assert wide["rewrite"]["kept"] == [{"scope": "pool", "ops": {"Mean": 1}, "is_whole": True}]
    assert call(wide, "conv")["compute_candidate"] == "float16"
    assert call(wide, "pool")["compute_candidate"] == "float32"
    assert reductions(call(wide, "pool"))["largest_error"] == 0
    narrow = signature(answers, "pooled", "mixed_bfloat16")
    assert narrow["rewrite"]["by_type"]["Mean"] == 1
    assert not narrow["rewrite"]["kept"]
    assert call(narrow, "pool")["compute_candidate"] == "bfloat16"
    assert (
        reductions(call(narrow, "pool"))["largest_candidate"]
        == answers["oracle"]["means"]["bfloat16"]
    )


@pytest.mark.parametrize("policy", POLICIES)
def test_stateful_ops_behave_equally_in_both_graphs(answers: Answers, policy: str) -> None:
    """
    Both graphs start with the same variables, share random numbers, and look up the same words.
    """
    result = signature(answers, "stateful", policy)
    assert reductions(call(result, "counted"))["squared_reference"] == pytest.approx(
        answers["oracle"]["counted"], rel=1e-5
    )
    assert (
        reductions(call(result, "noisy"))["largest_error"]
        < 0.02 * reductions(call(result, "noisy"))["largest_candidate"]
    )
    outputs = {output["name"]: output for output in result["outputs"]}
    assert [outputs[name]["accumulated"]["differing"] for name in ("class", "id", "line")] == [
        0,
        0,
        0,
    ]
    assert outputs["y"]["changes"]["samples"] == 2 * 3
    assert outputs["y"]["accumulated"]["elements"] == 2 * 3 * 8


@pytest.mark.parametrize("policy", POLICIES)
def test_graph_without_ops_to_rewrite_is_reported_as_unchanged(
    answers: Answers, policy: str
) -> None:
    """A graph that already has 16 bits is also unchanged."""
    result = signature(answers, "nothing", policy)
    assert result["rewrite"]["unchanged"] == (
        "the rewrite changes nothing: this graph has no matrix products, "
        "convolutions or RNN kernels in float32"
    )
    assert reductions(call(result, "scaled"))["largest_error"] == 0
    mixed = signature(answers, MIXED, policy)["rewrite"]
    assert mixed["narrow_before"] > 0
    assert mixed["unchanged"].startswith(
        f"the rewrite changes nothing: {mixed['narrow_before']} ops of this graph already "
        "compute in 16"
    )


def test_loops_are_rewritten(answers: Answers) -> None:
    """Loops of TF 1 cannot be emulated in float16, which is an error with a suggestion."""
    for policy in POLICIES:
        by_type = signature(answers, LOOPS, policy)["rewrite"]["by_type"]
        assert by_type["MatMul"] == 4, by_type  # two of them are the cell's
    old = answers["old_loop"]["mixed_float16"]["signatures"][0]["refused"]
    assert old["code"] == "rewrite-failed"
    assert "--to mixed_bfloat16" in old["message"]
    result = signature(answers, "old_loop", "mixed_bfloat16")
    assert [item["path"] for item in result["calls"]] == ["while", "head/cond"]


def test_unsupported_measurements_are_rejected_with_a_suggestion(answers: Answers) -> None:
    """The error suggests a device, a policy or a signature that works."""
    refused = answers["refused"]
    assert {name: answer["code"] for name, answer in refused.items()} == {
        "bfloat16 on a GPU": "no-rewrite",
        "another policy": "no-rewrite",
        "another signature": "no-signature",
    }
    assert "--device cpu" in refused["bfloat16 on a GPU"]["message"]
    assert (
        refused["another signature"]["message"]
        == "the file has no signature classify; available signatures: serve"
    )
    untraced = answers[UNTRACED]["mixed_float16"]
    assert untraced["code"] == "no-signature"
    assert "save_traces=False" in untraced["message"]


def test_user_variables_of_the_rewrite_are_ignored_and_reported(answers: Answers) -> None:
    """Such environment variables would change the rewrite."""
    assert answers["dense"]["mixed_float16"]["ignored"] == sorted(MEDDLING)
    assert signature(answers, "dense", "mixed_float16")["rewrite"]["by_type"]["MatMul"] == 2
