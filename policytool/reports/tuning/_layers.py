"""
The layers of a search: the kept layers with the evidence, the converted layers with their margins,
those that were not tried, and the graph of all layers.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

from policytool.numerics.tuning.results import TOLERANCE
from policytool.releases.policy import policy_from_name
from policytool.reports import checks
from policytool.reports.page import (
    Cell,
    Column,
    Fact,
    Item,
    Listing,
    Section,
    Sentence,
    Tone,
    fields_section,
)
from policytool.reports.tuning._verdict import (
    NOT_FINITE,
    allowed_error,
    limit_words,
    promise_words,
)
from policytool.reports.words import HEADROOM, figure, many, reason_words, share
from policytool.support.grouping import group_pairs
from policytool.support.text.phrases import join_and_count

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from policytool.model.model import Layer
    from policytool.numerics.tuning.results import Trial, TunedLayer, Tuning
    from policytool.reports.layer_graph import LayerMark
    from policytool.reports.page import Graph

    Field = tuple[Column, Callable[[TunedLayer], Cell]]

_NUMBER: Final = 9
_LAYERS: Final = 10
_NAMED: Final = 3
"""The maximum number of layers that the table names for a reason; HTML and JSON name all."""

_LEAST_FLUSHED: Final = 0.001
_UNTRIED: Final = Cell(text="not tried", tone=Tone.DIM)
_IF_CONVERTED: Final = (
    "error and % of the limit: of the model, if this layer is also converted; above 100%, the "
    "objective is not met"
)
_BY_PREDICTIONS: Final = (
    "a layer with at most 100% stays in float32 because otherwise too many predictions may change "
    "in the rows that validate the set"
)
_BY_ITSELF: Final = "% of the limit: of the model, if only this layer is converted"


def kept_section(tuning: Tuning, *, everything: bool) -> Iterator[Section]:
    """Yield the table of the layers that stay in float32, in the order of the model."""
    kept_layers = [layer for layer in tuning.layers if layer.path in kept_paths(tuning)]
    closest = "" if tuning.best is not None else " in the closest set"
    yield from _layer_section(
        f"layers in float32{closest}",
        _kept_fields(tuning),
        kept_layers,
        None if everything or tuning.best is not None else _LAYERS,
        [_IF_CONVERTED, *([_BY_PREDICTIONS] if has_layers_for_predictions(tuning) else [])],
    )


def has_layers_for_predictions(tuning: Tuning) -> bool:
    """Return whether layers stay in float32 although the set without one is within the limit."""
    excesses = [layer.excess_if_converted for layer in tuning.kept]
    return any(excess is not None and excess <= 1 for excess in excesses)


def converted_section(tuning: Tuning, *, everything: bool) -> Iterator[Section]:
    """Yield the table of the converted layers, those with the smallest margin first."""
    converted = [layer for layer in tuning.layers if layer.path not in kept_paths(tuning)]
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
                text=f"{many(len(paths), 'layer')}: {reason_words(reason, len(paths))}",
                names=tuple(paths),
                most=None if everything else _NAMED,
            )
            for reason, paths in reasons.items()
        )
        yield Section(title="layers that were not tried", blocks=(Listing(items=items),))


def kept_paths(tuning: Tuning) -> frozenset[str]:
    """Return the layers in float32 of the best set, or of the closest one if none was found."""
    trial = tuning.best or tuning.closest
    return frozenset(trial.kept if trial is not None else ())


def _kept_fields(tuning: Tuning) -> Iterator[Field]:
    trials = {frozenset(trial.kept): trial for trial in tuning.trials}
    kept = kept_paths(tuning)

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
    if checks.has_narrow_range(_compute_dtype(tuning)):
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
        Column(title="class", minimum=18, priority=4, is_name=True, is_last=True),
        lambda layer: Cell(text=layer.class_name, tone=Tone.DIM),
    )


def _excess(value: float | None, trial: Trial | None) -> Cell | None:
    """Return the excess of a trial; None if there was none."""
    if value is None and trial is not None:
        value = trial.largest_excess
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
    if trial is not None and trial.promise is not None and trial.largest_excess <= 1:
        yield f"if it is converted, {promise_words(tuning, trial.promise)}"
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
    dtype = _compute_dtype(tuning)
    if not layer.is_finite:
        yield f"NaN or infinity in {dtype}"
    yield from checks.overflow_reasons([layer.largest], dtype)


def _compute_dtype(tuning: Tuning) -> str:
    return policy_from_name(tuning.policy).compute_dtype or tuning.policy


def _flushed(layer: TunedLayer) -> Iterator[str]:
    if layer.flushed is not None and layer.flushed >= _LEAST_FLUSHED:
        yield f"{share(layer.flushed)} of its values underflow to zero"


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


_LEGEND: Final = (
    Sentence(text="converted, with its own error", tone=Tone.HALF),
    Sentence(text="stays in float32", tone=Tone.CAUTION),
    Sentence(text="not tried"),
)
"""The colours of layers in the graph."""


def set_graph(tuning: Tuning) -> Graph | None:
    """Return the graph of the layers, coloured by the best set, with their errors and headroom."""
    from policytool.reports import layer_graph  # only HTML needs it

    tuned_layers = {layer.path: layer for layer in tuning.layers}
    kept = kept_paths(tuning)
    fields = {True: list(_kept_fields(tuning))[2:], False: list(_converted_fields(tuning))[2:]}

    def mark(layer: Layer) -> LayerMark:
        tuned = tuned_layers.get(layer.path)
        if tuned is None:
            details = [("reason", tuning.fixed.get(layer.path, ""))]
            text, tone, value = "", Tone.PLAIN, None
        else:
            is_kept = layer.path in kept
            details = [(column.title, cell(tuned).text) for column, cell in fields[is_kept]]
            text = "float32" if is_kept else _own_error(tuned).text
            value = None if is_kept else tuned.error
            tone = Tone.CAUTION if is_kept else Tone.HALF
        return layer_graph.LayerMark(
            text=text,
            tone=tone,
            value=value,
            details=tuple(Fact(label=label, text=value) for label, value in details if value),
        )

    return layer_graph.layer_graph(
        "Layers by dtype in this set, from input to output", tuning.connected_layers, mark, _LEGEND
    )
