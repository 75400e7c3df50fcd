"""Records that several reports have: failures, notes, addresses, loss scales, verdicts."""

from __future__ import annotations

from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from policytool.formats import TITLES
from policytool.model.model import Outcome
from policytool.releases.policy import Fixed
from policytool.reports.fields import (
    CODE,
    FINITE,
    INTEGER,
    NUMBER,
    OPTIONAL_TEXT,
    SENTENCE,
    TEXT,
    Field,
    Record,
    Type,
    choice,
    choice_of,
    either,
    items,
    nullable,
    text_type,
)
from policytool.support.text.jsontext import ABSENT

if TYPE_CHECKING:
    from policytool.commands.inspect import Failure
    from policytool.formats.document import Address, Writer
    from policytool.model.model import PartVerdict, Verdict
    from policytool.releases.policy import Dynamic

FORMAT: Final = choice(*TITLES)
"""The document format of a model."""

PATH_TEXT: Final = "POSIX path, relative to the working directory if the file is inside it."
WRITTEN_BY_TEXT: Final = (
    "The narrowest range of releases that could have written the file, such as `tf2.3-2.4` or "
    "`keras3.4+`; null if unknown."
)

FAILURE: Final[Record[Failure]] = Record(
    "", (Field("path", TEXT), Field("code", CODE), Field("message", SENTENCE))
)


def failures_field(text: str = "Paths that could not be read") -> Field[Any]:
    """Return the field of all reports with the paths on which the command failed."""
    return Field("failures", items(FAILURE), f"{text}, each with a stable code and a message.")


NOTE: Final[Record[Any]] = Record("", (Field("code", CODE), Field("message", SENTENCE)))

WRITER: Final[Record[Writer]] = Record(
    "",
    (
        Field("keras", OPTIONAL_TEXT, "The Keras version."),
        Field("tensorflow", OPTIONAL_TEXT, "The TensorFlow version."),
        Field("backend", OPTIONAL_TEXT, "The Keras backend."),
    ),
)

ADDRESS: Final[Record[Address]] = Record(
    "",
    (
        Field("part", SENTENCE, "The JSON document in the file."),
        Field(
            "pointer",
            text_type("^(/([^/~]|~[01])*)*$"),
            "A JSON Pointer (RFC 6901) into that document.",
        ),
    ),
)


class StoredLossScale(NamedTuple):
    """A loss scale, and whether the file stores it."""

    scale: Dynamic | Fixed
    is_default: bool = False
    """Whether it is the default of the release and not in the file."""


def _loss_scales(number: Type, *last: Field[StoredLossScale]) -> tuple[Record[Any], Record[Any]]:
    """Return the records of fixed and of dynamic loss scales."""
    return (
        Record[StoredLossScale](
            "",
            (
                Field(
                    "kind", choice("fixed"), "The kind of loss scale.", value=lambda _scale: "fixed"
                ),
                Field(
                    "value",
                    number,
                    "The value of a fixed loss scale.",
                    value=attrgetter("scale.value"),
                ),
                *last,
            ),
        ),
        Record[StoredLossScale](
            "",
            (
                Field(
                    "kind",
                    choice("dynamic"),
                    "The kind of loss scale.",
                    value=lambda _scale: "dynamic",
                ),
                Field(
                    "initial",
                    number,
                    "The first value of a dynamic loss scale.",
                    value=attrgetter("scale.initial"),
                ),
                Field(
                    "growth_steps",
                    INTEGER,
                    "Number of finite steps after which it grows.",
                    value=attrgetter("scale.growth_steps"),
                ),
                Field(
                    "multiplier",
                    number,
                    "The factor by which it grows.",
                    value=attrgetter("scale.multiplier"),
                ),
                *last,
            ),
        ),
    )


def _loss_scale_type(fixed: Record[Any], dynamic: Record[Any], **words: str) -> Type:
    def encode(stored: StoredLossScale) -> dict[str, Any]:
        return (fixed if isinstance(stored.scale, Fixed) else dynamic).values(stored)

    return nullable(either(fixed, dynamic, encode=encode, **words))


LOSS_SCALE: Final = _loss_scale_type(
    *_loss_scales(
        NUMBER,
        Field(
            "default",
            choice(True),  # a value, and no option
            "Present if the loss scale is the default of the release and not in the file.",
            value=lambda stored: stored.is_default or ABSENT,
            is_optional=True,
        ),
    ),
    name="loss-scale",
    text=(
        "The key default is present, and true, if the loss scale is the default of the release "
        "and not in the file."
    ),
)
"""The loss scale of a layer or an optimizer, or null; its values are ``StoredLossScale``."""

RECORDED_LOSS_SCALE: Final = _loss_scale_type(*_loss_scales(FINITE))
"""The initial loss scale of training in a check, or null."""

OUTCOME: Final = choice_of(Outcome)
_REASON: Final[Field[Any]] = Field(
    "reason",
    OPTIONAL_TEXT,
    "Why the release fails to load the file, or why the verdict is unknown; null if it loads.",
    value=attrgetter("explanation"),
)
_VERDICT: Final[Field[Any]] = Field(
    "verdict", OUTCOME, "Whether the release loads the file.", value=attrgetter("outcome")
)
_TRAINING: Final[Record[PartVerdict]] = Record("training", (_VERDICT, _REASON))
RELEASE_VERDICT: Final[Record[Verdict]] = Record(
    "",
    (
        Field("release", TEXT, "The checked release.", value=attrgetter("loader")),
        _VERDICT,
        _REASON,
        Field(
            "changed_results",
            items(TEXT),
            "Why the predictions of a release that loads the file differ from those of the release "
            "that wrote it; empty if no reason is known.",
            value=lambda verdict: [cause.reason for cause in verdict.changed_results],
        ),
        Field(
            "training",
            nullable(_TRAINING),
            "The verdict for loading with compile=True, which also restores the training "
            "configuration; null if the file has none, or if more than its policies is "
            "incompatible.",
        ),
    ),
)
