"""
The reasons why TensorFlow does not load a model without ``--trust``.

TensorFlow loads a model only if every class, function, op and path in it is on a list of names that
only compute (:mod:`policytool.model.hazards`). ``--custom-objects`` trusts only the classes and
functions that it defines; the process with TensorFlow checks that it defines those that the model
needs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from msgspec import Struct

from policytool.model import hazards
from policytool.model.hazards import LAMBDA, Harm
from policytool.support.errors import short

if TYPE_CHECKING:
    from collections.abc import Iterator

    from policytool.formats.document import Document
    from policytool.model.hazards import Hazard
    from policytool.model.loaded_model import LoadedModel

REFUSED: Final = frozenset(
    {
        *(
            *hazards.OUTSIDE,
            "unstored-values",
            "escaping-member",
            "duplicate-member",
            "duplicate-key",
            "duplicate-function",
        ),
        *("op-path", "several-graphs", "stray-metadata", "pickled-weights"),
    }
)
"""
Codes of observations about files that make a release open other files, run a pickle, allocate
unlimited memory, or read other data than policytool inspected.
"""

TRUST: Final = "--trust"
"""The option that allows all code in a file."""

_TRUST: Final = (
    "TensorFlow would run code from the file; use {trust} only for files from a trusted source"
)
_DEFINE: Final = (
    "specify the module that defines it with --custom-objects MODULE, or allow everything in "
    "the file with {trust}"
)


class Reason(Struct, frozen=True, kw_only=True):
    """A part of a model that requires trust."""

    what: str
    """The layer, part or op, with its effect: a sentence without its end."""

    is_custom: bool = False
    """Whether ``--custom-objects`` can define the class or function."""


def reasons_not_to_run(loaded: LoadedModel, *, compiles: bool = False) -> Iterator[Reason]:
    """
    Yield the reasons not to run a model without trust, in the order of the file; objects that
    ``--custom-objects`` can define come last.

    :param compiles: whether the model will be compiled with the losses and metrics that its
        training configuration names.
    """
    model_hazards = tuple(loaded.hazards)
    for hazard in model_hazards:
        if hazard.harm is not Harm.CUSTOM or _is_of_lambda(loaded, hazard):
            yield Reason(what=f"{_where(loaded, hazard)} {hazard.what}")
    for site in loaded.sites:
        if (name := hazards.leading_out(site)) is not None:
            yield Reason(
                what=f"the layer name {short(name)!r} is a path that leads outside the model "
                "directory"
            )
    yield from reasons_of_file(loaded.document)
    for hazard in needed_objects(loaded, model_hazards, compiles=compiles):
        yield Reason(what=f"{_where(loaded, hazard)} {hazard.what}", is_custom=True)


def reasons_of_file(document: Document) -> Iterator[Reason]:
    """
    Yield the reasons in the ops of a SavedModel's graph and in the observations of its reader. A
    file without Keras metadata has no other reasons.
    """
    for name in sorted(document.ops):
        if not (hazards.is_pure_op(name) or hazards.is_placed_op(name)):
            harmful = hazards.op(name)
            yield Reason(
                what=harmful.sentence
                if harmful
                else f"the graph contains the op {short(name)}, which is not on the allow-list of "
                "ops"
            )
    yield from (
        Reason(what=observation.message)
        for observation in document.observations
        if observation.code in REFUSED
    )


def needed_objects(
    loaded: LoadedModel, model_hazards: tuple[Hazard, ...], *, compiles: bool = False
) -> Iterator[Hazard]:
    """
    Yield the custom classes and functions that a loader needs.

    The traces of a SavedModel replace a class that is not available, unless the file names a module
    from which the class could be imported.
    """
    for hazard in model_hazards:
        revived = bool(loaded.document.nodes) and hazard.module is None
        is_needed = compiles or not hazards.is_training_only(loaded.document, hazard.address)
        if (
            hazard.harm is Harm.CUSTOM
            and is_needed
            and not revived
            and not _is_of_lambda(loaded, hazard)
        ):
            yield hazard


def needed_names(loaded: LoadedModel) -> list[str]:
    """Return the names in the file that ``--custom-objects`` has to define."""
    return sorted({hazard.name for hazard in needed_objects(loaded, loaded.hazards)})


def refusal(
    reasons: Iterator[Reason], *, custom_objects: bool = False, trust_option: str = TRUST
) -> str | None:
    """
    Return why TensorFlow must not load a file; None if nothing in it needs trust, or if
    ``--custom-objects`` is set and may define everything that does.

    :param trust_option: how the user allows all code in a file
    """
    first = next((reason for reason in reasons if not (reason.is_custom and custom_objects)), None)
    if first is None:
        return None
    advice = _DEFINE if first.is_custom else _TRUST
    return f"{first.what}: {advice.format(trust=trust_option)}"


def _where(loaded: LoadedModel, hazard: Hazard) -> str:
    return "a config" if hazard.site is None else loaded.layers[hazard.site].path


def _is_of_lambda(loaded: LoadedModel, hazard: Hazard) -> bool:
    """
    Return whether a Lambda of Keras 2 calls a function: it looks the function up in all loaded
    modules.
    """
    if hazard.site is None or loaded.sites[hazard.site].class_name != LAMBDA:
        return False
    return not isinstance(loaded.config(hazard.site).get("function"), dict)
