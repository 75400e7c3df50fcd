"""
Pages as HTML: a single file without external resources, several files with an index, or a part of a
notebook.

A page has a Content-Security-Policy that allows only its own style and script, by their hashes.
Text from models is data: templates escape it, and replace unprintable characters by their numbers.
Long tables have filters.

The functions for charts are pure: they compute positions in a drawing from values. Text has the
same size at every width of the window; therefore bars are in percent, and lines are in a separate
drawing that is stretched.
"""

from __future__ import annotations

import base64
import hashlib
import math
import re
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Final, NamedTuple

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from policytool.reports import layout
from policytool.reports.html.graph_layout import graph_data
from policytool.reports.layout import escape_unprintable
from policytool.reports.page import INDEX, Cell, Chart, Page, Tone, Verdict
from policytool.support.project import VERSION

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from policytool.reports.page import (
        Bar,
        Bars,
        Block,
        Column,
        Curve,
        Curves,
        Point,
        Profile,
        Row,
        Spread,
        Spreads,
        Table,
    )

WIDTH: Final = 1000
"""The width of a stretched drawing, in units."""

HEIGHT: Final = 240
"""The height of the drawing of curves, in units and pixels."""

_MOST_POINTS: Final = 400
"""
The maximum number of points of a curve; several places then share a point with their largest value.
"""

_MOST_SPREADS: Final = 400
"""The maximum number of histograms in a chart."""

_FIRST_SPREADS: Final = 12

_LEAST_DECADES: Final = 2
_NOT_FINITE: Final = "NaN or infinity"
_NAME: Final = 16
"""The maximum number of characters of a name below an axis."""

_DOT: Final = 4
"""The width of a point, in units."""

_INSET: Final = 6
"""The margin for labels at both ends of an axis of shares, in percent of the width."""

_ROW: Final = 24
"""The height of a histogram, in units."""

_MARGIN: Final = 2
"""The number of exponents between the values and each end of the axis."""


class DrawnBar(NamedTuple):
    """A bar; its length is in percent of the longest bar."""

    bar: Bar
    percent: float


def bars(chart: Bars) -> tuple[DrawnBar, ...]:
    """Return the drawings of bars."""
    largest = max((bar.value for bar in chart.bars), default=0.0)
    return tuple(
        DrawnBar(bar=bar, percent=round(100 * bar.value / largest, 2) if largest else 0.0)
        for bar in chart.bars
    )


class Tick(NamedTuple):
    """A power of ten on the axis."""

    y: float
    text: str


class DrawnCurve(NamedTuple):
    """A curve as a path, with its number in the legend."""

    label: str
    number: int
    path: str


class Place(NamedTuple):
    """A vertical strip of the drawing, and the values of the curves in it."""

    x: float
    width: float
    text: str


class DrawnCurves(NamedTuple):
    """Curves on a logarithmic axis."""

    width: int
    height: int
    ticks: tuple[Tick, ...]
    curves: tuple[DrawnCurve, ...]
    places: tuple[Place, ...]
    names: tuple[str, ...]
    """The first, the middle and the last place, below the axis."""


def curves(chart: Curves) -> DrawnCurves:
    """Return the drawings of curves; infinite values are at the top, and zeros at the bottom."""
    size = -(-len(chart.places) // _MOST_POINTS) if chart.places else 1
    groups = [range(len(chart.places))[at : at + size] for at in range(0, len(chart.places), size)]
    points = {
        curve.label: [_largest(curve.values[index] for index in group) for group in groups]
        for curve in chart.curves
    }
    plotted_values = [value for values in points.values() for value in values]
    lowest_power, highest_power, ticks = _axis(plotted_values)
    places = chart.places
    step = WIDTH / max(1, len(groups))
    return DrawnCurves(
        width=WIDTH,
        height=HEIGHT,
        ticks=ticks,
        curves=tuple(
            DrawnCurve(
                label=label, number=number, path=_path(values, step, lowest_power, highest_power)
            )
            for number, (label, values) in enumerate(points.items())
        ),
        places=tuple(
            Place(
                x=round(at * step, 2),
                width=round(step, 2),
                text=_place_text(chart.places, group, chart.curves),
            )
            for at, group in enumerate(groups)
        ),
        names=tuple(
            _short_name(places[at]) for at in sorted({0, len(places) // 2, len(places) - 1})
        )
        if places
        else (),
    )


def _axis(values: Sequence[float | None]) -> tuple[int, int, tuple[Tick, ...]]:
    """
    Return the powers of ten of the axis, and its ticks. Infinite values have a line above all
    powers, and zeros a line below them.
    """
    lowest_power, highest_power = _decades(values)
    has_infinity = any(value is not None and math.isinf(value) for value in values)
    has_zero = any(value is not None and value <= 0 for value in values)
    lowest_power, highest_power = lowest_power - has_zero, highest_power + has_infinity
    names = {**({HEIGHT: "0"} if has_zero else {}), **({0: _NOT_FINITE} if has_infinity else {})}
    ticks = [tick for tick in _ticks(lowest_power, highest_power) if tick.y not in names]
    return (
        lowest_power,
        highest_power,
        (*ticks, *(Tick(y=y, text=text) for y, text in names.items())),
    )


def _short_name(place: str) -> str:
    name = place.rpartition("/")[2]
    return name if len(name) <= _NAME else f"{name[: _NAME - 1]}…"


def _largest(values: Iterator[float | None]) -> float | None:
    return max((value for value in values if value is not None), default=None)


def _decades(values: Sequence[float | None]) -> tuple[int, int]:
    """Return the powers of ten that enclose all values that can be plotted on a log scale."""
    plotted_values = [
        value for value in values if value is not None and value > 0 and not math.isinf(value)
    ]
    lowest = math.floor(math.log10(min(plotted_values, default=1.0)))
    highest = math.ceil(math.log10(max(plotted_values, default=1.0)))
    return lowest, max(highest, lowest + _LEAST_DECADES)


def _height(value: float, lowest_power: int, highest_power: int) -> float:
    if value <= 0:
        return HEIGHT
    if math.isinf(value):
        return 0.0
    return round(HEIGHT * (highest_power - math.log10(value)) / (highest_power - lowest_power), 1)


def _path(
    values: Sequence[float | None], step: float, lowest_power: int, highest_power: int
) -> str:
    """Return the commands of a path, with gaps if values are missing."""
    words: list[str] = []
    is_down = False
    for at, value in enumerate(values):
        if value is None or math.isnan(value):
            is_down = False
            continue
        x, y = (at + 0.5) * step, _height(value, lowest_power, highest_power)
        words.append(f"{'L' if is_down else 'M'}{x:.1f} {y}")
        if not is_down:  # a point by itself is seen, too
            words.append(f"h{min(_DOT, step / 2):.1f}")
        is_down = True
    return "".join(words)


def _place_text(places: Sequence[str], group: range, curves: Sequence[Curve]) -> str:
    names = places[group[0]] if len(group) == 1 else f"{places[group[0]]} to {places[group[-1]]}"
    values = (
        f"{curve.label} {_NOT_FINITE if math.isinf(value) else f'{value:.3g}'}"
        for curve in curves
        if (value := _largest(curve.values[index] for index in group)) is not None
    )
    return f"{names}: {', '.join(values)}"


class DrawnPoint(NamedTuple):
    """A point; its position is in percent of the width."""

    point: Point
    x: float
    y: float


class DrawnProfile(NamedTuple):
    """Points on a line, and the limit."""

    width: int
    height: int
    ticks: tuple[Tick, ...]
    shares: tuple[tuple[float, str], ...]
    """Positions in percent of the width, each with its share."""

    path: str
    points: tuple[DrawnPoint, ...]
    limit: float


def profile(chart: Profile) -> DrawnProfile:
    """Return the positions of the points; infinite values are at the top."""
    lowest_power, highest_power, ticks = _axis(
        [chart.limit, *(point.value for point in chart.points)]
    )
    points = tuple(
        DrawnPoint(
            point=point,
            x=_percent(point.share),
            y=_height(point.value, lowest_power, highest_power),
        )
        for point in sorted(chart.points, key=lambda point: point.share)
    )
    return DrawnProfile(
        width=WIDTH,
        height=HEIGHT,
        ticks=ticks,
        shares=tuple((_percent(part / 4), f"{25 * part}%") for part in range(5)),
        path="L".join(
            f"{drawn_point.x * WIDTH / 100:.1f} {drawn_point.y}" for drawn_point in points
        ),
        points=points,
        limit=_height(chart.limit, lowest_power, highest_power),
    )


def _percent(share: float) -> float:
    """Return the position of a share on an axis, which has room for labels at both ends."""
    return round(_INSET + (100 - 2 * _INSET) * share, 2)


def _ticks(lowest_power: int, highest_power: int) -> tuple[Tick, ...]:
    return tuple(
        Tick(
            y=round(HEIGHT * (highest_power - power) / (highest_power - lowest_power), 1),
            text=f"1e{power}",
        )
        for power in range(
            lowest_power, highest_power + 1, max(1, (highest_power - lowest_power) // 6)
        )
    )


class DrawnSpread(NamedTuple):
    """A histogram as a path, and the range of its dtype."""

    spread: Spread
    path: str
    normal: tuple[float, float]
    """The start and the width of the range of normal numbers."""


class DrawnSpreads(NamedTuple):
    """Histograms on one axis of exponents."""

    width: int
    row: int
    ticks: tuple[tuple[float, str], ...]
    """Labels of powers of two, each with its position in percent of the width."""

    first: tuple[DrawnSpread, ...]
    rest: tuple[DrawnSpread, ...]
    """Histograms in the part that the reader unfolds."""

    left_out: int


def spreads(chart: Spreads) -> DrawnSpreads:
    """Return the drawings of histograms on a common axis; their largest bars are equally high."""
    listed_spreads = chart.spreads[:_MOST_SPREADS]
    exponents = [exponent for spread in listed_spreads for exponent, _ in spread.counts]
    low = min(exponents, default=0) - _MARGIN
    high = max(exponents, default=0) + _MARGIN + 1
    unit = WIDTH / (high - low)

    def draw(spread: Spread) -> DrawnSpread:
        start, end = (
            round(unit * (min(max(exponent, low), high) - low), 1)
            for exponent in (spread.normal[0], spread.normal[1] + 1)
        )
        path = _histogram(spread.counts, low, unit)
        return DrawnSpread(spread=spread, path=path, normal=(start, round(end - start, 1)))

    drawn = tuple(map(draw, listed_spreads))
    step = max(2, 2 * round((high - low) / 16))
    return DrawnSpreads(
        width=WIDTH,
        row=_ROW,
        ticks=tuple(
            (round(100 * (power - low) / (high - low), 2), f"2^{power}")
            for power in range(low - low % -step, high, step)
            if low < power
        ),
        first=drawn[:_FIRST_SPREADS],
        rest=drawn[_FIRST_SPREADS:],
        left_out=len(chart.spreads) - len(listed_spreads),
    )


def _histogram(counts: Sequence[tuple[int, int]], low: int, unit: float) -> str:
    largest = max((count for _, count in counts), default=0)
    words = []
    for exponent, count in counts:
        # The square root lets small shares be seen, which are what overflows and underflows.
        height = _ROW * math.sqrt(count / largest) if largest else 0.0
        words.append(f"M{unit * (exponent - low):.1f} {_ROW}v-{height:.1f}h{unit:.1f}V{_ROW}z")
    return "".join(words)


_SEARCHED: Final = 12
"""The minimum number of rows of a table with a search field."""

_CHOICES: Final = 12
"""The maximum number of different texts in a column with a filter."""

_DEEPEST: Final = 12
"""The number of indented levels of a tree; deeper levels are indented like the last of them."""


class Filter(NamedTuple):
    """A filter by the texts of a column."""

    title: str
    column: int
    """The index among the visible columns."""

    choices: tuple[str, ...]


class ShownRow(NamedTuple):
    """A row of the visible columns."""

    cells: tuple[Cell, ...]
    depth: int
    indent: int
    above: str
    """The start of the first cell's full name that its label omits."""

    is_spanning: bool
    is_missed: bool
    folds: int
    """The number of rows after it that readers open with it."""


class ShownTable(NamedTuple):
    """A table without empty columns, and with filters."""

    columns: tuple[Column, ...]
    rows: tuple[ShownRow, ...]
    filters: tuple[Filter, ...]
    is_searched: bool


def prepare(table: Table) -> ShownTable:
    """
    Return the table without columns that have no text in any row, and with the columns last that do
    not answer its question.
    """
    first, *others = table.shown
    indices = [first, *sorted(others, key=lambda index: table.columns[index].is_last)]
    is_searched = len(_unfolded(table)) >= _SEARCHED
    return ShownTable(
        columns=tuple(table.columns[index] for index in indices),
        rows=tuple(_rows(table, indices)),
        filters=tuple(_filters(table, indices)) if is_searched else (),
        is_searched=is_searched,
    )


def _rows(table: Table, indices: list[int]) -> Iterator[ShownRow]:
    """
    Yield the rows. A row without a label gets the label of the row above, which a search may hide.
    """
    label = Cell(text="")
    for row in _unfolded(table):
        first = row.cells[0]
        label = first if first.text else label._replace(tone=Tone.DIM)
        yield ShownRow(
            cells=(label, *(row.cells[index] for index in indices[1:])),
            depth=row.depth,
            indent=min(row.depth, _DEEPEST),
            above=label.whole.removesuffix(label.text) if label.whole.endswith(label.text) else "",
            is_spanning=row.is_spanning,
            is_missed=row.is_missed,
            folds=len(row.folded),
        )


def _unfolded(table: Table) -> list[Row]:
    """Return the rows, each before those that it stands for."""
    return [row for folder in table.rows for row in (folder, *folder.folded)]


def _filters(table: Table, indices: list[int]) -> list[Filter]:
    """Return filters for columns with few different texts, except columns of measurements."""
    filters = []
    rows = _unfolded(table)
    for place, index in enumerate(indices[1:], start=1):
        texts = sorted({row.cells[index].text for row in rows} - {""})
        if 1 < len(texts) <= _CHOICES and not any(text[0].isdigit() for text in texts):
            filters.append(
                Filter(title=table.columns[index].title, column=place, choices=tuple(texts))
            )
    return filters


_OPTION: Final = re.compile(r"(?<!\S)(--[a-z][a-z-]*)")
_PARTS: Final = re.compile(r"(?<=[/_])(?=[^/_])")
_BEYOND: Final = re.compile(r"[^A-Za-z0-9._-]+")
_NAME_CHARACTERS: Final = 60


def render(page: Page, title: str) -> str:
    """Return a page as an HTML document; ``title`` names the command."""
    subjects = [subject for group in page.groups if (subject := _subject(group))]
    full_title = f"{title}: {subjects[0]}" if len(subjects) == 1 else title
    return _document("page.html", title=full_title, heading=title, page=page)


def render_directory(page: Page, title: str) -> Mapping[str, str]:
    """
    Return the contents of files by name: a page for each group with a subject, and then an index
    with the verdicts.
    """
    files: dict[str, str] = {}
    entries: list[tuple[str, Verdict]] = []
    about: list[tuple[Block, ...]] = []
    for group in page.groups:
        verdict = group[0]
        if not isinstance(verdict, Verdict) or not verdict.subject:
            about.append(group)
            continue
        name = f"{len(files) + 1:04}-{_file_part(verdict.subject)}.html"
        files[name] = render(Page(groups=(group,)), title)
        entries.append((name, verdict))
    files[INDEX] = _document(
        "index.html",
        title=title,
        heading=title,
        page=Page(groups=tuple(about), failures=page.failures),
        charts=[block for group in about for block in group if isinstance(block, Chart)],
        entries=tuple(entries),
    )
    return files


def fragment(page: Page) -> str:
    """Return a page as an HTML element for a notebook, with its style and without scripts."""
    template = _environment().get_template("fragment.html")
    return template.render(style=Markup(_source("style.css")), page=page)  # noqa: S704  # our own


def _document(name: str, **values: object) -> str:
    style, script = (_source(file) for file in ("style.css", "script.js"))
    return (
        _environment()
        .get_template(name)
        .render(
            style=Markup(style),  # noqa: S704  # our own
            script=Markup(script),  # noqa: S704  # our own
            style_hash=_digest(style),
            script_hash=_digest(script),
            version=VERSION,
            **values,
        )
    )


@cache
def _environment() -> Environment:
    """
    Return the environment of the templates. It fails for undefined names, and escapes all values.
    """
    environment = Environment(
        loader=PackageLoader("policytool.reports.html"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        keep_trailing_newline=True,
        lstrip_blocks=True,
        finalize=_printable,
    )
    environment.filters.update(
        kind=lambda block: type(block).__name__,
        prose=_prose,
        breakable=_breakable,
        command=_command,
        table=prepare,
        curves=curves,
        spreads=spreads,
        bars=bars,
        graph=graph_data,
        profile=profile,
    )
    return environment


@cache
def _source(name: str) -> str:
    """
    Return the content of a file in the directory of the templates, without the last line break.
    """
    return files(__name__).joinpath("templates", name).read_text(encoding="utf-8").strip()


@cache
def _digest(text: str) -> str:
    """Return the hash of an inline style or script, as a Content-Security-Policy names it."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def _printable(value: object) -> object:
    return (
        escape_unprintable(value)
        if isinstance(value, str) and not isinstance(value, Markup)
        else value
    )


def _prose(text: str) -> Markup:
    """Return a sentence with words between backticks as code."""
    pieces = layout.SPAN.split(escape_unprintable(text))  # every second one stood between backticks
    return Markup().join(
        Markup("<code>{}</code>").format(piece) if position % 2 else _with_whole_options(piece)
        for position, piece in enumerate(pieces)
    )


def _with_whole_options(text: str) -> Markup:
    """Return a text whose options are not broken after their hyphens."""
    return Markup().join(
        Markup('<span class="option">{}</span>').format(piece) if position % 2 else escape(piece)
        for position, piece in enumerate(_OPTION.split(text))
    )


def _command(words: Sequence[str]) -> Markup:
    """Return a command whose lines end between words, not after the hyphens of an option."""
    return Markup(" ").join(
        Markup("<span>{}</span>").format(escape_unprintable(layout.quote(word))) for word in words
    )


def _breakable(name: str) -> Markup:
    """Return a name that a narrow page breaks between its parts."""
    parts = _PARTS.split(escape_unprintable(name))
    return Markup("<wbr>").join(parts)


def _subject(group: Sequence[Block]) -> str:
    return next((block.subject for block in group if isinstance(block, Verdict)), "")


def _file_part(subject: str) -> str:
    """Return the last characters of a path that are safe in a file name and in a link."""
    return _BEYOND.sub("-", subject)[-_NAME_CHARACTERS:].strip("-.") or "model"
