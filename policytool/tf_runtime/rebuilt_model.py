"""
A model built anew from its config, with other policies and the same state.

The vocabulary of a lookup that was learnt, or that is in a file of the model's, is not in the
config. Neither are layers that belong to several models: Keras builds such a layer twice. The live
original has both, so the models are put together from the inside, each with the layers that exist
already, as the loader of SavedModels does it.
"""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING

from . import model_calls
from .checkpoint import Checkpoint, unrestored_names
from .facts import adapts_statistics, class_facts
from .feeding import recipes
from .library import (
    Refused,
    class_of,
    config_of,
    is_revived,
    paths,
    refusing,
    sentence,
    with_config,
)

if TYPE_CHECKING:
    from typing import Any, Mapping

    from .checkpoint import Restored
    from .library import Library

    Places = Mapping[tuple[str, ...], int]
    """Names from the outermost model down, to a number that a layer has in all of its places."""


class Lookups:
    """The lookups of a live original, by their names, and the directory of its assets."""

    def __init__(self, original: Any, assets: str) -> None:
        self.layers = {
            layer.name: layer for _, layer in paths(original) if _is_lookup(type(layer).__name__)
        }
        self.assets = assets
        self.files: dict[str, str] = {}
        """
        Name of a lookup to the file that its config names, where the model's assets hold that.
        """

    def known(self, config: Any) -> Any:
        """
        Return a config whose lookups have the vocabulary of the original: its asset file if it has
        one, which is then copied with the model, else a list of words.
        """
        if isinstance(config, list):
            return [self.known(entry) for entry in config]
        if not isinstance(config, dict):
            return config
        new_config = {key: self.known(entry) for key, entry in config.items()}
        inner = config_of(new_config)
        if (
            _is_lookup(class_of(new_config))
            and isinstance(inner, dict)
            and inner.get("name") in self.layers
            and "vocabulary" in inner
        ):
            return with_config(new_config, {**inner, **self._words(inner)})
        return new_config

    def restore_vocabulary_files(self, model: Any) -> None:
        """
        Set the file names in the new lookups to those of the original, not to the paths from which
        this run read them.
        """
        for _, layer in paths(model):
            inner = getattr(layer, "_lookup_layer", layer)
            if layer.name in self.files and hasattr(inner, "input_vocabulary"):
                inner.input_vocabulary = self.files[layer.name]

    def _words(self, config: Mapping[str, Any]) -> dict[str, Any]:
        layer, named = self.layers[config["name"]], config["vocabulary"]
        if isinstance(named, str):
            asset = os.path.join(self.assets, os.path.basename(named))
            if os.path.isfile(asset) and not os.path.islink(asset):
                self.files[config["name"]] = named
                return {"vocabulary": asset}
        elif named is not None:
            return {}
        words = _vocabulary(layer, config)
        entries: dict[str, Any] = {"vocabulary": words or None}
        weights = getattr(getattr(layer, "_lookup_layer", layer), "idf_weights", None)
        if config.get("output_mode") == "tf_idf" and weights is not None:
            entries["idf_weights"] = [float(weight) for weight in weights.numpy()[-len(words) :]]
        return entries


def _is_lookup(class_name: str | None) -> bool:
    return class_name is not None and class_facts(class_name).get("category") == "lookup"


def _vocabulary(layer: Any, config: Mapping[str, Any]) -> list[Any]:
    """Return the words of a lookup without those that it adds by itself."""
    try:
        words = layer.get_vocabulary(include_special_tokens=False)
    except TypeError:  # TF 2.3 to 2.5
        words = [
            word
            for word in layer.get_vocabulary()
            if word not in ("", config.get("oov_token", "[UNK]"), config.get("mask_token"))
        ]
    return [word.item() if hasattr(word, "item") else word for word in words]


MODELS = ("Functional", "Model")


def shared_places(original: Any) -> Places:
    """Return the places of layers that are part of more than one model."""
    paths_by_layer: dict[int, list[tuple[str, ...]]] = {}

    def find(layer: Any, path: tuple[str, ...]) -> None:
        paths_by_layer.setdefault(id(layer), []).append(path)
        for child in getattr(layer, "layers", None) or []:
            find(child, (*path, child.name))

    find(original, ())
    return {
        path: number
        for number, places in enumerate(paths_by_layer.values())
        if len(places) > 1
        for path in places
    }


class Builder:
    """Builds functional models whose layers are shared between them."""

    def __init__(self, library: Library, places: Places) -> None:
        self.functional = library.internal("engine.functional", "engine.network")
        self.keras = library.keras
        self.custom = library.custom
        self.places = places
        self.made: dict[int, Any] = {}

    def model(self, config: Mapping[str, Any], path: tuple[str, ...] = ()) -> Any:
        """Return the model of a functional config."""
        created = {}
        for layer in config["layers"]:
            inner = config_of(layer)
            place = (*path, inner["name"])
            if (
                self.places.get(place) not in self.made
                and class_of(layer) in MODELS
                and "layers" in inner
            ):
                created[place[-1]] = self.model(inner, place)
        for layer in config["layers"]:
            name = config_of(layer)["name"]
            number = self.places.get((*path, name))
            if number in self.made:
                created[name] = self.made[number]
        inputs, outputs, layers = self.functional.reconstruct_from_config(
            config, self.custom, created
        )
        model = self.keras.Model(inputs, outputs, name=config["name"])
        self.functional.connect_ancillary_layers(model, layers)
        if config.get("trainable") is False:
            model.trainable = False
        for name, layer in layers.items():
            number = self.places.get((*path, name))
            if number is not None:
                self.made.setdefault(number, layer)
        return model


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
    places = shared_places(original)
    text = "{} cannot be built with the new policies: {}"
    building = refusing("not-buildable", text, original.name)
    with building, library.global_policy(job["policy"]), library.scope():
        with library.deserialising():
            model = (
                Builder(library, places).model(config)
                if places
                else type(original).from_config(config)
            )
        _apply_policies(library, model, job["policies"])
        if not model.built or not model.weights:
            _call(library, model, original, nested)
    lookups.restore_vocabulary_files(model)
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
    Restore the state in a checkpoint: all variables of the model, and the optimizer's state as far
    as the optimizer has variables for it.
    """
    restored = Checkpoint(library, prefix).restore(model, optimizer)
    missing = sorted(set(unrestored_names(model, restored)))
    if missing:
        raise Refused(
            "not-restored",
            "the file contains no value for {}, which the rebuilt model requires".format(
                _join_first(missing)
            ),
        )
    lost = [key for key in restored.left if not _is_bookkeeping(key)]
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
    return restored


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
    """Call the model once, to build the layers that are built by their first call."""
    specs = recipes.input_slots(library.tf.nest.flatten(nested))
    error = None
    for size in recipes.sizes(specs):
        try:
            model_calls.call(
                model,
                library.tf.nest.pack_sequence_as(
                    nested, recipes.draw_inputs(library, original, specs, 0, size)
                ),
            )
        except library.tf.errors.OpError as failure:
            error = failure
        else:
            return
    raise Refused(
        "not-callable",
        "the rebuilt model cannot be called with inputs of its declared shapes: {}".format(error),
    )


def _apply_policies(library: Library, model: Any, policies: Mapping[str, str]) -> None:
    """Set the policies of the plan on layers that have no variables yet."""
    for path, layer in paths(model):
        policy_name = policies.get(path)
        current = getattr(layer, "_dtype_policy", None)
        if (
            policy_name is not None
            and current is not None
            and not layer.built
            and current.name != policy_name
            and hasattr(layer, "_set_dtype_policy")
        ):
            layer._set_dtype_policy(library.policy(policy_name))  # noqa: SLF001  # Keras 2 has no public way to it after construction


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
    first_names = ", ".join(names[:_NAMED])
    return first_names + (" and {} more".format(len(names) - _NAMED) if len(names) > _NAMED else "")
