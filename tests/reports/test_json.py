"""The report for programs, and the schema that is shipped with it."""

from __future__ import annotations

import copy
import json
from typing import TYPE_CHECKING, Any, Final

import pytest

from policytool.commands import inspect as inspection
from policytool.formats import format_detection
from policytool.formats.discovery import inputs
from policytool.reports import View
from policytool.reports.inspection.fields import REPORT
from policytool.reports.reporter import json_reporter
from policytool.support.errors import ModelFileError
from tests.conftest import run
from tests.contracts.report_contract import validator
from tests.contracts.reporter_contract import MODELS, inspected
from tests.helpers import small_models
from tests.helpers.marks import THOROUGH
from tests.helpers.paths import FIXTURES
from tests.helpers.places import places, value_at
from tests.helpers.sampling import sampled

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from policytool.commands.inspect import SelectedInspection
    from policytool.support.text import jsontext


def report_of(selected: SelectedInspection) -> Any:
    """Return the report as JSON values."""
    return json.loads(json_reporter(REPORT).render(selected, View()))


def _files(*kinds: str) -> Iterator[str]:
    """Yield the fixtures of these kinds, by their path below the fixtures."""
    for truth in sorted(FIXTURES.glob("*/truth.json")):
        for case in json.loads(truth.read_text(encoding="utf-8"))["cases"].values():
            yield from (
                f"{truth.parent.name}/{file}"
                for kind, file in case["files"].items()
                if kind in kinds or not kinds
            )


RELEASES: Final = sorted(truth.parent.name for truth in FIXTURES.glob("*/truth.json"))


@THOROUGH
@pytest.mark.parametrize("release", RELEASES)
def test_fixtures_give_reports_of_the_schema(release: str) -> None:
    """Reports of fixtures are valid strict JSON, and their pointers refer to values of the file."""
    names = sampled(
        f"reports of the schema for {release}",
        (
            name
            for name in _files()
            if name.startswith(f"{release}/") and not name.endswith("graph_model/model.json")
        ),
        share=10,
    )
    assert names
    for name in names:
        result = next(iter(inputs([str(FIXTURES / name)])))
        try:
            document = format_detection.document(result.path, result.display_path)
            model = inspection.inspect(str(FIXTURES / name))
        except ModelFileError as error:
            pytest.fail(f"{name} {error.message}")
        selected = inspection.select(inspection.collect([model]), inspection.Selection())
        report = report_of(selected)
        validator("inspect").validate(report)
        json.dumps(report, allow_nan=False)
        for layer in report["models"][0]["layers"]:
            if layer["address"]:
                _follow(
                    document.parts[layer["address"]["part"]],
                    layer["address"]["pointer"],
                    stands=layer["source"] == "declared",
                )


def _follow(value: jsontext.Json, pointer: str, *, stands: bool) -> None:
    """Follow a JSON Pointer; only the last step can be missing, and only if nothing is declared."""
    steps = [step.replace("~1", "/").replace("~0", "~") for step in pointer.split("/")[1:]]
    for position, step in enumerate(steps):
        if (
            isinstance(value, dict)
            and position == len(steps) - 1
            and step not in value
            and not stands
        ):
            return
        if stands and isinstance(value, dict) and step == "dtype" and step not in value:
            assert "input_dtype" in value, pointer
            return
        assert isinstance(value, dict | list), pointer
        value = value[int(step)] if isinstance(value, list) else value[step]


def test_report_of_failures_matches_the_schema(tmp_path: Path) -> None:
    """A report with only failures is valid."""
    (tmp_path / "empty.h5").write_bytes(b"")
    ended = run("inspect", "--format", "json", tmp_path / "empty.h5", tmp_path / "gone.keras")
    validator("inspect").validate(ended.json)
    assert [set(failure) for failure in ended.json["failures"]] == [{"path", "code", "message"}] * 2


@pytest.mark.parametrize("scale", ["128.0", "NaN", "Infinity"])
def test_odd_numbers_are_of_the_schema(scale: str, tmp_path: Path) -> None:
    """Loss scales that JSON has no number for are valid strings."""
    text = json.dumps(
        small_models.sequential(small_models.dense(dtype=small_models.LOSS_SCALED))
    ).replace("128.0", scale)
    report = run("inspect", "--format", "json", small_models.h5_model(tmp_path / "a.h5", text)).json
    validator("inspect").validate(report)
    assert report["models"][0]["layers"][1]["loss_scale"]["value"] == (
        128.0 if scale == "128.0" else scale
    )


def test_fixed_and_dynamic_and_default_loss_scales() -> None:
    fixed = report_of(inspected("tf2.3/exp_mf16_fixed128.h5"))["models"][0]
    layer = next(layer for layer in fixed["layers"] if layer["path"] == "mlp/dense_a")
    assert layer["loss_scale"] == {"kind": "fixed", "value": 128.0}
    assert fixed["optimizer"] == {
        "class_name": "Adam",
        "loss_scale": {"kind": "fixed", "value": 128.0},
    }
    dynamic = report_of(inspected("tf2.15/lso_dynamic.h5"))["models"][0]
    assert dynamic["optimizer"]["loss_scale"] == {
        "kind": "dynamic",
        "initial": 32768.0,
        "growth_steps": 2000,
        "multiplier": 2.0,
    }
    default = report_of(inspected("tf2.2/global_mixed_float16.h5"))["models"][0]
    scales = [
        layer["loss_scale"] for layer in default["layers"] if layer["policy"] == "mixed_float16"
    ]
    assert scales
    assert all(
        scale
        == {
            "kind": "dynamic",
            "initial": 32768.0,
            "growth_steps": 2000,
            "multiplier": 2.0,
            "default": True,
        }
        for scale in scales
    )


_OPEN: Final = {("policies",), ("inputs",), ("outputs",)}
"""Objects whose keys are names from the file."""


@THOROUGH
def test_schema_is_strict() -> None:
    """A missing key and an undocumented key are both errors, at every place."""
    report = report_of(inspected(*MODELS))
    validator("inspect").validate(report)
    optional = {"default", "amax_history_length"}
    for steps, found in places(report):
        if not isinstance(found, dict) or steps[-1:] in _OPEN:
            continue
        place = "".join(f"/{step}" for step in steps)
        for key in list(found):
            changed = copy.deepcopy(report)
            value_at(changed, steps).pop(key)
            assert key in optional or not validator("inspect").is_valid(changed), (
                f"{place}/{key} is not required"
            )
        if "/layers/1" in place or "/layers" not in place:
            changed = copy.deepcopy(report)
            value_at(changed, steps)["surprise"] = 1
            assert not validator("inspect").is_valid(changed), f"{place} takes any key"
        if place.count("/") > 3 and "/layers/0" not in place and "/layers/1" not in place:
            break


@pytest.mark.parametrize(
    ("place", "wrong"),
    [
        ("/version", 2),
        ("/tool/name", "other"),
        ("/models/0/format", "onnx"),
        ("/models/0/layers/0/source", "guessed"),
        ("/models/0/layers/0/deprecated", None),
        ("/models/0/layers/0/compute_dtype", "Float 16"),
        ("/models/0/layers/2/loss_scale", {"kind": "fixed", "value": "big"}),
        ("/models/0/layers/2/loss_scale", {"kind": "fixed", "value": 1.0, "default": False}),
        ("/models/0/layers/2/loss_scale", {"kind": "auto"}),
        ("/models/0/layers/2/address/pointer", "config/dtype"),
        ("/models/0/summary/layers", -1),
        ("/models/0/observations", [{"code": "Not A Code", "message": "m", "where": None}]),
    ],
)
def test_schema_rejects_wrong_values(place: str, wrong: object) -> None:
    report = report_of(inspected(MODELS[0]))
    validator("inspect").validate(report)
    *above, key = (int(step) if step.isdigit() else step for step in place.split("/")[1:])
    value_at(report, above)[key] = wrong
    assert not validator("inspect").is_valid(report)
