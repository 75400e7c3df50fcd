"""Golden files of reports, and the models in them."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Any, Final, TypeVar

from policytool.commands import inspect as inspection
from policytool.reports import View
from policytool.support import project
from policytool.support.project import VERSION
from tests.helpers.paths import FIXTURES, ROOT

if TYPE_CHECKING:
    from collections.abc import Iterable

    from policytool.commands.inspect import SelectedInspection
    from policytool.reports import Reporter

Value = TypeVar("Value")

GOLDEN: Final = ROOT / "tests" / "golden"
MODELS: Final = (
    "tf2.3/exp_mf16_fixed128.h5",
    "tf2.5/global_mixed_float16",
    "keras3.15/global_mixed_float16.keras",
    "keras2.2.4/nested_models.h5",
    "tf2.15/shared_layer.h5",
    "keras3.15/weights_only.weights.h5",
)
"""
One of each format and family, with a loss scale, nested models, a shared layer and weights alone.
"""


def inspected(*names: str) -> SelectedInspection:
    """Return the fixtures of these names as an inspection, every layer kept."""
    result = inspection.collect(inspection.inspect(str(FIXTURES / name)) for name in names)
    return inspection.select(result, inspection.Selection())


def named(reporters: Iterable[Reporter[Value]], name: str) -> Reporter[Value]:
    """Return the reporter of this name."""
    (result,) = (reporter for reporter in reporters if reporter.name == name)
    return result


def rendered_by(
    reporters: Iterable[Reporter[Any]], name: str, value: object, view: View | None = None
) -> str:
    """Return a report from the reporter of this name."""
    return named(reporters, name).render(value, view or View())


def compared(text: str, file: str) -> None:
    """
    Fail where ``text`` is not the golden file's; with ``POLICYTOOL_GOLDEN=1`` write it instead
    (``make golden``).
    """
    scrubbed = re.sub(rf'("version": "){re.escape(VERSION)}"', r'\1VERSION"', text)
    scrubbed = scrubbed.replace(project.URL, "URL")
    golden = GOLDEN / file
    if os.environ.get("POLICYTOOL_GOLDEN") == "1":
        golden.parent.mkdir(exist_ok=True)
        golden.write_bytes(scrubbed.encode())
    assert golden.is_file(), f"{golden.name} is missing: run `make golden` and read what it writes"
    assert scrubbed == golden.read_bytes().decode(), (
        "the report changed: run `make golden` and read the difference"
    )
