"""The results of the Python functions: a line, HTML, JSON values and a DataFrame of each."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from importlib import resources
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final

import jsonschema
import pytest
from msgspec import structs

import policytool
from policytool.reports.checks import CHECK_REPORTERS
from policytool.reports.inspection import ROW_COLUMNS
from tests.conftest import MIXED_H5, MIXED_KERAS, MIXED_SAVEDMODEL, run
from tests.contracts.reporter_contract import rendered_by
from tests.helpers import example_checks, small_models
from tests.helpers.marks import THOROUGH
from tests.helpers.paths import FIXTURES, ROOT

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from policytool.results.model import Result

MODEL: Final = "tf2.3/exp_mf16_fixed128.h5"
OLD, NEW = FIXTURES / "tf2.15/wrappers.h5", FIXTURES / "keras3.15/wrappers.keras"
HOSTILE: Final = "a\n\x1b[31m\u202e'<b>&\u2028.h5"
"""A file name that tries to add lines, colors and markup."""


def passing_check() -> policytool.Check:
    """Return a check without running TensorFlow."""
    result = example_checks.CASES["passing"].check
    assert result is not None
    return policytool.Check(result)


RESULTS: Final[dict[str, Callable[[], Result]]] = {
    "Model": lambda: policytool.inspect(FIXTURES / MODEL),
    "Audit": lambda: policytool.audit(FIXTURES / MODEL),
    "Migration": lambda: policytool.migrate(FIXTURES / MODEL, preview=True),
    "Conversion": lambda: policytool.migrate(FIXTURES / MODEL, target="keras3", preview=True),
    "Comparison": lambda: policytool.diff(OLD, NEW),
    "Check": passing_check,
}

COMMANDS: Final = {
    "Model": ("inspect", FIXTURES / MODEL),
    "Audit": ("audit", FIXTURES / MODEL),
    "Migration": ("migrate", FIXTURES / MODEL, "--preview"),
    "Conversion": ("migrate", FIXTURES / MODEL, "--target", "keras3", "--preview"),
    "Comparison": ("diff", OLD, NEW),
}
"""The command of each result, where it runs without TensorFlow."""

LINES: Final = {
    "Model": (
        "<policytool.Model 'fixtures/tf2.3/exp_mf16_fixed128.h5': 4 layers: 2 float32, "
        "1 mixed_float16; loads in tf_keras 2.21; fails in Keras 3.15>"
    ),
    "Audit": (
        "<policytool.Audit 'fixtures/tf2.3/exp_mf16_fixed128.h5': 2 warnings, 1 note; checked for "
        "Keras 3.15>"
    ),
    "Migration": (
        "<policytool.Migration 'fixtures/tf2.3/exp_mf16_fixed128.migrated.h5': would be written; "
        "policies unchanged, stored in another format; loads in TF 2.5 to 2.15, tf_keras 2.21, "
        "Keras 3.3 to 3.15>"
    ),
    "Comparison": (
        "<policytool.Comparison 'fixtures/tf2.15/wrappers.h5' and 'fixtures/kera...wrappers.keras':"
        " 4 of 18 layers differ; 8 of 16 variables differ>"
    ),
}


@pytest.fixture
def hostile(tmp_path: Path) -> Path:
    """Return a model whose own name, and the names of its layers, are hostile."""
    path = tmp_path / HOSTILE
    layer = {"class_name": "Dense", "config": {"name": HOSTILE, "dtype": "float16", "units": 1}}
    small_models.h5_model(path, {"class_name": "Sequential", "config": {"layers": [layer]}})
    return path


def schema_of(name: str) -> jsonschema.Draft202012Validator:
    """Return the validator of the schema of a result's JSON report."""
    command = COMMANDS[name][0] if name in COMMANDS else "check"
    text = resources.files("policytool.reports.schemas").joinpath(f"{command}.schema.json")
    return jsonschema.Draft202012Validator(json.loads(text.read_text(encoding="utf-8")))


@pytest.mark.parametrize("name", LINES)
def test_a_result_is_one_line_with_the_answer_first(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Paths are relative to the working directory, as in reports."""
    monkeypatch.chdir(FIXTURES.parent)
    assert repr(RESULTS[name]()) == LINES[name]


def test_repr_of_a_diff_reports_equal_models() -> None:
    """The answer comes after the names."""
    line = repr(policytool.diff(OLD, OLD))
    assert line.endswith("equal; 18 layers; all 16 variables are byte-identical>")


def test_hostile_names_add_no_lines_or_control_characters(hostile: Path) -> None:
    """Markup in names is escaped in HTML."""
    audit = policytool.audit(hostile)
    results = (
        policytool.inspect(hostile),
        audit,
        policytool.migrate(hostile, to="float32", preview=True),
        policytool.migrate(hostile, target="keras3", preview=True),
        policytool.diff(hostile, MIXED_H5),
        policytool.diff(hostile, hostile),
    )
    assert audit.findings
    lines = [repr(result) for result in (*results, *audit)]
    assert not [line for line in lines if not (line.isprintable() and line.isascii())]
    assert max(map(len, lines)) <= 200
    assert not [
        result for result in results if {"<b>", "\x1b", "\u202e"} & set(result._repr_html_())
    ]
    assert all("<b>&" not in result._repr_html_() for result in results)


@pytest.mark.parametrize("path", [MIXED_H5, MIXED_KERAS, MIXED_SAVEDMODEL, OLD, NEW], ids=str)
def test_lines_are_short(path: Path) -> None:
    """A line has at most 200 characters."""
    results = (policytool.inspect(path), policytool.migrate(path, to="float16", preview=True))
    assert all(len(repr(result)) <= 200 for result in results)


def test_checks_have_a_line_for_every_outcome() -> None:
    """Passed, failed, several runs, nothing run."""
    lines = {
        name: repr(policytool.Check(case.check))
        for name, case in example_checks.CASES.items()
        if case.check is not None
    }
    assert lines["passing"].startswith("<policytool.Check Safe in ")
    assert all(line.isprintable() and len(line) <= 200 for line in lines.values())


@pytest.mark.parametrize("name", RESULTS)
def test_notebooks_show_the_report(name: str) -> None:
    text = RESULTS[name]()._repr_html_()
    assert text.strip().startswith('<div class="policytool">')
    assert "<script" not in text
    if name in COMMANDS:
        shown = text.replace("<wbr>", "")
        assert COMMANDS[name][1].name in shown  # type: ignore[union-attr]  # the path


@pytest.mark.parametrize("name", COMMANDS)
def test_dictionaries_are_the_json_of_the_command(name: str) -> None:
    """The same keys and values, in the schema."""
    result = RESULTS[name]().to_dict()
    schema_of(name).validate(result)
    assert result == json.loads(run(*COMMANDS[name], "--format", "json").out)


@THOROUGH
def test_dictionary_of_a_check_equals_its_json_report() -> None:
    """Numbers that JSON lacks are strings."""
    for case in example_checks.CASES.values():
        if case.check is not None:
            result = policytool.Check(case.check).to_dict()
            schema_of("Check").validate(result)
            whole = structs.replace(case, failures=())
            assert result == json.loads(rendered_by(CHECK_REPORTERS, "json", whole))


def test_finding_equals_its_entry_in_the_json_report() -> None:
    """The attributes have the same values."""
    audit = policytool.audit(FIXTURES / MODEL)
    entries = audit.to_dict()["models"][0]["findings"]
    assert [finding.to_dict() for finding in audit] == entries
    for finding, entry in zip(audit, entries, strict=True):
        for name in ("rule", "name", "severity", "message", "path", "detail", "advice"):
            assert getattr(finding, name) == entry[name]
        assert finding.fingerprint == entry["fingerprint"]
        fix = entry["fix"] or {"safety": None, "arguments": None}
        assert finding.fix_safety == fix["safety"]
        result = finding.fix_arguments
        assert (None if result is None else list(result)) == fix["arguments"]
        address = entry["address"] or {"part": None, "pointer": None}
        assert [getattr(finding.address, key, None) for key in address] == [*address.values()]


@pytest.mark.parametrize("name", RESULTS)
def test_results_are_frozen(name: str) -> None:
    """No attribute can be set, and equal results are equal."""
    result = RESULTS[name]()
    public = [item for item in dir(result) if not item.startswith("_")]
    assert len(public) > 4
    for attribute in (*public, "_value", "other"):
        with pytest.raises((AttributeError, TypeError)):
            setattr(result, attribute, None)
    assert result == RESULTS[name]()


class FakeFrame:
    """Remembers what a DataFrame was made of."""

    def __init__(self, rows: Sequence[Sequence[object]], columns: Sequence[str]) -> None:
        assert all(len(row) == len(columns) for row in rows)
        self.columns = columns
        self.rows = [dict(zip(columns, row, strict=True)) for row in rows]


@pytest.fixture
def pandas(monkeypatch: pytest.MonkeyPatch) -> None:
    """Put a module in place of pandas, which is an optional package."""
    module = ModuleType("pandas")
    module.DataFrame = FakeFrame  # type: ignore[attr-defined]  # a module of the test
    monkeypatch.setitem(sys.modules, "pandas", module)


def frame(result: Result) -> FakeFrame:
    """Return the DataFrame of a result, whose columns are in the documentation."""
    outcome: Any = result.to_pandas(full=True)
    terminal: Any = result.to_pandas()
    assert len(terminal.columns) < len(outcome.columns)
    assert {*terminal.columns} <= {*outcome.columns}
    assert isinstance(outcome, FakeFrame)
    name = "json-keys.md" if isinstance(result, policytool.Model) else "python.md"
    page = ROOT / "docs" / "reference" / name
    text = page.read_text(encoding="utf-8")
    assert not [column for column in outcome.columns if f"`{column}`" not in text]
    return outcome


@pytest.mark.usefixtures("pandas")
def test_frames_have_a_row_for_each_layer() -> None:
    """The frame has the columns of the CSV report, and unchanged values."""
    model = policytool.inspect(FIXTURES / MODEL)
    result = frame(model)
    assert tuple(result.columns) == tuple(column.name for column in ROW_COLUMNS)
    assert [row["path"] for row in result.rows] == [layer.path for layer in model.layers]
    assert {row["deprecated"] for row in result.rows} == {True, False}


@pytest.mark.usefixtures("pandas")
def test_frames_have_a_row_for_each_finding() -> None:
    """Columns are there without findings too."""
    audit = policytool.audit(FIXTURES / MODEL)
    result = frame(audit)
    assert [row["rule"] for row in result.rows] == [finding.rule for finding in audit]
    assert {row["fix.safety"] for row in result.rows} == {"safe", None}
    assert {row["model.path"] for row in result.rows} == {audit.path}
    clean = frame(policytool.audit(FIXTURES / MODEL, select=["PT6"]))
    assert (clean.columns, clean.rows) == (result.columns, [])


@pytest.mark.usefixtures("pandas")
def test_frames_have_a_row_for_each_changed_layer() -> None:
    (layer, optimizer) = frame(policytool.migrate(FIXTURES / MODEL, preview=True)).rows
    assert (layer["path"], layer["after"], layer["edits"]) == ("mlp/dense_a", "mixed_float16", 1)
    assert layer["before"] == "Policy mixed_float16, loss scale fixed 128"
    assert optimizer["path"] == "optimizer"
    cast = frame(policytool.migrate(MIXED_H5, to="float16", include=["outputs"], preview=True))
    assert [row["casts"] for row in cast.rows if row["path"] == "mlp/dense_a"] == [2]
    assert len({row["path"] for row in cast.rows}) == len(cast.rows)
    converted = policytool.migrate(FIXTURES / MODEL, target="keras3", preview=True)
    (change,) = frame(converted).rows
    assert change["reason"] == "batch_input_shape becomes batch_shape"
    unchanged = policytool.migrate(MIXED_KERAS, preview=True)
    assert frame(unchanged).rows == []


@THOROUGH
@pytest.mark.usefixtures("pandas")
def test_frames_have_a_row_for_each_difference(tmp_path: Path) -> None:
    """
    The frame has rows for differences of layers, variables, the optimizer and signatures; equal
    models have none.
    """
    result = frame(policytool.diff(OLD, NEW))
    assert {(row["section"], row["aspect"]) for row in result.rows} >= {("layer", "variable")}
    output = policytool.migrate(
        MIXED_H5, to="float16", include=["outputs"], output=tmp_path / "b.h5"
    ).output
    assert output is not None
    rows = frame(policytool.diff(MIXED_H5, output)).rows
    policies = [row for row in rows if row["aspect"] == "policy"]
    assert {(row["a"], row["b"]) for row in policies} == {("mixed_float16", "float16")}
    rounded = [row for row in rows if row["aspect"] == "variable"]
    assert {(row["a"], row["b"], row["values.verdict"]) for row in rounded} == {
        ("float32", "float16", "rounded")
    }
    alone = frame(policytool.diff(MIXED_SAVEDMODEL, FIXTURES / "tf2.5/default_float32")).rows
    assert {row["section"] for row in alone} >= {"layer", "signature"}
    other = frame(policytool.diff(MIXED_H5, OLD)).rows
    assert {row["a"] for row in other if row["aspect"] == "presence"} == {True, False}
    assert frame(policytool.diff(OLD, OLD)).rows == []


@pytest.mark.usefixtures("pandas")
def test_frames_have_a_row_for_each_call() -> None:
    """Errors are numbers, also if JSON has strings for them."""
    for case in example_checks.CASES.values():
        if case.check is not None:
            result = frame(policytool.Check(case.check))
            assert len(result.rows) == sum(len(run.calls) for run in case.check.runs)
            errors = [row["verdict.error"] for row in result.rows]
            assert all(error is None or isinstance(error, float) for error in errors)


def test_missing_pandas_error_suggests_the_installation(monkeypatch: pytest.MonkeyPatch) -> None:
    """It says what to install."""
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(policytool.MissingPackageError, match="pip install pandas"):
        policytool.inspect(MIXED_H5).to_pandas()


@THOROUGH
def test_jinja2_is_imported_only_for_notebooks() -> None:
    """Functions, lines and dictionaries do not need jinja2."""
    script = (
        "import sys, policytool\n"
        f"results = [policytool.inspect({str(MIXED_H5)!r}), policytool.audit({str(MIXED_H5)!r}),\n"
        f"    policytool.migrate({str(MIXED_H5)!r}, preview=True),\n"
        f"    policytool.diff({str(MIXED_H5)!r}, {str(MIXED_H5)!r})]\n"
        "for result in results: repr(result), result.to_dict()\n"
        "print('jinja2' in sys.modules)\n"
        "results[0]._repr_html_()\n"
        "print('jinja2' in sys.modules)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.split() == ["False", "True"]


def test_the_file_may_be_gone(tmp_path: Path) -> None:
    """A result holds everything that it shows."""
    path = tmp_path / "model.h5"
    shutil.copy(MIXED_H5, path)
    model, audit = policytool.inspect(path), policytool.audit(path)
    plan = policytool.migrate(path, to="mixed_bfloat16", preview=True)
    path.unlink()
    for result in (model, audit, plan):
        assert result._repr_html_()
        assert result.to_dict()
