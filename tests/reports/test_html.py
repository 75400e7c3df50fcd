"""The HTML reports: documents that need nothing else, in which text from models is data."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from html.parser import HTMLParser
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from msgspec.structs import replace

from policytool.commands import audit as auditing
from policytool.commands.arguments.reading import AuditArguments
from policytool.commands.destinations import Destination
from policytool.commands.diff import try_diff
from policytool.commands.migrate import Migration
from policytool.commands.migrate_all import migrate_all
from policytool.formats import discovery
from policytool.migration.planning.options import Options
from policytool.reports import View, checks, differences, findings, html, plans, tuning
from policytool.reports.checks import CHECK_REPORTERS
from policytool.reports.differences import DIFFERENCE_REPORTERS, Differences
from policytool.reports.html.graph_layout import graph_data, grid
from policytool.reports.inspection import REPORTERS
from policytool.reports.layer_graph import LayerMark, layer_graph
from policytool.reports.layout import clean
from policytool.reports.page import (
    Bar,
    Bars,
    Cell,
    Column,
    Command,
    Curve,
    Curves,
    Graph,
    Item,
    Listing,
    Page,
    Row,
    Sentence,
    Spread,
    Spreads,
    Table,
    Tone,
)
from policytool.reports.plans import Migrations
from policytool.reports.tuning import TUNE_REPORTERS
from tests.helpers import example_checks, example_pages, example_tunings
from tests.helpers.drawn_models import models
from tests.helpers.example_pages import HOSTILE, PAGES
from tests.helpers.marks import THOROUGH
from tests.helpers.paths import FIXTURES

if TYPE_CHECKING:
    from collections.abc import Callable

    from policytool.commands.inspect import SelectedInspection

HTML = example_pages.html(REPORTERS)


class Read(HTMLParser):
    """What a browser would find: tags with their attributes, and texts by tag."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.texts: dict[str, list[str]] = {}
        self._open: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        self._open.append(tag)
        self.texts.setdefault(tag, []).append("")

    def handle_endtag(self, tag: str) -> None:
        while self._open and self._open.pop() != tag:
            pass

    def handle_data(self, data: str) -> None:
        for tag in {*self._open}:
            self.texts[tag][-1] += data


@pytest.mark.parametrize("name", PAGES)
def test_page_needs_nothing_else(name: str) -> None:
    """No address, no attribute that runs code, and one style and one script, which are ours."""
    read = Read(example_pages.page(name))
    assert [tag for tag, _ in read.tags].count("script") == 1
    assert not {"img", "link", "iframe", "object", "base", "form"} & {tag for tag, _ in read.tags}
    for _, attributes in read.tags:
        assert not {"src", "style", "srcdoc"} & attributes.keys()
        assert not [key for key in attributes if key.startswith("on")]
    assert not any("href" in attributes for _, attributes in read.tags)
    assert dict(read.tags[0][1]) == {"lang": "en"}
    assert read.texts["title"][0].startswith("policytool ")


@pytest.mark.parametrize("name", PAGES)
def test_policy_allows_only_the_style_and_script_of_the_page(name: str) -> None:
    """The hashes are those of the texts in the page."""
    text = example_pages.page(name)
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', text)
    assert policy is not None
    hashes = {
        tag: base64.b64encode(hashlib.sha256(found[1].encode()).digest()).decode()
        for tag in ("style", "script")
        if (found := re.search(rf"<{tag}>(.*?)</{tag}>", text, re.DOTALL)) is not None
    }
    assert policy[1] == (
        f"default-src 'none'; style-src 'sha256-{hashes['style']}'; "
        f"script-src 'sha256-{hashes['script']}'; base-uri 'none'; form-action 'none'"
    )


def test_hostile_names_are_text() -> None:
    """Each is shown as it is in the file, with what is not printable escaped."""
    read = Read(example_pages.page("hostile"))
    rows = "\n".join(read.texts["th"])
    assert all(clean(name.replace("/", "~1")) in rows for name in HOSTILE)
    assert clean(HOSTILE[0]) in read.texts["h2"][0]


@THOROUGH
@given(models())
def test_every_layer_has_a_row(selected: SelectedInspection) -> None:
    """For any names, each row has as many cells as the header."""
    read = Read(HTML.render(selected, View()))
    (model,) = selected.inspection.models
    heads = [attributes for tag, attributes in read.tags if tag == "th"]
    rows = [attributes for attributes in heads if attributes.get("scope") == "row"]
    columns = len(heads) - len(rows)
    assert len(rows) == len(model.layers)
    assert len(read.texts.get("td", [])) == len(rows) * max(0, columns - 1)


def test_pages_of_a_directory_are_linked() -> None:
    """The index is last and links to every other file."""
    files = example_pages.files()
    *others, last = files
    assert last == "index.html"
    links = [attributes["href"] for tag, attributes in Read(files[last]).tags if tag == "a"]
    assert links == others
    assert all(re.fullmatch(r"\d{4}-[A-Za-z0-9._-]{1,60}\.html", name) for name in others)


@pytest.mark.parametrize(
    ("reporters", "found"),
    [
        (CHECK_REPORTERS, example_checks.CASES["failure"]),
        (TUNE_REPORTERS, example_tunings.CASES["failure"]),
        (DIFFERENCE_REPORTERS, Differences(outcome=try_diff("gone.h5", "gone.h5"))),
    ],
    ids=["check", "tune", "diff"],
)
def test_page_contains_errors(reporters: Any, found: Any) -> None:
    """Failures are not only on stderr."""
    read = Read(example_pages.html(reporters).render(found, View()))
    assert "Errors" in read.texts["h2"]
    assert "gone.h5" in read.texts["code"]
    assert not any("nothing to report" in text for text in read.texts.get("p", []))


def test_fragment_has_no_script() -> None:
    """A notebook shows the part of a page that needs none."""
    from policytool.reports import html
    from policytool.reports.inspection import page

    text = html.fragment(page(example_pages.hostile_model(), View()))
    read = Read(text)
    assert "script" not in read.texts
    assert read.tags[0] == ("div", {"class": "policytool"})


def test_length_of_bars_is_proportional_to_the_amount() -> None:
    amounts = [3.0, 1.0, 0.0]
    result = html.bars(
        Bars(title="", bars=tuple(Bar(label="", value=amount, text="") for amount in amounts))
    )
    assert [item.percent for item in result] == [100.0, 33.33, 0.0]
    assert html.bars(Bars(title="", bars=(Bar(label="", value=0.0, text=""),)))[0].percent == 0


def test_curves_show_infinite_and_missing_values() -> None:
    """Infinity is at the top, zero is at the bottom, and a missing value is a gap."""
    drawn = html.curves(
        Curves(
            title="",
            places=("a", "b", "c", "d"),
            curves=(Curve(label="x", values=(1e-3, None, float("inf"), 0.0)),),
        )
    )
    path = drawn.curves[0].path
    assert path.count("M") == 2
    assert "625.0 0.0h" in path
    assert path.endswith(f"875.0 {drawn.height}")
    assert drawn.places[0].text == "a: x 0.001"
    assert drawn.places[2].text == "c: x NaN or infinity"
    assert [tick.text for tick in drawn.ticks if not tick.y] == ["NaN or infinity"]
    assert drawn.names == ("a", "c", "d")


def test_many_places_share_points() -> None:
    """A point shows the largest value of its places."""
    values = tuple(1.0 + (at == 500) for at in range(1000))
    drawn = html.curves(
        Curves(
            title="",
            places=tuple(map(str, range(1000))),
            curves=(Curve(label="x", values=values),),
        )
    )
    assert len(drawn.places) == 334
    assert "498 to 500: x 2" in [place.text for place in drawn.places]


def test_histograms_and_ranges_share_an_axis() -> None:
    """The normal range begins where the bar of its first exponent does."""
    spread = Spread(label="", text="", counts=((-16, 1), (0, 4)), normal=(-14, 15))
    drawn = html.spreads(Spreads(title="", spreads=(spread,)))
    unit = drawn.width / (16 + 2 + 2 + 1)
    (one,) = drawn.first
    assert one.normal[0] == pytest.approx(4 * unit, abs=0.1)
    assert one.path.startswith(f"M{2 * unit:.1f} ")
    assert f"v-{drawn.row / 2:.1f}" in one.path


def test_edges_that_skip_rows_have_lanes() -> None:
    """A branch and its shortcut do not share a lane; a cycle ends; a chain stays in one lane."""
    drawn = grid([0, 1, 2, 3], [(0, 1), (1, 2), (0, 2), (2, 3)])
    assert drawn.rows == {0: 0, 1: 1, 2: 2, 3: 3}
    assert drawn.lanes == {0: 0, 1: 0, 2: 0, 3: 0}
    assert drawn.edges == {(0, 2): 1}
    assert grid([0, 1], [(0, 1), (1, 0)]).rows == {0: 0, 1: 0}
    assert grid([4, 7], []).rows == {4: 0, 7: 1}


def test_graph_has_blocks_and_connections() -> None:
    """Neighbors whose names begin alike are a block, and edges end at their layers."""
    paths = ["net/in", *(f"net/block1_{letter}" for letter in "abcd"), "net/out"]
    layers = [
        replace(example_pages.layer(path), name=path[4:], inputs=tuple(paths[max(0, at - 1) : at]))
        for at, path in enumerate(paths)
    ]
    drawn = layer_graph(
        "", [example_pages.layer("net"), *layers], lambda layer: LayerMark(text=layer.path[-1])
    )
    assert drawn is not None
    assert [node.label for node in drawn.nodes if node.parent is None] == ["in", "block1", "out"]
    assert drawn.edges == ((0, 2), (2, 3), (3, 4), (4, 5), (5, 6))
    places = json.loads(graph_data(drawn))
    assert [node[4] for node in places["nodes"]] == [0, 1, 0, 1, 2, 3, 2]


def graphs(value: Any, page: Callable[[Any, View], Page]) -> list[Graph]:
    """Return the graphs of an HTML page."""
    groups = page(value, View(is_searchable=True)).groups
    return [block for group in groups for block in group if isinstance(block, Graph)]


def nodes(value: Any, page: Callable[[Any, View], Page]) -> dict[str, tuple[str, str]]:
    """Return the tone and the text of each node in the graphs of a page."""
    return {
        node.label: (node.tone.value, node.text)
        for graph in graphs(value, page)
        for node in graph.nodes
    }


def test_graph_of_check_shows_errors() -> None:
    """NaN has the colour of failures, and layers that were not measured have another one."""
    found = nodes(example_pages.checked(), checks.page)
    assert found["input"] == ("dim", "Dense")
    assert "bad" in {tone for tone, _ in found.values()}
    assert not graphs(example_checks.CASES["failing"], checks.page)


def test_graph_of_tune_shows_the_set() -> None:
    """Layers that stay in float32 differ from converted ones, whose error is shown."""
    found = nodes(example_pages.tuned(), tuning.page)
    assert found["energy"] == ("caution", "Dense · float32")
    assert found["logits"] == ("half", "Dense · 0.00044")
    assert found["input"] == ("", "Dense")


def test_graphs_of_diff_show_both_models() -> None:
    """Models with the same connections have one graph, others one for each side."""
    compared = example_pages.compared()
    assert [drawn.title.split(" by ")[0] for drawn in graphs(compared, differences.page)] == [
        "Layers of A",
        "Layers of B",
    ]
    paths = [FIXTURES / f"tf2.15/global_{policy}.h5" for policy in ("float32", "mixed_float16")]
    compared = Differences(outcome=try_diff(*map(str, paths)))
    assert len(graphs(compared, differences.page)) == 1
    assert nodes(compared, differences.page)["dense_a"] == ("mixed", "Dense · policy")


def test_graphs_of_audit_and_migrate_mark_layers() -> None:
    """A layer has the colour of its worst finding or of its change."""
    path = str(FIXTURES / "tf2.3/exp_mf16_fixed128.h5")
    options = auditing.audit_options(AuditArguments())
    found = nodes(auditing.audit(path, replace(options, draws_graph=True)), findings.page)
    assert found["dense_a"] == ("caution", "Dense · PT101")
    assert nodes(auditing.audit(path, options), findings.page) == {}
    inputs = list(discovery.inputs([path]))
    (migration,) = migrate_all(inputs, Options(to="mixed_bfloat16"), Destination(write=False))
    assert isinstance(migration, Migration)
    changed = nodes(Migrations(migrations=(migration,), failures=()), plans.page)
    assert changed["dense_a"] == ("mixed", "Dense · changed")


def test_block_has_the_largest_value_in_it() -> None:
    """Numbers of layers are not counted as texts are."""
    paths = ["net/in", *(f"net/block1_{letter}" for letter in "abcd"), "net/out"]
    layers = [replace(layer, name=layer.path[4:]) for layer in example_pages.chain(paths)]
    marks = {path: LayerMark(text=f"{at}e-3", value=at) for at, path in enumerate(paths)}
    marks["net/block1_a"] = LayerMark(text="float32")
    drawn = layer_graph("", layers, lambda layer: marks[layer.path])
    assert drawn is not None
    assert drawn.nodes[1].text == "1 float32, up to 4e-3"


def test_a_layer_around_others_shows_its_own_mark() -> None:
    """If the layers inside have no mark, such as those of a MultiHeadAttention."""
    paths = ["net", "net/mha", "net/mha/query", "net/mha/key", "net/dense"]
    chained = example_pages.chain(paths)
    layers = [replace(layer, name=layer.path.rpartition("/")[2]) for layer in chained]
    marks = {"net/mha": LayerMark(text="changed", tone=Tone.HALF)}
    drawn = layer_graph("", layers, lambda layer: marks.get(layer.path, LayerMark(text="")))
    assert drawn is not None
    (around,) = (node for node in drawn.nodes if node.label == "mha")
    assert (around.text, around.tone) == ("Dense · changed", Tone.HALF)


def test_rows_that_stand_for_others_are_before_them() -> None:
    """A folded row follows the row that opens it, and the label of the class is the last column."""
    folded = Row(cells=(Cell(text="b"), Cell(text="Dense"), Cell(text="1")), depth=1)
    like = Row(
        cells=(Cell(text="like a"), *[Cell(text="")] * 2), is_spanning=True, folded=(folded,)
    )
    columns = (
        Column(title="layer"),
        Column(title="class", is_last=True),
        Column(title="error"),
    )
    shown = html.prepare(Table(columns=columns, rows=(like,)))
    assert [row.folds for row in shown.rows] == [1, 0]
    assert [cell.text for cell in shown.rows[1].cells] == ["b", "1", "Dense"]


def test_further_names_are_opened() -> None:
    """A page has all names, and shows those that a terminal shows."""
    names = tuple(f"layer_{number}" for number in range(30))
    item = Item(text="found", names=names, most=3)
    text = html.render(Page(groups=((Listing(items=(item,)),),)), "")
    assert "<summary>layer_0, layer_1, layer_2 and 27 more</summary>" in text
    assert "layer_29" in text
    item = Item(text="found", names=names[:2], most=3)
    assert "<details" not in html.render(Page(groups=((Listing(items=(item,)),),)), "")


def test_command_is_broken_between_words() -> None:
    """A browser also breaks lines after hyphens, which would separate those of an option."""
    block = Command(label="to apply", words=("policytool", "migrate", "a b.h5", "--set", "<x>"))
    text = html.render(Page(groups=((block,),)), "")
    assert "<span>--set</span> <span>&#39;&lt;x&gt;&#39;</span>" in text
    text = html.render(Page(groups=((Sentence(text="use --inputs, or a<b"),),)), "")
    assert 'use <span class="option">--inputs</span>, or a&lt;b' in text


def test_measurements_are_no_choices() -> None:
    """A filter offers the few texts of a column, such as classes, and no numbers."""
    rows = [
        Row(
            cells=(
                Cell(text=f"layer_{number}"),
                Cell(text="Dense" * (number % 2)),
                Cell(text="0.5"),
            )
        )
        for number in range(20)
    ]
    rows[0] = rows[0]._replace(cells=(*rows[0].cells[:1], Cell(text="Conv2D"), Cell(text="0.25")))
    columns = tuple(Column(title=title) for title in ("layer", "class", "error"))
    shown = html.prepare(Table(columns=columns, rows=tuple(rows)))
    assert [found.title for found in shown.filters] == ["class"]
    assert shown.filters[0].choices == ("Conv2D", "Dense")
