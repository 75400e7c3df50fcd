"""
Re-exports of SavedModels: the job for the child process, and the comparison of the result with the
plan, and with the variables and signatures of the original.

This process reads the checkpoints itself, without TensorFlow, so that the comparison does not
depend on the child's answer.
"""

from __future__ import annotations

from collections import defaultdict
from itertools import chain
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from policytool.formats.saved_model import CHECKPOINT
from policytool.model.model import Source
from policytool.model.tree import INPUT_CLASS
from policytool.releases import dtypes, graph_ops
from policytool.releases.layer_classes import layer_facts
from policytool.support.errors import ModelFileError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from policytool.formats.casting import Counts
    from policytool.formats.checkpoint.bundle import Bundle
    from policytool.formats.document import Tensor
    from policytool.formats.edits import Cast
    from policytool.model.loaded_model import LoadedModel
    from policytool.model.model import Layer, Model
    from policytool.numerics.hand_over import PrivateCopy


def build_arguments(before: LoadedModel, planned: LoadedModel) -> dict[str, Any]:
    """
    Return the job arguments that build the model as ``planned``: its config, the policies of its
    layers, and the global policies under which it is loaded and built.

    :raises ModelFileError: if the root of the file is not a model with a config.
    """
    root = planned.document.nodes.get(0)
    metadata = planned.document.parts.get(root.part or "") if root is not None else None
    config = metadata.get("config") if isinstance(metadata, dict) else None
    if not isinstance(metadata, dict) or not isinstance(config, dict):
        raise ModelFileError(
            planned.document.path,
            "no-config",
            "cannot be re-exported: its root is not a Keras model with a config; export it "
            "again from its original code",
        )
    return {
        "config": config,
        "training": metadata.get("training_config") or None,
        "policy_before": before.layers[0].policy,
        "policy": planned.layers[0].policy,
        "policies": {
            layer.path: layer.policy for layer in _planned_layers(planned.model) if layer.policy
        },
    }


def reexport_job(
    before: LoadedModel, planned: LoadedModel, source: PrivateCopy, draft: Path
) -> dict[str, Any]:
    """
    Return the job that writes the ``planned`` model to ``draft``, which must be in the private
    directory of the source.

    :raises ModelFileError: as :func:`build_arguments`.
    """
    return {
        "job": "reexport",
        "source": source,
        "draft": str(draft),
        **build_arguments(before, planned),
        "traces": bool(planned.document.signatures),
    }


Key = tuple[str, str]
"""A layer's path and its variable's name."""


class ReexportComparison(Struct, frozen=True, kw_only=True):
    """The comparison of a re-exported model with the original, for the report."""

    variables: int
    """The number of variables of layers whose values were compared."""

    identical: int
    """The number of unchanged variables. The others have exactly the planned cast."""

    retyped: tuple[str, ...] = ()
    """Outputs of signatures with a new dtype, as parts of sentences."""

    other_policies: tuple[str, ...] = ()
    """
    Layers inside built-in layers that this release builds with another policy than the release that
    wrote the file, as parts of sentences.
    """

    judged: int = 0
    """The number of layers whose traced ops were compared, and have the planned dtype."""


def compare_result(
    before: LoadedModel, planned: LoadedModel, after: LoadedModel, source: Path, draft: Path
) -> ReexportComparison | str:
    """
    Return the comparison for the report, or the first difference between the result and the plan,
    as a sentence.

    :raises BundleError: if a checkpoint cannot be read.
    """
    names = _matching_paths(planned.model, after.model)
    difference = next(
        chain(
            _policy_differences(planned.model, after.model, names),
            _signature_differences(before.model, after.model),
            _trace_differences(after.model),
        ),
        None,
    )
    if difference is not None:
        return difference
    old, new = _stored_variables(before, source), _stored_variables(after, draft)
    new_by_key = {key: new.get((names.get(key[0], key[0]), key[1])) for key in old}
    difference = next(_value_differences(old, new_by_key, len(new)), None)
    if difference is not None:
        return difference
    retyped = tuple(
        (
            f"output {name} of signature {signature.name} is now {result.outputs[name]} instead of "
            f"{dtype}"
        )
        for signature in before.signatures
        for result in after.signatures
        if result.name == signature.name
        for name, dtype in signature.outputs.items()
        if result.outputs.get(name, dtype) != dtype
    )
    differences = tuple(
        f"{layer.path} now has the policy {result.policy} instead of {layer.policy}"
        for layer, result in _retyped_layers(planned.model, after.model, names)
        if _is_part(planned.model, layer)
    )
    return ReexportComparison(
        variables=len(old),
        identical=sum(
            other is not None and _fingerprint(old[key]) == _fingerprint(other)
            for key, other in new_by_key.items()
        ),
        retyped=retyped,
        other_policies=differences,
        judged=sum(1 for _ in _judged_layers(after.model)),
    )


def _value_differences(
    old: Mapping[Key, StoredVariable], new: Mapping[Key, StoredVariable | None], count: int
) -> Iterator[str]:
    """
    Yield a sentence for each variable whose values differ in the result.

    :param new: the variables of the result, by the keys of the original
    :param count: the number of variables in the result
    """
    for key, stored in old.items():
        other = new[key]
        variable_words = f"{key[0]} {key[1]}"
        if other is None:
            yield f"{variable_words} is missing from the result"
        elif not hold_same_values(stored, other):
            yield (
                f"{variable_words} differs from the original even after the cast from "
                f"{stored.dtype} to {other.dtype}"
            )
    if count != len(old):
        yield f"the result has {count} variables, but the original has {len(old)}"


def count_casts(
    loaded: LoadedModel, source: Path, casts: tuple[Cast, ...]
) -> Mapping[tuple[str, ...], Counts]:
    """
    Return how many values each planned cast changes in a SavedModel.

    :raises BundleError: if the checkpoint cannot be read.
    """
    from policytool.formats import casting  # imports ml_dtypes, which most runs do not need

    stored = _stored_variables(loaded, source)
    by_tensor = {tensor.path: key for key, tensor in _keyed_tensors(loaded)}
    return {
        cast.tensor: casting.cast(value.array(), cast.before, cast.after)[1]
        for cast in casts
        if (value := stored.get(by_tensor.get(cast.tensor, ("", "")))) is not None
    }


class StoredVariable(Struct, frozen=True, kw_only=True):
    """The location of a variable's values in a checkpoint."""

    bundle: Bundle
    key: str
    """The key in the checkpoint."""

    @property
    def dtype(self) -> str:
        """The stored dtype."""
        return self.bundle.entries[self.key].dtype

    def array(self) -> Any:  # noqa: ANN401  # an array of any float dtype
        """Return the values as an array of one dimension."""
        import numpy as np

        from policytool.formats import casting

        data = b"".join(self.bundle.chunks(self.bundle.entries[self.key]))
        return np.frombuffer(data, dtype=casting.DTYPES[self.dtype])


def _stored_variables(loaded: LoadedModel, directory: Path) -> dict[Key, StoredVariable]:
    """
    Return where the values of each layer's variables are stored. Integers and strings are included:
    they follow no policy, but their values are compared too.
    """
    from policytool.formats.checkpoint import bundle as checkpoints  # imports protobuf

    bundle = checkpoints.open_bundle(directory.joinpath(*CHECKPOINT))
    keys = checkpoints.keys_of(
        bundle, {number: node.children for number, node in loaded.document.nodes.items()}
    )
    return {
        key: StoredVariable(bundle=bundle, key=keys[tensor.node])
        for key, tensor in _keyed_tensors(loaded)
        if tensor.node is not None and tensor.node in keys
    }


def _keyed_tensors(loaded: LoadedModel) -> Iterator[tuple[Key, Tensor]]:
    """Yield each layer's variables with a key; a repeated name in a layer gets a number."""
    for index, tensors in loaded.placed.tensors.items():
        path, name_counts = loaded.layers[index].path, defaultdict[str, int](int)
        for tensor in tensors:
            name = tensor.path[-1].removesuffix(":0")
            name_counts[name] += 1
            yield (
                (path, name if name_counts[name] == 1 else f"{name} ({name_counts[name]})"),
                tensor,
            )


def hold_same_values(variable: StoredVariable, other: StoredVariable) -> bool:
    """
    Return whether two variables have identical values, after the first is cast to the dtype of the
    second if their dtypes differ.
    """
    first, second = variable.bundle.entries[variable.key], other.bundle.entries[other.key]
    if first.shape != second.shape:
        return False
    if first.dtype == second.dtype:
        return all(
            a == b
            for a, b in zip(variable.bundle.chunks(first), other.bundle.chunks(second), strict=True)
        )
    if not (dtypes.is_float(first.dtype) and dtypes.is_float(second.dtype)):
        return False
    from policytool.formats import casting

    expected_array, _ = casting.cast(variable.array(), first.dtype, second.dtype)
    return bool(expected_array.tobytes() == b"".join(other.bundle.chunks(second)))


def _fingerprint(stored: StoredVariable) -> tuple[str, int, int]:
    """
    Return a value that is equal for identical variables: the checksum in it covers every byte.
    """
    entry = stored.bundle.entries[stored.key]
    return entry.dtype, entry.size, entry.checksum


def _matching_paths(planned: Model, after: Model) -> dict[str, str]:
    """
    Return the path in the result for each planned layer path. They differ only for layers whose
    names Keras numbers (``softmax_2``).

    Such a layer is matched with the layers of the same class in its parent, in order.
    """
    planned_layers, result_layers = (
        {layer.path: layer for layer in model.layers} for model in (planned, after)
    )
    result_paths: dict[str, str] = {}
    free: dict[tuple[str, str | None], list[str]] = defaultdict(list)
    for path, layer in result_layers.items():
        free[path.rpartition("/")[0], layer.class_name].append(path)
    for path, layer in planned_layers.items():
        parent, _, name = path.rpartition("/")
        above = result_paths.get(parent, parent)
        same_path = f"{above}/{name}" if above else name
        siblings = [
            other
            for other in free[above, layer.class_name]
            if other not in planned_layers or other == same_path
        ]
        result_paths[path] = (
            same_path
            if same_path in result_layers
            else next((other for other in siblings if other not in result_paths.values()), path)
        )
    return result_paths


def _policy_differences(planned: Model, after: Model, names: Mapping[str, str]) -> Iterator[str]:
    """Yield a sentence for each layer whose dtypes differ from the plan."""
    result_layers = _by_path(after)
    yield from (
        f"{layer.path} is missing from the model that the code builds"
        for layer in _planned_layers(planned)
        if names[layer.path] not in result_layers
    )
    for layer, result in _retyped_layers(planned, after, names):
        if not _is_part(planned, layer):
            yield (
                f"{layer.path} has the policy {result.policy} in the code, but {layer.policy} "
                f"in the plan; change the code, or use --set '{layer.path}={result.policy}'"
            )


def _retyped_layers(
    planned: Model, after: Model, names: Mapping[str, str]
) -> Iterator[tuple[Layer, Layer]]:
    """Yield each planned layer whose dtypes differ in the result, with its layer in the result."""
    result_layers = _by_path(after)
    for layer in _planned_layers(planned):
        result = result_layers.get(names[layer.path])
        if result is not None and (result.compute_dtype, result.variable_dtype) != (
            layer.compute_dtype,
            layer.variable_dtype,
        ):
            yield layer, result


def _planned_layers(planned: Model) -> Iterator[Layer]:
    """Yield the layers whose policies are part of the plan."""
    for layer in planned.layers:
        if (
            layer.source is not Source.UNKNOWN
            and layer.class_name != INPUT_CLASS
            and dtypes.is_float(layer.compute_dtype)
        ):
            yield layer


def _is_part(planned: Model, layer: Layer) -> bool:
    """
    Return whether a layer is created by a built-in layer that does not store its policy. In TF 2.5,
    such a layer uses the global policy, in TF 2.15 the policy of its creator.
    """
    holder = _by_path(planned).get(layer.path.rpartition("/")[0])
    return (
        holder is not None
        and layer_facts(holder.class_name).makes_projections
        and not holder.opaque
    )


def _by_path(model: Model) -> dict[str, Layer]:
    return {path: layer for layer in model.layers for path in chain((layer.path,), layer.also_at)}


def _signature_differences(before: Model, after: Model) -> Iterator[str]:
    """Yield a sentence for each difference between the signatures of both files."""
    result_signatures = {signature.name: signature for signature in after.signatures}
    for signature in before.signatures:
        result = result_signatures.get(signature.name)
        if result is None:
            yield f"signature {signature.name} is missing from the result"
        elif dict(result.inputs) != dict(signature.inputs) or set(result.outputs) != set(
            signature.outputs
        ):
            yield f"signature {signature.name} has different inputs or outputs in the result"
    yield from (
        f"signature {name} does not exist in the original"
        for name in sorted(
            result_signatures.keys() - {signature.name for signature in before.signatures}
        )
    )


def _judged_layers(model: Model) -> Iterator[tuple[Layer, set[str]]]:
    """
    Yield each layer with ops that show its compute dtype, and the dtypes of these ops. Layers that
    contain other layers are skipped; if the graph was not read, nothing is yielded.
    """
    holding = {layer.path.rpartition("/")[0] for layer in model.layers}
    for layer in model.layers:
        op_dtypes = {
            op.dtype for op in layer.traced_ops if op.amp == graph_ops.ALLOW
        }  # others may compute in another dtype on purpose (BatchNormalization)
        if (
            op_dtypes
            and layer.path not in holding
            and layer.compute_dtype is not None
            and not layer.opaque
        ):
            yield layer, op_dtypes


def _trace_differences(after: Model) -> Iterator[str]:
    """Yield a sentence for each layer whose ops compute in a dtype other than its policy's."""
    for layer, op_dtypes in _judged_layers(after):
        if op_dtypes != {layer.compute_dtype}:
            yield (
                f"{layer.path} has the policy {layer.policy}, but its graph computes in "
                f"{' and '.join(sorted(op_dtypes))}"
            )
