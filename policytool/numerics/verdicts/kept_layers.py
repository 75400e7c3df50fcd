"""
Which layers of the file stay in float32 so that a check passes: the pure part of the search, whose
trials :mod:`policytool.commands.check_trials` runs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from policytool.numerics.verdicts import origins
from policytool.releases.dtypes import HALVES
from policytool.releases.layer_classes import layer_facts

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from policytool.model.loaded_model import LoadedModel
    from policytool.numerics.check_results.checks import CheckRun
    from policytool.numerics.check_results.metrics import LayerCall


@dataclass(frozen=True, kw_only=True, slots=True)
class Choices:
    """The layers of a candidate whose policy the file holds and that compute in 16 bits."""

    paths: tuple[str, ...]

    @classmethod
    def of(cls, loaded: LoadedModel) -> Choices:
        """Return the choices among a file's layers."""
        return cls(
            paths=tuple(
                layer.path
                for index, layer in enumerate(loaded.layers)
                if layer.compute_dtype in HALVES
                and loaded.can_say(index)
                and not loaded.is_input(index)
                and not layer_facts(layer.class_name).is_op_layer
            )
        )

    def unit(self, path: str) -> frozenset[str]:
        """Return the selectable layers among a layer and all layers below it."""
        below = f"{path}/"
        return frozenset(
            candidate
            for candidate in self.paths
            if candidate == path or candidate.startswith(below)
        )


def propose(run: CheckRun, choices: Choices) -> frozenset[str]:
    """
    Return the layers to keep in float32 according to the diagnosis: each blamed layer as a whole,
    for ops the layers that compute their inputs, and layers in which the rounding of others shows.
    """
    layers: set[str] = set()
    for charge in origins.charges(run):
        layers |= units(run, charge.call, choices)
        if charge.seen_in is not None:
            layers |= units(run, charge.seen_in, choices, producers=False)
    return frozenset(layers)


def units(run: CheckRun, place: int, choices: Choices, *, producers: bool = True) -> frozenset[str]:
    """
    Return the layers of the file that decide in which dtype a call computes: the layer, or the
    outermost layer, other than a model, that calls it; for an op, the layers that compute its
    inputs.
    """
    layers: set[str] = set()
    seen: set[int] = set()
    pending = [place]
    while pending:
        number = pending.pop()
        if number in seen:
            continue
        seen.add(number)
        call = run.calls[number]
        owner = _owner(run.calls, call)
        chosen = choices.unit(owner.path)
        if chosen and not owner.is_model:
            layers |= chosen
        elif producers and call.trace is not None:
            pending += call.trace.producers
    return frozenset(layers)


def _owner(calls: Sequence[LayerCall], call: LayerCall) -> LayerCall:
    """Return the outermost layer around a call, other than a model, or the call itself."""
    owner = call
    while owner.trace is not None and owner.trace.within is not None:
        outer = calls[owner.trace.within]
        if outer.is_model:
            return owner
        owner = outer
    return owner


def neighbours(run: CheckRun, kept: Iterable[str], choices: Choices) -> frozenset[str]:
    """Return the layers that compute the inputs of kept layers, or receive their outputs."""
    inside = set(kept)
    member = [bool(units(run, place, choices) & inside) for place in range(len(run.calls))]
    layers: set[str] = set()
    for place, call in enumerate(run.calls):
        for producer in call.trace.producers if call.trace is not None else ():
            if member[place] and not call.is_model:
                layers |= units(run, producer, choices)
            if member[producer]:
                layers |= units(run, place, choices)
    return frozenset(layers - inside)


def by_loss(run: CheckRun, choices: Choices) -> list[frozenset[str]]:
    """
    Return the units of all calls, largest loss first. The loss is the call's own error, or the
    share of its values that become zero.
    """
    losses: dict[frozenset[str], float] = {}
    for place, call in enumerate(run.calls):
        unit = units(run, place, choices) if not call.is_model else frozenset()
        if unit:
            flushed = [output.accumulated.flushed for output in call.outputs if output.accumulated]
            loss = max(origins.own_error(call), *(share or 0.0 for share in flushed), 0.0)
            losses[unit] = max(losses.get(unit, 0.0), loss)
    return sorted(losses, key=lambda unit: -losses[unit])
