"""The report for people."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from policytool import reports
from policytool.commands import inspect as inspection
from policytool.releases.policy import Dynamic, Fixed
from policytool.reports import View, _words, table
from tests.contracts.reporter_contract import MODELS, ReporterContract, compared, inspected

_ANSI = re.compile(r"\x1b\[[0-9;]*m")


class TestTable(ReporterContract):
    name = "table"
    suffix = "txt"

    def test_golden_file_in_colour(self) -> None:
        """Colour marks what matters."""
        compared(
            self.reporter.render(inspected(MODELS[0]), View(width=80, colour=True)), "colour.80.txt"
        )

    def test_golden_file_in_ascii_with_variables(self) -> None:
        """Variables have rows of their own, and ASCII stands for box characters."""
        text = self.reporter.render(
            inspected(MODELS[0]), View(width=80, unicode=False, variables=True)
        )
        assert text.isascii()
        compared(text, "ascii-variables.80.txt")

    @pytest.mark.parametrize("width", [80, 120, 160])
    def test_colour_adds_nothing_but_colour(self, width: int) -> None:
        """Escape sequences are all that a coloured report has more."""
        plain = self.reporter.render(inspected(*MODELS), View(width=width))
        coloured = self.reporter.render(inspected(*MODELS), View(width=width, colour=True))
        assert "\x1b" not in plain
        assert [
            line.rstrip() for line in _ANSI.sub("", coloured).splitlines()
        ] == plain.splitlines()

    @pytest.mark.parametrize("width", [80, 100, 120, 160, 200])
    def test_no_line_is_wider(self, width: int) -> None:
        """Every line of every model fits."""
        assert (
            max(
                len(line)
                for line in self.reporter.render(
                    inspected(*MODELS), View(width=width, variables=True)
                ).splitlines()
            )
            <= width
        )

    def test_no_line_ends_in_spaces(self) -> None:
        """Reports that are pasted or committed leave no trailing spaces."""
        assert not [
            line
            for line in self.reporter.render(inspected(*MODELS), View()).splitlines()
            if line != line.rstrip()
        ]


def test_table_is_the_default() -> None:
    """The first reporter is what ``inspect`` shows."""
    assert reports.REPORTERS[0].name == "table"


def test_models_are_set_apart_by_an_empty_line() -> None:
    """Two models are two blocks."""
    text = table.REPORTER.render(inspected(*MODELS[:2]), View())
    assert text.count("\n\nfixtures/") == 1


def test_nothing_is_nothing() -> None:
    """An inspection without models has an empty table."""
    empty = inspection.select(inspection.collect([]), inspection.Selection())
    assert table.REPORTER.render(empty, View()) == ""


@pytest.mark.parametrize(
    ("scale", "words"),
    [
        (None, ""),
        (Fixed(value=128.0), "fixed 128"),
        (Fixed(value=0.5), "fixed 0.5"),
        (Dynamic(), "dynamic"),
        (Dynamic(initial=1024.0, growth_steps=50), "dynamic from 1024, 50 steps"),
        (
            Dynamic(initial=1024.0, growth_steps=50, multiplier=4.0),
            "dynamic from 1024, 50 steps, times 4",
        ),
    ],
)
def test_loss_scales_are_told_in_words(scale: Dynamic | Fixed | None, words: str) -> None:
    """Only what differs from the defaults is said."""
    assert _words.loss_scale_words(scale) == words


@pytest.mark.parametrize(
    ("count", "words"),
    [
        (0, "0 bytes"),
        (1023, "1023 bytes"),
        (1024, "1.0 KiB"),
        (1536, "1.5 KiB"),
        (2**20, "1.0 MiB"),
        (5 * 2**30, "5.0 GiB"),
        (2**43, "8192.0 GiB"),
    ],
)
def test_bytes_are_told_in_readable_units(count: int, words: str) -> None:
    """The unit keeps the number short."""
    assert _words.bytes_words(count) == words


@pytest.mark.parametrize(
    ("generation", "words"),
    [
        (None, "unknown generation"),
        ("tf2.3-2.4", "TF 2.3 to 2.4"),
        ("keras3.4+", "Keras 3.4 and later"),
        ("tf2.5", "TF 2.5"),
        ("tf_keras2.21+", "tf_keras 2.21 and later"),
    ],
)
def test_generations_are_told_as_people_say_them(generation: str | None, words: str) -> None:
    """Ids become names."""
    assert _words.generation_words(generation) == words


def test_stored_dtype_that_differs_is_marked() -> None:
    """Weights in float16 under a float32 policy are told in either width."""
    selected = inspected("tf2.15/default_float32.h5")
    model = selected.inspection.models[0]
    layers = tuple(
        replace(
            layer,
            variables=tuple(replace(variable, dtype="float16") for variable in layer.variables),
        )
        for layer in model.layers
    )
    changed = inspection.select(
        inspection.collect([replace(model, layers=layers)]), inspection.Selection()
    )
    narrow, wide = (table.REPORTER.render(changed, View(width=width)) for width in (80, 160))
    assert "! stored in another dtype than the policy's variable dtype" in re.sub(
        r"\s+", " ", narrow
    )
    rows = [line for line in wide.splitlines() if "float16" in line]
    assert rows
    assert all(line.endswith("stored") for line in rows)
    assert "! stored" not in table.REPORTER.render(selected, View(width=80))
