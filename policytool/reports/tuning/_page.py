"""
The page of ``tune``: the layers that stay in float32 with the reasons, the written model, the run,
the end of the search, the margins of the converted layers, and the error for each share of
converted layers, which is also a chart.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

from policytool.commands.migrate import Status
from policytool.formats.discovery import display_path
from policytool.numerics.check_results.verdicts import Answer
from policytool.numerics.tuning.results import Ending, Split
from policytool.numerics.verdicts.safety import largest_safe_change
from policytool.releases.releases import BACKENDS
from policytool.reports import checks, plans
from policytool.reports.page import (
    Block,
    Cell,
    Column,
    Command,
    Fact,
    Facts,
    Figures,
    Notes,
    Page,
    Point,
    Profile,
    Row,
    Section,
    Tone,
    table_section,
)
from policytool.reports.tuning import _layers
from policytool.reports.tuning._verdict import (
    NOT_FINITE,
    allowed_error,
    command,
    goals,
    is_error_only,
    limit_words,
    percent,
    point_command,
    reached_parts,
    verdict,
)
from policytool.reports.words import bytes_words, failure_facts, figure, many, share, upward

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from policytool.commands.migrate import Migration
    from policytool.numerics.tuning.results import CurvePoint, Trial, Tuning
    from policytool.reports.layout import View
    from policytool.reports.tuning._verdict import Tunings

_ROWS: Final = 10
_LEAST: Final = 2
"""The minimum number of points of a curve."""

_TITLE: Final = "error by share of converted layers"


def best_trials_section(tuning: Tuning, *, everything: bool) -> Iterator[Section]:
    """
    Yield a section with the best trial for each number of converted layers; nothing if all trials
    have the same number. Lists a selection of at most ``_ROWS`` numbers unless ``everything``,
    which also yields the commands that write the other sets.
    """
    points = tuning.curve
    if len(points) < _LEAST:
        return
    has_sizes = _bytes_differ(points)
    visible_points = points if everything else _chosen_rows(tuning, points)
    yield table_section(
        _TITLE,
        (
            Column(title="tried layers", minimum=12),
            Column(title="share", minimum=7),
            Column(title="largest error", minimum=13),
            Column(title="% of the limit", minimum=14),
            Column(title="on other rows", minimum=13, priority=2),
            Column(title="variables", minimum=9, priority=3),
            Column(title="result", minimum=6, priority=1),
        ),
        [_row(tuning, point, has_sizes=has_sizes) for point in visible_points],
        [
            "the best trial for each number of layers; above 100%, the objective is not met",
            *(
                ["on other rows: the largest change of predictions, at 95% confidence"]
                if any(map(_most, visible_points))
                else []
            ),
            *(
                ["-v and the JSON report have the commands that write the model with other sets"]
                if tuning.options_by_count and not everything
                else []
            ),
        ],
    )
    commands = tuple(
        Command(label=f"to convert {_count(tuning, point)} tried layers", words=words)
        for point in _chosen_rows(tuning, points)
        if point.converted and not is_chosen(tuning, point)
        for words in [point_command(tuning, point)]
        if words
    )
    if everything and commands:
        yield Section(title="commands for other sets", blocks=commands)


def curve_chart(tuning: Tuning) -> Iterator[Profile]:
    """
    Yield the chart of these trials: the error, or the excess if the objective has other parts.
    """
    points = tuning.curve
    if len(points) < _LEAST:
        return
    has_sizes = _bytes_differ(points)
    allowed = allowed_error(tuning.objective) if is_error_only(tuning.objective) else None
    value = "Largest error of an output" if allowed is not None else "Percent of the limit"
    yield Profile(
        title=f"{value} by share of converted layers",
        limit=1.0 if allowed is None else allowed,
        limit_text=f"limit: {percent(1.0) if allowed is None else figure(allowed)}",
        points=tuple(
            Point(
                share=point.share,
                value=_value(point, allowed),
                text=_point_text(tuning, point, has_sizes=has_sizes),
                is_missed=point.excess > 1,
                is_chosen=is_chosen(tuning, point),
            )
            for point in points
        ),
    )


def changes_chart(tuning: Tuning) -> Iterator[Profile]:
    """Yield the chart of the changes of predictions in rows that the search did not use."""
    curve = tuning.curve
    points = [
        (point, point.promise)
        for point in curve
        if point.promise is not None and point.promise.kind is not None
    ]
    if len(points) < _LEAST:
        return
    kind = points[0][1].kind
    assert kind is not None  # noqa: S101  # selected above
    has_sizes = _bytes_differ(curve)
    allowed = largest_safe_change(kind, tuning.objective.max_change)
    yield Profile(
        title="Largest change of predictions on other rows by share of converted layers",
        limit=allowed,
        limit_text=f"safe: {share(allowed)}",
        points=tuple(
            Point(
                share=point.share,
                value=math.inf if promised.spoiled or promised.most is None else promised.most,
                text=_point_text(tuning, point, has_sizes=has_sizes),
                is_missed=promised.answer is Answer.NOT_SAFE,
                is_chosen=is_chosen(tuning, point),
            )
            for point, promised in points
        ),
    )


def _value(point: CurvePoint, allowed: float | None) -> float:
    if allowed is None:
        return point.excess
    return math.inf if point.error is None else point.error


def _point_text(tuning: Tuning, point: CurvePoint, *, has_sizes: bool) -> str:
    error = NOT_FINITE if point.error is None else figure(point.error)
    parts = [f"{_count(tuning, point)} tried layers ({share(point.share)}): largest error {error}"]
    if most := _most(point):
        parts.append(f"largest change on other rows {most}")
    if has_sizes and point.bytes:
        parts.append(f"variables {bytes_words(point.bytes)}")
    return "; ".join(parts)


def _row(tuning: Tuning, point: CurvePoint, *, has_sizes: bool) -> Row:
    is_missed = point.excess > 1
    tone = Tone.BAD if is_missed else Tone.PLAIN
    error = NOT_FINITE if point.error is None else figure(point.error)
    chosen = "chosen" if is_chosen(tuning, point) else ""
    return Row(
        cells=(
            Cell(text=_count(tuning, point)),
            Cell(text=share(point.share)),
            Cell(text=error, tone=tone),
            Cell(text=limit_words(point.excess, point.error), tone=tone),
            Cell(text=_most(point)),
            Cell(text=bytes_words(point.bytes) if has_sizes and point.bytes else ""),
            Cell(text=chosen, tone=Tone.GOOD),
        ),
        is_missed=is_missed,
    )


def _most(point: CurvePoint) -> str:
    """Return the largest change of predictions in rows that the search did not use."""
    promised = point.promise
    if promised is None or promised.spoiled:
        return NOT_FINITE if promised is not None else ""
    return "" if promised.most is None else f"{figure(100 * promised.most)}%"


def _bytes_differ(points: Sequence[CurvePoint]) -> bool:
    """Return whether the size depends on the set, unlike under mixed policies."""
    return len({point.bytes for point in points}) > 1


def _count(tuning: Tuning, point: CurvePoint) -> str:
    return f"{point.converted:,} of {len(tuning.layers):,}"


def is_chosen(tuning: Tuning, point: CurvePoint) -> bool:
    """Return whether a point of the curve is the best set."""
    return tuning.best is not None and point.converted == len(tuning.layers) - len(tuning.best.kept)


def _chosen_rows(tuning: Tuning, points: Sequence[CurvePoint]) -> list[CurvePoint]:
    """Return the listed points: both ends, the best set with its neighbours, and some others."""
    if len(points) <= _ROWS:
        return list(points)
    last = len(points) - 1
    chosen = [at for at, point in enumerate(points) if is_chosen(tuning, point)]
    neighbours = [other for at in chosen for other in (at, at + 1, at - 1) if 0 <= other <= last]
    even_rows = [round(step * last / (_ROWS - 1)) for step in range(_ROWS)]
    order = list(dict.fromkeys([0, last, *neighbours, *even_rows]))
    return [points[at] for at in sorted(order[:_ROWS])]


def _figures(tuning: Tuning) -> Figures:
    """Return the size of the set, and how much of the limit it uses."""
    trial = tuning.best or tuning.closest
    figures = [
        ("layers in float32", f"{tuning.float32_count:,}"),
        ("layers converted", f"{tuning.layer_count - tuning.float32_count:,}"),
        *([("of the limit", percent(trial.largest_excess))] if trial is not None else []),
        ("trials", f"{len(tuning.trials):,}"),
    ]
    return Figures(figures=tuple(Fact(label=label, text=text) for label, text in figures))


_OTHERS: Final = "every second batch, which the search did not use"
_SHARED: Final = "every second batch, which the search used too because its rows are too few"
_SAME_INPUTS: Final = "none: the inputs cannot be split, so the search used all of them"
_FAILED: Final = frozenset({Status.BLOCKED, Status.MISSED})


def output_facts(tuning: Tuning, migration: Migration) -> Iterator[Fact]:
    """Yield the facts about the output model."""
    status = migration.status
    tone = Tone.GOOD if status is Status.WRITTEN else Tone.BAD if status in _FAILED else Tone.PLAIN
    words = (
        f"{'written' if status is Status.WRITTEN else 'would be written'}; quantized by "
        f"{tuning.reference.library}; {plans.loads_in(migration)}"
        if tuning.is_quantization
        else plans.headline(migration, names_changes=False)
    )
    if status in {Status.WRITTEN, Status.PLANNED} and migration.target is not None:
        words = f"{display_path(migration.target)}, {words}"
    yield Fact(label="output", text=words, tone=tone)
    yield from (
        Fact(label="problem", text=refusal.message, tone=Tone.BAD)
        for refusal in migration.plan.refusals
    )


def facts(tuning: Tuning) -> Iterator[Fact]:
    """Yield the facts about the objective, the inputs, and the end of the search."""
    yield Fact(label="objective", text="; ".join(goals(tuning)))
    if tuning.passed and tuning.best is not None:
        yield Fact(label="reached", text="; ".join(reached_parts(tuning, tuning.best)))
    if tuning.metric is not None:
        yield Fact(
            label="metric", text=checks.metric_sentence(tuning.metric).removeprefix("metric ")
        )
    yield Fact(label="policy", text=_policy(tuning))
    yield Fact(label="reference", text=" · ".join(_reference(tuning)))
    yield Fact(label="inputs", text=checks.input_words(tuning.inputs))
    yield Fact(label="validation", text="; ".join(_validation(tuning)))
    yield Fact(label="device", text=" · ".join(checks.device_words(tuning.device)))
    yield Fact(label="versions", text=" · ".join(_versions(tuning)))
    yield Fact(label="search", text="; ".join(_search(tuning)))
    yield Fact(label="ended", text=_describe_ending(tuning))


def _policy(tuning: Tuning) -> str:
    if not tuning.passed:
        return f"{tuning.policy} for up to {many(len(tuning.layers), 'layer')}"
    rule_count = sum(layer.rule is not None for layer in tuning.converted)
    by_rule = (
        f", including {rule_count:,} that migrate keeps in float32 by default" if rule_count else ""
    )
    return (
        f"{tuning.policy} for {tuning.layer_count - tuning.float32_count:,} of "
        f"{many(tuning.layer_count, 'layer')}{by_rule}"
    )


def _reference(tuning: Tuning) -> Iterator[str]:
    yield f"the same model in {tuning.reference.policy or 'its own policies'}"
    _, *further_words = checks.side_words(tuning.reference)
    yield from further_words


def _validation(tuning: Tuning) -> Iterator[str]:
    """Yield the inputs that validated the set, its excess on them, and the layers for it."""
    if tuning.split is Split.NONE:
        yield _SAME_INPUTS
        return
    best = tuning.best
    excess = best.validation if best is not None else None
    inputs = _SHARED if tuning.split is Split.SHARED else _OTHERS
    yield inputs if excess is None else f"{inputs}: {percent(excess)} of the limit"
    if tuning.margin:
        yield f"for these rows, {many(tuning.margin, 'layer')} more in float32"


def _versions(tuning: Tuning) -> Iterator[str]:
    backend = tuning.reference.backend
    release = f"{BACKENDS[backend]} {tuning.versions.get(backend)}"
    if backend in tuning.versions:
        yield release
    library = tuning.reference.library
    if library and library.lower() != release.lower():
        yield library
    yield f"{tuning.reference.backend} backend"


def _search(tuning: Tuning) -> Iterator[str]:
    yield (f"{many(len(tuning.trials), 'trial')} in {figure(tuning.seconds)} s, seed {tuning.seed}")
    if tuning.resumed:
        verb = "is" if tuning.resumed == 1 else "are"
        yield f"{tuning.resumed:,} of the trials {verb} from an earlier search (--resume)"


def _describe_ending(tuning: Tuning) -> str:
    """Return why the search ended, and the consequence for the set."""
    match tuning.ending:
        case Ending.MINIMAL if not tuning.kept:
            return "the objective is met with all tried layers converted"
        case Ending.MINIMAL:
            return _minimality(tuning)
        case Ending.IMPOSSIBLE:
            return "the objective is not met with all layers in float32"
        case Ending.TRIALS:
            return "the search reached the number of trials in --budget"
        case Ending.TIME:
            return "the search reached the time in --budget"
        case Ending.INTERRUPTED:
            return "the search was interrupted"


def _minimality(tuning: Tuning) -> str:
    if tuning.margin:
        return "each removal of one layer fails, except of those for the margin"
    changes = (
        ", or too many predictions may change,"
        if _layers.has_layers_for_predictions(tuning)
        else ""
    )
    layers = (
        tuning.kept[0].path
        if len(tuning.kept) == 1
        else f"any one of the {many(len(tuning.kept), 'tried layer')} in float32"
    )
    trial_words = f"the objective is not met{changes} if {layers} is converted"
    if tuning.is_minimum:
        return (
            f"{trial_words}; no smaller set meets it, if additional layers in float32 never "
            "increase the error"
        )
    return f"{trial_words}; a smaller set of other layers may exist"


_ROUNDING: Final = 1e-9
_INCOMPLETE: Final = {
    Ending.TRIALS: "--budget",
    Ending.TIME: "--budget",
    Ending.INTERRUPTED: "",
}
"""Ends of an incomplete search, each with the option that continues it."""


def page(tunings: Tunings, view: View) -> Page:
    """Return the page; an empty one if nothing could run."""
    failures = failure_facts(tunings.failures)
    if tunings.tuning is None:
        return Page(groups=(), failures=failures)
    return Page(groups=(tuple(_blocks(tunings, tunings.tuning, view)),), failures=failures)


def caveats(tuning: Tuning) -> Iterator[str]:
    """Yield the open questions of the result."""
    yield from checks.input_caveats(tuning.inputs)
    if tuning.split is Split.NONE and tuning.best is not None:
        yield "the set was not validated on other inputs, which may need more layers in float32"
    yield from checks.side_caveats(tuning.reference)
    yield from checks.device_caveats(tuning.device, tuning.reference.backend)


def advice(tunings: Tunings, tuning: Tuning) -> Iterator[str]:
    """Yield how to continue an incomplete search, and what to do if no set of layers was found."""
    if tuning.ending in _INCOMPLETE and (tuning.kept or not tuning.passed):
        options = {word.partition("=")[0] for word in tunings.arguments}
        yield _continuation(tuning.ending, is_recorded="--resume" in options)
    if not tuning.passed and is_error_only(tuning.objective):
        yield from _tolerance_advice(tuning, tuning.best or tuning.closest)


def _tolerance_advice(tuning: Tuning, trial: Trial | None) -> Iterator[str]:
    """Yield the tolerance that a set meets, if only the errors of whole outputs are too large."""
    allowed = allowed_error(tuning.objective)
    if trial is None or trial.error is None or allowed is None or trial.largest_excess <= 1:
        return
    if math.isclose(trial.largest_excess * allowed, trial.error, rel_tol=_ROUNDING):
        yield (
            f"the closest set, with {many(tuning.float32_count, 'layer')} in float32, would meet "
            f"--tolerance {upward(trial.error)}"
        )


def _continuation(ending: Ending, *, is_recorded: bool) -> str:
    option = _INCOMPLETE[ending]
    larger = f" with a larger {option}" if option else ""
    if is_recorded:
        return f"the same command{larger} continues the search"
    return (
        f"add --resume FILE to record the trials, so that the same command{larger} can continue "
        "the search later"
    )


def _blocks(tunings: Tunings, tuning: Tuning, view: View) -> Iterator[Block]:
    everything = tunings.everything or view.is_searchable
    yield verdict(tuning)
    if words := command(tunings):
        yield Command(label="to apply", words=words)
    if view.is_searchable:
        yield _figures(tuning)
        if drawing := _layers.set_graph(tuning):
            yield drawing
    output = output_facts(tuning, tunings.migration) if tunings.migration is not None else ()
    yield Facts(facts=(*output, *facts(tuning)))
    if left_open := tuple(caveats(tuning)):
        yield Section(title="caveats", blocks=(Notes(texts=left_open),))
    if tuning.ending is not Ending.IMPOSSIBLE:
        yield from _layers.kept_section(tuning, everything=everything)
        yield from _layers.converted_section(tuning, everything=everything)
    if view.is_searchable:
        yield from curve_chart(tuning)
        yield from changes_chart(tuning)
    yield from best_trials_section(tuning, everything=everything)
    yield from _layers.fixed_section(tuning, everything=everything)
    notes = [
        *advice(tunings, tuning),
        *(note.message for note in tuning.notes),
        *tuning.inputs.notes,
    ]
    if notes:
        yield Section(title="notes", blocks=(Notes(texts=tuple(dict.fromkeys(notes))),))
