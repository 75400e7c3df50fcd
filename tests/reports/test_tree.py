"""The report that shows how layers lie in each other."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policytool.commands.inspect import Selected, Selection, select
from policytool.reports import View, tree
from policytool.reports.layout import clean, width_of
from tests.contracts.reporter_contract import MODELS, ReporterContract, compared, inspected
from tests.helpers.drawn_models import layers, models, scopes, traced_in, whole

if TYPE_CHECKING:
    from policytool.model.model import Layer

_ANSI = re.compile(r"\x1b\[[0-9;]*m")
NESTED = "keras2.2.4/nested_models.h5"


class TestTree(ReporterContract):
    name = "tree"
    suffix = "tree.txt"

    def shown(self, layer: Layer) -> str:
        """Return the layer's own name: its guides say the rest."""
        return layer.path.rpartition("/")[2]

    def test_golden_file_in_ascii_with_variables(self) -> None:
        """Variables hang below their layers, and ASCII stands for the guides."""
        text = self.reporter.render(inspected(NESTED), View(unicode=False, variables=True))
        assert text.isascii()
        compared(text, "ascii-variables.80.tree.txt")

    @pytest.mark.parametrize("width", [80, 160])
    def test_golden_files_of_what_a_graph_computes(self, width: int) -> None:
        """A signature that contradicts its layers, and scopes without layers."""
        compared(
            self.reporter.render(whole(traced_in("float32"), scopes()), View(width=width)),
            f"traced.{width}.tree.txt",
        )

    def test_colour_adds_nothing_but_colour(self) -> None:
        """Escape sequences are all that a coloured report has more."""
        plain = self.reporter.render(inspected(*MODELS), View())
        coloured = self.reporter.render(inspected(*MODELS), View(colour=True))
        assert [
            line.rstrip() for line in _ANSI.sub("", coloured).splitlines()
        ] == plain.splitlines()


def drawn(selected: Selected, view: View | None = None) -> list[str]:
    """Return the lines of the tree alone, in a width where nothing is shortened."""
    lines = tree.REPORTER.render(selected, view or View(width=2000)).splitlines()
    begin = next(
        position for position, line in enumerate(lines) if set(line.strip()) in ({"─"}, {"-"})
    )
    return lines[begin + 1 : lines.index("", begin)]


@given(models(), st.integers(72, 130), st.booleans(), st.booleans())
def test_no_line_is_wider(selected: Selected, width: int, unicode: bool, variables: bool) -> None:  # noqa: FBT001
    """Whatever the names and however deep they lie, the tree fits."""
    (model,) = selected.inspection.models
    if model.layers:
        assert (
            max(
                map(
                    width_of,
                    drawn(selected, View(width=width, unicode=unicode, variables=variables)),
                )
            )
            <= width
        )


@given(layers())
def test_depth_and_guides_say_who_holds_whom(found: tuple[Layer, ...]) -> None:
    """Read back from its guides alone, the tree has the layers' paths."""
    read: list[str] = []
    above: list[str] = []
    for branch in tree.branches([layer.path for layer in found], View()):
        assert re.fullmatch(r"(?:(?:│  |   )*(?:├─ |└─ ))?", branch.before)
        del above[len(branch.before) // 3 :]
        read.append("/".join([*above, branch.name]))
        above.append(branch.name)
    assert read == [clean(layer.path) for layer in found]


def test_guides_join_siblings_and_end_at_the_last() -> None:
    """Before and below each name stands what leads to its siblings."""
    found = tree.branches(["m", "m/a", "m/a/x", "m/a/y", "m/b", "m/b/z", "n"], View())
    assert [branch.before + branch.name for branch in found] == [
        "m",
        "├─ a",
        "│  ├─ x",
        "│  └─ y",
        "└─ b",
        "   └─ z",
        "n",
    ]
    assert [branch.below for branch in found] == [
        "│  ",
        "│  │  ",
        "│  │     ",
        "│        ",
        "   │  ",
        "         ",
        "   ",
    ]


def test_a_name_begins_another_only_at_a_slash() -> None:
    """``ab`` does not lie in ``a``."""
    assert [
        branch.before + branch.name for branch in tree.branches(["a", "ab", "ab/c"], View())
    ] == ["a", "ab", "└─ c"]


def test_guides_outlast_names_where_there_is_little_room() -> None:
    """
    A name is shortened in its middle, the guides before it are not, until there is room for nothing
    else.
    """
    lines = drawn(inspected("tf2.15/mha_mixed"), View(width=50))
    assert any(re.match(r"  │  └─ \w+…\w+ ", line) for line in lines)
    (model,) = inspected(NESTED).inspection.models
    path = "/".join(["a"] * 60)
    deep = tuple(replace(model.layers[0], path=path[: 2 * number + 1]) for number in range(60))
    assert max(map(width_of, drawn(whole(replace(model, layers=deep)), View(width=80)))) <= 80


def test_a_selection_lengthens_names_where_it_left_their_holder_out() -> None:
    """What is kept hangs below what is kept."""
    found = inspected(NESTED).inspection
    lines = drawn(select(found, Selection(layer="mlp|.*/tail|.*_[ab]")))
    assert [re.split("  +(?=[A-Z])", line)[0][2:] for line in lines] == [
        "mlp",
        "├─ block/block_a",
        "├─ block/tail",
        "│  ├─ tail_a",
        "│  └─ tail_b",
        "└─ head/head_a",
    ]


def test_both_dtypes_stand_where_they_differ() -> None:
    """A column that says nothing new is left out."""
    mixed, plain = (
        tree.REPORTER.render(inspected(name), View())
        for name in ("tf2.3/exp_mf16_fixed128.h5", "keras2.2.4/nested_models.h5")
    )
    assert "float16/float32" in mixed
    assert "compute/variable" not in plain


def test_selections_and_models_without_layers_say_so() -> None:
    """A sentence stands for the tree."""
    found = inspected(MODELS[0]).inspection
    assert "no layer is selected" in tree.REPORTER.render(
        Selected(inspection=found, layers=((),)), View()
    )
    (model,) = found.models
    assert "no layers in the file" in tree.REPORTER.render(whole(replace(model, layers=())), View())
