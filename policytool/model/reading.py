"""
Read the model at a path: detect the format, read the document, determine the generation, and create
the layers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from policytool.formats import format_detection, orbax
from policytool.formats.document import Document, Layout, Observation, Tensor, Writer
from policytool.model import (
    compatibility,
    optimizer_config,
    presets,
    traced_dtypes,
    tree,
    writer_version,
)
from policytool.model.layer_policies import Resolver, floatx
from policytool.model.loaded_model import LoadedModel, code_outside_configs
from policytool.model.model import Layer, Model, Optimizer, Source, Variable
from policytool.model.tree import NOT_WEIGHTS, STATE, path_of, storage
from policytool.releases import dtypes
from policytool.support import limits
from policytool.support.errors import LimitError, ModelFileError, SpellingError
from policytool.support.grouping import group_pairs

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from policytool.model.traced_dtypes import Tally
    from policytool.model.writer_version import ConfigTraits
    from policytool.releases.releases import Release
    from policytool.support.files.remote_path import AnyPath

_INTEGER_KERNELS: Final = frozenset({"int8", "uint8", "int4", "uint4"})
_TENSORFLOW_JS: Final = "float32"
"""The compute dtype of TensorFlow.js."""

_LAST_UNMIXED: Final = "tf1.4-2.0"
"""The last generation whose files cannot show a mixed policy."""

HALF_GRAPH: Final = "half-operations"
"""The code of operations in a 16-bit dtype that no layer has; ``where`` is the dtype."""

BEYOND: Final = "layer-limit"
"""The code of a model whose number of layers or calls exceeds the limit."""


def read(path: AnyPath, display_path: str) -> Model:
    """
    Return the model at ``path``, which reports call ``display_path``.

    :raises ModelFileError: if the file is not a readable model, with a code and a sentence.
    """
    return model_of(format_detection.document(path, display_path))


def model_of(document: Document) -> Model:
    """
    Return the model in a document.

    :raises ModelFileError: for a config that is not a serialised model.
    """
    return _without_config(document) if document.config_part is None else load_model(document).model


def sized_model(document: Document) -> Model:
    """
    Return the model in a document, with the output shape and the parameters of each layer.

    :raises ModelFileError: for a config that is not a serialised model.
    """
    if document.config_part is None:
        return _without_config(document)
    return load_model(document).sized_model


def load_model(document: Document) -> LoadedModel:
    """
    Return the model of a document with a config, together with the document.

    :raises ModelFileError: for a config that is not a serialised model.
    """
    return describe(stored_variables(document))


def stored_variables(document: Document) -> compatibility.StoredVariables:
    """
    Return a document with its layers, and the variables that it stores and that the layers create.

    :raises ModelFileError: for a config that is not a serialised model.
    """
    traits = _traits(document)
    origins, _ = writer_version.candidates(_writer(document), traits)
    try:
        placed = tree.build(document, origins[-1])
    except SpellingError as error:
        raise _not_keras(document, error) from error
    return compatibility.StoredVariables(
        document=document, placed=placed, origins=origins, traits=traits
    )


def describe(stored: compatibility.StoredVariables) -> LoadedModel:
    """
    Return the model in a document with its description.

    :raises ModelFileError: for a config that is not a serialised model.
    """
    document, placed, traits = stored.document, stored.placed, stored.traits
    writer = _writer(document)
    origins, contradiction = writer_version.candidates(writer, traits)
    try:
        variables = [variable for owned in placed.variables.values() for variable in owned]
        resolver = Resolver(origins=origins, floatx=floatx(origins, placed.sites, variables))
        layers = tuple(
            resolver.layer(site, placed, index) for index, site in enumerate(placed.sites)
        )
        at_scope, own_tallies = traced_dtypes.layer_tallies(document, placed)
    except SpellingError as error:
        raise _not_keras(document, error) from error
    layers = tuple(_with_trace(layer, at_scope.get(index)) for index, layer in enumerate(layers))
    if presets.is_preset(document):
        layers = presets.with_effective_policies(document, layers, placed.sites)
    optimizer, about_optimizer = _optimizer(document)
    description = Model(
        path=document.path,
        format=document.format,
        generation=writer_version.label(origins),
        writer=writer,
        layers=layers,
        optimizer=optimizer,
        signatures=traced_dtypes.signatures(document),
        later_ops=traced_dtypes.later_ops(document),
        observations=(
            *traced_dtypes.disagreements(layers, placed.sites, own_tallies),
            *document.observations,
            *_about_origin(origins, writer, contradiction=contradiction),
            *resolver.observations,
            *about_optimizer,
            *_about_graph(layers, traits),
            *(
                presets.about_loading(document, layers, placed.sites)
                if presets.is_preset(document)
                else ()
            ),
            *(
                _about_tensorflow_js(layers, traits)
                if document.format == "tfjs"
                else _about_storage(layers)
            ),
        ),
    )
    return LoadedModel(stored=stored, description=description)


def _traits(document: Document) -> ConfigTraits:
    objects = (
        document.parts[node.part] for node in document.nodes.values() if node.part is not None
    )
    return writer_version.of(document.config, document.training, objects)


def _not_keras(document: Document, error: SpellingError) -> ModelFileError:
    code = BEYOND if isinstance(error, LimitError) else "config-not-keras"
    return ModelFileError(document.path, code, str(error))


def _with_trace(layer: Layer, tally: Tally | None) -> Layer:
    return (
        layer
        if tally is None
        else replace(layer, traced_dtypes=tuple(sorted(tally.dtypes)), traced_ops=tally.ops)
    )


def _writer(document: Document) -> Writer:
    """Return the writer; the Keras version of a SavedModel is in the metadata of its root."""
    root = document.config
    if document.writer.keras is None and document.nodes and isinstance(root, dict):
        version, backend = root.get("keras_version"), root.get("backend")
        return Writer(
            keras=version if isinstance(version, str) else None,
            tensorflow=document.writer.tensorflow,
            backend=backend if isinstance(backend, str) else document.writer.backend,
        )
    return document.writer


def _optimizer(document: Document) -> tuple[Optimizer | None, tuple[Observation, ...]]:
    """
    Return the optimizer, and an observation if no release writes such an optimizer. This is not an
    error, so that the layers can be reported.
    """
    try:
        optimizer = optimizer_config.read(optimizer_config.optimizer_config(document))
        return optimizer, () if optimizer is not None else tuple(_about_lost_optimizer(document))
    except SpellingError as error:
        return None, (
            Observation(
                code="unknown-optimizer",
                message=f"the saved optimizer has an unknown format: {error}",
            ),
        )


def _about_lost_optimizer(document: Document) -> Iterator[Observation]:
    """Yield an observation about variables of an optimizer that the file does not name."""
    inner = (
        [tensor for tensor in document.tensors or () if tensor.path[0] == STATE]
        if document.layout is Layout.OBJECT_PATHS
        else []
    )
    if count := len(document.state) + len(inner):
        variables = "1 variable" if count == 1 else f"{count} variables"
        yield Observation(
            code="optimizer-unnamed",
            message=f"it contains {variables} of an unknown optimizer",
        )


def _about_storage(layers: tuple[Layer, ...]) -> Iterator[Observation]:
    """
    Yield an observation about kernels that are stored as integers without a quantised policy, as a
    quantised MultiHeadAttention of Keras 3 writes them. Custom layers may store integers.
    """
    for layer in layers:
        stored = {
            variable.dtype
            for variable in layer.variables
            if variable.shape and len(variable.shape) > 1
        } & _INTEGER_KERNELS
        if (
            stored
            and not (layer.opaque or layer.quantization)
            and dtypes.is_float(layer.compute_dtype)
        ):
            message = (
                f"{layer.path} declares {layer.policy} but stores a kernel in "
                f"{', '.join(sorted(stored))}: it is quantized without a quantized policy"
            )
            yield Observation(code="undeclared-quantization", message=message, where=layer.path)


def _about_graph(layers: tuple[Layer, ...], traits: ConfigTraits) -> Iterator[Observation]:
    """Yield an observation about each 16-bit dtype to which only operations cast."""
    for dtype in sorted(traits.graph_halves - {layer.compute_dtype for layer in layers}):
        yield Observation(
            code=HALF_GRAPH,
            message=f"operations cast to {dtype}, which no policy shows",
            where=dtype,
        )


def _about_tensorflow_js(layers: tuple[Layer, ...], marks: ConfigTraits) -> Iterator[Observation]:
    """
    Yield observations about TensorFlow.js, as measured: it loads all policies but computes in
    float32, and it fails to build an input layer of Keras 3.
    """
    if "batch_shape" in marks.keys.get("InputLayer", ()):
        message = (
            "its input layers use the Keras 3 argument batch_shape, which neither TensorFlow.js "
            "4.22 nor the converter that wrote the file supports"
        )
        yield Observation(code="tfjs-keras3", message=message)
    others = sorted(
        {layer.policy for layer in layers if layer.policy and dtypes.is_float(layer.compute_dtype)}
        - {_TENSORFLOW_JS}
    )
    if others:
        message = (
            f"TensorFlow.js always computes in float32; the policies ({', '.join(others)}) apply "
            "only if the file is converted to a Keras model"
        )
        yield Observation(code="tfjs-float32", message=message)


def _about_origin(
    origins: tuple[Release, ...], writer: Writer, *, contradiction: bool
) -> Iterator[Observation]:
    """Yield observations about the releases that may have written the file."""
    if contradiction:
        origin_words = (
            f"uses formats that no release with keras_version {writer.keras} writes"
            if writer.keras
            else "mixes formats that no single release writes"
        )
        yield Observation(
            code="mixed-policy-formats",
            message=f"its config {origin_words}, so it was edited or converted",
        )
    if {origin.generation.id for origin in origins} == {_LAST_UNMIXED}:
        yield Observation(
            code="policy-not-stored",
            message="TF 2.0 and older write only the variable dtype, so the file does not show "
            "whether the model had a mixed policy",
        )


def _without_config(document: Document) -> Model:
    """
    Return a model that has only variables, grouped by the layer or scope at the start of their
    names.
    """
    groups = group_variables(document)
    layers = _layers_of_groups(document, groups)
    stored = len(document.state) + len(document.tensors or ())
    others = stored - sum(len(tensors) for tensors in groups.values())
    stored_variables = compatibility.StoredVariables(
        document=document,
        placed=storage.NO_VARIABLES,
        origins=(),
        traits=writer_version.of(None),
    )
    return Model(
        path=document.path,
        format=document.format,
        generation=None,
        writer=document.writer,
        layers=layers,
        signatures=traced_dtypes.signatures(document),
        later_ops=traced_dtypes.later_ops(document),
        observations=(
            _no_policies(document, layers),
            *_about_others(others),
            *document.observations,
        ),
        loaders=tuple(compatibility.verdicts(stored_variables)),
        executed_code=code_outside_configs(document),
    )


def _layers_of_groups(
    document: Document, groups: Mapping[tuple[str, ...], Sequence[Tensor]]
) -> tuple[Layer, ...]:
    """
    Return the layers and scopes of variables, and the scopes of operations.

    :raises ModelFileError: if there are too many.
    """
    numbers = {
        names: [tensor.node for tensor in tensors if tensor.node is not None]
        for names, tensors in groups.items()
    }
    tallies = traced_dtypes.scope_tallies(document, numbers, numbered=document.numbered)
    scopes = tuple(dict.fromkeys((*groups, *(names for names in tallies if names))))
    if excess := limits.LAYERS.exceeded_message(len(scopes)):
        raise ModelFileError(document.path, BEYOND, f"contains (including scopes) {excess}")
    return tuple(
        _with_trace(
            Layer(
                path=path_of(names),
                name=document.layer_names.get("/".join(names), names[-1]),
                class_name=None,
                source=Source.UNKNOWN,
                variables=tuple(
                    Variable(
                        name=tensor.path[-1].removesuffix(":0"),
                        shape=tensor.shape,
                        dtype=tensor.dtype,
                    )
                    for tensor in groups.get(names, ())
                ),
            ),
            tallies.get(names),
        )
        for names in scopes
    )


def _no_policies(document: Document, layers: Iterable[Layer]) -> Observation:
    """Return the observation that a file has no policies, with the dtypes of its variables."""
    dtypes = sorted({variable.dtype for layer in layers for variable in layer.variables})
    variables = (
        f"its variables are stored as {', '.join(dtypes)}" if dtypes else "it contains no variables"
    )
    file = "a SavedModel without Keras metadata"
    if document.format == "weights":
        is_orbax = any(item.code == orbax.WITHOUT_CONFIG for item in document.observations)
        file = "an Orbax checkpoint with only weights" if is_orbax else "a weights file"
    return Observation(code="no-policy", message=f"{file} contains no policies; {variables}")


def _about_others(count: int) -> Iterator[Observation]:
    """Yield an observation about stored variables that do not belong to a layer."""
    if count:
        variables = (
            "1 stored variable belongs" if count == 1 else f"{count} stored variables belong"
        )
        yield Observation(
            code="training-state",
            message=f"{variables} to an optimizer, metrics or the training loop rather than to a "
            "layer",
        )


def group_variables(document: Document) -> dict[tuple[str, ...], list[Tensor]]:
    """
    Return the variables of a document without a config, grouped by the layer or scope at the start
    of their names.

    These groups are the first layers of its model, in this order. Scopes of its graph without
    variables follow.
    """
    return group_pairs(
        (_group(tensor, document.layout), tensor)
        for tensor in document.tensors or ()
        if document.layout is not Layout.OBJECT_PATHS or tensor.path[0] not in NOT_WEIGHTS
    )


def _group(tensor: Tensor, layout: Layout | None) -> tuple[str, ...]:
    """Return the layer of a variable without a config, according to the name of the variable."""
    if layout is Layout.LEGACY_H5:
        return tensor.path[:1]
    path = tensor.path[:-1]
    if path and path[-1] == "vars":
        path = path[:-1]
    return path or tensor.path[-1:]
