"""
A model built anew from its config, with other policies and the same state.

The vocabulary of a lookup that was learnt, or that is in a file of the model's, is not in the
config. Neither are layers that belong to several models: Keras builds such a layer twice. The live
original has both, so the models are put together from the inside, each with the layers that exist
already, as the loader of SavedModels does it.

Its state comes from the checkpoint: the object graph there and the live objects are walked side by
side, by the names of the edges, as TensorFlow itself restores; but values are cast where the new
variable has another dtype, which TensorFlow refuses.
"""

from __future__ import annotations

import json
import os
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from . import model_calls
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
    from typing import Any, Iterator, Mapping

    from .library import Library

    Places = Mapping[tuple[str, ...], int]
    """The paths of layers, with a number that all places of a layer share."""

OBJECT_GRAPH = "_CHECKPOINTABLE_OBJECT_GRAPH"
VALUE = "VARIABLE_VALUE"
_OWN = ("signatures", "keras_api")
"""Edges of a SavedModel's root to objects that a model does not track under the same name."""

_PLACED = "layer-"
_COUNTED = "layer_with_weights-"
_WRAPPED = ("base_optimizer", "inner_optimizer", "_optimizer", "optimizer")
"""Edges from a loss-scaling optimizer to its inner optimizer."""


@dataclass(eq=False)
class Restored:
    """The result of restoring a checkpoint."""

    taken: dict[str, Any] = field(default_factory=dict)
    """The live variable for each key of the checkpoint."""
    cast: list[str] = field(default_factory=list)
    left: list[str] = field(default_factory=list)
    """The keys of values without a live variable."""


class Checkpoint:
    """The variables of a SavedModel, and the objects that contain them."""

    def __init__(self, library: Library, prefix: str) -> None:
        self.library = library
        self.reader = library.tf.train.load_checkpoint(prefix)
        self.dtypes = self.reader.get_variable_to_dtype_map()
        self.shapes = self.reader.get_variable_to_shape_map()
        self.nodes = (
            _nodes(self.reader.get_tensor(OBJECT_GRAPH)) if OBJECT_GRAPH in self.dtypes else []
        )

    def restore(self, model: Any, optimizer: Any) -> Restored:
        """Assign the values of the checkpoint to the live variables."""
        restored = Restored()
        live = self._live(model)
        for number, trackable in live.items():
            key = self.nodes[number].values.get(VALUE)
            if key is not None and _is_variable(trackable) and self._fits(key, trackable):
                self._assign(restored, key, trackable)
        self._slots(restored, live, optimizer)
        restored.left = [
            key
            for key in self.dtypes
            if key != OBJECT_GRAPH and key not in restored.taken and key.endswith(VALUE)
        ]
        return restored

    def _live(self, model: Any) -> dict[int, Any]:
        """Return the live object of each node number that is reachable by the same names."""
        live = {0: model}
        pending = deque([0])
        while pending:
            number = pending.popleft()
            edges = self.nodes[number].children
            by_place = any(name.startswith(_PLACED) for name, _ in edges)
            for name, child in edges:
                if by_place and name.startswith(_COUNTED):
                    # counts layers with variables, and a lookup with a table of its own is one of
                    # them: the same number may be another layer
                    continue
                if child not in live and not (number == 0 and name in _OWN):
                    trackable = _lookup(live[number], name)
                    if trackable is not None:
                        live[child] = trackable
                        pending.append(child)
        return live

    def _slots(self, restored: Restored, live: dict[int, Any], optimizer: Any) -> None:
        """Restore the state that an optimizer of TF 2.10 and older keeps for each variable."""
        optimizer = _unwrapped(optimizer)  # one that scales the loss has no slots itself
        if not hasattr(optimizer, "get_slot"):
            return
        for node in self.nodes:
            for original, slot_name, slot in node.slots:
                key = self.nodes[slot].values.get(VALUE)
                if key is None or original not in live:
                    continue
                try:
                    variable = optimizer.get_slot(live[original], slot_name)
                except (KeyError, ValueError, AttributeError):
                    continue  # an optimizer of another kind, or one that wraps it
                if variable is not None and self._fits(key, variable):
                    self._assign(restored, key, variable)

    def _fits(self, key: str, variable: Any) -> bool:
        """Return whether the checkpoint has a value of a variable's shape under a key."""
        return key in self.dtypes and list(variable.shape) == list(self.shapes[key])

    def _assign(self, restored: Restored, key: str, variable: Any) -> None:
        """Assign the value of a checkpoint key to a variable, and record whether it was cast."""
        dtype = variable.dtype.base_dtype
        value = self.reader.get_tensor(key)
        if dtype != self.dtypes[key]:
            value = cast(value, dtype.as_numpy_dtype)
            restored.cast.append(key)
        raw = getattr(
            variable, "_variable", variable
        )  # an AutoCastVariable casts what it is given; its own variable does not
        raw.assign(value)
        restored.taken[key] = variable


def cast(values: Any, dtype: Any) -> Any:
    """
    Return values in another dtype, rounded once. NumPy casts them, because TensorFlow converts
    through float32 and flushes subnormal numbers.
    """
    numpy_dtype = np.dtype(dtype)
    array = np.asarray(values)
    if array.dtype == np.float64 and numpy_dtype.name == "bfloat16":
        with np.errstate(all="ignore"):
            array = _round_to_odd(array)
    with np.errstate(all="ignore"):
        return array.astype(numpy_dtype)


class Node(NamedTuple):
    """One object of the checkpoint's graph."""

    children: Any
    values: Any
    slots: Any


def _nodes(serialised: bytes) -> list[Node]:
    """Return the nodes of a serialized object graph."""
    from tensorflow.core.protobuf import trackable_object_graph_pb2

    graph = trackable_object_graph_pb2.TrackableObjectGraph()
    graph.ParseFromString(serialised)
    return [
        Node(
            [(child.local_name, child.node_id) for child in node.children],
            {attribute.name: attribute.checkpoint_key for attribute in node.attributes},
            [
                (slot.original_variable_node_id, slot.slot_name, slot.slot_variable_node_id)
                for slot in node.slot_variables
            ],
        )
        for node in graph.nodes
    ]


def _lookup(trackable: Any, name: str) -> Any:
    """Return the child of an object with this name."""
    if not hasattr(trackable, "_lookup_dependency"):
        return None
    if hasattr(trackable, "_maybe_initialize_trackable"):
        trackable._maybe_initialize_trackable()  # noqa: SLF001  # a layer that never tracked anything has no table of names yet
    dependency = trackable._lookup_dependency(name)  # noqa: SLF001  # how TensorFlow itself restores
    inner = _unwrapped(trackable)
    if dependency is None and inner is not trackable:
        return _lookup(inner, name)  # the file's optimizer scaled no loss, and this one does
    if dependency is None and name in _WRAPPED and hasattr(trackable, "apply_gradients"):
        return trackable  # the other way round
    return dependency


def _unwrapped(optimizer: Any) -> Any:
    """Return the inner optimizer of a loss-scaling optimizer."""
    for inner in ("inner_optimizer", "_optimizer"):
        optimizer = getattr(optimizer, inner, optimizer)
    return optimizer


def _is_variable(trackable: Any) -> bool:
    return (
        hasattr(trackable, "assign") and hasattr(trackable, "dtype") and hasattr(trackable, "shape")
    )


def _round_to_odd(array: Any) -> Any:
    """
    Return float64 values as float32, rounded to odd. Rounding the result to bfloat16 equals a
    single rounding.
    """
    nearest = array.astype(np.float32)
    inexact = np.isfinite(array) & (nearest.astype(np.float64) != array)
    toward_zero = np.where(
        np.abs(nearest.astype(np.float64)) > np.abs(array),
        np.nextafter(nearest, np.float32(0)),
        nearest,
    )
    bits = np.asarray(toward_zero, dtype=np.float32).view(np.uint32)
    return np.where(inexact, bits | 1, bits).astype(np.uint32).view(np.float32)


def unrestored_names(model: Any, restored: Restored) -> Iterator[str]:
    """Yield the names of the model's variables without a restored value."""
    restored_ids = {
        id(getattr(variable, "_variable", variable)) for variable in restored.taken.values()
    }
    for variable in model.variables:
        if id(getattr(variable, "_variable", variable)) not in restored_ids:
            yield str(variable.name)


class Lookups:
    """The lookups of a live original, by their names, and the directory of its assets."""

    def __init__(self, original: Any, assets: str) -> None:
        self.layers = {
            layer.name: layer for _, layer in paths(original) if _is_lookup(type(layer).__name__)
        }
        self.assets = assets
        self.files: dict[str, str] = {}
        """The file that the config of each lookup names, if the model's assets contain it."""

    def with_vocabularies(self, config: Any) -> Any:
        """
        Return a config whose lookups have the vocabularies of the original: the asset file, which
        is then copied with the model, or a list of words.
        """
        if isinstance(config, list):
            return [self.with_vocabularies(entry) for entry in config]
        if not isinstance(config, dict):
            return config
        new_config = {key: self.with_vocabularies(entry) for key, entry in config.items()}
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
        """
        Return the vocabulary of a lookup as config entries: its asset file, or its list of words;
        nothing if the config contains the words.
        """
        layer, vocabulary = self.layers[config["name"]], config["vocabulary"]
        if isinstance(vocabulary, str):
            asset = os.path.join(self.assets, os.path.basename(vocabulary))
            if os.path.isfile(asset) and not os.path.islink(asset):
                self.files[config["name"]] = vocabulary
                return {"vocabulary": asset}
        elif vocabulary is not None:
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
    """Return the words of a lookup, without those that it adds by itself."""
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
"""The maximum number of names in a sentence; others are counted."""


def rebuild_model(library: Library, original: Any, nested: Any, job: Mapping[str, Any]) -> Any:
    """
    Return a model of the original's class from the job's config, with fresh variables; ``nested``
    are the specs of its inputs.

    The config decides the policies of what is built from it. Layers that a class's own code makes
    get theirs from the global policy, or from the plan as long as they have no variables.
    """
    lookups = Lookups(original, os.path.join(job["source"], ASSETS))
    config = _decode_config(
        library, library.config_in_format(lookups.with_vocabularies(job["config"]))
    )
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
    Compile a model according to a training configuration. Return its optimizer, after creating
    every variable of its state.
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
    lost_keys = [key for key in restored.left if not _is_bookkeeping(key)]
    if lost_keys:
        raise Refused(
            "not-restored",
            "the rebuilt model has no variable for {}, which the file contains".format(
                _join_first(lost_keys)
            ),
        )
    for _, layer in paths(model):
        if adapts_statistics(layer) and hasattr(layer, "finalize_state"):
            layer.finalize_state()
    return restored


def check_code(library: Library, model: Any) -> None:
    """
    Raise Refused for a model with layers that were revived from traces, because there is no code to
    trace in another dtype.
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


def _decode_config(library: Library, config: Any) -> Any:
    """Return a config with Python's tuples and shapes, which metadata stores as objects."""
    try:
        utils = library.internal(
            "saving.legacy.saved_model.json_utils", "saving.saved_model.json_utils"
        )
    except Refused:
        return config  # TF 2.3 and older write lists
    return utils.decode(json.dumps(config))


def _is_bookkeeping(key: str) -> bool:
    """
    Return whether a value belongs to metrics, counters or an optimizer, which predictions do not
    use.
    """
    return (
        key.startswith(("keras_api/", "optimizer/", "save_counter", "_optimizer/"))
        or ".OPTIMIZER_SLOT" in key
        or "/keras_api/" in key
    )


def _join_first(names: list[str]) -> str:
    first_names = ", ".join(names[:_NAMED])
    return first_names + (" and {} more".format(len(names) - _NAMED) if len(names) > _NAMED else "")
