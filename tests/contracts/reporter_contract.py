"""What every report has to hold, whatever its format."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from policytool.commands import inspect as inspection
from policytool.reports import View
from policytool.reports.inspection import REPORTERS
from policytool.support import project
from policytool.support.project import VERSION
from tests.helpers.paths import FIXTURES, ROOT

if TYPE_CHECKING:
    from policytool.commands.inspect import SelectedInspection
    from policytool.model.model import Layer
    from policytool.reports import Reporter

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
    found = inspection.collect(inspection.inspect(str(FIXTURES / name)) for name in names)
    return inspection.select(found, inspection.Selection())


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


class ReporterContract:
    """Shared assertions; a subclass names its reporter."""

    name: str
    suffix: str

    @pytest.fixture(autouse=True)
    def _in_the_root(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Paths in reports are relative to the working directory."""
        monkeypatch.chdir(ROOT)

    @property
    def reporter(self) -> Reporter[SelectedInspection]:
        """The reporter of this name."""
        return next(reporter for reporter in REPORTERS if reporter.name == self.name)

    def test_same_input_gives_same_bytes(self) -> None:
        """Rendering twice, and reading twice, give one text."""
        first, second = inspected(*MODELS), inspected(*MODELS)
        assert (
            self.reporter.render(first, View())
            == self.reporter.render(first, View())
            == self.reporter.render(second, View())
        )

    def test_text_ends_with_a_newline(self) -> None:
        """One model, several, or a selection of none: the text ends with one newline."""
        for selected in (
            inspected(MODELS[0]),
            inspected(*MODELS),
            inspection.select(inspected(MODELS[0]).inspection, inspection.Selection(layer="none")),
        ):
            text = self.reporter.render(selected, View())
            assert text.endswith("\n")
            assert not text.endswith("\n\n")

    def test_every_model_and_layer_is_in_it(self) -> None:
        """Each model's path and each kept layer's own name can be found."""
        selected = inspected(*MODELS)
        text = self.reporter.render(selected, View(width=500))
        for model in selected.inspection.models:
            assert model.path in text
            assert all(self.shown(layer) in text for layer in model.layers)

    def test_text_can_be_written_as_utf8(self) -> None:
        """Nothing in a report needs more than UTF-8."""
        assert self.reporter.render(inspected(*MODELS), View()).encode("utf-8")

    def test_nothing_depends_on_where_the_tree_is(self) -> None:
        """Reports of fixtures hold no absolute path."""
        assert str(Path.cwd()) not in self.reporter.render(inspected(*MODELS), View())

    @pytest.mark.parametrize("model", MODELS)
    @pytest.mark.parametrize("width", [80, 160])
    def test_golden_file(self, model: str, width: int) -> None:
        """The report of each model is the one that was read in review."""
        text = self.reporter.render(inspected(model), View(width=width))
        name = model.replace("/", "-")
        compared(
            text, f"{name}.{width}.{self.suffix}" if self.by_width else f"{name}.{self.suffix}"
        )

    by_width: bool = True
    """Whether the text depends on the width."""

    def shown(self, layer: Layer) -> str:
        """Return what the report calls a layer."""
        return layer.path
