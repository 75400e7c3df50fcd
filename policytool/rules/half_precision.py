"""
Layers that compute in 16 bits: the models and libraries to check, the numbers that float16 cannot
represent, and the remedies that set another policy.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from msgspec import Struct

from policytool.migration import planning
from policytool.migration.planning.options import Assignment, Options
from policytool.model.rounded_weights import compute_dtype, deciding
from policytool.releases import releases
from policytool.releases.dtypes import HALVES
from policytool.releases.layer_classes import layer_facts
from policytool.rules.base import Fix, Remedy
from policytool.support.text.jsontext import number

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from policytool.formats.casting import Counts
    from policytool.model.loaded_model import LoadedModel
    from policytool.model.model import Layer
    from policytool.rules.base import AuditOptions, RuleInput

SMALLEST_NORMAL: Final = 2.0**-14
"""The smallest normal number of float16; smaller numbers have fewer digits."""

ROUNDS_TO_ZERO: Final = 2.0**-25
"""Half of the smallest float16 number: absolute values up to this number become 0."""

ROUNDS_TO_INFINITY: Final = 65520.0
"""
The midpoint between the largest float16 number and the number that would follow it: absolute values
from this number on become infinite.
"""

_OVERFLOW: Final = "infinite"
_FLUSH: Final = "0"


def judged_model(case: RuleInput, options: AuditOptions) -> LoadedModel | None:
    """
    Return the model whose layers are checked. None for a file without a config, and for
    TensorFlow.js, which computes in float32 and ignores policies.

    A TensorFlow.js model is checked if ``--target`` names a release of Keras.
    """
    return None if case.document.format == "tfjs" and not options.targets else case.loaded


def libraries(loaded: LoadedModel, options: AuditOptions) -> tuple[str, ...]:
    """
    Return the newest release of each library to check: first the library of the file, then those of
    the targets.
    """
    return releases.libraries(loaded.loader, options.targets)


def computes_half(loaded: LoadedModel, index: int) -> bool:
    """Return whether a layer computes in 16 bits; False for an input layer."""
    return compute_dtype(loaded, index) in HALVES and not loaded.is_input(index)


class RoundedVariable(Struct, frozen=True, kw_only=True):
    """A stored variable that its layer rounds to its compute dtype."""

    loaded: LoadedModel
    index: int
    """The index of the layer."""

    name: str
    counts: Counts
    """Counts of its values after rounding."""

    @property
    def layer(self) -> Layer:
        """The layer that owns the variable."""
        return self.loaded.layers[self.index]


def rounded_variables(case: RuleInput, options: AuditOptions) -> Iterator[RoundedVariable]:
    """
    Yield the stored variables that layers round, in model order. Empty if values were not read.
    """
    loaded = judged_model(case, options)
    if loaded is None or case.counts is None:
        return
    for index in range(len(loaded.layers)):
        site = loaded.sites[index]
        for stored, tensor in loaded.placed.named_tensors(index):
            if tensor.path in case.counts:
                name, counts = loaded.variable_name(site, stored), case.counts[tensor.path]
                yield RoundedVariable(loaded=loaded, index=index, name=name, counts=counts)


def policy_remedy(loaded: LoadedModel, indices: Iterable[int], policy: str) -> Remedy | None:
    """
    Return the change that sets the policies of layers, or of the layers that create them; None if
    no policy is stored for any of them.
    """
    paths = [
        loaded.layers[holder].path
        for index in indices
        if (holder := _holder(loaded, index)) is not None
    ]
    if not paths:
        return None
    assignments = tuple((path, policy) for path in dict.fromkeys(paths))
    return Remedy(
        fix=Fix.UNSAFE,
        assignments=assignments,
        retrace=has_graph(loaded) or _requires_reexport(loaded, assignments),
    )


def float32_remedy(loaded: LoadedModel, indices: Iterable[int]) -> Remedy | None:
    """
    Return the change that makes layers compute in float32, by setting the policy that determines
    the dtype of each. None if no such policy can be changed.
    """
    return policy_remedy(loaded, [deciding(loaded, index) for index in indices], "float32")


def has_graph(loaded: LoadedModel) -> bool:
    """
    Return whether the file has signatures, which keep their traced dtypes until they are
    re-exported.
    """
    return bool(loaded.signatures)


def _requires_reexport(loaded: LoadedModel, assignments: tuple[tuple[str, str], ...]) -> bool:
    """
    Return whether a SavedModel without signatures cannot be edited in place, because its checkpoint
    has 16-bit values or a layer computes as traced.
    """
    if not loaded.is_saved_object:
        return False
    patterns = tuple(Assignment(pattern=path, policy=name) for path, name in assignments)
    return bool(planning.refusals(loaded, Options(assignments=patterns)))


def _holder(loaded: LoadedModel, index: int) -> int | None:
    """
    Return the layer whose config determines the policy of a layer: the layer itself, or the layer
    that creates it.
    """
    holder: int | None = index
    while holder is not None and not loaded.can_say(holder):
        holder = None if loaded.sites[holder].is_model else loaded.sites[holder].parent
    return holder


def numbers_out_of_range(
    class_name: str, config: Mapping[str, object]
) -> Iterator[tuple[str, float, str]]:
    """Yield each config key with a number that float16 cannot represent, with the rounded value."""
    for key, counts in layer_facts(class_name).cast_arguments.items():
        for value in numbers_in(config.get(key)):
            rounded = _float16_value(value)
            if rounded in counts:
                yield key, value, rounded or ""
                break


def _float16_value(value: float) -> str | None:
    if ROUNDS_TO_INFINITY <= abs(value) < float("inf"):
        return _OVERFLOW
    return _FLUSH if 0 < abs(value) <= ROUNDS_TO_ZERO else None


def numbers_in(value: object) -> list[float]:
    """Return the numbers in a value of a config: the value itself, or those in nested lists."""
    numbers: list[float] = []
    pending = [value]
    while pending:
        entry = pending.pop()
        if isinstance(entry, list):
            pending += reversed(entry)
        elif (amount := number(entry)) is not None:
            numbers.append(amount)
    return numbers
