"""A model built anew from its config, with other policies and the same state."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING

from . import model_calls, shared_layers
from .checkpoint import Checkpoint, unrestored_names
from .facts import adapts_statistics
from .feeding import seeded
from .library import Refused, is_revived, paths
from .lookups import Lookups
from .sentences import sentence

if TYPE_CHECKING:
    from typing import Any, Mapping

    from .checkpoint import Restored
    from .library import Library

ASSETS = "assets"
_NAMED = 5
"""Names in a sentence; more are counted."""


def rebuild_model(library: Library, original: Any, nested: Any, job: Mapping[str, Any]) -> Any:
    """
    Return a model of the original's class from the job's config, with fresh variables; ``nested``
    are the specs of its inputs.

    The config decides the policies of what is built from it. Layers that a class's own code makes
    get theirs from the global policy, or from the plan as long as they have no variables.
    """
    lookups = Lookups(original, os.path.join(job["source"], ASSETS))
    config = _decoded(library, library.spelled(lookups.known(job["config"])))
    places = shared_layers.shared_places(original)
    try:
        with library.under(job["policy"]), library.scope():
            with library.deserialising():
                model = (
                    shared_layers.Builder(library, places).model(config)
                    if places
                    else type(original).from_config(config)
                )
            _apply(library, model, job["policies"])
            if not model.built or not model.weights:
                _call(library, model, original, nested)
    except Refused:
        raise
    except Exception as error:  # the code of a class of someone else's can raise anything
        text = "{} cannot be built with the new policies: {}"
        raise Refused("not-buildable", text.format(original.name, sentence(error))) from error
    lookups.told_as_before(model)
    return model


def compile_model(library: Library, model: Any, training: Any) -> Any:
    """
    Compile a model as a training configuration says; return its optimizer, with every variable of
    its state made.
    """
    utils = library.internal("saving.legacy.saving_utils", "saving.saving_utils")
    with library.scope():
        try:
            model.compile(**utils.compile_args_from_training_config(training, library.custom))
        except (KeyError, TypeError, ValueError) as error:
            text = (
                "{} {} cannot compile the model as planned ({}); write the optimizer for an "
                "older release with --target, or leave it unchanged with --keep optimizer"
            )
            raise Refused(
                "not-compilable",
                text.format(
                    library.versions["library"], library.versions["keras"], sentence(error)
                ),
            ) from error
    if hasattr(utils, "try_build_compiled_arguments"):
        utils.try_build_compiled_arguments(model)
    optimizer = model.optimizer
    if hasattr(optimizer, "build"):
        optimizer.build(model.trainable_variables)
    elif hasattr(optimizer, "_create_all_weights"):
        optimizer._create_all_weights(model.trainable_variables)  # noqa: SLF001  # what Keras itself calls before it loads the state
    else:  # TF 2.2
        _ = optimizer.iterations
        optimizer._create_hypers()  # noqa: SLF001  # as above
        optimizer._create_slots(model.trainable_variables)  # noqa: SLF001  # as above
    return optimizer


def restore_state(library: Library, model: Any, optimizer: Any, prefix: str) -> Restored:
    """
    Give the model the state that a checkpoint holds: all of its variables, and of the optimizer
    what it has a place for.
    """
    found = Checkpoint(library, prefix).restore(model, optimizer)
    missing = sorted(set(unrestored_names(model, found)))
    if missing:
        raise Refused(
            "not-restored",
            "the file contains no value for {}, which the rebuilt model requires".format(
                _join_first(missing)
            ),
        )
    lost = [key for key in found.left if not _is_bookkeeping(key)]
    if lost:
        raise Refused(
            "not-restored",
            "the rebuilt model has no variable for {}, which the file contains".format(
                _join_first(lost)
            ),
        )
    for _, layer in paths(model):
        if adapts_statistics(layer) and hasattr(layer, "finalize_state"):
            layer.finalize_state()
    return found


def check_code(library: Library, model: Any) -> None:
    """
    Refuse a model with layers that were revived from their traces: there is no code that could be
    traced in another dtype.
    """
    revived = [(path, type(layer).__name__) for path, layer in paths(model) if is_revived(layer)]
    named = [
        "{} ({})".format(path, name)
        for path, name in revived
        if not hasattr(library.keras.layers, name)
    ]
    if named:
        raise Refused(
            "no-class",
            (
                "the class of {} is not available; specify the module that defines it with "
                "--custom-objects MODULE"
            ).format(_join_first(named)),
        )
    if revived:
        text = (
            "{} {} cannot build {} from its config, which another release wrote; use --python to "
            "specify an interpreter with that release"
        )
        listed = _join_first(["{} ({})".format(path, name) for path, name in revived])
        raise Refused(
            "not-loadable",
            text.format(library.versions["library"], library.versions["keras"], listed),
        )


def _call(library: Library, model: Any, original: Any, nested: Any) -> None:
    """Build what is built by its first call."""
    flat = library.tf.nest.flatten(nested)
    specs = seeded.input_slots(flat)
    error = None
    for size in seeded.sizes(specs):
        try:
            model_calls.call(
                model,
                library.tf.nest.pack_sequence_as(
                    nested, seeded.draw_inputs(library, original, specs, 0, size)
                ),
            )
        except library.tf.errors.OpError as found:
            error = found
        else:
            return
    raise Refused(
        "not-callable",
        "the rebuilt model cannot be called with inputs of its declared shapes: {}".format(error),
    )


def _apply(library: Library, model: Any, policies: Mapping[str, str]) -> None:
    """Give layers that have no variables yet the policies of the plan."""
    for path, layer in paths(model):
        wanted = policies.get(path)
        current = getattr(layer, "_dtype_policy", None)
        if (
            wanted is not None
            and current is not None
            and not layer.built
            and current.name != wanted
            and hasattr(layer, "_set_dtype_policy")
        ):
            layer._set_dtype_policy(library.policy(wanted))  # noqa: SLF001  # Keras 2 has no public way to it after construction


def _decoded(library: Library, config: Any) -> Any:
    """
    Return a config with its tuples and shapes as Python's own, which metadata spells as objects.
    """
    try:
        utils = library.internal(
            "saving.legacy.saved_model.json_utils", "saving.saved_model.json_utils"
        )
    except Refused:
        return config  # TF 2.3 and older write lists
    return utils.decode(json.dumps(config))


def _is_bookkeeping(key: str) -> bool:
    """
    Return whether a value belongs to metrics, to counters or to an optimizer, which the model
    predicts without.
    """
    return (
        key.startswith(("keras_api/", "optimizer/", "save_counter", "_optimizer/"))
        or ".OPTIMIZER_SLOT" in key
        or "/keras_api/" in key
    )


def _join_first(names: list[str]) -> str:
    shown = ", ".join(names[:_NAMED])
    return shown + (" and {} more".format(len(names) - _NAMED) if len(names) > _NAMED else "")
