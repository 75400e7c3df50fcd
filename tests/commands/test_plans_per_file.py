"""How often a command reads a model, computes verdicts and plans its conversion."""

from __future__ import annotations

from collections import Counter
from functools import wraps
from typing import TYPE_CHECKING, Any, Final

import pytest

from policytool.formats import format_detection
from policytool.migration.convert import conversion_plan
from policytool.migration.planning import rebuilt_layers
from policytool.model import reading
from tests.conftest import run
from tests.helpers.paths import FIXTURES

if TYPE_CHECKING:
    from types import ModuleType

STEPS: Final[tuple[tuple[ModuleType, str], ...]] = (
    (format_detection, "document"),
    (reading, "stored_variables"),
    (reading, "describe"),
    (conversion_plan, "_conversion_plan"),
    (rebuilt_layers, "loaders"),
)
"""Reading of a file and of a model, a conversion, and a plan of edits: none is cached itself."""

EDITED: Final = "tf2.3/global_mixed_float16.h5"
CONVERTED: Final = "keras2.3.1/shared_layer.h5"
REFORMATTED: Final = "tf2.4/nested_models.h5"
"""Its conversion also changes the format of its policies."""

LOADED: Final = "keras3.15/mha.keras"
COMMANDS: Final = {
    "inspect": ("inspect",),
    "audit": ("audit",),
    "audit --target": ("audit", "--target", "keras3"),
    "migrate": ("migrate", "--preview"),
    "migrate --target": ("migrate", "--preview", "--target", "keras3"),
}


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Return the number of calls of each step."""
    counts = Counter[str]()
    for module, name in STEPS:
        original = getattr(module, name)

        def counted(
            *arguments: Any,  # as the function
            original: Any = original,  # as above
            name: str = name,
            **options: Any,  # as above
        ) -> Any:  # as above
            counts[name] += 1
            return original(*arguments, **options)

        monkeypatch.setattr(module, name, wraps(original)(counted))
    return counts


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("name", [EDITED, CONVERTED, REFORMATTED, LOADED])
def test_a_file_is_read_and_converted_at_most_once(
    command: str, name: str, calls: Counter[str]
) -> None:
    """A model is read for the file and for the result; edited policies are only judged."""
    run(*COMMANDS[command], FIXTURES / name)
    assert calls["document"] == 1
    assert calls["stored_variables"] <= 3
    assert calls["describe"] <= 2
    assert calls["_conversion_plan"] <= 1


@pytest.mark.parametrize("command", ["inspect", "audit --target", "migrate --target"])
def test_a_model_that_loads_is_not_converted(command: str, calls: Counter[str]) -> None:
    """A model that loads is not converted, because the verdict is sufficient."""
    run(*COMMANDS[command], FIXTURES / LOADED)
    assert not calls["_conversion_plan"]


def test_edits_that_suffice_need_no_conversion(calls: Counter[str]) -> None:
    assert "fix: policytool migrate" in run("inspect", FIXTURES / EDITED).out
    assert not calls["_conversion_plan"]
