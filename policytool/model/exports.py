"""Whether Keras' own exporters export a model, as measured for each of its layers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from msgspec import Struct
from msgspec.structs import replace

from policytool.model.model import verdict_of
from policytool.releases import exports, keras_objects
from policytool.releases.dtypes import is_float
from policytool.releases.layer_classes import Category, layer_facts
from policytool.releases.releases import EXPORTERS, KERAS3, newest
from policytool.support.grouping import group_pairs

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from policytool.model.loaded_model import LoadedModel
    from policytool.model.model import Layer, Model
    from policytool.model.tree import Site
    from policytool.releases.exports import Export
    from policytool.releases.keras_operations import OperationUse
    from policytool.support.text.jsontext import Json

_DEFAULT: Final = "float32"
"""The global policy of Keras, and the policy that most exporters support."""


class LayerExport(Struct, frozen=True, kw_only=True):
    """The measured export of layers of one class and policy, or of an operation."""

    name: str
    """The class with the policy, or the operation."""

    class_name: str
    policy: str | None
    """None for an operation."""

    export: Export | None
    """None if it was not measured."""

    needs_float32: bool = False
    """Whether the policy is the reason of the failure: the class works in float32."""

    layers: tuple[str, ...] = ()
    """The paths of the layers; empty for an operation."""


class ExportVerdict(Struct, frozen=True, kw_only=True):
    """What an exporter does with the layers of a model."""

    exporter: str
    exports: tuple[LayerExport, ...]

    @property
    def failing(self) -> tuple[LayerExport, ...]:
        """The layers that fail."""
        return tuple(one for one in self.exports if one.export and one.export.fails)

    @property
    def unmeasured(self) -> tuple[LayerExport, ...]:
        """The layers and operations that were not measured."""
        return tuple(one for one in self.exports if one.export is None)

    @property
    def weights(self) -> tuple[str, ...]:
        """The dtypes of the weights in the exported file."""
        every = [name for one in self.exports if one.export for name in one.export.weights]
        return tuple(sorted(set(every)))


def newest_keras_loads(model: Model) -> bool:
    """Return whether the release that exports a model does not fail to load it."""
    verdict = verdict_of(model.loaders, newest(KERAS3).id)
    return verdict is not None and verdict.reason is None


def export_verdicts(loaded: LoadedModel) -> tuple[ExportVerdict, ...]:
    """Return the verdict of each exporter; empty if the newest Keras fails to load the model."""
    if not newest_keras_loads(loaded.model):
        return ()
    verdicts = tuple(export_verdict(loaded, exporter) for exporter in EXPORTERS)
    return verdicts if verdicts[0].exports else ()


def export_verdict(loaded: LoadedModel, exporter: str) -> ExportVerdict:
    """Return the verdict of an exporter on the layers and the operations of a model."""
    groups = group_pairs(
        (_layer_export(exporter, site, layer), layer.path)
        for site, layer in zip(loaded.sites, loaded.layers, strict=True)
        if layer.class_name is not None and not _is_part(layer.class_name)
    )
    uses = {
        (use.class_name, *sorted(use.dtypes), use.has_constants): use
        for use in loaded.traits.operation_uses
    }
    operations = [_operation_export(exporter, use) for _, use in sorted(uses.items(), key=str)]
    layers = [replace(one, layers=tuple(paths)) for one, paths in groups.items()]
    return ExportVerdict(exporter=exporter, exports=(*layers, *operations))


def _layer_export(exporter: str, site: Site, layer: Layer) -> LayerExport:
    """Return the export of a layer, whose policy is the default if no file says it."""
    class_name, policy = str(layer.class_name), layer.policy or _DEFAULT
    config = site.config or {}
    functions = tuple(_activations(config))

    def measured(policy: str, compute_dtype: str) -> Export | None:
        """Return the export with the activation functions; None if it was not measured."""
        own = None if layer.opaque else exports.export(exporter, policy, class_name, config)
        if own is None or own.fails:
            return own
        outcomes = (exports.activation_export(exporter, compute_dtype, name) for name in functions)
        return next((outcome for outcome in outcomes if outcome and outcome.fails), own)

    needs_float32 = False
    if policy != _DEFAULT and layer.quantization is None:  # migrate restores no quantized weights
        in_float32 = measured(_DEFAULT, _DEFAULT)
        needs_float32 = in_float32 is not None and not in_float32.fails
    return LayerExport(
        name=f"{class_name} with policy {policy}",
        class_name=class_name,
        policy=policy,
        export=measured(policy, layer.compute_dtype or _DEFAULT),
        needs_float32=needs_float32,
    )


def _activations(config: Mapping[str, Json]) -> Iterator[str]:
    """Yield the names of the activation functions in the config of a layer."""
    for key, value in config.items():
        if key.endswith("activation"):
            serialized = keras_objects.read(value)
            name = value if serialized is None else serialized.function
            if isinstance(name, str):
                yield name


def _operation_export(exporter: str, use: OperationUse) -> LayerExport:
    """Return the export of an operation, which computes in the dtype of its tensors."""
    class_name, dtypes = use.class_name, tuple(sorted(use.dtypes))
    measured, in_float32 = (
        exports.operation_export(exporter, class_name, names, has_constants=use.has_constants)
        for names in (dtypes, (_DEFAULT,))
    )
    suffix = f" in {' and '.join(dtypes)}" if dtypes else ""
    if use.has_constants:
        suffix += " with a constant tensor"
    return LayerExport(
        name=f"the operation {class_name}{suffix}",
        class_name=class_name,
        policy=None,
        export=measured,
        needs_float32=dtypes != (_DEFAULT,)
        and any(map(is_float, dtypes))
        and in_float32 is not None
        and not in_float32.fails,
    )


def _is_part(class_name: str) -> bool:
    """Return whether a class is a model, an input, or the cell of a layer that was measured."""
    facts = layer_facts(class_name)
    return facts.is_model or facts.category in {Category.CELL, Category.INPUT}
