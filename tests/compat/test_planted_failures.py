"""
``check`` on models with one planted weakness: it fails, names the planted place, and prints a
command with which the check passes; models without a weakness pass.

``tests/helpers/planted_failures.py`` writes the models. ``POLICYTOOL_PLANTED_SEEDS=4,5`` selects
other placements of the weaknesses.
"""

from __future__ import annotations

import json
import os
import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest
from msgspec.structs import replace

from policytool.commands import check as checks
from policytool.commands.check_options import CheckOptions
from policytool.formats import discovery
from policytool.migration.planning.options import Options
from policytool.reports.checks import Checks
from policytool.reports.checks.fields import REPORT
from policytool.reports.layout import View
from policytool.reports.reporter import json_reporter
from tests.compat.asking import run_script
from tests.conftest import run_process
from tests.helpers.paths import ROOT
from tests.helpers.planted_failures import HARMLESS, LIBRARIES, WEAK
from tests.helpers.sampling import LIBRARY_SHARE, sampled

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from policytool.numerics.tensorflow_run import TensorFlowTools

    Find = Callable[[str, str, int], "Planted"]
    Checked = Callable[..., "Answer"]

pytestmark = [pytest.mark.compat, pytest.mark.slow]

SEEDS: Final = tuple(map(int, os.environ.get("POLICYTOOL_PLANTED_SEEDS", "1").split(",")))
"""Read before the tests: their own environment has no variable of policytool's."""

SECONDS: Final = 600
PASSED, FAILED, UNDECIDED = 0, 1, 5
SAMPLE: Final = sampled(
    "planted failures",
    ((library, name) for library in LIBRARIES for name in (*WEAK, *HARMLESS)),
    share=LIBRARY_SHARE,
)
"""What tests of many models check in this run."""

FEW: Final = 5
"""Tests of fewer models check all of them."""

UPCAST: Final = (("keras", "group-normalization"),)
"""Weaknesses that a library does not have, because it computes the layer in float32."""

BY_NATURE: Final = ("nan-reference",)
"""Weaknesses that float32 has too."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Planted:
    """A line of ``cases.json``, and where it was written."""

    directory: Path
    case: Mapping[str, Any]

    @property
    def places(self) -> tuple[str, ...]:
        """The paths that an origin may name."""
        return self.case["place"], *self.case["also"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Answer:
    """How a ``check`` ended."""

    code: int
    check: Mapping[str, Any]
    stderr: str

    @property
    def run(self) -> Mapping[str, Any]:
        """The only run of the check."""
        (result,) = self.check["runs"]
        return dict(result)

    @property
    def advice(self) -> Mapping[str, Any] | None:
        """The layers to keep in float32."""
        result: Mapping[str, Any] | None = self.check["advice"]
        return result


@pytest.fixture(scope="module")
def find(compat_python: Path, tmp_path_factory: pytest.TempPathFactory) -> Find:
    """Return a function that finds a planted model; those of a library are written once."""

    @cache
    def written(library: str, seed: int) -> Mapping[str, Planted]:
        directory = tmp_path_factory.mktemp(f"{library}-{seed}").resolve()
        script = ROOT / "tests/helpers/planted_failures.py"
        command = [str(compat_python), str(script), str(directory), "--library", library]
        run_script(*command, "--seed", seed, seconds=SECONDS)
        listed = json.loads((directory / "cases.json").read_text(encoding="utf-8"))
        return {case["name"]: Planted(directory=directory, case=case) for case in listed}

    return lambda library, name, seed: written(library, seed)[name]


@pytest.fixture(scope="module")
def checked(tools: TensorFlowTools, find: Find) -> Checked:
    """Return a function that checks a planted model, once."""

    @cache
    def check(library: str, name: str, seed: int) -> Answer:
        planted = find(library, name, seed)
        case = planted.case
        (model,) = discovery.inputs([str(planted.directory / case["model"])])
        allowed = replace(
            tools,
            trust="--trust" in case["arguments"],
            custom_objects=tuple(case["arguments"][1:]),
            path=(str(planted.directory),),
        )
        check_options = CheckOptions(
            candidate=Options(to=case["to"]),
            inputs=planted.directory / case["inputs"],
            isolated=True,
        )
        result = checks.check(model, None, check_options, allowed)
        report = json_reporter(REPORT).render(Checks(check=result), View())
        return Answer(code=FAILED - result.holds, check=json.loads(report)["check"], stderr="")

    return check


def run(directory: Path, arguments: tuple[str, ...]) -> Answer:
    """Run the command line of this tree in a directory."""
    root = {"PYTHONPATH": str(ROOT)}
    ended = run_process(*arguments, cwd=directory, environment=root, timeout=SECONDS)
    assert ended.code in {PASSED, FAILED, UNDECIDED}, ended.err[-2000:]
    check = ended.json["check"] if ended.out.startswith("{") else {}
    return Answer(code=ended.code, check=check, stderr=ended.err)


def cases(*names: str, without: tuple[str, ...] = ()) -> pytest.MarkDecorator:
    """Return each case with each library and each seed."""
    listed = [
        (library, name, seed)
        for library in LIBRARIES
        for name in names
        for seed in SEEDS
        if name not in without
        and (library, name) not in UPCAST
        and (len(names) < FEW or (library, name) in SAMPLE)
    ]
    ids = [f"{library}-{name}-{seed}" for library, name, seed in listed]
    return pytest.mark.parametrize(("library", "name", "seed"), listed, ids=ids)


def path_of(place: str) -> str:
    """Return the path in the place of a call, which may have the number of the call."""
    return re.sub(r" \(call \d+\)$", "", place)


@cases(*WEAK)
def test_planted_weakness_fails_the_check(
    checked: Checked, library: str, name: str, seed: int
) -> None:
    """The outputs change by more than is safe."""
    result = checked(library, name, seed)
    assert result.code == FAILED
    assert result.check["answer"] == ("undecided" if name in BY_NATURE else "not-safe")


@cases(*WEAK)
def test_origin_is_the_planted_place(
    find: Find, checked: Checked, library: str, name: str, seed: int
) -> None:
    """The report names the layer, the op, or the custom layer whose code fails."""
    planted = find(library, name, seed)
    origin = checked(library, name, seed).run["origin"]
    assert origin is not None
    assert path_of(origin["path"]) in planted.places, origin
    if path_of(origin["path"]) == planted.case["place"]:
        assert origin["class_name"] == planted.case["class_name"]
        assert origin["code_of"] is planted.case["code_of"]
    assert path_of(origin["path"]) in origin["reason"]


@cases(*WEAK, without=BY_NATURE)
def test_layers_to_keep_are_found(checked: Checked, library: str, name: str, seed: int) -> None:
    """With these in float32 the check passed, and the command has no more patterns than layers."""
    result = checked(library, name, seed)
    assert result.advice is not None
    assert result.advice["verified"] is True
    assert result.advice["layers"]
    assert result.advice["trials"] >= 1
    if result.check["command"] is None:  # with all layers in float32, nothing changes
        assert result.advice["unfit"]
    elif result.advice["policy"] is None:
        patterns = [word for word in result.check["command"] if word.endswith("=float32")]
        assert 1 <= len(patterns) <= len(result.advice["layers"])


@cases("subclassed-block", "drifting-cumsum", "float-ids")
def test_printed_command_makes_the_check_pass(
    compat_python: Path, checked: Checked, find: Find, *, library: str, name: str, seed: int
) -> None:
    """The tool writes a model, and nothing that it measures speaks against that."""
    planted = find(library, name, seed)
    answer = checked(library, name, seed)
    if answer.check["command"] is None:  # with all layers in float32, there is nothing to write
        assert answer.advice is not None
        assert answer.advice["unfit"]
        return
    program, command, model, *options = answer.check["command"]
    assert (program, command) == ("policytool", "migrate")
    written = f"repaired-{Path(model).name}"
    run(planted.directory, (command, model, *options, "-o", written))
    inputs = ("--inputs", planted.case["inputs"], *planted.case["arguments"])
    usual = ("--python", str(compat_python), "--format", "json")
    repaired = run(planted.directory, ("check", written, *inputs, *usual))
    assert repaired.code in {PASSED, UNDECIDED}, repaired.stderr[-1000:]
    assert repaired.check["answer"] != "not-safe"


@cases(*BY_NATURE)
def test_no_command_is_printed_if_float32_fails_too(
    checked: Checked, library: str, name: str, seed: int
) -> None:
    """NaN in the reference is named, and no set of layers is advised."""
    result = checked(library, name, seed)
    assert result.check["command"] is None
    assert result.advice is None or not (result.advice["verified"] or result.advice["layers"])


@cases("shared-nested")
def test_second_call_of_a_shared_layer_is_named(
    find: Find, checked: Checked, library: str, name: str, seed: int
) -> None:
    """The first call of the same layer is not at fault, and the reason says which one is."""
    call = find(library, name, seed).case["call"]
    origin = checked(library, name, seed).run["origin"]
    assert f"(call {call})" in f"{origin['path']} {origin['reason']}"


@cases(*HARMLESS)
def test_model_without_a_weakness_passes(
    checked: Checked, library: str, name: str, seed: int
) -> None:
    """Clean models, masks of minus infinity and dead outputs pass, without an origin or advice."""
    result = checked(library, name, seed)
    assert result.code == PASSED, result.run["verdict"]["sentence"]
    assert result.check["answer"] != "not-safe"
    assert result.run["origin"] is None
    assert result.advice is None


@pytest.mark.parametrize("library", [library for library, _ in UPCAST])
@pytest.mark.parametrize("seed", SEEDS)
def test_layer_that_the_library_upcasts_passes(checked: Checked, library: str, seed: int) -> None:
    """Keras 3 computes GroupNormalization in float32 under every policy."""
    (name,) = (name for one, name in UPCAST if one == library)
    assert checked(library, name, seed).code == PASSED


@cases("dead-output")
def test_dead_output_is_not_comparable(
    find: Find, checked: Checked, library: str, name: str, seed: int
) -> None:
    """An output that is zero for all inputs shows nothing, and the other output does."""
    dead = find(library, name, seed).case["not_comparable"]
    outputs = checked(library, name, seed).run["outputs"]
    actual = {
        output["name"].rpartition("/")[2]: output["verdict"]["not_comparable"] for output in outputs
    }
    assert {name for name, why in actual.items() if why is not None} == set(dead)


@cases("attention-mask")
def test_attention_mask_makes_a_layer_verdict_not_finite(
    checked: Checked, library: str, name: str, seed: int
) -> None:
    """The scores of a harmless mask are minus infinity."""
    calls = checked(library, name, seed).run["calls"]
    assert "not-finite" in {call["verdict"]["outcome"] for call in calls if call["verdict"]}


@cases(*WEAK, without=BY_NATURE)
def test_planted_paths_are_among_the_paths_that_check_reports(
    find: Find, checked: Checked, library: str, name: str, seed: int
) -> None:
    calls = {call["path"] for call in checked(library, name, seed).run["calls"]}
    assert set(find(library, name, seed).places) <= calls
