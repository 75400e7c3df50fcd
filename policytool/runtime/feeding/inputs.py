"""
What a check feeds a model: arrays of a file, or seeded values in the range of what the model takes.

The same seed and the same model give the same values in every process and under both libraries:
they are drawn by NumPy, from the place of the input and the number of the batch, and in no way from
names.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .. import model_calls
from ..library import Refused, paths
from .batches import Feeder
from .reached_layers import layers_reached
from .recipes import SIZES, SMALL_IDS, layers_reached_by_name, recipe, sizes
from .slots import model_inputs, signature_inputs

if TYPE_CHECKING:
    from typing import Any, Mapping, Sequence

    from ..library import Library
    from .batches import FedInputs
    from .slots import Slot

FEW = (SMALL_IDS, 2, 1)
"""The numbers of ids to try for a signature with unknown layers; the largest that works is used."""

_TABLE_RANK = 2


def feed_model(library: Library, model: Any, options: Mapping[str, Any]) -> FedInputs:
    """
    Return inputs for ``model(inputs, training=False)``.

    ``options`` has ``file``, ``batches``, ``batch_size``, ``seed`` and ``save``; the paths are
    absolute. All rows of a file are used: ``batches`` and ``seed`` apply to drawn inputs. Instead
    of a file, there may be a ``function``, with its limits in ``most``; ``batches`` limits it too.
    With ``extremes``, extra batches are added to drawn inputs. With ``halves``, the
    user's inputs are cut into at least two batches. A model with open dimensions is called once or
    more, to find a size that it accepts. ``like`` is the entry ``inputs`` of
    :attr:`FedInputs.report` for another file of the same model; the file then has the inputs of
    that model.

    :raises Refused: with the codes ``inputs``, ``no-inputs``, ``inputs-file``, ``user-function``
        and ``not-callable``.
    """
    inputs = model_inputs(library, model)
    reached = layers_reached(library, model)
    recipes = [
        recipe(slot, reached[place] if reached is not None else None, model)
        for place, slot in enumerate(inputs.slots)
    ]
    if options.get("like") is not None:
        copy_names_and_dtypes(inputs.slots, options["like"])
    feeder = Feeder(library, inputs, options)
    if _has_user_inputs(options):
        return feeder.from_user(recipes)
    if not any(slot.is_open for slot in inputs.slots):
        return feeder.synthetic(recipes, SIZES[0])
    fed = feeder.first(
        [(recipes, size) for size in SIZES], lambda tensors: model_calls.call(model, tensors)
    )
    forget_states(model)
    return fed


def feed_signature(
    library: Library, signature: Any, loaded: Any, options: Mapping[str, Any]
) -> FedInputs:
    """
    Return inputs for ``signature(**inputs)``, of which only the specs and the names of variables
    are known.

    If it has open dimensions or accepts ids, it is called once or more with synthetic values, to
    find sizes and ids that it accepts.

    :raises Refused: as :func:`feed_model`.
    """
    inputs = signature_inputs(library, signature)
    if options.get("like") is not None:
        copy_names_and_dtypes(inputs.slots, options["like"])
    feeder = Feeder(library, inputs, options)
    counts = (
        [_smallest_table(signature, loaded), *FEW]
        if any("int" in slot.dtype for slot in inputs.slots)
        else FEW[:1]
    )
    most = [[recipe(slot, [], None, few) for slot in inputs.slots] for few in counts]
    if _has_user_inputs(options):
        return feeder.from_user(most[0])
    if len(most) == 1 and not any(slot.is_open for slot in inputs.slots):
        return feeder.synthetic(most[0], SIZES[0])
    return feeder.first(
        [(recipes, size) for size in sizes(inputs.slots) for recipes in most],
        lambda tensors: signature(**tensors),
    )


def feed_known_signature(
    library: Library, signature: Any, model: Any, options: Mapping[str, Any], size: int
) -> FedInputs:
    """
    Return inputs for ``signature(**inputs)`` in the range that the inputs of ``model`` with the
    same names accept.

    ``size`` is used for open dimensions. The signature is not called, because it may have a state
    that cannot be reset.

    :raises Refused: as :func:`feed_model`.
    """
    inputs = signature_inputs(library, signature)
    known = layers_reached_by_name(library, model)
    recipes = [recipe(slot, known.get(slot.name), model) for slot in inputs.slots]
    feeder = Feeder(library, inputs, options)
    return (
        feeder.from_user(recipes) if _has_user_inputs(options) else feeder.synthetic(recipes, size)
    )


def copy_names_and_dtypes(slots: Sequence[Slot], like: Sequence[Mapping[str, str]]) -> None:
    """
    Set the dtypes of the slots to those of another model's inputs and, if any name differs, the
    names as well, in order.

    A model without an input layer does not record the dtype of its input, and the two libraries
    assume different ones.
    """
    if len(slots) != len(like):
        raise Refused(
            "inputs", "has {} inputs, but the other model has {}".format(len(slots), len(like))
        )
    dtypes = {entry["name"]: entry["dtype"] for entry in like}
    if {slot.name for slot in slots} != set(dtypes):
        for slot, entry in zip(slots, like):
            slot.name = entry["name"]
    for slot in slots:
        slot.dtype = dtypes[slot.name]


def _has_user_inputs(options: Mapping[str, Any]) -> bool:
    return options["file"] is not None or options.get("function") is not None


def forget_states(model: Any) -> None:
    """Reset the states of stateful layers."""
    for _, layer in paths(model):
        reset = getattr(layer, "reset_states", None) or getattr(layer, "reset_state", None)
        if getattr(layer, "stateful", False) and reset is not None:
            reset()


def _smallest_table(signature: Any, loaded: Any) -> int:
    """
    Return the number of rows of the smallest variable named embeddings. For ids beyond it, a GPU
    returns zeros without an error.
    """
    variables = [
        variable
        for holder in (signature, loaded)
        for variable in getattr(holder, "variables", None) or []
    ]
    tables = [
        variable
        for variable in variables
        if "embedding" in variable.name.lower() and variable.shape.rank == _TABLE_RANK
    ]
    return min((int(variable.shape[0]) for variable in tables), default=SMALL_IDS)
