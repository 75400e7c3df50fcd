"""
What the rules of numerics have in common: which models they judge, by which libraries, and how a
layer is set to float32.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from policytool.migration import planning
from policytool.migration.planning import options
from policytool.model.rounded_weights import compute_dtype, deciding, variables
from policytool.releases import targets
from policytool.releases.dtypes import HALVES
from policytool.rules.finding import Fix, Remedy

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from policytool.formats.casting import Counts
    from policytool.model.loaded_model import Subject
    from policytool.model.model import Layer
    from policytool.rules.base import Case, Question

SMALLEST_NORMAL: Final = 2.0**-14
"""Of float16; numbers below it have fewer digits."""

ROUNDS_TO_ZERO: Final = 2.0**-25
"""Half of float16's smallest number: what is not greater becomes 0."""

ROUNDS_TO_INFINITY: Final = 65520.0
"""
Half way from float16's largest finite number to what would be the next: what is not smaller becomes
infinite.
"""


def subject_of(case: Case, question: Question) -> Subject | None:
    """
    Return the model whose layers are judged; None where there is no config, and for TensorFlow.js,
    which computes in float32 whatever a policy says.

    A TensorFlow.js model counts where ``--target`` asks what a Keras makes of it.
    """
    return None if case.document.format == "tfjs" and not question.targets else case.subject


def libraries(subject: Subject, question: Question) -> tuple[str, ...]:
    """
    Return the libraries that count, as the newest release of each: the file's own, then those of
    the targets.
    """
    return targets.libraries(subject.loader, question.targets)


def computes_half(subject: Subject, index: int) -> bool:
    """Return whether a layer computes in 16 bits; an input layer computes nothing."""
    return compute_dtype(subject, index) in HALVES and not subject.is_input(index)


@dataclass(frozen=True, kw_only=True, slots=True)
class Rounded:
    """A stored variable that its layer rounds to its compute dtype."""

    subject: Subject
    index: int
    """The layer's."""

    name: str
    counts: Counts
    """What becomes of its values."""

    @property
    def layer(self) -> Layer:
        """The layer whose variable it is."""
        return self.subject.layers[self.index]


def rounded(case: Case, question: Question) -> Iterator[Rounded]:
    """
    Yield the stored variables that layers round, in model order; nothing where values were not
    read.
    """
    subject = subject_of(case, question)
    if subject is None or case.counts is None:
        return
    for index in range(len(subject.layers)):
        for name, tensor in variables(subject, index):
            if tensor.path in case.counts:
                yield Rounded(
                    subject=subject, index=index, name=name, counts=case.counts[tensor.path]
                )


def to_policy(subject: Subject, indices: Iterable[int], policy: str) -> Remedy | None:
    """
    Return what sets layers to a policy, each where its own stands; None where that is nowhere.
    """
    paths = [
        subject.layers[found].path
        for index in indices
        if (found := _holder(subject, index)) is not None
    ]
    if not paths:
        return None
    assignments = tuple((path, policy) for path in dict.fromkeys(paths))
    return Remedy(
        fix=Fix.UNSAFE,
        assignments=assignments,
        retrace=has_graph(subject) or _takes_retracing(subject, assignments),
    )


def to_float32(subject: Subject, indices: Iterable[int]) -> Remedy | None:
    """
    Return what has layers compute in float32, each by the policy that decides; None where nothing
    does.
    """
    return to_policy(subject, [deciding(subject, index) for index in indices], "float32")


def has_graph(subject: Subject) -> bool:
    """
    Return whether the file has signatures, which compute as they were traced until they are traced
    anew.
    """
    return bool(subject.analysis.model.signatures)


def _takes_retracing(subject: Subject, assignments: tuple[tuple[str, str], ...]) -> bool:
    """
    Return whether a SavedModel without signatures cannot be changed as it stands: its checkpoint
    holds 16 bits, or a layer computes as traced.
    """
    if not subject.is_saved_object:
        return False
    asked = tuple(options.Assignment(pattern=path, policy=name) for path, name in assignments)
    return bool(planning.planned(subject, options.Options(assignments=asked)).refusals)


def _holder(subject: Subject, index: int) -> int | None:
    """Return the layer that a layer has its policy from: itself, or the one that makes it."""
    here: int | None = index
    while here is not None and not subject.can_say(here):
        here = None if subject.sites[here].is_model else subject.sites[here].parent
    return here
