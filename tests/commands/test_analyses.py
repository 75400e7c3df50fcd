"""How often a command reads a file, analyses it, and computes the verdicts on releases."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from typing import TYPE_CHECKING, Any, Final

import pytest

from policytool.formats import format_detection
from policytool.model import compatibility, hazards, reading
from tests.conftest import run
from tests.helpers.paths import FIXTURES

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

MODELS: Final = {
    "h5": FIXTURES / "tf2.15/global_mixed_float16.h5",
    "keras": FIXTURES / "keras3.15/global_mixed_float16.keras",
    "savedmodel": FIXTURES / "tf2.15/global_mixed_float16",
}
FIXABLE: Final = {
    "h5": FIXTURES / "tf2.3/exp_mf16_fixed128.h5",
    "json": FIXTURES / "tf2.4/exp_mf16_default.json",
    "savedmodel": FIXTURES / "tf2.3/exp_mf16_fixed128",
}
SEAM: Final = {
    "read": (format_detection, "document"),
    "analysed": (reading, "describe"),
    "judged": (compatibility, "verdicts"),
    "searched for code": (hazards, "of"),
}
"""What is counted, and the one function that does it."""

ONCE: Final = {"read": 1, "analysed": 1}
TARGETS: Final = ("--target", "tf2.4", "--target", "keras3.3")


@pytest.fixture
def counts(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Count the calls of each counted function during a test."""
    result: Counter[str] = Counter()

    def counted(what: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def count(*arguments: Any, **options: Any) -> Any:
            result[what] += 1
            return function(*arguments, **options)

        return count

    for what, (module, name) in SEAM.items():
        monkeypatch.setattr(module, name, counted(what, getattr(module, name)))
    return result


@pytest.mark.parametrize("model", MODELS.values(), ids=MODELS)
@pytest.mark.parametrize(
    ("command", "expected"),
    [
        (("inspect", "--format", "json"), {**ONCE, "judged": 1}),
        (("audit", "--ignore", "PT5"), {**ONCE, "judged": 1, "searched for code": 1}),
        (("audit", "--select", "PT3"), {**ONCE, "judged": 1}),
        (("migrate", "--preview", "--to", "float32"), {**ONCE, "judged": 2}),
    ],
    ids=" ".join,
)
def test_a_command_reads_and_analyses_a_file_once(
    model: Path, command: tuple[str, ...], expected: dict[str, int], counts: Counter[str]
) -> None:
    """A plan has verdicts before and after, and unreported results are not computed."""
    assert run(*command, model).code in {0, 1}
    assert counts == expected


@pytest.mark.parametrize("model", MODELS.values(), ids=MODELS)
def test_diff_judges_nothing(model: Path, counts: Counter[str]) -> None:
    """``diff`` reads and analyses each side once and computes no verdicts."""
    assert run("diff", model, model).code == 0
    assert counts == {"read": 2, "analysed": 2}


@pytest.mark.parametrize("model", MODELS.values(), ids=MODELS)
@pytest.mark.parametrize(
    ("command", "most"),
    [
        (("audit",), 3),
        (("audit", *TARGETS), 4),
        (("audit", "--ignore", "PT5,PT104", *TARGETS), 2),
        (("migrate", "--preview", *TARGETS[2:]), 2),
    ],
    ids=str,
)
def test_targets_analyse_the_edited_model_and_planned_results_too(
    model: Path, command: tuple[str, ...], most: int, counts: Counter[str]
) -> None:
    """
    For any number of targets, a conversion analyses the model with updated policy formats once.
    Audit also analyses the planned result for each target in which the model fails.
    """
    assert run(*command, model).code in {0, 1}
    assert counts["read"] == 1
    assert counts["analysed"] <= most


@pytest.mark.parametrize(("option", "expected"), [("--diff", 1), ("--fix", 2)])
@pytest.mark.parametrize("model", FIXABLE.values(), ids=FIXABLE)
def test_fix_analyses_before_and_after(
    model: Path, option: str, expected: int, tmp_path: Path, counts: Counter[str]
) -> None:
    """
    ``--fix`` plans with the audited model and reads only the written file again, and plans nothing
    for a release that was not requested.
    """
    target = copied(model, tmp_path)
    assert run("audit", "--ignore", "PT505", option, target).code in {0, 1}
    backups = [path.name for path in tmp_path.rglob("*.bak")]
    assert bool(backups) == (option == "--fix")
    assert counts["read"] == counts["analysed"] == expected


@pytest.mark.parametrize(("paths", "expected"), [(("MODEL", "gone.h5"), 2), (("gone.h5",), 3)])
def test_fix_audits_possibly_renamed_models_first(
    paths: tuple[str, ...], expected: int, tmp_path: Path, counts: Counter[str]
) -> None:
    """
    ``--fix`` audits a model first if it is not in the baseline while a file of the baseline is
    missing, because it may have been renamed.
    """
    target = copied(FIXABLE["h5"], tmp_path)
    findings = [
        {"path": target.name if path == "MODEL" else path, "rule": "PT301", "fingerprint": "0" * 32}
        for path in paths
    ]
    baseline = tmp_path / "known.json"
    baseline.write_text(json.dumps({"version": 1, "findings": findings}), encoding="utf-8")
    assert run("audit", "--fix", "--baseline", baseline, target).code == 0
    assert counts["read"] == counts["analysed"] == expected


def copied(model: Path, directory: Path) -> Path:
    """Return a copy of a model."""
    target = directory / model.name
    (shutil.copytree if model.is_dir() else shutil.copy)(model, target)
    return target
