"""The fix that ``inspect`` prints is the command that ``audit --target`` prints."""

from __future__ import annotations

import re
import shutil
from typing import TYPE_CHECKING

import h5py
import pytest

import policytool
from policytool.commands import suggested_conversion
from policytool.commands.suggested_conversion import InspectedModel
from policytool.formats import discovery
from tests.conftest import run
from tests.helpers.marks import THOROUGH
from tests.helpers.paths import FIXTURES
from tests.helpers.sampling import sampled

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from policytool.formats.discovery import Input


def models_with_fixes() -> Iterator[tuple[Input, InspectedModel]]:
    """
    Yield models in a sample of the fixtures that the newest Keras fails to load, or that it loads
    with other predictions.
    """
    every = discovery.inputs([str(FIXTURES)])
    for found in sampled("suggested conversions", every, share=40):
        read = suggested_conversion.attempt(found)
        if isinstance(read, InspectedModel) and (
            any(
                verdict.loader == "keras3.15"
                and (verdict.reason is not None or verdict.changed_results)
                for verdict in read.model.loaders
            )
        ):
            yield found, read


@THOROUGH
def test_each_fixture_has_the_first_fix_of_its_audit() -> None:
    """Some of the fixtures have one."""
    different = []
    fixes = 0
    for found, read in models_with_fixes():
        command, *_ = policytool.audit(found.local_path, target="keras3").commands
        fix = read.extras.fix
        fixes += fix is not None
        planned = None if fix is None else (fix.arguments, fix.effect)
        if planned != (None if command.arguments is None else (command.arguments, command.effect)):
            different.append(found.display_path)
    assert not different
    assert fixes


@pytest.mark.parametrize(
    "name",
    [
        "tf2.3/global_mixed_float16.h5",
        "tf2.4/wrappers_mixed.json",
        "tf2.15/rnn.h5",
        "tf2.15/per_layer",
        "keras2.2.4/rnn.h5",
    ],
)
def test_both_print_the_same_line(name: str) -> None:
    """
    ``inspect`` prints the first line of audit, with the same path and the same effect on
    predictions.
    """
    lines = [
        re.findall(r"fix(?: for Keras 3)?(?: \(([^)]*)\))?:\s+(policytool migrate [^\n]*)", text)
        for text in (
            run("inspect", FIXTURES / name).out,
            run("audit", FIXTURES / name, "--target", "keras3").out,
        )
    ]
    [[(effect, command)], [(same_effect, same_command), *_]] = lines
    assert command == same_command
    assert (effect or "predictions unchanged") == same_effect.partition(";")[0]


@pytest.mark.parametrize(
    "name", ["tf2.3/string_lookup", "tf2.15/subclassed", "keras3.15/default_float32.export"]
)
def test_a_model_without_a_command_has_no_fix(name: str) -> None:
    """A model without a command has no fix in ``inspect``, and audit has the reason."""
    assert "\n  fix" not in run("inspect", FIXTURES / name).out
    assert "no command fixes it" in run("audit", FIXTURES / name, "--target", "keras3").out


@pytest.mark.parametrize("name", ["tf2.15/lambda.h5", "keras2.3.1/lambda.h5"])
def test_a_lambda_that_only_scales_has_a_fix(name: str) -> None:
    """Whether the newest Keras loads the file depends on its Python version."""
    printed = run("inspect", FIXTURES / name).out
    assert "unknown in Keras 3" in printed
    assert "\n  fix: policytool migrate" in printed


def test_other_predictions_are_reported_for_the_releases_that_audit_reports(tmp_path: Path) -> None:
    """Keras 3 loads the model, but computes hard_sigmoid with another formula."""
    line = (
        "wrong predictions in Keras 3.0 to 3.15: another formula of hard_sigmoid, which "
        "returns 0.3333 for the input -1, not 0.3 (model/dense)"
    )
    for activation, expected in (("hard_sigmoid", True), ("sigmoid", False)):
        path = tmp_path / f"{activation}.h5"
        shutil.copyfile(FIXTURES / "tf2.15/default_float32.h5", path)
        with h5py.File(path, "r+") as file:
            config = file.attrs["model_config"].replace('"relu"', f'"{activation}"')
            file.attrs["model_config"] = config
        text = " ".join(run("inspect", path).out.split())
        assert "Keras 3.0 to 3.15" in text
        assert (f"{line} fix: policytool migrate" in text) is expected
        of_many = run("inspect", path, FIXTURES / "tf2.15" / "default_float32.h5").out
        assert (line in " ".join(of_many.split())) is expected
        findings = policytool.audit(path, target="keras3").findings
        assert ("PT504" in {finding.rule for finding in findings}) is expected


def test_a_reason_is_printed_once() -> None:
    """If the hint of a finding contains the reason, the last line refers to it."""
    printed = run("audit", FIXTURES / "tf2.3/string_lookup", "--target", "keras3").out
    assert "no command fixes it for Keras 3  the hint of PT501 contains the reason" in printed
    assert printed.count("StringLookup") == 1


def test_an_existing_output_is_named(tmp_path: Path) -> None:
    """The report names the result of an earlier run of the command."""
    model = tmp_path / "model.h5"
    shutil.copy(FIXTURES / "tf2.15" / "lambda.h5", model)
    run("migrate", model, "--target", "keras3", "--no-verify")
    assert "model.keras3.keras exists: it may be the result" in " ".join(
        run("inspect", model).out.split()
    )
