"""Rules about incorrect values, compared with the results of releases, and the facts they use."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pytest

from policytool.commands import audit as auditing
from policytool.commands.inspect import Failure
from policytool.formats import casting, format_detection
from policytool.formats.discovery import Input
from policytool.formats.document import GraphOp, Trace
from policytool.formats.edits import Counts
from policytool.model import optimizer_config, reading
from policytool.releases import dtype_support
from policytool.releases.layer_classes import known_classes, layer_facts
from policytool.rules import BY_ID, AuditOptions, Device, RuleInput
from policytool.rules.base import Severity
from tests.contracts.findings_contract import rule_findings
from tests.helpers.marks import THOROUGH
from tests.helpers.paths import FIXTURES

if TYPE_CHECKING:
    from pathlib import Path

Config = dict[str, Any]
MIXED: Final = "tf2.15/global_mixed_float16.h5"


@THOROUGH
@pytest.mark.parametrize("release", ["tf2.3", "tf2.15", "tf_keras2.21", "keras3.15"])
def test_findings_on_16_bit_outputs_agree_with_live_models(release: str) -> None:
    """A file has a finding exactly if the model from which it was saved returned 16 bits."""
    cases = json.loads((FIXTURES / release / "truth.json").read_text(encoding="utf-8"))["cases"]
    for case in cases.values():
        gave = any(
            output["dtype"] in {"float16", "bfloat16"} for output in case.get("outputs") or ()
        )
        for file in case["files"].values() if case.get("outputs") else ():
            path = FIXTURES / release / file.rpartition("/")[2]
            if path.suffix in {".h5", ".keras", ".json"}:
                assert bool(rule_findings("PT301", path)) is gave, path


@pytest.mark.parametrize("library", ["tf_keras2.21", "keras3.15"])
def test_registry_agrees_with_measured_failures_on_the_cpu(library: str) -> None:
    """The cases without a device are those whose ops have no kernel."""
    failed = {
        (case, policy, facts["message"].rpartition(" ")[2])
        for case, policies in dtype_support.measurements()[library].items()
        for policy, facts in policies.items()
        if policy not in {"float32", "integers"}
        and "Could not find device" in facts.get("message", "")
        and facts.get("onednn") != "ok"
    }
    data = json.loads(
        (FIXTURES.parent / "policytool/releases/data/kernels.json").read_text(encoding="utf-8")
    )
    lacking = {
        (case, policy, op)
        for case, policies in data["layers"][library].items()
        for policy, devices in policies.items()
        for op in devices.get("cpu", ())
    }
    assert lacking == failed
    assert failed


@pytest.mark.parametrize(
    ("op", "device", "severity"),
    [
        ("MaxPool3D", Device.CPU, Severity.ERROR),
        ("MaxPool3D", Device.GPU, None),
        ("LRN", Device.GPU, Severity.WARNING),
        ("Zeta", Device.GPU, Severity.ERROR),
    ],
)
def test_graph_is_checked_by_its_ops(op: str, device: Device, severity: Severity | None) -> None:
    """The check of a signature does not need a config."""
    document = format_detection.document(
        FIXTURES / "keras3.15/global_mixed_float16.export", "exported"
    )
    ops = (
        (GraphOp(scope=("net",), op=op, dtypes=("float16",)), 2),
        (GraphOp(scope=("net",), op="MatMul", dtypes=("float16",)), 1),
    )
    traces = tuple(
        Trace(entry=name, signature=True, ops=ops, reads={})
        for name in ("serve", "serving_default")
    )
    case = RuleInput(
        model=reading.model_of(document),
        document=replace(document, traces=traces),
        loaded=None,
    )
    findings = list(BY_ID["PT310"].check(case, AuditOptions(device=device)))
    assert [one.severity for one in findings] == ([severity] if severity else [])
    assert all("2 times" in one.message for one in findings)


def test_ops_without_a_layer_are_checked_by_name() -> None:
    """The name of the op decides."""
    assert dtype_support.lacks("MaxPool3DGradGrad", "float16", "cpu")
    assert not dtype_support.lacks("MatMul", "float16", "cpu")
    assert not dtype_support.lacks("MatMul", "bfloat16", "gpu")
    assert dtype_support.lacks("LRN", "float16", "gpu")


@pytest.mark.parametrize("name", ["PT305", "PT306", "PT307", "PT310", "PT311"])
def test_rule_without_its_input_has_no_finding(name: str) -> None:
    """Missing values and a missing device are not a reason for a finding."""
    document = format_detection.document(FIXTURES / MIXED, MIXED)
    loaded = reading.load_model(document)
    case = RuleInput(model=loaded.model, document=document, loaded=loaded)
    assert not list(BY_ID[name].check(case, AuditOptions()))


@pytest.mark.parametrize(
    ("config", "innermost"),
    [
        (None, None),
        ("adam", ("Adam", {})),
        ({"class_name": "Adam", "config": {"epsilon": 1e-7}}, ("Adam", {"epsilon": 1e-7})),
        (
            {
                "class_name": "LossScaleOptimizer",
                "config": {"inner_optimizer": {"class_name": "SGD", "config": {}}},
            },
            ("SGD", {}),
        ),
        (
            {"class_name": "Custom>LossScaleOptimizerV3", "config": {"optimizer": "rmsprop"}},
            ("RMSprop", {}),
        ),
    ],
)
def test_innermost_returns_the_optimizer_in_its_wrappers(
    config: Any, innermost: tuple[str, Config] | None
) -> None:
    """The wrapper for loss scaling has no epsilon."""
    assert optimizer_config.innermost(config) == innermost


def test_constants_are_keys_of_keras_own_classes() -> None:
    """The table of constants names classes that are there."""
    cast = {name for name in known_classes() if layer_facts(name).cast_arguments}
    assert {"Rescaling", "Masking"} <= cast


@pytest.mark.parametrize(
    ("dtype", "narrow"),
    [("float32", "float16"), ("float64", "bfloat16"), ("bfloat16", "float16"), ("float32", None)],
)
def test_count_agrees_with_cast_and_adds_zero_and_infinite_values(
    dtype: str, narrow: str | None
) -> None:
    """The function ``count`` also counts zeros and values that are not finite."""
    array = np.array([0.0, 1.0, 1e-9, 1e-5, 7e4, np.nan, np.inf, -0.0]).astype(
        casting.DTYPES[dtype]
    )
    counts = casting.count(array, dtype, narrow)
    assert (counts.zero, counts.nonfinite, counts.values) == (2, 2, 8)
    if narrow:
        _, expected = casting.cast(array, dtype, narrow)
        assert (counts.overflow, counts.flushed, counts.subnormal) == (
            expected.overflow,
            expected.flushed,
            expected.subnormal,
        )


def test_variables_of_batch_normalization_compute_as_stored() -> None:
    """The variables of a Dense do not. A number means any variable."""
    for library in ("tf_keras2.21", "keras3.15"):
        assert dtype_support.computes_as_stored(library, "BatchNormalization", "gamma")
        assert dtype_support.computes_as_stored(library, "BatchNormalization", "0")
        assert not dtype_support.computes_as_stored(library, "Dense", "kernel")
        assert not dtype_support.computes_as_stored(library, "Dense", "0")


def test_damaged_file_is_a_failure_with_the_option_weights(tmp_path: Path) -> None:
    """Reading values does not hide the damage."""
    path = tmp_path / "cut.h5"
    path.write_bytes((FIXTURES / MIXED).read_bytes()[:3000])
    one = auditing.attempt(Input(path=path, exact=True), AuditOptions(weights=True))
    assert isinstance(one, Failure)


@pytest.mark.parametrize("suffix", ["h5", "keras"])
def test_nonfinite_variables_have_the_names_of_their_class(suffix: str) -> None:
    """A ``.keras`` archive only numbers them."""
    path = FIXTURES / f"keras3.15/default_float32.{suffix}"
    document = format_detection.document(path, str(path))
    loaded = reading.load_model(document)
    counts = {
        tensor.path: Counts(values=8, nonfinite=1)
        for index in range(len(loaded.sites))
        for _, tensor in loaded.placed.named_tensors(index)
    }
    case = RuleInput(model=loaded.model, document=document, loaded=loaded, counts=counts)
    found = {finding.detail for finding in BY_ID["PT307"].check(case, AuditOptions())}
    assert "kernel" in found
    assert not any(name.isdecimal() for name in found)
