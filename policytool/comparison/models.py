"""
Compares two models: the layers, the optimizer and the signatures.

If the format of one file cannot store a part, the other file's part is not a difference. A note
says that the part was not compared, and why.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from policytool.comparison import layers, variables
from policytool.comparison.pairing import (
    ComparedLayer,
    ComparedModel,
    Pairs,
    out_of_order,
    pair_layers,
    read_by,
)
from policytool.comparison.result import (
    Aspect,
    Comparison,
    ComparisonNote,
    ComparisonVerdict,
    LayerPair,
    Pairing,
    Presence,
    Side,
    ValueChange,
    VariablePair,
)
from policytool.comparison.variables import has_like_state, holds_optimizer, stored_variables
from policytool.formats import TITLES
from policytool.formats.document import Layout
from policytool.model.tree import INPUT_CLASS, LAYERS, children_of
from policytool.support.text.phrases import join_first

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from policytool.comparison.variables import Named, Opened
    from policytool.formats.document import Tensor


_WORDS: Final = {
    **TITLES,
    "savedmodel": "a SavedModel",
    "tfjs": "a TensorFlow.js model",
    "orbax": "an Orbax checkpoint",
}

_NAMED: Final = 3
"""Maximum number of layers that a note lists."""


def comparison_notes(
    a: ComparedModel, b: ComparedModel, layers: Sequence[LayerPair]
) -> Iterator[ComparisonNote]:
    """Yield a note for each part of a file that was not compared."""
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
    if _has_only_policy_changes(a, b, layers):
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


def _has_only_policy_changes(
    a: ComparedModel, b: ComparedModel, layers: Sequence[LayerPair]
) -> bool:
    """
    Return whether policies differ although graphs do not. This is the case after ``migrate``
    without ``--retrace``.
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
    """Yield a note on the layers that only the format of one model lists."""
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
    """Yield a note for each reason why values of variables were not compared."""
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


_NAMED_BY_CONFIG: Final = frozenset({Layout.LEGACY_H5, Layout.OBJECT_PATHS})
"""Layouts whose variables can be assigned to layers with the config of another file."""


def compare_models(
    a: ComparedModel,
    b: ComparedModel,
    opened: Opened,
    is_selected: Callable[[frozenset[str]], bool] | None = None,
) -> Comparison:
    """
    Compare two models.

    :param is_selected: returns whether to compare a layer with these paths; None to compare all
        layers, the optimizer and the signatures
    """
    if a.described != b.described:
        a, b = _read_by_each_other(a, b)
    work = _ModelComparison(a, b, pair_layers(a, b), opened)
    layer_pairs = tuple(work.layers(is_selected))
    return Comparison(
        a=_side(a),
        b=_side(b),
        layers=layer_pairs,
        optimizer=variables.optimizer_section(a, b, work.weights, opened)
        if is_selected is None
        else None,
        signatures=variables.signature_sections(a, b) if is_selected is None else (),
        notes=tuple(comparison_notes(a, b, layer_pairs)),
    )


def _side(subject: ComparedModel) -> Side:
    model = subject.model
    return Side(
        path=model.path,
        format=model.format,
        generation=model.generation,
        writer=model.writer,
        connected_layers=subject.loaded.connected_layers if subject.loaded is not None else (),
    )


def _read_by_each_other(a: ComparedModel, b: ComparedModel) -> tuple[ComparedModel, ComparedModel]:
    """
    Return the models, with the variables of a weights-only file assigned to the layers of the other
    file if its layout allows it.
    """
    if not a.described and a.document.layout in _NAMED_BY_CONFIG and b.sites:
        return read_by(a, b), b
    if not b.described and b.document.layout in _NAMED_BY_CONFIG and a.sites:
        return a, read_by(b, a)
    return a, b


class _ModelComparison:
    """The comparison of the layers of two models."""

    def __init__(self, a: ComparedModel, b: ComparedModel, pairs: Pairs, opened: Opened) -> None:
        self._a, self._b, self._pairs, self._opened = a, b, pairs, opened
        self._alone_a = _unpaired_layers(a, b, pairs.of_a.keys() | pairs.further_a.keys())
        self._alone_b = _unpaired_layers(b, a, pairs.of_b.keys() | pairs.further_b.keys())
        self._folded_a = _fold_variables(a, self._alone_a, pairs.of_a)
        self._folded_b = _fold_variables(b, self._alone_b, pairs.of_b)
        self._names_a = frozenset(layer.names for layer in a.layers)
        self._names_b = frozenset(layer.names for layer in b.layers)
        self._moves = self._find_moves()

    def layers(self, is_selected: Callable[[frozenset[str]], bool] | None) -> Iterator[LayerPair]:
        """Yield the comparisons of layers in the order of A, without layers that are left out."""
        for a, b in self._order():
            sides = [
                *([self._a.layers[a]] if a is not None else []),
                *([self._b.layers[b]] if b is not None else []),
            ]
            if is_selected is None or is_selected(_paths(*sides)):
                yield self._compare_layers(a, b)

    def _order(self) -> Iterator[tuple[int | None, int | None]]:
        """
        Yield the indices of the layers of A and of B that belong together, in the order of A. A
        layer that is only in B follows the layer that precedes it in B.
        """
        pairs = self._pairs
        behind: dict[int | None, list[int]] = defaultdict(list)
        last: int | None = None
        for b in range(len(self._b.layers)):
            if b in pairs.of_b:
                last = pairs.of_b[b]
            else:
                behind[last].append(b)
        for a in (None, *range(len(self._a.layers))):
            if a is not None:
                yield a, pairs.of_a.get(a, pairs.further_a.get(a))
            yield from ((pairs.further_b.get(b), b) for b in behind[a])

    def _compare_layers(self, a: int | None, b: int | None) -> LayerPair:
        """
        Return the comparison of two layers by their indices in A and B; None for a layer
        that is only in the other model.
        """
        if a is not None and b is not None:
            return (
                self._compare_pair(a, b, self._pairs.by[a])
                if self._pairs.of_a.get(a) == b
                else self._compare_further_place(self._a.layers[a], self._b.layers[b])
            )
        if a is not None:
            return self._one_sided(self._a.layers[a], Presence.A, listed=self._alone_a[a])
        if b is not None:
            return self._one_sided(self._b.layers[b], Presence.B, listed=self._alone_b[b])
        raise AssertionError("a pair has a layer")

    def weights(self) -> dict[Tensor, Tensor]:
        """Return the stored variables of A that are also in B, each with its counterpart."""
        partners: dict[Tensor, Tensor] = {}
        for a, b in self._pairs.of_a.items():
            partners |= variables.paired_tensors(*self._layer_variables(a, b), self._opened)
        return partners

    def _compare_pair(self, a: int, b: int, by: Pairing) -> LayerPair:
        """Return the comparison of two layers that were paired."""
        layer_a, layer_b = self._a.layers[a], self._b.layers[b]
        changes = [
            *layers.changes(self._a, self._b, (layer_a, layer_b), by),
            *layers.input_changes((layer_a, layer_b), self._a, self._b, self._pairs),
        ]
        if a in self._moves:
            is_wired = (
                layer_a.parent is not None
                and layer_b.parent is not None
                and self._is_wired(layer_a.parent, layer_b.parent)
            )
            changes.append(
                ValueChange(
                    aspect=Aspect.ORDER,
                    a=self._moves[a][0],
                    b=self._moves[a][1],
                    is_format_only=is_wired,
                )
            )
        changes += self._places(layer_a, layer_b)
        return LayerPair(
            a=layer_a.layer.path,
            b=layer_b.layer.path,
            class_name=layer_a.layer.class_name or layer_b.layer.class_name,
            paired=by,
            changes=tuple(changes),
            variables=self._variables(a, b),
        )

    def _is_wired(self, a: int, b: int) -> bool:
        """
        Return whether both models store the inputs of each layer, so that the order of their layers
        has no meaning.
        """
        return self._a.layers[a].ends is not None and self._b.layers[b].ends is not None

    def _one_sided(self, compared: ComparedLayer, side: Presence, *, listed: bool) -> LayerPair:
        """Return the comparison of a layer that is in one file only."""
        reason = self._no_variables() or (
            None if listed else "the other file does not list this layer"
        )
        path, own_variables = compared.layer.path, _named_variables(compared) if listed else []
        is_in_a = side is Presence.A
        return LayerPair(
            a=path if is_in_a else None,
            b=None if is_in_a else path,
            class_name=compared.layer.class_name,
            listed=listed,
            variables=variables.one_sided(
                own_variables if is_in_a else (), () if is_in_a else own_variables, reason
            ),
        )

    def _compare_further_place(self, a: ComparedLayer, b: ComparedLayer) -> LayerPair:
        """
        Return the comparison of another place of a shared layer, for which one file lists the layer
        and its variables again.
        """
        return LayerPair(
            a=a.layer.path,
            b=b.layer.path,
            class_name=a.layer.class_name,
            paired=Pairing.SHARED,
            changes=tuple(layers.changes(self._a, self._b, (a, b), Pairing.SHARED)),
            variables=variables.pair_variables(
                _named_variables(a), _named_variables(b), self._opened
            )
            if self._no_variables() is None
            else (),
        )

    def _variables(self, a: int, b: int) -> tuple[VariablePair, ...]:
        """
        Return the pairs of the variables of two layers, compared if both files store their values.
        """
        variables_a, variables_b = self._layer_variables(a, b)
        reason = self._no_variables()
        pairs = (
            variables.one_sided(variables_a, variables_b, reason)
            if reason
            else variables.pair_variables(variables_a, variables_b, self._opened)
        )
        loaded, site = self._a.loaded, self._a.layers[a].site
        return tuple(
            replace(pair, known_as=loaded.variable_name(site, pair.a.name))
            if loaded is not None and pair.a is not None and pair.name.isdecimal()
            else pair
            for pair in pairs
        )

    def _layer_variables(self, a: int, b: int) -> tuple[list[Named], list[Named]]:
        return (
            [*_named_variables(self._a.layers[a]), *self._folded_a.get(a, ())],
            [*_named_variables(self._b.layers[b]), *self._folded_b.get(b, ())],
        )

    def _no_variables(self) -> str | None:
        missing = [
            side for side, subject in (("A", self._a), ("B", self._b)) if not subject.has_variables
        ]
        return (
            (f"{' and '.join(missing)} contain{'s' if len(missing) == 1 else ''} no variables")
            if missing
            else None
        )

    def _find_moves(self) -> dict[int, tuple[int, int]]:
        """
        Return the layers of A whose order among their siblings differs in B, with both positions.
        Only siblings in both models are counted.
        """
        moved_positions = {}
        below_b = children_of(self._b.sites)
        for parent, children in children_of(self._a.sites).items():
            counterpart = self._pairs.of_a.get(parent) if parent is not None else None
            siblings = set(below_b.get(counterpart, ()))
            indices_a = [
                index
                for index in children
                if self._pairs.of_a.get(index) in siblings
                # the order has a meaning in the list of layers only
                and self._a.layers[index].attribute == LAYERS
            ]
            indices_b = sorted(self._pairs.of_a[index] for index in indices_a)
            rank = {index: place for place, index in enumerate(indices_b)}
            positions_in_b = [rank[self._pairs.of_a[index]] for index in indices_a]
            moved_positions.update(
                {
                    indices_a[position]: (position + 1, positions_in_b[position] + 1)
                    for position in out_of_order(positions_in_b)
                }
            )
        return moved_positions

    def _places(self, layer_a: ComparedLayer, layer_b: ComparedLayer) -> Iterator[ValueChange]:
        """Yield a change if a shared layer has places at which the other file has no layer."""
        places_a = sorted(
            "/".join(place)
            for place in layer_a.places - layer_b.places
            if place not in self._names_b
        )
        places_b = sorted(
            "/".join(place)
            for place in layer_b.places - layer_a.places
            if place not in self._names_a
        )
        if (places_a or places_b) and (len(layer_a.places) > 1 or len(layer_b.places) > 1):
            yield ValueChange(aspect=Aspect.SHARED, a=list(places_a), b=list(places_b))


def _paths(*compared_layers: ComparedLayer) -> frozenset[str]:
    return frozenset(
        path
        for compared in compared_layers
        for path in (compared.layer.path, *compared.layer.also_at)
    )


def _named_variables(compared: ComparedLayer) -> list[Named]:
    return list(zip(compared.layer.variables, compared.tensors, strict=True))


def _unpaired_layers(
    subject: ComparedModel, other: ComparedModel, known: set[int]
) -> dict[int, bool]:
    """
    Return the layers that are in this file only, each with whether the format of the other file can
    list such a layer.
    """
    listable: dict[int, bool] = {}
    for index, compared in enumerate(subject.layers):
        if index in known:
            continue
        parent = subject.layers[compared.parent] if compared.parent is not None else None
        by_attribute = subject.is_graph and not other.is_graph and compared.attribute != LAYERS
        no_input = (
            compared.layer.class_name == INPUT_CLASS
            and parent is not None
            and parent.layer.class_name == "Sequential"
        )
        below_unlisted = compared.parent is not None and listable.get(compared.parent) is False
        no_words = not other.described and not compared.layer.variables
        listable[index] = not (
            compared.implicit or by_attribute or no_input or below_unlisted or no_words
        )
    return listable


def _fold_variables(
    subject: ComparedModel, is_listable: dict[int, bool], known: dict[int, int]
) -> dict[int, list[Named]]:
    """
    Return the variables of layers that the other file cannot list, by the innermost listed layer
    that contains them. In the other file, this layer has the variables itself.
    """
    variables_by_layer: dict[int, list[Named]] = defaultdict(list)
    for index, listed in is_listable.items():
        path: list[str] = []
        above: int | None = index
        while above is not None and above not in known:
            path = [*subject.layers[above].names[-1:], *path]
            above = subject.layers[above].parent
        if above is not None and not listed:
            variables_by_layer[above] += [
                (replace(variable, name="/".join((*path, variable.name))), tensor)
                for variable, tensor in _named_variables(subject.layers[index])
            ]
    return variables_by_layer
