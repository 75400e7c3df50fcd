"""
The facts about a file that rows of :mod:`policytool.model.compatibility.incompatibilities` test.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from policytool.model import inbound_nodes, writer_version
from policytool.model.compatibility.restored_objects import are_called
from policytool.model.compatibility.stored_variables import is_dropped_axis
from policytool.model.tree import INPUT_CLASS, storage
from policytool.releases import keras_objects, layer_variables
from policytool.releases.layer_classes import layer_facts
from policytool.releases.releases import KERAS3, family_of, releases_in
from policytool.support.grouping import group_pairs

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from policytool.formats.document import Document
    from policytool.model.compatibility.serialized_objects import SharedLayer
    from policytool.model.shapes import LayerShapes
    from policytool.model.tree import Site
    from policytool.model.writer_version import ConfigTraits
    from policytool.releases.output_shapes import Shape


ORDERING_BY_CASTS: Final = "keras3.5 to keras3.9"
"""
The releases whose order of layers depends on the casts between them (measured in Keras 3.0, 3.4 to
3.6, 3.8, 3.9, 3.13 and later with files of the same releases).
"""


class MovedVariables(Struct, frozen=True, kw_only=True):
    """The variables of a layer that another layer reads."""

    layer: str
    reader: str
    fits: bool
    """Whether the variables of both layers have the same shapes."""


class CreatedLayer(Struct, frozen=True, kw_only=True):
    """A layer of a SavedModel, which a release creates from its config."""

    class_name: str
    policy: str
    output_mode: str | None
    is_called: bool
    """Whether loading calls the layer, as it does in models of connected layers."""

    is_fused: bool
    """See :func:`policytool.model.writer_version.is_fused`."""

    has_traces: bool
    """Whether the release can restore the layer from its traces instead."""


class Evidence(Struct, frozen=True, kw_only=True):
    """The facts from which an incompatibility can be detected."""

    document: Document
    traits: ConfigTraits
    releases: frozenset[str]
    """The releases that can have written the file."""

    shared: tuple[SharedLayer, ...] = ()
    shapes: LayerShapes | None = None

    def is_written_in(self, ranges: str) -> bool:
        """Return whether only releases in these ranges can have written the file."""
        return bool(self.releases) and self.releases <= releases_in(ranges)

    def has_key(self, class_names: str, *keys: str) -> bool:
        """Return whether an object of one of the classes has one of the config keys."""
        return any(
            key in self.traits.keys.get(name, ()) for name in class_names.split() for key in keys
        )

    @property
    def dependency_steps(self) -> frozenset[int] | None:
        """See :func:`policytool.model.tree.storage.dependency_steps`."""
        return storage.dependency_steps(self.document)

    @property
    def shares_measured(self) -> bool:
        """Whether it was measured what releases do with the layers that models of it share."""
        is_archive = self.document.format == "keras"
        return (is_archive and self.is_written_in("keras3.0 on")) or (
            self.document.format in ("h5", "keras")
            and all(layer.is_chained for layer in self.shared)
        )

    @property
    def shares_variables(self) -> bool:
        """Whether models of the file share a layer with variables."""
        return any(layer.has_variables for layer in self.shared)

    @property
    def is_built_late(self) -> bool:
        """
        Whether Keras 3.0 to 3.3 need not build a Sequential to load it: it was never called in
        Keras 3, or its variables are in no HDF5 file, or in one layer of it.
        """
        if self.traits.root_class != "Sequential":
            return False
        if self.is_keras3:
            return self.shapes is not None and not (
                self.shapes.has_declared_input(0)
                or any(site.class_name == INPUT_CLASS for site in self.shapes.sites[1:2])
            )
        owners = {tensor.path[0] for tensor in self.document.tensors or () if tensor.path}
        return self.document.format != "h5" or len(owners) == 1

    @property
    def crops_everything(self) -> bool:
        """Whether a cropping layer leaves nothing of its input."""
        if self.shapes is None or not any(map(_is_cropping, self.traits.class_names)):
            return False
        outputs = (
            self.shapes.output(index) or ()
            for index, site in enumerate(self.shapes.sites)
            if _is_cropping(site.class_name)
        )
        return any(size is not None and size <= 0 for shape in outputs for size in shape)

    @property
    def has_no_traces(self) -> bool:
        """Whether a SavedModel has no traces, which need the attribute ``keras_api``."""
        described = bool(self.document.nodes) and self.traits.root_class is not None
        return described and not any(
            name == "keras_api" for name, _ in self.document.nodes[0].children
        )

    @property
    def attention_dtypes(self) -> frozenset[str]:
        """The dtypes of the query kernels of MultiHeadAttention layers in a SavedModel."""
        nodes = self.document.nodes
        return frozenset(
            variable.dtype
            for node in nodes.values()
            for name, layer in node.children
            if name == "_query_dense" and layer in nodes
            for child, number in nodes[layer].children
            if child == "kernel" and (variable := nodes[number].variable) is not None
        )

    @property
    def classes_of_objects(self) -> frozenset[str | None]:
        """The classes of the layers and models of a SavedModel."""
        return frozenset(map(keras_objects.class_of, self.document.parts.values()))

    @property
    def classes_without_traces(self) -> frozenset[str]:
        """The classes of a SavedModel that releases restore only from their configs."""
        return frozenset(
            str(keras_objects.class_of(metadata))
            for metadata in self.document.parts.values()
            if isinstance(metadata, dict) and metadata.get("must_restore_from_config") is True
        )

    @property
    def has_shape_objects(self) -> bool:
        """
        Whether a SavedModel has a Sequential with an input shape in the format of TF 2.2 and later,
        an object with the class ``__tuple__``.
        """
        sites = self.shapes.sites if self.shapes is not None else ()
        return any(
            site.parent is not None
            and sites[site.parent].class_name == "Sequential"
            and site.class_name != INPUT_CLASS
            and isinstance((site.config or {}).get("batch_input_shape"), dict)
            for site in sites
        )

    @property
    def iou_dtypes(self) -> frozenset[tuple[str, str]]:
        """The dtype of each MeanIoU in a SavedModel, and that of its variables."""
        nodes = self.document.nodes
        return frozenset(
            (dtype, variable.dtype)
            for node in nodes.values()
            if node.part is not None
            and isinstance(metadata := self.document.parts[node.part], dict)
            and keras_objects.class_of(metadata) == "MeanIoU"
            and isinstance(dtype := metadata.get("dtype"), str)
            for _, child in node.children
            if (variable := nodes[child].variable) is not None
        )

    @property
    def created_layers(self) -> Sequence[CreatedLayer]:
        """The layers of a SavedModel without equal ones, and without wrappers of layers."""
        sites = self.shapes.sites if self.shapes is not None else ()
        without_traces = self.classes_without_traces
        found: dict[CreatedLayer, None] = {}
        for site, is_called in zip(sites, are_called(self.document, sites), strict=True):
            config = site.config or {}
            policy, mode = keras_objects.policy_name(config.get("dtype")), config.get("output_mode")
            if policy and layer_facts(site.class_name).wraps is None:
                layer = CreatedLayer(
                    class_name=site.class_name,
                    policy=policy,
                    output_mode=mode if isinstance(mode, str) else None,
                    is_called=is_called,
                    is_fused=writer_version.is_fused(site.class_name, config),
                    has_traces=site.class_name not in without_traces,
                )
                found[layer] = None
        return tuple(found)

    @property
    def repeats_mean(self) -> bool:
        """Whether the config of a Normalization has one mean for several values of its input."""
        if self.shapes is None or not any(map(is_adapted, self.traits.class_names)):
            return False
        return any(
            _repeats_mean(site, self.shapes.inputs(index), self.document.format)
            for index, site in enumerate(self.shapes.sites)
            if is_adapted(site.class_name)
        )

    def kept_sizes(self, index: int, loader: str) -> Sequence[int | None]:
        """
        Return the sizes of a layer's input at the axes of the layer in a release; None if the input
        does not have the axis, or its size is unknown. Empty if the shape of the input is unknown.
        """
        if self.shapes is None:
            return ()
        axis = (self.shapes.sites[index].config or {}).get("axis", -1)
        shape = self.shapes.inputs(index).get(layer_variables.INPUT)
        is_dropped = self.document.format == "h5" and is_dropped_axis(axis, loader)
        if shape is None or axis is None or is_dropped:
            return ()
        return [
            shape[number] if -len(shape) <= number < len(shape) else None
            for number in (axis if isinstance(axis, list) else [axis])
            if isinstance(number, int)
        ]

    @property
    def is_keras3(self) -> bool:
        """Whether only Keras 3 can have written the file."""
        return all(family_of(release) == KERAS3 for release in self.releases)

    @property
    def lists_outputs(self) -> bool:
        """Whether Keras 3 reads the outputs of models in the file as lists."""
        return self.is_keras3 or self.document.format == "h5"

    @property
    def has_order_of_casts(self) -> bool:
        """Whether the file has the order of layers of Keras 3.6, which depends on casts."""
        return self.is_written_in(ORDERING_BY_CASTS)

    @property
    def moved_variables(self) -> tuple[MovedVariables, ...]:
        """
        The layers whose variables another layer reads in Keras 3.6, or in all other releases if the
        file has the order of Keras 3.6. If a file contains casts, all releases have the same order.
        """
        policies = {policy.removeprefix("mixed_") for _, policy in self.traits.layer_policies}
        is_archive = self.document.format == "keras"
        if (
            len(policies) == 1
            or (is_archive and not self.is_keras3)
            or self.document.format not in ("h5", "keras")
            or "Cast" in self.traits.class_names
        ):
            return ()
        config = keras_objects.arguments_of(self.document.config)
        classes = inbound_nodes.classes_of_layers(config) if is_archive else {}
        orders = inbound_nodes.orders_of_layers(config)
        written, read = reversed(orders) if self.has_order_of_casts else orders
        shapes = self._stored_shapes(written, classes)
        layers, readers = (
            group_pairs((classes.get(name), name) for name in order if name in shapes)
            for order in (written, read)
        )
        return tuple(
            MovedVariables(layer=layer, reader=reader, fits=shapes[layer] == shapes[reader])
            for class_name, names in layers.items()  # archives number the layers of each class
            for layer, reader in zip(names, readers[class_name], strict=True)
            if layer != reader
        )

    @property
    def moves_other_shapes(self) -> bool:
        """Whether Keras 3.6 reads the variables of a layer into one with other shapes."""
        return not self.has_order_of_casts and any(not moved.fits for moved in self.moved_variables)

    def _stored_shapes(
        self, order: Iterable[str], classes: Mapping[str, str]
    ) -> Mapping[str, list[tuple[int, ...] | None]]:
        """
        Return the shapes of the stored variables of each layer of the model.

        :param order: the layers in the order of the file
        :param classes: the classes of the layers of an archive, by name; empty for HDF5
        """
        place = 1 if classes else 0
        shapes = group_pairs(
            (tensor.path[place], tensor.shape)
            for tensor in self.document.tensors or ()
            if len(tensor.path) > place
        )
        if not classes:
            return shapes
        counts, found = Counter[str](), {}
        for name in order:
            group = keras_objects.snake_case(classes[name])
            number = counts[group]
            counts[group] += 1
            group = f"{group}_{number}" if number else group
            if group in shapes:
                found[name] = shapes[group]
        return found

    @property
    def opaque_storage(self) -> bool:
        """Whether a variable is stored as bfloat16."""
        return any(tensor.dtype == "bfloat16" for tensor in self.document.tensors or ())


def _is_cropping(class_name: str) -> bool:
    return layer_facts(class_name).output_shape == ("*cropped",)


def is_adapted(class_name: str) -> bool:
    """Return whether layers of a class have statistics of the data, such as Normalization."""
    return layer_facts(class_name).adapts_statistics


def _repeats_mean(site: Site, inputs: Mapping[str, Shape], file_format: str) -> bool:
    config = site.config or {}
    if file_format == "h5" and is_dropped_axis(config.get("axis"), "keras3.6"):
        config = {key: value for key, value in config.items() if key != "axis"}
    if not isinstance(config.get("mean"), int | float):
        return False
    mean = next(iter(layer_variables.class_slots(site.class_name).values()))
    build = layer_variables.LayerBuild(config=config, inputs=inputs)
    shape = layer_variables.variable_shape(site.class_name, mean, build)
    return shape is None or any(size != 1 for size in shape)
