"""
Comparison of the variables that a file stores with those that its layers create: their number and
shapes, not their values.

All releases restore variables by position. In an archive (``.keras``), each layer reads the
variables ``0``, ``1``, ... of its group, and fails if there are more or fewer, or if a shape
differs (``load_own_variables`` in keras/src/layers/layer.py). In HDF5, each layer of the model
reads the list of its group, which includes the variables of all layers in it, trainable variables
first (``load_weights_from_hdf5_group`` in keras/src/legacy/saving/legacy_h5_format.py).
:mod:`policytool.releases.layer_variables` has the variables of each class. The variables of other
classes, and sizes that the config does not determine, are not compared. A SavedModel declares its
variables (:mod:`policytool.model.compatibility.restored_objects`).
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Final

from msgspec import Struct
from msgspec.structs import replace

from policytool.formats.document import NO_WEIGHTS, Layout
from policytool.model import custom_classes
from policytool.model.compatibility import restored_objects, serialized_objects
from policytool.model.compatibility.expected_variables import (
    CALIBRATED,
    LORA_VARIABLES,
    SCALES,
    ExpectedVariable,
    LayerVariables,
    added_count,
    archive_reason,
    hdf5_reason,
    matrix_shape,
    named_reason,
    path_reason,
)
from policytool.model.compatibility.restored_objects import WITHOUT_GENERATORS
from policytool.model.compatibility.serialized_objects import SharedLayer, shared_layers
from policytool.model.layer_policies import Resolver
from policytool.model.model import Cause, Obstacle
from policytool.model.shapes import LayerShapes
from policytool.model.tree import INPUT_CLASS, LAYERS, path_of
from policytool.releases.layer_classes import Category, layer_facts
from policytool.releases.layer_variables import (
    LayerBuild,
    record_number,
    slots,
    variable_shape,
)
from policytool.releases.policy import Quantization
from policytool.releases.policy_formats import KERAS2_CLASSES
from policytool.releases.releases import KERAS2, KERAS3, family_of, is_since, releases_in

if TYPE_CHECKING:
    from collections.abc import Container, Iterator, Mapping, Sequence

    from policytool.formats.document import Document, Tensor
    from policytool.model.compatibility.serialized_objects import ObjectGroup
    from policytool.model.model import Verdict
    from policytool.model.tree import Site
    from policytool.model.tree.storage import Placed
    from policytool.model.writer_version import ConfigTraits
    from policytool.releases.layer_variables import VariableSlot
    from policytool.releases.output_shapes import Shape
    from policytool.releases.releases import Release
    from policytool.support.text.jsontext import Json

_FORMATS: Final = frozenset({"keras", "h5", "orbax"})
_UNKNOWN: Final = frozenset(
    {Category.BASE, Category.ENCODER, Category.FOREIGN, Category.LOOKUP, Category.UNKNOWN}
)
"""Categories of layers that may restore their variables with custom code or in a special way."""

_STATELESS: Final = frozenset({Category.INPUT, Category.OP_LAYER})
_TEXT: Final = "string"
"""The dtype of stored strings, which only lookup layers have as values."""

_UNMEASURED: Final = "_layer_checkpoint_dependencies"
"""The group of TF 2.12 to 2.14; TF 2.12 loads an archive with strings in it."""

_LORA: Final = "lora_rank"

_FLOAT8: Final = "float8"
_FLOAT8_VARIABLES: Final = tuple(
    f"{tensor}_{name}"
    for tensor in ("inputs", "kernel", "outputs_grad")
    for name in ("scale", "amax_history")
)
"""The names of the variables that float8 adds to a layer, in order."""

_HISTORY: Final = 1024
"""The number of steps that a float8 layer stores, unless its policy has another number."""

_PACKED: Final = frozenset({"kernel", "embeddings"})
_EMBEDDINGS: Final = frozenset({"Embedding", "ReversibleEmbedding"})
_SCALED_AXIS: Final = {
    "Dense": ("kernel_scale", -1),
    "Embedding": ("embeddings_scale", 0),
    "ReversibleEmbedding": ("embeddings_scale", 0),
}
"""The scale that int8 adds to a class, and the axis of the kernel that the scale has."""

_UNWRITTEN: Final = (
    "Keras 3.15 does not write all variables of GPTQ and AWQ to archives, so that to save the "
    "model again does not help"
)
_TOP_LEVEL: Final = "top_level_model_weights"
_BEFORE_NAMES: Final = frozenset({"0", "1"})
"""The major versions of Keras whose HDF5 files later releases convert while they read them."""


_CONVERTS_FUNCTIONAL: Final = "tf2.9"
"""
The release from which the variables of a nested Functional are converted (source of 2.5 and 2.9).
"""

BUILDS_AFTER_MODELS: Final = "keras3.5"
"""
The release from which a Sequential that begins with a built model is built (``_maybe_rebuild`` in
keras/src/models/sequential.py; measured in Keras 3.0, 3.3, 3.6, 3.10, 3.12 and 3.15).
"""

_NOT_BUILDING: Final = releases_in("keras3.0 to keras3.3")
"""
The releases that load a Sequential with a model in a TimeDistributed without building its later
layers (8 files of Keras 3.3).
"""

_PACKS_COLUMNS: Final = "keras3.14"
"""
The release from which two columns of an int4 kernel share a byte (measured in 3.15); in Keras 3.12,
two rows do.
"""


_ACTIVATIONS: Final = frozenset({"activation", "recurrent_activation"})
"""
The arguments whose layers Keras 3 builds during loading only if the file has the shape for which
they were built (measured with a PReLU in five classes in Keras 3.15).
"""

_KEEPS_AXIS: Final = "keras3.7"
"""The release from which Keras 3 keeps an axis that is a number when it reads HDF5."""


def is_dropped_axis(axis: Json, loader: str) -> bool:
    """
    Return whether a release drops an axis when it reads HDF5, and uses the last axis instead
    (``saving_utils.model_from_config`` in keras/src/legacy/saving, 3.0 to 3.15).
    """
    if family_of(loader) == KERAS2:
        return False
    if isinstance(axis, int):
        return not is_since(loader, _KEEPS_AXIS)
    return not isinstance(axis, list) or len(axis) != 1


class _Mismatch(Struct, frozen=True, kw_only=True):
    """A layer that cannot be restored, and the reason."""

    site: Site
    reason: str
    kind: Obstacle = Obstacle.VARIABLES
    """``STORAGE`` for variables that are stored, but that releases do not find."""


@dataclass(kw_only=True)
class StoredVariables:
    """The stored variables of a file, compared with the variables that each release creates."""

    document: Document
    placed: Placed
    origins: Sequence[Release]
    traits: ConfigTraits
    _causes: dict[tuple[object, ...], Cause | None] = field(default_factory=dict)
    """The cause of each group of releases that create the same variables."""

    own: dict[tuple[int | None, ...], LayerVariables | None] = field(default_factory=dict)
    """The variables of layers, by site and by what decides about them in a release."""

    def cause(self, loader: str) -> Cause | None:
        """Return the cause why a release fails to restore variables; None if no cause is known."""
        if self.document.format == "savedmodel":
            return self._cause_of_nodes(has_generators=loader not in WITHOUT_GENERATORS)
        if self._file_cause is not None or not self._is_comparable:
            return self._file_cause
        key = (
            family_of(loader) == KERAS2,
            *(is_since(loader, change) for change in self._changes),
            *(record_number(name, loader) for name in self._classes),
        )
        if key not in self._causes:
            cause = _cause(list(_Comparison(stored=self, loader=loader).mismatches()))
            if cause is not None and self._lacks_zero_points:
                cause = replace(cause, remedy=_UNWRITTEN)
            self._causes[key] = cause
        return self._causes[key]

    def _cause_of_nodes(self, *, has_generators: bool) -> Cause | None:
        """Return the cause why releases do not restore the objects of a SavedModel, or None."""
        if (has_generators,) not in self._causes:
            cause = restored_objects.cause(
                self.document, self.placed, has_generators=has_generators
            )
            self._causes[has_generators,] = cause
        return self._causes[has_generators,]

    @property
    def _lacks_zero_points(self) -> bool:
        """Whether the writing release does not write all variables of GPTQ and AWQ to archives."""
        return (
            self.document.format == "keras"
            and any(mode.partition("/")[0] in CALIBRATED for mode in self.traits.quantization_modes)
            and {release.id for release in self.origins} <= releases_in("after keras3.12")
        )

    @cached_property
    def _changes(self) -> Sequence[str]:
        """The releases from which variables of this file are created or read in another way."""
        sites = self.placed.sites
        is_nested = any(site.is_model for site in sites[1:])
        concerned = {
            _CONVERTS_FUNCTIONAL: is_nested,
            BUILDS_AFTER_MODELS: is_nested,
            _KEEPS_AXIS: any(isinstance((site.config or {}).get("axis"), int) for site in sites),
            _PACKS_COLUMNS: self.has_quantized_policies,
        }
        return [change for change, is_concerned in concerned.items() if is_concerned]

    @cached_property
    def _classes(self) -> Sequence[str]:
        return sorted({site.class_name for site in self.placed.sites})

    @cached_property
    def _file_cause(self) -> Cause | None:
        """Return the cause why no release can restore the variables, independent of its layers."""
        document = self.document
        if document.format not in _FORMATS:
            return None
        lost = next((item for item in document.observations if item.code == NO_WEIGHTS), None)
        if lost is not None:
            return Cause(kind=Obstacle.VARIABLES, reason=lost.message)
        if document.missing:
            layer, _, name = document.missing[0].partition("/")
            reason = (
                f"the variable {name} of {layer} is listed, but not stored"
                if name
                else f"the layer {layer} is listed, but has no group"
            )
            paths = (path_of(site.names) for site in self.placed.sites if site.name == layer)
            return Cause(kind=Obstacle.VARIABLES, reason=reason, layers=tuple(paths)[:1])
        return self._text_cause

    @property
    def _text_cause(self) -> Cause | None:
        """Return the cause if strings are stored as the value of a variable of numbers, or None."""
        if not any(tensor.dtype == _TEXT for tensor in self.document.tensors or ()):
            return None
        for index, site in enumerate(self.placed.sites):
            if layer_facts(site.class_name).category in _UNKNOWN or custom_classes.is_opaque(site):
                continue
            for name, tensor in self.placed.named_tensors(index):
                if tensor.dtype == _TEXT and tensor.path[0] != _UNMEASURED:
                    return Cause(
                        kind=Obstacle.VARIABLES,
                        reason=f"the variable {name} of {site.class_name} {site.name} has numbers, "
                        "but strings are stored",
                        layers=(path_of(site.names),),
                        class_name=site.class_name,
                    )
        return None

    @cached_property
    def _is_comparable(self) -> bool:
        """Return whether the layers of the file restore their stored variables by position."""
        document = self.document
        if document.format not in _FORMATS or document.tensors is None or not self.placed.sites:
            return False
        if document.layout is Layout.LEGACY_H5:
            version = document.writer.keras
            return version is not None and version.partition(".")[0] not in _BEFORE_NAMES
        return True

    @cached_property
    def objects(self) -> Sequence[ObjectGroup]:
        """The serialised objects of the layers, in groups of equal arguments."""
        return serialized_objects.objects(self.placed.sites)

    @cached_property
    def shapes(self) -> LayerShapes:
        """The input shapes for which the layers are built."""
        return LayerShapes(document=self.document, placed=self.placed)

    @cached_property
    def groups(self) -> dict[str, list[Tensor]]:
        """The variables that releases read from HDF5, by the name of the layer group."""
        document = self.document
        groups: dict[str, list[Tensor]] = defaultdict(list)
        names = {self.placed.sites[index].name for index in self.placed.children[0]}
        longest = 1 + max((name.count("/") for name in names), default=0)
        for tensor in document.tensors or ():
            if tensor.path not in document.unlisted and tensor.path[0] != _TOP_LEVEL:
                starts = ("/".join(tensor.path[:end]) for end in range(longest, 0, -1))
                groups[next((name for name in starts if name in names), tensor.path[0])].append(
                    tensor
                )
        return groups

    @cached_property
    def shared(self) -> tuple[SharedLayer, ...]:
        """The layers that several models share."""
        if not self.traits.nested_models:
            return ()
        is_marked = self.document.format == "keras" or all(
            family_of(release.id) == KERAS3 for release in self.origins
        )
        return shared_layers(self.document, self.placed.sites, is_marked=is_marked)

    @cached_property
    def borrowing(self) -> frozenset[tuple[str, ...]]:
        """The paths of the models with a layer whose first place is in another model."""
        return frozenset(names[:-1] for site in self.placed.sites for names in site.also_at)

    def is_comparable(self, index: int, loader: str) -> bool:
        """
        Return whether a layer certainly creates its variables when a release loads the model: the
        layer is built during loading, and by code of the library.
        """
        site = self.placed.sites[index]
        if custom_classes.is_opaque(site):
            return False
        if site.parent is None:
            return self._is_built_model(index, loader)
        is_built = self.shapes.is_built(index) or (
            site.is_model and self._is_built_model(index, loader)
        )
        is_inside = not custom_classes.is_opaque(self.placed.sites[site.parent])
        return is_inside and (is_built or self.is_comparable(site.parent, loader))

    def _is_built_model(self, index: int, loader: str) -> bool:
        """Return whether a release builds a model when it reads its config."""
        site = self.placed.sites[index]
        if not site.is_model or "output_layers" in (site.config or {}):
            return True
        layers = self.placed.children[index]
        if self.traits.distributed_models and loader in _NOT_BUILDING:
            return False
        if not layers or self.shapes.has_declared_input(index):
            return True
        if not self.placed.sites[layers[0]].is_model:
            return self._declares_input(layers[0], loader)
        if family_of(loader) == KERAS2:
            return self._declares_shape(layers[0])
        builds = is_since(loader, BUILDS_AFTER_MODELS) and len(layers) > 1
        return builds and self._is_built_model(layers[0], loader)

    def _declares_input(self, index: int, loader: str) -> bool:
        """Return whether a release knows the input shape of a layer from its config."""
        return self.shapes.has_declared_input(index) or (
            family_of(loader) == KERAS2 and self._takes_any_length(index)
        )

    def _takes_any_length(self, index: int) -> bool:
        """
        Return whether a layer has the input shape ``(None, None)`` in Keras 2 if its config has
        none (``Embedding.__init__`` in tf_keras/src/layers/core/embedding.py).
        """
        return self.placed.sites[index].class_name in _EMBEDDINGS

    def _declares_shape(self, index: int) -> bool:
        """
        Return whether Keras 2 finds the input shape of a Sequential in its first layer, a model: in
        the first layer in it, and not in the InputLayer of a Sequential
        (``get_input_shape_and_dtype`` in tf_keras/src/engine/training_utils.py).
        """
        site = self.placed.sites[index]
        if not site.is_model:
            return self.shapes.declared(index) is not None or self._takes_any_length(index)
        layers = self.placed.children[index]
        is_chain = layer_facts(site.class_name).network == "chain"
        if is_chain and layers and self.placed.sites[layers[0]].class_name == INPUT_CLASS:
            layers = layers[1:]
        return bool(layers) and self._declares_shape(layers[0])

    def parameters(self, index: int) -> int | None:
        """
        Return the number of parameters that a layer itself creates, without those of the layers in
        it; None if the config does not determine it.
        """
        site = self.placed.sites[index]
        if site.is_model:
            return None if custom_classes.is_opaque(site) else 0
        is_made = site.entry is None and site.parent is not None
        maker = site.parent if is_made and site.parent is not None else index
        variables = _Comparison(stored=self, loader=self.origins[-1].id).own(maker)
        if variables is None or variables.more != 0:
            return None
        within = (site.attribute,) if is_made else ()
        sizes = [item.size for item in variables.expected if item.slot.within == within]
        known = [size for size in sizes if size is not None]
        return sum(known) if len(known) == len(sizes) else None

    def layers_with_variables(self) -> list[int] | None:
        """
        Return the indices of the model's own layers that have variables, in the order in which
        HDF5 stores them; None if it is unknown whether a layer has variables.
        """
        counts = _Comparison(stored=self, loader=self.origins[-1].id).counts()
        if any(count is None for count in counts.values()):
            return None
        return [index for index, count in counts.items() if count]

    def quantization(self, index: int) -> Quantization | None:
        """Return the quantization of a layer; one with an empty mode if it is unknown."""
        if not self.has_quantized_policies:
            return None
        resolver = Resolver(origins=tuple(self.origins), floatx=None)
        layer = resolver.layer(self.placed.sites[index], self.placed, index)
        return Quantization(mode="", source="") if resolver.observations else layer.quantization

    @cached_property
    def has_quantized_policies(self) -> bool:
        """Whether a layer may be quantized."""
        return any(
            name not in {"name", "mixed-name", *KERAS2_CLASSES, "DTypePolicy"}
            for name in self.traits.policy_classes
        )


def _cause(mismatches: Sequence[_Mismatch]) -> Cause | None:
    if not mismatches:
        return None
    first = min(mismatches, key=lambda mismatch: mismatch.kind is not Obstacle.VARIABLES)
    return Cause(
        kind=first.kind,
        reason=first.reason,
        layers=tuple(
            dict.fromkeys(
                path_of(mismatch.site.names)
                for mismatch in mismatches
                if mismatch.kind is first.kind
            )
        ),
        class_name=first.site.class_name,
    )


DEFECTS: Final = frozenset({Obstacle.VARIABLES, Obstacle.CONFIG})
"""What no release and no conversion can do without."""


def damage(verdicts: Sequence[Verdict], kinds: Container[Obstacle] = DEFECTS) -> Cause | None:
    """Return the defect of a file's variables or config that makes all releases fail, or None."""
    if not all(verdict.reason is not None for verdict in verdicts):
        return None
    causes = (cause for verdict in reversed(verdicts) for cause in verdict.causes)
    return next((cause for cause in causes if cause.kind in kinds), None)


def _float8_first(variables: LayerVariables | None) -> LayerVariables | None:
    """
    Return the variables of a layer in the order in which a release reads them from HDF5. A layer
    that is built quantized has the variables of float8 before its own. A layer that is quantized
    later has them after its own, so that the file fails to load (measured in Keras 3.3, 3.6, 3.12,
    3.15).
    """
    if variables is None or len(variables.added) != len(_FLOAT8_VARIABLES):
        return variables
    if variables.more != len(variables.added):
        return variables
    return replace(variables, expected=(*variables.added, *variables.expected), more=0, added=())


def _kernel_first(parts: Sequence[LayerVariables]) -> list[LayerVariables]:
    """
    Return the variables of a layer that normalizes the kernel of another layer: the kernel is its
    own first variable, and not one of the other layer (measured in Keras 3.6 and 3.15).
    """
    kernel = next(
        (item for part in parts[1:] for item in part.expected if item.name in _PACKED), None
    )
    return [
        replace(
            part,
            expected=(
                *([kernel] if kernel is not None and number == 0 else ()),
                *(item for item in part.expected if item.name not in _PACKED),
            ),
        )
        for number, part in enumerate(parts)
    ]


def _with_lora(variables: LayerVariables, rank: Json, *, trainable: bool) -> LayerVariables:
    """
    Return the variables of a layer in HDF5 with the two factors of LoRA, which make the kernel
    untrainable; unchanged if quantization to integers adds variables (measured in Keras 3.3, 3.6
    and 3.15).
    """
    kernel = next(iter(variables.expected), None)
    float8 = len(variables.added) if len(variables.added) == len(_FLOAT8_VARIABLES) else 0
    if variables.more != LORA_VARIABLES + float8 or kernel is None or not kernel.shape:
        return variables
    size = rank if isinstance(rank, int) else None
    shapes = {"a": (*kernel.shape[:-1], size), "b": (size, kernel.shape[-1])}
    others = (
        *variables.expected[1:],
        *(
            replace(kernel, name=f"lora_{kernel.name}_{name}", shape=shape, quantizes=True)
            for name, shape in shapes.items()
        ),
    )
    whole = (*others, replace(kernel, trainable=False)) if trainable else (kernel, *others)
    return replace(variables, expected=whole, more=float8)


def _added_shapes(
    quantization: Quantization | None, kernel: ExpectedVariable
) -> Sequence[tuple[str, tuple[int | None, ...]]]:
    """Return the names and shapes of the variables that a quantization adds for a kernel."""
    mode = quantization.mode if quantization is not None else None
    if quantization is not None and mode == _FLOAT8 and kernel.class_name not in _EMBEDDINGS:
        history = quantization.amax_history_length or _HISTORY
        return [(name, (history,) if "history" in name else ()) for name in _FLOAT8_VARIABLES]
    scaled = _SCALED_AXIS.get(kernel.class_name)
    if mode != "int8" or scaled is None or not kernel.shape or kernel.slot.within:
        return ()
    name, axis = scaled
    return ((name, (kernel.shape[axis],)),)


@dataclass(frozen=True, kw_only=True)
class _Comparison:
    """The variables that a release creates, compared with the stored variables."""

    stored: StoredVariables
    loader: str

    def mismatches(self) -> Iterator[_Mismatch]:
        """Yield the layers that the release cannot restore."""
        layout = self.stored.document.layout
        if layout is Layout.SCOPES:
            return self._named_mismatches()
        is_archive = layout is Layout.OBJECT_PATHS
        return self._archive_mismatches() if is_archive else self._hdf5_mismatches()

    @property
    def _sites(self) -> Sequence[Site]:
        return self.stored.placed.sites

    def _archive_mismatches(self) -> Iterator[_Mismatch]:
        for index, site in enumerate(self._sites):
            if site.entry is None or site.is_model:
                continue  # layers that a layer creates are compared together with it
            variables = self.own(index)
            if variables is None:
                continue
            stored = self._stored_by_place(index)
            if not stored and any(
                (layer.name, layer.class_name) == (site.name, site.class_name)
                for layer in self.stored.shared
            ):
                continue  # its variables are stored once
            reason = archive_reason(site, variables, stored, is_lora=self._is_lora(index))
            if reason is not None:
                yield _Mismatch(site=site, reason=reason)

    def _named_mismatches(self) -> Iterator[_Mismatch]:
        """
        Yield the layers that are not restored from an Orbax checkpoint, in which Keras looks up
        variables by their paths.
        """
        for index, site in enumerate(self._sites):
            if site.entry is None or site.is_model:
                continue
            variables = self.own(index)
            stored = self._stored_by_place(index)
            defect = named_reason(site, variables, stored) if variables is not None else None
            reason = defect or path_reason(site, stored)
            if reason is not None:
                kind = Obstacle.STORAGE if defect is None else Obstacle.VARIABLES
                yield _Mismatch(site=site, reason=reason, kind=kind)

    def _stored_by_place(self, index: int) -> dict[str, Tensor]:
        """
        Return the stored variables of a layer, and of the layers that it creates, by their places
        in it.
        """
        placed = self.stored.placed
        tensors_by_place = dict(placed.named_tensors(index))
        for child in placed.children[index]:
            if self._sites[child].entry is None:
                attribute = self._sites[child].attribute
                tensors_by_place |= {
                    f"{attribute}/{place}": tensor
                    for place, tensor in self._stored_by_place(child).items()
                }
        return tensors_by_place

    def _is_lora(self, index: int) -> bool:
        return (self._sites[index].config or {}).get(_LORA) is not None

    def own(self, index: int) -> LayerVariables | None:
        """
        Return the variables of a layer and of the layers that it creates; None if unknown.
        """
        is_created = self.stored.is_comparable(index, self.loader)
        key = (
            index,
            record_number(self._sites[index].class_name, self.loader),
            is_created,
            self._is_unbuilt_activation(index),
            self._drops_axis(index),
            self.stored.has_quantized_policies and is_since(self.loader, _PACKS_COLUMNS),
        )
        if key not in self.stored.own:
            self.stored.own[key] = self._variables_to_create(index, is_created=is_created)
        return self.stored.own[key]

    def _is_unbuilt_activation(self, index: int) -> bool:
        """Return whether a layer is an activation that a release does not build during loading."""
        return (
            self._sites[index].attribute in _ACTIVATIONS
            and family_of(self.loader) == KERAS3
            and not self.stored.shapes.is_built(index)
        )

    def _variables_to_create(self, index: int, *, is_created: bool) -> LayerVariables | None:
        """Return the variables that a release creates for a layer; None if they are unknown."""
        site = self._sites[index]
        category = layer_facts(site.class_name).category
        if category in _STATELESS or self._is_unbuilt_activation(index):
            return LayerVariables(expected=())
        if category in _UNKNOWN or site.config is None or not is_created:
            return None
        created = slots(site.class_name, self.loader, site.config)
        if created is None and layer_facts(site.class_name).wraps == "cells":
            created = ()
        if created is None:
            return None
        if self._wraps_sum(index):
            others = [slot for slot in created if slot.name != "kernel"]
            created = tuple(replace(slot, index=number) for number, slot in enumerate(others))
        if not created:
            return LayerVariables(expected=())
        build = LayerBuild(config=self._config(index), inputs=self.stored.shapes.inputs(index))
        expected = tuple(self._expected_variable(index, slot, build) for slot in created)
        return LayerVariables(
            expected=expected,
            more=self._more(index, created),
            added=tuple(self._quantization_variables(index, created, expected)),
        )

    def _wraps_sum(self, index: int) -> bool:
        """
        Return whether a layer normalizes a kernel that is the sum of a variable and of LoRA, which
        is not a variable of the outer layer (measured in Keras 3.3, 3.6, 3.12 and 3.15).
        """
        wraps_kernel = layer_facts(self._sites[index].class_name).wraps == "kernel"
        return wraps_kernel and any(map(self._is_lora, self.stored.placed.children[index]))

    def _expected_variable(
        self, index: int, slot: VariableSlot, build: LayerBuild
    ) -> ExpectedVariable:
        """Return the variable for a slot of a layer, with its shape if it is known."""
        site = self._sites[index]
        shape: Shape | None = None
        mode = self._mode_of(index, slot)
        if mode in (None, *SCALES):
            shape = variable_shape(site.class_name, slot, build)
        elif (mode or "").startswith("int4") and slot.name in _PACKED:
            shape = self._packed_shape(index, slot)
        return ExpectedVariable(
            name="/".join((*slot.scopes[-1:], slot.name)) if slot.within else slot.name,
            shape=shape,
            place="/".join((*slot.within, str(slot.index))),
            trainable=slot.trainable,
            class_name=site.class_name,
            slot=slot,
            owner=index,
        )

    def _config(self, index: int) -> Mapping[str, Json]:
        """Return the arguments of a layer, without an axis that the release drops."""
        config = self._sites[index].config or {}
        if not self._drops_axis(index):
            return config
        return {key: value for key, value in config.items() if key != "axis"}

    def _drops_axis(self, index: int) -> bool:
        """Return whether the release drops the axis of a layer."""
        site = self._sites[index]
        return (
            self.stored.document.format == "h5"
            and site.parent is not None
            and self._sites[site.parent].is_model
            and is_dropped_axis((site.config or {}).get("axis"), self.loader)
        )

    def _packed_shape(self, index: int, slot: VariableSlot) -> Shape | None:
        """
        Return the shape of an int4 kernel in Keras 3.15: two of its columns share a byte. Keras
        3.12 packs rows instead, so that later releases fail to load it.
        """
        site = self._sites[index]
        if slot.within or not is_since(self.loader, _PACKS_COLUMNS):
            return None
        build = LayerBuild(config=site.config or {}, inputs=self.stored.shapes.inputs(index))
        shape = variable_shape(site.class_name, slot, build)
        if shape is not None and site.class_name == "EinsumDense":
            shape = matrix_shape(str(build.config.get("equation")), shape)
        if not shape or len(shape) != 2:  # noqa: PLR2004  # rows and columns
            return None
        rows, columns = shape
        return rows, None if columns is None else -(-columns // 2)

    def _quantization_variables(
        self, index: int, created: Sequence[VariableSlot], expected: Sequence[ExpectedVariable]
    ) -> Iterator[ExpectedVariable]:
        """Yield the known variables that quantization adds to a layer and the layers it creates."""
        counts = Counter(slot.within for slot in created)
        for slot, kernel in zip(created, expected, strict=True):
            is_untied = len(created) > 1 and kernel.class_name in _EMBEDDINGS
            if slot.index == 0 and not is_untied:
                shapes = _added_shapes(self._quantization_of(index, slot), kernel)
                for number, (name, shape) in enumerate(shapes, counts[slot.within]):
                    yield replace(
                        kernel,
                        name=name,
                        shape=shape,
                        place="/".join((*slot.within, str(number))),
                        quantizes=True,
                    )

    def _mode_of(self, index: int, slot: VariableSlot) -> str | None:
        """Return the quantization mode of the owner of a variable; an empty text if unknown."""
        quantization = self._quantization_of(index, slot)
        return None if quantization is None else quantization.mode

    def _quantization_of(self, index: int, slot: VariableSlot) -> Quantization | None:
        """Return the quantization of the owner of a variable: the layer, or an inner layer."""
        attribute = "/".join(slot.within)
        children = self.stored.placed.children[index]
        inner = (child for child in children if self._sites[child].attribute == attribute)
        owner = next(inner, None) if slot.within else index
        if owner is None or not layer_facts(self._sites[owner].class_name).quantizable:
            return None
        return self.stored.quantization(owner)

    def _more(self, index: int, created: Sequence[VariableSlot]) -> int | None:
        """Return the number of variables that quantization and LoRA add; None if unknown."""
        more = LORA_VARIABLES if self._is_lora(index) else 0
        for slot in created:
            mode = self._mode_of(index, slot)
            is_embedding = "embeddings" in slot.name
            if mode is None or slot.name == "bias" or (is_embedding and mode == _FLOAT8):
                continue
            added = added_count(mode, slot.name)
            if added is None:
                return None
            more += added
        return more

    @property
    def _top(self) -> list[int]:
        """The indices of the model's own layers."""
        children = self.stored.placed.children[0]
        return [index for index in children if self._sites[index].attribute == LAYERS]

    def counts(self) -> dict[int, int | None]:
        """Return the number of variables of each of the model's own layers; None if unknown."""
        whole = {index: self._whole(index, trainable=True) for index in self._top}
        return {
            index: None if variables is None else variables.count
            for index, variables in whole.items()
        }

    def _hdf5_mismatches(self) -> Iterator[_Mismatch]:
        groups = self.stored.groups
        keras2 = family_of(self.loader) == KERAS2
        top = self._top
        names = {self._sites[index].name for index in top}
        if not set(groups) <= names or len(names) != len(top):
            return
        whole = {index: self._whole(index, trainable=True) for index in top}
        for index in filter(self._is_unread_model, top if keras2 else ()):
            yield _Mismatch(
                site=self._sites[index],
                reason=f"it has the model {self._sites[index].name} without an input shape, whose "
                "variables Keras 2 cannot read from HDF5",
            )
        for index, name in self._pairs(whole, groups):
            variables = whole[index]
            if variables is None:
                continue
            stored_tensors = groups.get(name, [])
            if keras2 and variables.count and self._has_model(index):
                # Keras 2 converts the variables that a model, or a wrapped one, needs
                stored_tensors = stored_tensors[: variables.count]
            reason = hdf5_reason(self._sites[index], variables, stored_tensors, keras2=keras2)
            if reason is not None:
                yield _Mismatch(site=self._sites[index], reason=reason)

    def _is_unread_model(self, index: int) -> bool:
        """
        Return whether a layer is a chain of layers that Keras 2 does not build, or contains one. To
        ask it for its variables then raises an error (measured in TF 2.4, 2.9 and 2.15 and in
        tf_keras 2.21).
        """
        site = self._sites[index]
        if custom_classes.is_opaque(site) or self.stored.is_comparable(index, self.loader):
            return False
        is_chain = site.is_model and layer_facts(site.class_name).network == "chain"
        return is_chain or any(map(self._is_unread_model, self.stored.placed.children[index]))

    def _has_model(self, index: int) -> bool:
        """
        Return whether a layer is a model, or contains one, whose variables a release converts; TF
        2.3 to 2.5 do not convert those of a Functional.
        """
        site = self._sites[index]
        if site.is_model:
            return site.class_name != "Functional" or is_since(self.loader, _CONVERTS_FUNCTIONAL)
        return any(map(self._has_model, self.stored.placed.children[index]))

    def _pairs(
        self, whole: Mapping[int, LayerVariables | None], groups: Mapping[str, Sequence[Tensor]]
    ) -> list[tuple[int, str]]:
        """
        Return each layer with the group from which it is restored. Layers and groups match by
        position; layers without variables do not count.
        """
        by_name = [(index, self._sites[index].name) for index in whole]
        listed = [name for name in self.stored.document.listed_layers if groups.get(name)]
        known = [variables for variables in whole.values() if variables is not None]
        filled = [
            index
            for index, variables in whole.items()
            if variables is not None and variables.count != 0
        ]
        if len(known) != len(whole) or len(filled) != len(listed):
            return by_name
        return list(zip(filled, listed, strict=True))

    def _whole(self, index: int, *, trainable: bool) -> LayerVariables | None:
        """Return the variables of a layer and of all layers in it; None if unknown."""
        site = self._sites[index]
        if site.also_at and any(names[:-1] != site.names[:-1] for names in site.also_at):
            return None
        if site.names in self.stored.borrowing:
            return None
        trainable = trainable and (site.config or {}).get("trainable") is not False
        own = LayerVariables(expected=()) if site.is_model else self.own(index)
        if own is not None and self._is_lora(index):
            own = _with_lora(own, (site.config or {}).get(_LORA), trainable=trainable)
        own = _float8_first(own)
        if own is None or (site.is_model and custom_classes.is_opaque(site)):
            return None
        if trainable and not self.stored.placed.children[index]:
            return own
        below = [
            self._whole(child, trainable=trainable)
            for child in self.stored.placed.children[index]
            if self._sites[child].entry is not None
        ]
        if any(inner is None for inner in below):
            return None
        parts = [own, *(inner for inner in below if inner is not None)]
        if layer_facts(site.class_name).wraps == "kernel" and not self._wraps_sum(index):
            parts = _kernel_first(parts)
        expected = [
            replace(item, trainable=trainable and item.trainable)
            for part in parts
            for item in part.expected
        ]
        more = [part.more for part in parts if part.more is not None]
        return LayerVariables(
            expected=tuple(sorted(expected, key=lambda item: not item.trainable)),
            more=sum(more) if len(more) == len(parts) else None,
            added=tuple(item for part in parts for item in part.added),
            is_ordered=(
                not site.is_model
                or site.class_name == "Sequential"
                or sum(bool(part.expected) for part in parts) <= 1
            )
            and all(part.is_ordered for part in parts),
        )
