"""The fields of the JSON report of ``diff``."""

from __future__ import annotations

from collections import Counter
from operator import attrgetter
from typing import TYPE_CHECKING, Final, NamedTuple

from msgspec import Struct

from policytool.comparison.result import Aspect, ComparisonVerdict, Pairing, Presence
from policytool.reports.fields import (
    AMOUNT,
    ANY,
    COUNT,
    FLAG,
    INTEGER,
    OPTIONAL_COUNT,
    OPTIONAL_TEXT,
    TEXT,
    Field,
    Record,
    Report,
    choice,
    choice_of,
    either,
    fields_of,
    items,
    nullable,
)
from policytool.reports.shared_fields import FORMAT, NOTE, WRITER, failures_field

if TYPE_CHECKING:
    from collections.abc import Iterator

    from policytool.commands.diff import DiffOutcome
    from policytool.comparison.result import (
        Comparison,
        LayerPair,
        Section,
        Side,
        ValueChange,
        ValueComparison,
        VariablePair,
    )
    from policytool.model.model import Variable

_PRESENCE: Final = choice_of(
    Presence, name="presence", text="Which of the two models contains the item."
)
_SIDE: Final[Record[Side]] = Record(
    "side",
    (
        Field("path", TEXT),
        Field("format", FORMAT),
        Field("writer", WRITER),
        Field("written_by", OPTIONAL_TEXT, value=attrgetter("generation")),
    ),
)
_CHANGE: Final[Record[ValueChange]] = Record(
    "change",
    (
        Field("aspect", choice_of(Aspect)),
        Field(
            "key",
            OPTIONAL_TEXT,
            "The current name of a config key, or an argument of a signature.",
        ),
        Field("a", ANY, is_optional=True),
        Field("b", ANY, is_optional=True),
        Field(
            "format_only",
            FLAG,
            "Whether both values have the same meaning. Such changes are listed only with --all.",
            value=attrgetter("is_format_only"),
        ),
    ),
    "A difference between A and B. The key a or b is missing if that side has no value.",
)
_VARIABLE: Final[Record[Variable]] = Record(
    "variable",
    (Field("name", TEXT), Field("shape", nullable(items(INTEGER))), Field("dtype", TEXT)),
)
_VALUES: Final[Record[ValueComparison]] = Record(
    "",
    (
        Field("verdict", choice_of(ComparisonVerdict)),
        Field(
            "rounded",
            nullable(choice("a", "b", "both")),
            "Which side equals the other side cast to its dtype; both if the cast is lossless.",
        ),
        Field("elements", OPTIONAL_COUNT),
        Field("differing", OPTIONAL_COUNT),
        Field(
            "largest",
            nullable(either(AMOUNT, choice("Infinity"))),
            "The largest absolute difference between elements that are finite in both.",
        ),
        Field("reason", OPTIONAL_TEXT),
    ),
)
_VARIABLE_PAIR: Final[Record[VariablePair]] = Record(
    "variable-pair",
    (
        Field("a", nullable(_VARIABLE)),
        Field("b", nullable(_VARIABLE)),
        Field("presence", _PRESENCE),
        Field("paired", nullable(choice("name", "order", "slot"))),
        Field("differs", FLAG),
        Field("values", _VALUES),
    ),
)


class ListedPart(NamedTuple):
    """A pair of layers or another part of two models, and how much of it to list."""

    part: LayerPair | Section
    everything: bool

    @property
    def changes(self) -> list[ValueChange]:
        """The changes to list."""
        return [
            change for change in self.part.changes if self.everything or not change.is_format_only
        ]

    @property
    def variables(self) -> list[VariablePair]:
        """The variables to list."""
        return [pair for pair in self.part.variables if self.everything or pair.differs]


_CONTENTS: Final[tuple[Field[ListedPart], ...]] = (
    Field("changes", items(_CHANGE)),
    Field("variables", items(_VARIABLE_PAIR)),
)
_LAYER: Final[Record[ListedPart]] = Record(
    "layer",
    (
        *fields_of(
            "part",
            (
                Field("a", OPTIONAL_TEXT, "Path of the layer in A."),
                Field("b", OPTIONAL_TEXT, "Path of the layer in B."),
                Field("class_name", OPTIONAL_TEXT),
                Field("presence", _PRESENCE),
                Field(
                    "paired",
                    nullable(choice_of(Pairing)),
                    "The rule that matched the two layers.",
                ),
                Field("listed", FLAG, "Whether the other format can list such a layer."),
                Field("differs", FLAG),
            ),
        ),
        *_CONTENTS,
    ),
)
_SECTION: Final[Record[ListedPart]] = Record(
    "section",
    (
        *fields_of(
            "part", (Field("name", TEXT), Field("presence", _PRESENCE), Field("differs", FLAG))
        ),
        *_CONTENTS,
    ),
)


class VariableCounts(NamedTuple):
    """The number of variables with each verdict."""

    total: int
    verdicts: Counter[ComparisonVerdict]
    sides: Counter[Presence]
    unsupported: int


def _variable_counts(comparison: Comparison) -> VariableCounts:
    variables = comparison.variables
    in_both = [variable for variable in variables if variable.presence is Presence.BOTH]
    in_one = [variable for variable in variables if variable.presence is not Presence.BOTH]
    return VariableCounts(
        total=len(variables),
        verdicts=Counter(variable.values.verdict for variable in in_both),
        sides=Counter(variable.presence for variable in in_one if variable.differs),
        unsupported=sum(not variable.differs for variable in in_one),
    )


def _verdict_count(verdict: ComparisonVerdict) -> Field[VariableCounts]:
    name = verdict.value.replace("-", "_")
    return Field(name, COUNT, value=lambda counts: counts.verdicts[verdict])


def _side_count(side: Presence) -> Field[VariableCounts]:
    return Field(f"only_{side.value}", COUNT, value=lambda counts: counts.sides[side])


_VARIABLE_COUNTS: Final[Record[VariableCounts]] = Record(
    "",
    (
        Field("total", COUNT),
        *map(_verdict_count, ComparisonVerdict),
        *map(_side_count, (Presence.A, Presence.B)),
        Field(
            "unsupported",
            COUNT,
            "Number of variables in only one file because the format of the other cannot store "
            "them.",
        ),
    ),
)
_SUMMARY: Final[Record[Comparison]] = Record(
    "summary",
    (
        Field("layers", COUNT, value=lambda comparison: len(comparison.layers)),
        Field(
            "differing",
            COUNT,
            "Number of layers that differ.",
            value=lambda comparison: sum(layer.differs for layer in comparison.layers),
        ),
        Field(
            "format_only",
            COUNT,
            "Number of values that are written differently but have the same meaning.",
            value=attrgetter("spellings"),
        ),
        Field("variables", _VARIABLE_COUNTS, value=_variable_counts),
    ),
    "Totals for all compared items, including items that are not listed.",
)


class ListedComparison(NamedTuple):
    """A comparison, and how much of it to list."""

    comparison: Comparison
    everything: bool

    @property
    def layers(self) -> Iterator[ListedPart]:
        """The layers to list."""
        return self._listed(self.comparison.layers)

    @property
    def signatures(self) -> Iterator[ListedPart]:
        """The signatures to list."""
        return self._listed(self.comparison.signatures)

    @property
    def optimizer(self) -> ListedPart | None:
        """The optimizer, if it is listed."""
        optimizer = self.comparison.optimizer
        return next(self._listed(() if optimizer is None else (optimizer,)), None)

    def _listed(self, parts: tuple[LayerPair, ...] | tuple[Section, ...]) -> Iterator[ListedPart]:
        return (
            ListedPart(part, self.everything) for part in parts if part.differs or self.everything
        )


_COMPARISON: Final[Record[ListedComparison]] = Record(
    "comparison",
    (
        *fields_of(
            "comparison",
            (
                Field("a", _SIDE),
                Field("b", _SIDE),
                Field(
                    "differs",
                    FLAG,
                    "Whether the compared parts of the models differ, in which case the exit code "
                    "is 1.",
                ),
            ),
        ),
        Field("summary", _SUMMARY, value=attrgetter("comparison")),
        Field(
            "layers",
            items(_LAYER),
            "Layers in the order of A. A layer that exists only in B follows the layer that "
            "precedes it in B.",
        ),
        Field(
            "optimizer",
            nullable(_SECTION),
            "Null if the optimizers are equal, or if one of the formats cannot store one.",
        ),
        Field("signatures", items(_SECTION)),
        *fields_of(
            "comparison",
            (Field("notes", items(NOTE), "Parts that were not compared, with reasons."),),
        ),
    ),
)


class Differences(Struct, frozen=True, kw_only=True):
    """A comparison, and how much of it to show."""

    outcome: DiffOutcome
    everything: bool = False
    """Whether to list equal values, and values that are only written differently."""


def _listed(differences: Differences) -> ListedComparison | None:
    comparison = differences.outcome.comparison
    return None if comparison is None else ListedComparison(comparison, differences.everything)


REPORT: Final[Report[Differences]] = Report(
    "diff",
    1,
    "Differences between two saved models. Without --all, the lists contain only differences. "
    "Additions keep the version number; any other change increases it.",
    (
        Field(
            "comparison",
            nullable(_COMPARISON),
            "Null if a file could not be read.",
            value=_listed,
        ),
        *fields_of("outcome", (failures_field(),)),
    ),
)
