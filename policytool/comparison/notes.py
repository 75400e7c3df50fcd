"""What was not compared, and why: a file that cannot hold something is not different for it."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

from policytool.comparison.optimizer_state import stored_variables
from policytool.comparison.result import (
    Aspect,
    ComparisonNote,
    ComparisonVerdict,
    Pairing,
    Presence,
)
from policytool.comparison.sections import has_like_state, holds_optimizer
from policytool.formats import TITLES
from policytool.support.shorten import join_first

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from policytool.comparison.result import LayerPair
    from policytool.comparison.sides import ComparedModel

_WORDS: Final = {**TITLES, "savedmodel": "a SavedModel", "tfjs": "a TensorFlow.js model"}

_NAMED: Final = 3
"""How many layers a note names."""


def comparison_notes(
    a: ComparedModel, b: ComparedModel, layers: Sequence[LayerPair]
) -> Iterator[ComparisonNote]:
    """Yield a note for each thing that one file has and the comparison left out."""
    yield from _unsupported_parts("A", a, b)
    yield from _unsupported_parts("B", b, a)
    if (
        not a.described
        and not b.described
        and "savedmodel" in {a.document.format, b.document.format}
    ):
        yield ComparisonNote(
            code="graphs",
            message="graphs are not compared op by op; only signatures and variables are compared",
        )
    if _computes_alike(a, b, layers):
        yield ComparisonNote(
            code="traced-alike",
            message="policies differ, but the traced dtypes of the layers do not, so the "
            "models behave identically on servers that run the graphs",
        )
    yield from _unlisted_layers(layers)
    if (
        a.optimizer is not None
        and b.optimizer is not None
        and not has_like_state(a, b)
        and (stored_variables(a) or stored_variables(b))
    ):
        yield ComparisonNote(
            code="optimizer-state",
            message="the variables of the two optimizers cannot be matched and are not compared",
        )
    if any(layer.paired is Pairing.SHARED for layer in layers):
        yield ComparisonNote(
            code="shared-places",
            message="one file lists each shared layer once, and the other lists it at every use; "
            "every use is compared",
        )
    yield from _unread(layers)


def _computes_alike(a: ComparedModel, b: ComparedModel, layers: Sequence[LayerPair]) -> bool:
    """
    Return whether policies differ and graphs do not: what migrate leaves, which traces nothing anew
    by itself.
    """
    aspects = {change.aspect for layer in layers for change in layer.differences}
    return a.is_traced and b.is_traced and Aspect.POLICY in aspects and Aspect.TRACED not in aspects


def _unsupported_parts(
    name: str, side: ComparedModel, other: ComparedModel
) -> Iterator[ComparisonNote]:
    """Yield a note for each part of the other file that this file's format cannot store."""
    title = _WORDS.get(side.document.format, side.document.format)
    if not side.has_variables and other.has_variables:
        yield ComparisonNote(
            code="no-variables",
            message=f"{name} is {title}, which contains no variables, so the variables of the "
            "other file are not compared",
        )
    if not side.described and other.described:
        yield ComparisonNote(
            code="variables-only",
            message=f"{name} contains no layers, so classes, policies and configs are not compared",
        )
    if other.optimizer is not None and not holds_optimizer(side):
        yield ComparisonNote(
            code="no-optimizer",
            message=(
                f"{name} is {title}, which contains no optimizer, so the optimizer of the other "
                "file is not compared"
            ),
        )
    if other.document.signatures and side.document.format != "savedmodel":
        yield ComparisonNote(
            code="no-signatures",
            message=f"{name} is {title}, which has no graph, so the signatures and traced dtypes "
            "of the other file are not compared",
        )
    elif other.is_traced and not side.is_traced:
        yield ComparisonNote(
            code="no-graph",
            message=f"{name} has no readable graph, so the traced dtypes of the other file are "
            "not compared",
        )
    if side.has_unknown_scales and not other.has_unknown_scales:
        yield ComparisonNote(
            code="loss-scale-unknown",
            message=f"{name} was written by TF 2.3 or 2.4, whose default loss scales differ, so "
            "the loss scale is not compared",
        )
    if (
        side.is_graph
        and not other.is_graph
        and any((layer.config or {}).get("has_input_vocabulary") for layer in side.layers)
    ):
        yield ComparisonNote(
            code="vocabulary",
            message=f"{name} stores vocabularies in its assets, which policytool does not read or "
            "compare",
        )


def _unlisted_layers(layers: Sequence[LayerPair]) -> Iterator[ComparisonNote]:
    unlisted = [layer for layer in layers if not layer.listed]
    for presence, name in ((Presence.A, "A"), (Presence.B, "B")):
        paths = [layer.path for layer in unlisted if layer.presence is presence]
        if paths:
            count = "1 layer is" if len(paths) == 1 else f"{len(paths)} layers are"
            listed = join_first(paths, _NAMED)
            yield ComparisonNote(
                code="unlisted-layers",
                message=f"{count} listed only in {name} because of its format ({listed}); this is "
                "not counted as a difference",
            )


def _unread(layers: Sequence[LayerPair]) -> Iterator[ComparisonNote]:
    reasons = Counter(
        variable.values.reason or ""
        for layer in layers
        for variable in layer.variables
        if variable.a is not None
        and variable.b is not None
        and variable.values.verdict is ComparisonVerdict.NOT_COMPARED
    )
    for reason, count in reasons.items():
        if reason:
            yield ComparisonNote(
                code="values-not-compared",
                message=f"the values of {count} variable{'s' if count != 1 else ''} are not "
                "compared: "
                f"{reason}",
            )
