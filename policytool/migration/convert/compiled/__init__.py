"""
What becomes of the training configuration: optimizer, loss, metrics and the optimizer's state, in
the words of the release that is to read them.

What the target cannot have is left out with a warning, never written so that loading fails: an
optimizer that it lacks takes the whole configuration with it, a loss leaves an optimizer that can
be compiled again, a metric leaves the others.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from policytool.formats.edits import Placement
from policytool.migration.convert.architecture import references
from policytool.migration.convert.compiled import losses, optimizer
from policytool.migration.convert.compiled.losses import LossWriter, UnsupportedLossError
from policytool.migration.convert.compiled.optimizer import (
    ConvertedOptimizer,
    UnsupportedOptimizerError,
)
from policytool.migration.convert.variables import stored_dtype
from policytool.migration.planning.optimizers import first_wrapper_state
from policytool.model import optimizer_config, optimizer_variables
from policytool.model.optimizer_config import UnmappedError, trainable_tensors
from policytool.model.optimizer_variables import INNER, OUTER, OWN, Style

if TYPE_CHECKING:
    from collections.abc import Sequence

    from policytool.formats.document import Tensor
    from policytool.migration.convert.architecture import Unit
    from policytool.migration.convert.rewrites import ConversionContext
    from policytool.migration.convert.target import Target
    from policytool.model.optimizer_variables import OptimizerState
    from policytool.support.text.jsontext import Json

_ARCHIVES: Final = "tf2.15"
"""The first release whose archives have the optimizer's state in these places."""

_LOST: Final = "optimizer-state-lost"
_WITH_SAMPLE_WEIGHT_MODE: Final = "tf2.3"
"""The first release that does not look for ``sample_weight_mode``."""


_NEEDS_VARIABLES: Final = "Nadam"
"""
What takes the dtype of the first variable in Keras 2 (``Nadam.build``, tf_keras 2.21).
"""


@dataclass(frozen=True, kw_only=True, slots=True)
class Compiled:
    """The training configuration of a new file."""

    config: Json = None
    """
    HDF5's ``training_config``, or the archive's ``compile_config``; None where the model is not
    compiled.
    """

    state: tuple[Placement, ...] = ()
    """
    The optimizer's variables: below ``optimizer_weights`` in HDF5, below the root of
    ``model.weights.h5`` in an archive.
    """

    state_names: tuple[str, ...] = ()
    """
    HDF5: ``weight_names`` of ``optimizer_weights``, in the order that the target restores them in.
    """


def compile_config(
    root: Unit, context: ConversionContext, weights: Sequence[Placement]
) -> Compiled:
    """
    Return the training configuration of a converted model.

    :param root: the converted model
    :param weights: its variables in the order of the target's ``weights``, each with its source
    """
    place = optimizer_config.optimizer_place(context.loaded.document)
    target, log = context.target, context.log
    if place is None or target.container == "json":
        return Compiled()
    try:
        source = optimizer.read(context, place[1])
        new_optimizer = optimizer.optimizer_for_target(source, target, log)
    except UnsupportedOptimizerError as error:
        log.caution(
            "training-lost",
            None,
            (
                f"{error}, so the model is written without a training configuration; compile it "
                "again after loading"
            ),
        )
        return Compiled()
    if (
        new_optimizer.class_name == _NEEDS_VARIABLES
        and not target.is_keras3
        and not _has_trainables(context)
    ):
        log.caution(
            "training-lost",
            None,
            f"{target.name} fails to load {new_optimizer.class_name} for a model without trainable "
            "weights, so the model is written without a training configuration",
        )
        return Compiled()
    placements = _state(context, source, new_optimizer, weights)
    if (
        new_optimizer.scale is not None
        and new_optimizer.wrapped
        and not placements
        and target.container == "keras"
        and not target.is_keras3
    ):
        # LossScaleOptimizerV3 has no name, which load_own_variables looks for to say that an
        # archive lacks its variables (AttributeError; TF 2.12, 2.15, tf_keras 2.21)
        reason = f"{target.name} cannot load a loss-scaling optimizer without state from an archive"
        log.caution(
            "loss-scale-lost",
            None,
            f"the optimizer is written without loss scaling because {reason}; write HDF5 (-o "
            "X.h5) to keep loss scaling",
        )
        new_optimizer = replace(new_optimizer, scale=None, wrapped=False)
    paths = [placement.path for placement in placements if target.container == "h5"]
    return Compiled(
        config=_config(
            root,
            context,
            optimizer_config.configuration(context.loaded.document),
            optimizer.serialize(new_optimizer, target, log),
        ),
        state=placements,
        state_names=tuple(map("/".join, paths)),
    )


def _has_trainables(context: ConversionContext) -> bool:
    try:
        return bool(_trainables(context))
    except UnmappedError:  # several, in an unknown order
        return True


def _trainables(context: ConversionContext) -> tuple[Tensor, ...]:
    loaded = context.loaded
    return trainable_tensors(loaded.document, loaded.placed)


def _config(root: Unit, context: ConversionContext, value: Json, serialised: Json) -> Json:
    source_config = value if isinstance(value, dict) else {}
    target, log = context.target, context.log
    try:
        loss = LossWriter(target, log, losses.LOSSES).write(source_config.get("loss"))
    except UnsupportedLossError as error:
        log.caution(
            "loss-lost",
            None,
            f"{error}, so the model is written without a loss; compile it again with "
            "optimizer=model.optimizer",
        )
        loss = None
    metric_writer = LossWriter(target, log, losses.METRICS)
    metrics, weighted = (
        _flat(root, metric_writer.write(source_config.get(key)))
        for key in ("metrics", "weighted_metrics")
    )
    target_config: dict[str, Json] = {
        "loss": loss,
        "metrics": metrics,
        "weighted_metrics": weighted,
        "loss_weights": source_config.get("loss_weights"),
    }
    if target.container == "keras":
        return {"optimizer": serialised, **target_config}
    if not target.since(_WITH_SAMPLE_WEIGHT_MODE):
        target_config["sample_weight_mode"] = source_config.get("sample_weight_mode")
    return {"optimizer_config": serialised, **target_config}


def _flat(root: Unit, metrics: Json) -> Json:
    """
    Return the metrics of a single output without the list around them that Keras 2 writes; None for
    none.
    """
    outputs = (
        1
        if root.network is None or root.network.outputs is None
        else len(list(references(root.network.outputs)))
    )
    if (
        outputs == 1
        and isinstance(metrics, list)
        and len(metrics) == 1
        and isinstance(metrics[0], list)
    ):
        metrics = metrics[0]
    return metrics or None


def _state(
    context: ConversionContext,
    source: ConvertedOptimizer,
    new_optimizer: ConvertedOptimizer,
    weights: Sequence[Placement],
) -> tuple[Placement, ...]:
    """
    Return the optimizer's variables at the places where the target restores them; none, with a
    warning, if they are lost.
    """
    target, log = context.target, context.log
    try:
        order = _trainables(context)
        stored = optimizer_variables.read_state(context.loaded, source, order)
        if stored is None:
            if context.loaded.is_saved_object:  # its state is among the checkpoint's variables
                raise UnmappedError(
                    f"policytool does not read it from {context.loaded.document.format} files"
                )
            return ()
        if (reason := _state_obstacle(new_optimizer, target)) is not None:
            raise UnmappedError(reason)
        variables = optimizer.place_state(
            new_optimizer, stored, _trainable_order(order, weights), target.release, source.style
        )
    except UnmappedError as error:
        advice = (
            "; write a .keras file to keep it"
            if _state_obstacle(new_optimizer, target)
            and _state_obstacle(new_optimizer, replace(target, container="keras")) is None
            else ""
        )
        log.caution(
            _LOST,
            None,
            f"the optimizer state is omitted because {error}, so training restarts at step 0 with "
            f"empty slots{advice}",
        )
        return ()
    if (
        target.container == "h5"
        and any(variable.dtype == "bfloat16" for variable in variables)
        and new_optimizer.style is Style.OLD
    ):
        log.caution(
            _LOST,
            None,
            "the optimizer state is omitted because no release can read bfloat16 slots of "
            "legacy optimizers from HDF5",
        )
        return ()
    variables = [
        replace(variable, dtype=stored_dtype(variable.dtype, target)) for variable in variables
    ]
    if target.container != "h5":
        return _archive_placements(new_optimizer, stored, variables, target)
    return tuple(
        replace(variable, path=tuple(variable.path[0].split("/"))) for variable in variables
    )


def _state_obstacle(new_optimizer: ConvertedOptimizer, target: Target) -> str | None:
    """
    Return why a target does not restore the state of an optimizer; None if it does.

    Measured with every release: Keras 3 reads no slots from HDF5, and Keras 2 reads no slots of
    ``LossScaleOptimizerV3`` (``fixtures/training_state.json``).
    """
    if target.container == "h5":
        if target.is_keras3:
            return "Keras 3 does not restore slots from HDF5"
        if new_optimizer.wrapped and new_optimizer.style is Style.NEW:
            return "no Keras release restores the state of LossScaleOptimizerV3 from HDF5"
    elif not target.since(_ARCHIVES):
        return f"the location of the state in {target.name} archives is unknown"
    return None


def _trainable_order(order: Sequence[object], weights: Sequence[Placement]) -> list[Placement]:
    """Return the target's trainable variables in its order, each once."""
    sources = set(order)
    once: dict[object, Placement] = {}
    for weight in weights:
        if weight.source in sources:
            once.setdefault(weight.source, weight)
    if len(once) != len(sources):
        raise UnmappedError(
            f"the new model has only {len(once)} of the {len(sources)} trained weights"
        )
    if any(weight.scale is not None for weight in once.values()):
        raise UnmappedError("the conversion rescales weights, so the slots no longer match")
    return list(once.values())


def _archive_placements(
    new_optimizer: ConvertedOptimizer,
    stored: OptimizerState,
    variables: Sequence[Placement],
    target: Target,
) -> tuple[Placement, ...]:
    """
    Return the variables with numbered paths. The variables of a wrapped optimizer are stored for
    the wrapper as well, where Keras 3 has four variables of its own before them.
    """
    if not new_optimizer.wrapped:
        return _number_paths(OUTER, variables)
    own: list[Placement] = []
    if target.is_keras3 and len(stored.own) >= OWN:
        own = [
            Placement(path=(), shape=tensor.shape or (), dtype=tensor.dtype, source=tensor)
            for tensor in stored.own
        ]
    elif target.is_keras3:
        own = [
            Placement(path=(), shape=(), dtype=dtype, fill=(float(value),))
            for dtype, value in first_wrapper_state(new_optimizer.scale)
        ]
    return (*_number_paths(INNER, variables), *_number_paths(OUTER, [*own, *variables]))


def _number_paths(group: tuple[str, ...], variables: Sequence[Placement]) -> tuple[Placement, ...]:
    return tuple(
        replace(variable, path=(*group, str(number))) for number, variable in enumerate(variables)
    )
