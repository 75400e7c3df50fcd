"""The page of ``inspect`` in a terminal."""

from __future__ import annotations

import re
from functools import partial
from itertools import pairwise
from typing import ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from policytool.commands import inspect as inspection
from policytool.commands.inspect import (
    ModelExtras,
    SelectedInspection,
    Selection,
    SuggestedFix,
    select,
)
from policytool.formats.document import Endpoint, EndpointArgument, Observation
from policytool.formats.saved_model import SLOTS
from policytool.model.model import Signature, Source
from policytool.releases.policy import Dynamic, Fixed
from policytool.reports import View
from policytool.reports.inspection import REPORTERS
from policytool.reports.layout import width_of
from policytool.reports.words import bytes_words, generation_words, loss_scale_words
from tests.contracts.report_contract import ReportContract
from tests.contracts.reporter_contract import MODELS, compared, inspected, named
from tests.helpers.drawn_models import models, scopes, traced_in, whole
from tests.helpers.marks import THOROUGH

pytestmark = pytest.mark.usefixtures("in_the_root")

NESTED = "keras2.2.4/nested_models.h5"
TABLE = REPORTERS[0]
WIDTHS = (80, 100, 120, 160, 200)


class TestInspection(ReportContract):
    name = "inspect"
    reporters = tuple(reporter for reporter in REPORTERS if reporter.name != "parquet")
    cases: ClassVar = {name: partial(inspected, name) for name in MODELS}
    suffixes: ClassVar = {"markdown": "md", "csv": "csv", "json": "json"}
    page = MODELS[0]

    def golden(self, case: str, suffix: str) -> str:
        """Return the name of a golden file, which begins with that of the model."""
        return f"{case.replace('/', '-')}.{suffix}"


def test_golden_table_in_colour() -> None:
    """Colour marks what matters."""
    compared(TABLE.render(inspected(MODELS[0]), View(width=80, colour=True)), "colour.80.txt")


def test_golden_table_in_ascii_with_variables() -> None:
    """Variables have rows below their layers, and ASCII replaces box characters."""
    text = TABLE.render(inspected(MODELS[0]), View(width=80, unicode=False, variables=True))
    assert text.isascii()
    compared(text, "ascii-variables.80.txt")


@pytest.mark.parametrize("width", WIDTHS)
def test_no_line_is_wider_than_the_view(width: int) -> None:
    text = TABLE.render(inspected(*MODELS), View(width=width, variables=True))
    assert max(map(len, text.splitlines())) <= width


def test_table_is_the_default() -> None:
    """The first reporter is what ``inspect`` shows."""
    assert TABLE.name == "table"


def test_models_are_set_apart_by_an_empty_line() -> None:
    """Two models are two groups."""
    assert TABLE.render(inspected(*MODELS[:2]), View()).count("\n\nfixtures/") == 1


def test_nothing_is_nothing() -> None:
    """An inspection without models has an empty report."""
    empty = inspection.select(inspection.collect([]), inspection.Selection())
    assert TABLE.render(empty, View()) == ""


@THOROUGH
@given(models(), st.integers(60, 130), st.booleans(), st.booleans())
def test_rows_fit_the_width_for_all_names(
    selected: SelectedInspection,
    width: int,
    unicode: bool,  # noqa: FBT001
    variables: bool,  # noqa: FBT001
) -> None:
    """Names may be long and layers deeply nested."""
    view = View(width=width, unicode=unicode, variables=variables)
    assert max(map(width_of, TABLE.render(selected, view).splitlines())) <= width


@THOROUGH
@given(models(), st.integers(60, 130))
def test_no_two_layers_have_the_same_label(selected: SelectedInspection, width: int) -> None:
    """Layers of the same name in different parents show as much of their path as it takes."""
    from policytool.reports.inspection._layer_tree import layer_table
    from policytool.reports.terminal import table_lines

    (model,) = selected.inspection.models
    if not model.layers:
        return
    table = layer_table(model.layers, variables=False, sizes=True, whole=True)
    labels = [row.cells[0].text for row in table.rows]
    if len({layer.path for layer in model.layers}) == len(model.layers):
        assert len(set(labels)) == len(labels)
        lines = table_lines(table, View(width=width))
        assert all(line.strip() for line in lines)


# the verdict


def test_first_line_names_only_current_releases() -> None:
    """Releases that are no longer common are shown only on request."""
    selected = inspected("tf2.3/exp_mf16_fixed128.h5")
    first = " ".join(TABLE.render(selected, View(width=300)).splitlines()[:1])
    assert "loads in TF 2.3" in first
    assert "fails in Keras 3.15: policies use" in first
    assert "TF 1.15" not in TABLE.render(selected, View(width=300))
    every = replace(selected, selection=Selection(every_release=True))
    assert "fails in   TF 1.15" in TABLE.render(every, View(width=300))


def test_a_healthy_file_of_the_newest_release_shows_no_red() -> None:
    """It is not a defect of a Keras 3 file that Keras 2 cannot read it."""
    text = TABLE.render(inspected("keras3.15/global_mixed_float16.keras"), View(colour=True))
    assert "\x1b[31m" not in text
    assert "\x1b[31m" in TABLE.render(inspected("tf2.3/exp_mf16_fixed128.h5"), View(colour=True))


def test_fix_is_a_command_of_one_line() -> None:
    """The command follows the verdict."""
    selected = inspected("tf2.3/exp_mf16_fixed128.h5")
    path = selected.inspection.models[0].path
    fix = SuggestedFix(arguments=("--target", "keras3"))
    fixed = replace(selected, extras={path: ModelExtras(fix=fix)})
    assert f"  fix: policytool migrate {path} --target keras3\n" in TABLE.render(
        fixed, View(width=120)
    )


# the tree


def rows_of(selected: SelectedInspection, width: int = 2000) -> list[str]:
    """Return the rows of the table, without its titles."""
    lines = TABLE.render(selected, View(width=width)).splitlines()
    begin = next(
        position for position, line in enumerate(lines) if set(line.strip()) in ({"─"}, {"-"})
    )
    end = lines.index("", begin) if "" in lines[begin:] else len(lines)
    return lines[begin + 1 : end]


def label(row: str) -> str:
    """Return the label of a row with its guides."""
    return re.split(r"  +(?=[A-Z])", row[2:])[0].rstrip()


def test_selected_layers_without_their_parent_have_longer_names() -> None:
    """The tree contains only selected layers."""
    result = inspected(NESTED).inspection
    rows = rows_of(select(result, Selection(layer="mlp|.*/tail|.*_[ab]")))
    assert [re.split("  +(?=[A-Z])", row)[0][2:] for row in rows] == [
        "mlp",
        "├─ block/block_a",
        "├─ block/tail",
        "│  ├─ tail_a",
        "│  └─ tail_b",
        "└─ head/head_a",
    ]


def model_of(*paths: str, **different: dict[str, str]) -> SelectedInspection:
    """Return a model of layers with these paths, some of which have other values."""
    (model,) = inspected("tf2.15/default_float32.h5").inspection.models
    like = next(layer for layer in model.layers if layer.class_name == "Dense")
    layers = tuple(
        replace(
            like,
            path=path,
            name=path.rpartition("/")[2],
            variables=(),
            **different.get(path.rpartition("/")[2], {}),
        )
        for path in ("net", *paths)
    )
    return whole(replace(model, layers=layers))


def blocks(*names: str, layers: int = 6) -> list[str]:
    """Return the paths of blocks whose layers are named after them."""
    return [f"net/{name}_part{'x' * number}" for name in names for number in range(layers)]


def test_equal_blocks_become_one_row() -> None:
    """Neighbours that are like the same block share it, and later ones name it."""
    rows = rows_of(
        model_of(
            *blocks("block2a", "block2b", "block2c", "block3a", "block3b"),
            block3a_part={"policy": "float16", "compute_dtype": "float16"},
        )
    )
    collapsed = [row[2:] for row in rows if "like" in row]
    assert collapsed == [
        "├─ block2b to block2c: like block2a (6 layers each)",
        "└─ block3b: like block2a (6 layers)",
    ]
    assert len(rows) == 1 + 6 + 1 + 6 + 1


def test_equal_nested_models_become_one_row() -> None:
    """Layers that hold others are compared with what they hold."""
    rows = rows_of(
        model_of(
            *(
                path
                for number in range(6)
                for path in (f"net/layer_{number}", *blocks(f"layer_{number}/a", layers=4))
            )
        )
    )
    assert [label(row) for row in rows] == [
        "net",
        "├─ layer_0",
        "│  ├─ a_part",
        "│  ├─ a_partx",
        "│  ├─ a_partxx",
        "│  └─ a_partxxx",
        "└─ layer_1 to layer_5: like layer_0 (5 layers each)",
    ]


def test_blocks_that_differ_in_a_name_or_a_dtype_are_shown() -> None:
    """Only blocks with equal text are collapsed."""
    names = blocks(*(f"block{number}" for number in range(5)))
    other = names[-1].rpartition("/")[2]
    rows = rows_of(model_of(*names, **{other: {"compute_dtype": "float16"}}))
    assert [row for row in rows if other in row]
    renamed = [*names[:-1], "net/block4_other"]
    assert any("block4_other" in row for row in rows_of(model_of(*renamed)))


def test_short_models_and_selections_show_every_layer() -> None:
    """Models that fit a terminal, and layers selected by name, are not collapsed."""
    assert not [row for row in rows_of(model_of(*blocks("b1", "b2"))) if "like" in row]
    long = model_of(*blocks("b1", "b2", "b3", "b4", "b5"))
    assert [row for row in rows_of(long) if "like" in row]
    chosen = select(long.inspection, Selection(layer="net.*"))
    assert not [row for row in rows_of(chosen) if "like" in row]


@pytest.mark.parametrize("width", [40, 60, 80, 120, 200])
def test_every_row_reads_differently_in_every_width(width: int) -> None:
    """Labels that would be shortened to the same text are shown whole."""
    paths = [
        f"net/{'encoder_' * 6}{number}{'_projection' * 4}/{name}"
        for number in range(20)
        for name in ("query", "key")
    ]
    text = TABLE.render(
        select(model_of(*paths).inspection, Selection(layer=".*")), View(width=width)
    )
    shown = "".join(text.split())
    for path in paths:
        parent = path.split("/")[1]
        assert parent.replace(" ", "") in shown or f"{path.rpartition('/')[2]}" in shown
    lines = [line for line in text.splitlines() if line.strip()]
    assert max(map(len, lines)) <= max(width, 40)


def test_columns_without_information_are_left_out() -> None:
    """``stored`` if it differs, ``source`` if it is not declared, ``notes`` if there are any."""
    plain = rows_and_title(inspected("keras2.2.4/default_float32.h5"))
    assert "stored" not in plain
    assert "notes" not in plain
    assert "notes" in rows_and_title(inspected("tf2.15/custom_layer.h5"))
    (model,) = inspected("tf2.15/default_float32.h5").inspection.models
    declared = replace(
        model,
        layers=tuple(
            replace(layer, source=Source.DECLARED, policy="float32") for layer in model.layers
        ),
    )
    assert "source" not in rows_and_title(whole(declared))
    assert "(global)" in TABLE.render(whole(model), View(width=200))


def rows_and_title(selected: SelectedInspection) -> str:
    """Return the titles of the table's columns."""
    lines = TABLE.render(selected, View(width=200)).splitlines()
    return next(before for before, line in pairwise(lines) if set(line.strip()) == {"─"})


def test_a_stored_dtype_that_differs_has_a_column() -> None:
    """Weights in float16 under a float32 policy are visible in every width."""
    (model,) = inspected("tf2.15/default_float32.h5").inspection.models
    layers = tuple(
        replace(
            layer,
            variables=tuple(replace(variable, dtype="float16") for variable in layer.variables),
        )
        for layer in model.layers
    )
    for width in WIDTHS:
        text = TABLE.render(whole(replace(model, layers=layers)), View(width=width))
        assert re.search(r"variable +stored", text)
        assert re.search(r"float32 +float32 +float16", text)


def test_a_saved_model_without_a_signature_says_so() -> None:
    """Servers need one; a file of another format never has one."""
    for name, expected in (("tf2.15/default_float32", True), ("tf2.15/default_float32.h5", False)):
        text = "".join(REPORTERS[0].render(inspected(name), View())).replace("\n ", "")
        assert ("no signature, which TF Serving and TFSMLayer need" in text) == expected


@pytest.mark.parametrize("name", ["table", "markdown"])
def test_selections_and_models_without_layers_have_a_sentence(name: str) -> None:
    """The sentence replaces the table."""
    reporter = named(REPORTERS, name)
    result = inspected(MODELS[0]).inspection
    nothing = SelectedInspection(inspection=result, selection=Selection(layer="none"))
    assert "No layer is selected." in reporter.render(nothing, View())
    (model,) = result.models
    assert "The file has no layers." in reporter.render(whole(replace(model, layers=())), View())


# what a graph computes in


@pytest.mark.parametrize("width", [80, 120, 160])
def test_golden_tables_of_graphs(width: int) -> None:
    """A signature that contradicts its layers, one that does not, and scopes without layers."""
    text = TABLE.render(
        whole(traced_in("float32"), traced_in("float16", "float32"), scopes()), View(width=width)
    )
    compared(text, f"traced.{width}.txt")
    assert max(map(len, text.splitlines())) <= width


def test_golden_table_of_a_graph_in_colour() -> None:
    """A contradiction is red."""
    compared(TABLE.render(whole(traced_in("float32")), View(colour=True)), "traced-colour.80.txt")


@pytest.mark.parametrize("inputs", [{"x": "float32"}, {}, {"x": "float32", "scale": "float32"}])
def test_only_signatures_with_one_input_become_layers(inputs: dict[str, str]) -> None:
    """
    Each call of a TFSMLayer fails for two inputs, if the signature is not also a function of the
    root object (``tests/compat/test_exports.py``).
    """
    signature = Signature(name="count", inputs=inputs, outputs={"y": "float32"})
    text = TABLE.render(whole(replace(traced_in("float32"), signatures=(signature,))), View())
    assert ("TFSMLayer" in text) is (len(inputs) == 1)


def test_answer_names_only_what_can_run_signatures() -> None:
    """A layer gets one input, and Python exists only in the process that traced a signature."""
    one = Signature(name="score", inputs={"x": "float32"}, outputs={"y": "float32"})
    two = replace(one, name="scale", inputs={"x": "float32", "by": "float32"})
    calling = replace(one, name="serving_default", calls_python=True)

    def text(*signatures: Signature) -> str:
        model = replace(traced_in("float32"), signatures=signatures)
        return " ".join(TABLE.render(whole(model), View(width=160)).split())

    assert (
        "in Keras 3, only score can be used: keras.layers.TFSMLayer(path, call_endpoint='score')"
        "(inputs)"
    ) in text(one, two)
    assert "TFSMLayer" not in text(two)
    assert "TFSMLayer in Keras 3 run its signature score(" in text(one, calling)
    listed = Endpoint(argument=EndpointArgument.LIST, names=("x", "by"))
    assert "use keras.layers.TFSMLayer(path, call_endpoint='scale')([x, by])" in text(
        replace(two, name="serving_default"), replace(two, endpoint=listed)
    )
    assert "calls Python, so it runs only in the process that wrote it" in text(one, calling)
    assert "its signatures call Python, so they run only in the process" in text(calling)


def test_layer_without_an_op_in_its_dtype_has_a_note() -> None:
    """The layer has a note if ops were traced and none has the declared dtype."""
    assert "graph differs" in TABLE.render(whole(traced_in("float32")), View(width=160))
    assert "graph differs" not in TABLE.render(whole(traced_in("float16")), View(width=160))


def test_releases_without_an_op_do_not_run_signatures() -> None:
    """TF 2.9 fails to load the graph, and TF 2.12 loads it."""
    text = TABLE.render(inspected("keras3.15/default_float32.export"), View(width=400))
    assert "which wrote it, may not: TF 2.9 and older do not have the op DisableCopyOnRead" in text


def test_graph_without_declared_dtypes_has_no_contradiction() -> None:
    """The dtypes of the signature are reported and not checked."""
    assert "computes in float16 and float32\n" in TABLE.render(whole(scopes()), View())


# words


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
def test_loss_scales_show_differences_from_the_defaults(
    scale: Dynamic | Fixed | None, words: str
) -> None:
    """The text describes the kind and the changed values."""
    assert loss_scale_words(scale) == words


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
def test_bytes_have_readable_units(count: int, words: str) -> None:
    """The unit keeps the number short."""
    assert bytes_words(count) == words


@pytest.mark.parametrize(
    ("generation", "words"),
    [
        (None, "unknown release"),
        ("tf2.3-2.4", "TF 2.3 to 2.4"),
        ("keras3.4+", "Keras 3.4 and later"),
        ("tf2.5", "TF 2.5"),
        ("tf_keras2.21+", "tf_keras 2.21 and later"),
    ],
)
def test_generations_have_the_names_of_releases(generation: str | None, words: str) -> None:
    """Ids become names."""
    assert generation_words(generation) == words


@pytest.mark.parametrize("has_signatures", [True, False])
def test_a_package_that_loading_needs_is_named_once(*, has_signatures: bool) -> None:
    """In the headline if a program runs the signatures, and otherwise below the table."""
    needed = Observation(code=SLOTS, message="TF 2.16 and later need the package tf_keras")
    model = replace(traced_in("float32"), observations=(needed,))
    model = model if has_signatures else replace(model, signatures=())
    text = " ".join(TABLE.render(whole(model), View(width=400)).split())
    assert text.count("need the package tf_keras") == 1
    assert ("for its optimizer" in text) is has_signatures


def test_a_file_without_layers_has_no_counts_of_layers() -> None:
    text = TABLE.render(whole(replace(scopes(), layers=())), View(width=80))
    assert "0 scopes" not in text
    assert "The file has no layers." in text
