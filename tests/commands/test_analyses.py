"""How often a command reads a file, analyses it, and judges it for every release."""

from __future__ import annotations

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
SEAM: Final = {
    "read": (format_detection, "document"),
    "analysed": (reading, "load_model"),
    "judged": (compatibility, "verdicts"),
    "searched for code": (hazards, "of"),
}
"""What is counted, and the one function that does it."""

ONCE: Final = {"read": 1, "analysed": 1}
TARGETS: Final = ("--target", "tf2.4", "--target", "keras3.3")


@pytest.fixture
def counts(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Count the calls of each function of the seam while a test runs."""
    found: Counter[str] = Counter()

    def counted(what: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def count(*arguments: Any, **options: Any) -> Any:
            found[what] += 1
            return function(*arguments, **options)

        return count

    for what, (module, name) in SEAM.items():
        monkeypatch.setattr(module, name, counted(what, getattr(module, name)))
    return found


@pytest.mark.parametrize("model", MODELS.values(), ids=MODELS)
@pytest.mark.parametrize(
    ("command", "expected"),
    [
        (("inspect",), {**ONCE, "judged": 1}),
        (("audit",), {**ONCE, "judged": 1, "searched for code": 1}),
        (("audit", "--select", "PT3"), {**ONCE, "judged": 1}),
        (("migrate", "--dry-run", "--to", "float32"), {**ONCE, "judged": 2}),
    ],
    ids=" ".join,
)
def test_a_command_reads_and_analyses_a_file_once(
    model: Path, command: tuple[str, ...], expected: dict[str, int], counts: Counter[str]
) -> None:
    """A plan is judged before and after; what a command does not report is not computed."""
    assert run(*command, model).code in {0, 1}
    assert counts == expected


@pytest.mark.parametrize("model", MODELS.values(), ids=MODELS)
def test_diff_judges_nothing(model: Path, counts: Counter[str]) -> None:
    """Each side is read and analysed once, and no verdict is in the report."""
    assert run("diff", model, model).code == 0
    assert counts == {"read": 2, "analysed": 2}


@pytest.mark.parametrize("model", MODELS.values(), ids=MODELS)
@pytest.mark.parametrize(
    "command", [("audit", *TARGETS), ("migrate", "--dry-run", *TARGETS[2:])], ids=" ".join
)
def test_targets_analyse_at_most_the_edited_model_too(
    model: Path, command: tuple[str, ...], counts: Counter[str]
) -> None:
    """However many targets: a conversion starts from the model with its current policy formats."""
    assert run(*command, model).code in {0, 1}
    assert counts["read"] == 1
    assert counts["analysed"] <= 2


@pytest.mark.parametrize("model", MODELS.values(), ids=MODELS)
def test_fix_analyses_before_and_after(model: Path, tmp_path: Path, counts: Counter[str]) -> None:
    """The plan reads the file again, because audits of many files end before the first fix."""
    target = tmp_path / model.name
    (shutil.copytree if model.is_dir() else shutil.copy)(model, target)
    assert run("audit", "--fix", target).code in {0, 1}
    assert counts["read"] == counts["analysed"] <= 3
