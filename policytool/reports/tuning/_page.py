"""
The page of ``tune``: the layers that stay in float32 with the reasons, the written model, the run,
the end of the search, and the margins of the converted layers.

The tables are the kept layers with the evidence, the converted layers with their margins, and the
error for each share of converted layers, which is also a chart.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

from policytool.commands.migrate import Status
from policytool.formats.discovery import display_path
from policytool.numerics.tuning.results import TOLERANCE, Ending, Split
from policytool.releases.policy import policy_from_name
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
    Graph,
    Item,
    Listing,
    Notes,
    Page,
    Point,
    Profile,
    Row,
    Section,
    Sentence,
    Tone,
    fields_section,
    table_section,
)
from policytool.reports.tuning._verdict import (
    NOT_FINITE,
    allowed_error,
    command,
    goals,
    is_error_only,
    largest_excess,
    limit_words,
    percent,
    verdict,
)
from policytool.reports.words import HEADROOM, failure_facts, figure, many, share, upward
from policytool.support.grouping import group_pairs
from policytool.support.text.phrases import join_and_count

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from policytool.commands.migrate import Migration
    from policytool.model.model import Layer
    from policytool.numerics.tuning.results import CurvePoint, Trial, TunedLayer, Tuning
    from policytool.reports.layer_graph import LayerMark
    from policytool.reports.layout import View
    from policytool.reports.tuning._verdict import Tunings

    Field = tuple[Column, Callable[[TunedLayer], Cell]]

_NUMBER: Final = 9
_LAYERS: Final = 10
_NAMED: Final = 3
"""The maximum number of layers that the table names for a reason; HTML and JSON name all."""

_LEAST_FLUSHED: Final = 0.001
_UNTRIED: Final = Cell(text="not tried", tone=Tone.DIM)
_IF_CONVERTED: Final = (
    "error and % of the limit: of the model, if this layer is also converted; at most 100% meets "
    "the objective"
)
_BY_ITSELF: Final = "% of the limit: of the model, if only this layer is converted"


def kept_section(tuning: Tuning, *, everything: bool) -> Iterator[Section]:
    """Yield the table of the layers that stay in float32, in the order of the model."""
    kept_layers = [layer for layer in tuning.layers if layer.path in _kept_paths(tuning)]
    closest = "" if tuning.best is not None else " in the closest set"
    yield from _layer_section(
        f"layers in float32{closest}",
        _kept_fields(tuning),
        kept_layers,
        None if everything or tuning.best is not None else _LAYERS,
        [_IF_CONVERTED],
    )


def converted_section(tuning: Tuning, *, everything: bool) -> Iterator[Section]:
    """Yield the table of the converted layers, those with the smallest margin first."""
    converted = [layer for layer in tuning.layers if layer.path not in _kept_paths(tuning)]
    yield from _layer_section(
        "converted layers, smallest margin first",
        _converted_fields(tuning),
        sorted(converted, key=lambda layer: -_share_of_margin(tuning, layer)),
        None if everything else _LAYERS,
        [_BY_ITSELF] if any(layer.excess_by_itself is not None for layer in converted) else (),
    )


def _layer_section(
    title: str,
    layer_fields: Iterable[Field],
    layers: Sequence[TunedLayer],
    most: int | None,
    sentences: Sequence[str] = (),
) -> Iterator[Section]:
    """Yield a table of layers with these columns; nothing without layers."""
    hidden_count = len(layers) - len(layers[:most])
    hint = f"{many(hidden_count, 'more layer')} not shown; use -v to show all"
    if layers:
        yield fields_section(
            title, layer_fields, layers[:most], [*sentences, *([hint] if hidden_count else [])]
        )


def fixed_section(tuning: Tuning, *, everything: bool) -> Iterator[Section]:
    """Yield the layers in float32 that were not tried, by reason."""
    if reasons := group_pairs((reason, path) for path, reason in tuning.fixed.items()):
        items = tuple(
            Item(
                text=f"{many(len(paths), 'layer')}: {reason}",
                names=join_and_count(paths, None if everything else _NAMED),
            )
            for reason, paths in reasons.items()
        )
        yield Section(title="layers that were not tried", blocks=(Listing(items=items),))


def _kept_paths(tuning: Tuning) -> frozenset[str]:
    """Return the layers in float32 of the best set, or of the closest one if none was found."""
    trial = tuning.best or tuning.closest
    return frozenset(trial.kept if trial is not None else ())


def _kept_fields(tuning: Tuning) -> Iterator[Field]:
    trials = {frozenset(trial.kept): trial for trial in tuning.trials}
    kept = _kept_paths(tuning)

    def without(layer: TunedLayer) -> Trial | None:
        return trials.get(kept - {layer.path})

    yield from _names(Tone.CAUTION)
    yield (
        Column(title="% of the limit", minimum=14),
        lambda layer: _excess(layer.excess_if_converted, without(layer)) or _UNTRIED,
    )
    yield (
        Column(title="error if converted", minimum=_NUMBER, priority=2),
        lambda layer: _trial_error(without(layer)),
    )
    yield (
        Column(title="reason", minimum=24, priority=1, is_beneath=True),
        lambda layer: Cell(text="; ".join(_evidence(tuning, layer, without(layer)))),
    )


def _converted_fields(tuning: Tuning) -> Iterator[Field]:
    trials = {frozenset(trial.kept): trial for trial in tuning.trials}
    paths = frozenset(layer.path for layer in tuning.layers)
    yield from _names(Tone.PLAIN)
    yield Column(title="own error", minimum=_NUMBER), _own_error
    yield Column(title="headroom", minimum=8), _headroom
    yield (
        Column(title="% of the limit", minimum=14, priority=2),
        lambda layer: (
            _excess(layer.excess_by_itself, trials.get(paths - {layer.path})) or Cell(text="")
        ),
    )
    yield (
        Column(title="details", minimum=20, priority=1, is_beneath=True),
        lambda layer: Cell(text="; ".join(_details(tuning, layer))),
    )


def _names(tone: Tone) -> Iterator[Field]:
    yield (
        Column(title="layer", minimum=20, is_name=True),
        lambda layer: Cell(text=layer.path, tone=tone),
    )
    yield (
        Column(title="class", minimum=10, priority=4),
        lambda layer: Cell(text=layer.class_name, tone=Tone.DIM),
    )


def _excess(value: float | None, trial: Trial | None) -> Cell | None:
    """Return the excess of a trial; None if there was none."""
    if value is None and trial is not None:
        value = trial.excess
    if value is None:
        return None
    error, failure = (trial.error, trial.failure) if trial is not None else (None, None)
    return Cell(text=limit_words(value, error, failure), tone=Tone.BAD if value > 1 else Tone.PLAIN)


def _trial_error(trial: Trial | None) -> Cell:
    if trial is None or trial.failure is not None:
        return Cell(text="")
    return Cell(text=NOT_FINITE if trial.error is None else figure(trial.error))


def _own_error(layer: TunedLayer) -> Cell:
    if layer.error is None and not layer.is_finite:
        return Cell(text=NOT_FINITE, tone=Tone.BAD)
    return Cell(text=figure(layer.error))


def _headroom(layer: TunedLayer) -> Cell:
    if layer.headroom is None:
        return Cell(text="")
    tone = Tone.CAUTION if layer.headroom < HEADROOM else Tone.PLAIN
    return Cell(text=f"{figure(layer.headroom)}x", tone=tone)


def _evidence(tuning: Tuning, layer: TunedLayer, trial: Trial | None) -> Iterator[str]:
    """Yield the effects of converting a layer."""
    if trial is not None and trial.failure is not None:
        yield f"the model fails to run: {trial.failure}"
    yield from _overflow(tuning, layer)
    if layer.error is not None:
        yield f"own error {figure(layer.error)}"
    if layer.is_finite and layer.headroom is not None and 1 <= layer.headroom < HEADROOM:
        yield f"headroom {figure(layer.headroom)}x"
    yield from _flushed(layer)
    if layer.decides:
        yield f"it also decides the dtype of {join_and_count(layer.decides, _NAMED)}"
    if layer.rule is not None:
        yield f"migrate keeps it in float32 by default: {layer.rule}"


def _details(tuning: Tuning, layer: TunedLayer) -> Iterator[str]:
    if layer.rule is not None:
        yield f"converted although migrate keeps it in float32 by default: {layer.rule}"
    yield from _overflow(tuning, layer)
    yield from _flushed(layer)


def _overflow(tuning: Tuning, layer: TunedLayer) -> Iterator[str]:
    """Yield the reason if a layer's values leave the range of its dtype."""
    dtype = policy_from_name(tuning.policy).compute_dtype or tuning.policy
    if not layer.is_finite:
        yield f"NaN or infinity in {dtype}"
    yield from checks.overflow_reasons([layer.largest], dtype)


def _flushed(layer: TunedLayer) -> Iterator[str]:
    if layer.flushed is not None and layer.flushed >= _LEAST_FLUSHED:
        yield f"{share(layer.flushed)} of its values become zero"


def _share_of_margin(tuning: Tuning, layer: TunedLayer) -> float:
    """Return the share of its margin that a converted layer uses, by the largest measurement."""
    if not layer.is_finite:
        return math.inf
    allowed = allowed_error(tuning.objective) or TOLERANCE
    return max(
        (layer.error or 0.0) / allowed,
        1 / layer.headroom if layer.headroom else 0.0,
        layer.excess_by_itself or 0.0,
    )


_ROWS: Final = 10
_LEAST: Final = 2
"""The minimum number of points of a curve."""

_TITLE: Final = "error by share of converted layers"


def best_trials_section(tuning: Tuning, *, everything: bool) -> Iterator[Section]:
    """
    Yield a section with the best trial for each number of converted layers; nothing if all trials
    have the same number. Lists a selection of at most ``_ROWS`` numbers unless ``everything``.
    """
    points = tuning.curve
    if len(points) < _LEAST:
        return
    visible_points = points if everything else _chosen_rows(tuning, points)
    yield table_section(
        _TITLE,
        (
            Column(title="layers", minimum=10),
            Column(title="share", minimum=7),
            Column(title="largest error", minimum=13),
            Column(title="% of the limit", minimum=14),
            Column(title="result", minimum=6, priority=1),
        ),
        [_row(tuning, point) for point in visible_points],
        ["the best trial for each number of layers; above 100%, the objective is not met"],
    )


def curve_chart(tuning: Tuning) -> Iterator[Profile]:
    """
    Yield the chart of these trials: the error, or the excess if the objective has other parts.
    """
    points = tuning.curve
    if len(points) < _LEAST:
        return
    allowed = allowed_error(tuning.objective) if is_error_only(tuning.objective) else None
    value = "Largest error of an output" if allowed is not None else "Percent of the limit"
    yield Profile(
        title=f"{value} by share of converted layers",
        limit=1.0 if allowed is None else allowed,
        limit_text=f"limit: {percent(1.0) if allowed is None else figure(allowed)}",
        points=tuple(
            Point(
                share=point.share,
                value=_value(tuning, point, allowed),
                text=_point_text(tuning, point),
                is_missed=_is_missed(tuning, point),
                is_chosen=_is_chosen(tuning, point),
            )
            for point in points
        ),
    )


def _value(tuning: Tuning, point: CurvePoint, allowed: float | None) -> float:
    if allowed is None:
        return _point_excess(tuning, point)
    return math.inf if point.error is None else point.error


def _point_text(tuning: Tuning, point: CurvePoint) -> str:
    error = NOT_FINITE if point.error is None else figure(point.error)
    return f"{_count(tuning, point)} layers ({share(point.share)}): largest error {error}"


def _row(tuning: Tuning, point: CurvePoint) -> Row:
    is_missed = _is_missed(tuning, point)
    tone = Tone.BAD if is_missed else Tone.PLAIN
    error = NOT_FINITE if point.error is None else figure(point.error)
    chosen = "chosen" if _is_chosen(tuning, point) else ""
    used = _point_excess(tuning, point)
    return Row(
        cells=(
            Cell(text=_count(tuning, point)),
            Cell(text=share(point.share)),
            Cell(text=error, tone=tone),
            Cell(text=limit_words(used, point.error), tone=tone),
            Cell(text=chosen, tone=Tone.GOOD),
        ),
        is_missed=is_missed,
    )


def _is_missed(tuning: Tuning, point: CurvePoint) -> bool:
    return _point_excess(tuning, point) > 1


def _point_excess(tuning: Tuning, point: CurvePoint) -> float:
    """
    Return the excess of a point; for the best set, the larger one of both halves of the inputs.
    """
    best = tuning.best
    if best is not None and _is_chosen(tuning, point):
        return largest_excess(best)
    return point.excess


def _count(tuning: Tuning, point: CurvePoint) -> str:
    return f"{point.converted:,} of {len(tuning.layers):,}"


def _is_chosen(tuning: Tuning, point: CurvePoint) -> bool:
    return tuning.best is not None and point.converted == len(tuning.layers) - len(tuning.best.kept)


def _chosen_rows(tuning: Tuning, points: Sequence[CurvePoint]) -> list[CurvePoint]:
    """Return the listed points: both ends, the best set with its neighbours, and some others."""
    if len(points) <= _ROWS:
        return list(points)
    last = len(points) - 1
    chosen = [at for at, point in enumerate(points) if _is_chosen(tuning, point)]
    neighbours = [other for at in chosen for other in (at, at + 1, at - 1) if 0 <= other <= last]
    even_rows = [round(step * last / (_ROWS - 1)) for step in range(_ROWS)]
    order = list(dict.fromkeys([0, last, *neighbours, *even_rows]))
    return [points[at] for at in sorted(order[:_ROWS])]


_LEGEND: Final = (
    Sentence(text="converted", tone=Tone.MIXED),
    Sentence(text="stays in float32", tone=Tone.CAUTION),
    Sentence(text="not tried"),
)
"""The colours of layers in the graph."""


def set_graph(tuning: Tuning) -> Graph | None:
    """Return the graph of the layers, coloured by the best set, with their errors and headroom."""
    from policytool.reports import layer_graph  # only HTML needs it

    tuned_layers = {layer.path: layer for layer in tuning.layers}
    kept = _kept_paths(tuning)
    fields = {True: list(_kept_fields(tuning))[2:], False: list(_converted_fields(tuning))[2:]}

    def mark(layer: Layer) -> LayerMark:
        tuned = tuned_layers.get(layer.path)
        if tuned is None:
            details = [("reason", tuning.fixed.get(layer.path, ""))]
            text, tone = "", Tone.PLAIN
        else:
            is_kept = layer.path in kept
            details = [(column.title, cell(tuned).text) for column, cell in fields[is_kept]]
            text = "float32" if is_kept else f"error {_own_error(tuned).text}"
            tone = Tone.CAUTION if is_kept else Tone.MIXED
        return layer_graph.LayerMark(
            text=text,
            tone=tone,
            details=tuple(Fact(label=label, text=value) for label, value in details if value),
        )

    return layer_graph.layer_graph(
        "Layers by dtype in this set, from input to output", tuning.connected_layers, mark, _LEGEND
    )


def _figures(tuning: Tuning) -> Figures:
    """Return the size of the set, and how much of the limit it uses."""
    trial = tuning.best or tuning.closest
    kept = _kept_paths(tuning)
    figures = [
        ("layers in float32", f"{len(kept):,}"),
        ("layers converted", f"{len(tuning.layers) - len(kept):,}"),
        *([("of the limit", percent(largest_excess(trial)))] if trial is not None else []),
        ("trials", f"{len(tuning.trials):,}"),
    ]
    return Figures(figures=tuple(Fact(label=label, text=text) for label, text in figures))


_OTHERS: Final = {
    Split.BATCHES: "every second batch, which the search did not use",
}
_SAME_INPUTS: Final = {
    Split.NONE: "none: the inputs cannot be split, so the search used all of them",
    Split.USED: (
        "none: a set that met the objective failed on the other inputs, so the search used all of "
        "them"
    ),
}
_FAILED: Final = frozenset({Status.BLOCKED, Status.MISSED})


def output_facts(migration: Migration) -> Iterator[Fact]:
    """Yield the facts about the output model."""
    status = migration.status
    tone = Tone.GOOD if status is Status.WRITTEN else Tone.BAD if status in _FAILED else Tone.PLAIN
    words = plans.headline(migration)
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
    if tuning.metric is not None:
        yield Fact(
            label="metric", text=checks.metric_sentence(tuning.metric).removeprefix("metric ")
        )
    yield Fact(label="policy", text=_policy(tuning))
    yield Fact(label="reference", text=" · ".join(_reference(tuning)))
    yield Fact(label="inputs", text=checks.input_words(tuning.inputs))
    yield Fact(label="validation", text=_validation(tuning))
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
        f"{tuning.policy} for {len(tuning.converted):,} of {many(len(tuning.layers), 'layer')}"
        f"{by_rule}"
    )


def _reference(tuning: Tuning) -> Iterator[str]:
    yield f"the same model in {tuning.reference.policy or 'its own policies'}"
    _, *further_words = checks.side_words(tuning.reference)
    yield from further_words


def _validation(tuning: Tuning) -> str:
    """Return the inputs that validated the set, and its excess on them."""
    if tuning.split in _SAME_INPUTS:
        return _SAME_INPUTS[tuning.split]
    words = _OTHERS[tuning.split]
    if tuning.best is None or tuning.best.validation is None:
        return words
    return f"{words}: {percent(tuning.best.validation)} of the limit"


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
            return "the objective is met with all layers converted"
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
    trial_words = (
        "the objective is not met if the layer in float32 is converted"
        if len(tuning.kept) == 1
        else "the objective is not met if any one of the float32 layers is converted"
    )
    if tuning.is_minimum:
        return (
            f"{trial_words}; no smaller set meets it, if additional layers in float32 never "
            "increase the error"
        )
    return f"{trial_words} (each was tried); a smaller set of other layers may exist"


_SAME: Final = frozenset({Split.NONE, Split.USED})
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
    if tuning.split in _SAME and tuning.best is not None:
        yield "the set was not validated on other inputs, which may need more layers in float32"
    yield from checks.side_caveats(tuning.reference)
    yield from checks.device_caveats(tuning.device)


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
    if trial is None or trial.error is None or allowed is None or largest_excess(trial) <= 1:
        return
    if math.isclose(largest_excess(trial) * allowed, trial.error, rel_tol=_ROUNDING):
        yield (
            f"the closest set, with {many(len(trial.kept), 'layer')} in float32, would meet "
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
        if drawing := set_graph(tuning):
            yield drawing
    output = output_facts(tunings.migration) if tunings.migration is not None else ()
    yield Facts(facts=(*output, *facts(tuning)))
    if left_open := tuple(caveats(tuning)):
        yield Section(title="caveats", blocks=(Notes(texts=left_open),))
    if tuning.ending is not Ending.IMPOSSIBLE:
        yield from kept_section(tuning, everything=everything)
        yield from converted_section(tuning, everything=everything)
    if view.is_searchable:
        yield from curve_chart(tuning)
    yield from best_trials_section(tuning, everything=everything)
    yield from fixed_section(tuning, everything=everything)
    notes = [
        *advice(tunings, tuning),
        *(note.message for note in tuning.notes),
        *tuning.inputs.notes,
    ]
    if notes:
        yield Section(title="notes", blocks=(Notes(texts=tuple(dict.fromkeys(notes))),))
