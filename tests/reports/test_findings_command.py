"""The reports of ``audit`` from the command line; their number does not affect the exit code."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final
from xml.etree import ElementTree as ET

import pytest

from policytool.reports.findings import FINDING_REPORTERS
from tests.conftest import FIXED_SCALE_H5, run, run_process
from tests.helpers.cases import for_each
from tests.helpers.marks import THOROUGH

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.usefixtures("in_the_root")

NAMES: Final = tuple(reporter.name for reporter in FINDING_REPORTERS)


@THOROUGH
@for_each("name", NAMES)
@for_each(
    ("arguments", "code"),
    [
        ((FIXED_SCALE_H5,), 1),
        ((FIXED_SCALE_H5, "--fail-on", "never"), 0),
        ((FIXED_SCALE_H5, "gone.h5"), 3),
    ],
)
def test_no_format_changes_the_exit_code(
    name: str, arguments: tuple[str | Path, ...], code: int
) -> None:
    """Findings, findings that are let pass, and a file that cannot be read."""
    ended = run("audit", *arguments, "--format", name)
    assert ended.code == code
    assert ended.out.endswith("\n")
    assert ("gone.h5" in ended.err) == (code == 3)


@THOROUGH
def test_several_reports_are_written_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each file has the bytes that stdout has in a pipe, without colours."""
    monkeypatch.setenv("FORCE_COLOR", "1")
    files = {name: tmp_path / f"out.{name}" for name in NAMES}
    ended = run(
        "audit",
        FIXED_SCALE_H5,
        "gone.h5",
        *(word for name, file in files.items() for word in ("--format", f"{name}={file}")),
    )
    monkeypatch.delenv("FORCE_COLOR")
    assert ended.code == 3
    assert "\x1b[" in ended.out
    for name, file in files.items():
        assert (
            file.read_bytes().decode()
            == run("audit", FIXED_SCALE_H5, "gone.h5", "--format", name).out
        )
    assert len(json.loads(files["sarif"].read_text(encoding="utf-8"))["runs"]) == 1
    assert ET.fromstring(files["junit"].read_bytes()).get("errors") == "1"  # noqa: S314  # our own


@THOROUGH
@pytest.mark.parametrize("name", ["junit", "json", "sarif"])
def test_a_narrow_encoding_spoils_no_document(name: str) -> None:
    """If stdout only supports ASCII, machine-readable formats escape other characters."""
    ended = run_process(
        "audit", FIXED_SCALE_H5, "--format", name, environment={"PYTHONIOENCODING": "ascii"}
    )
    assert ended.out.isascii()
    assert (
        json.loads(ended.out) if name != "junit" else ET.fromstring(ended.out) is not None  # noqa: S314  # our own
    )


def test_commands_of_a_report_fix_the_findings(tmp_path: Path) -> None:
    """The arguments of a fix lead to a file in which the rule has no finding."""
    model = tmp_path / "it's $(my) model.h5"
    model.write_bytes(FIXED_SCALE_H5.read_bytes())
    (result,) = run("audit", model, "--format", "json").json["models"]
    remedies = [
        finding["fix"]["arguments"] for finding in result["findings"] if finding["rule"] == "PT101"
    ]
    assert remedies == [[]]
    assert run("migrate", model, "-o", tmp_path / "fixed.h5", *remedies[0]).code == 0
    (fixed,) = run("audit", tmp_path / "fixed.h5", "--format", "json").json["models"]
    assert not [finding for finding in fixed["findings"] if finding["rule"] == "PT101"]


def test_skipped_files_are_counted(tmp_path: Path) -> None:
    """The totals include files of a directory that are not models."""
    (tmp_path / "model.h5").write_bytes(FIXED_SCALE_H5.read_bytes())
    (tmp_path / "data.h5").write_bytes(b"no model")
    summary = run("audit", tmp_path, "--format", "json").json["summary"]
    assert (summary["models"], summary["skipped"], summary["failures"]) == (1, 1, 0)
