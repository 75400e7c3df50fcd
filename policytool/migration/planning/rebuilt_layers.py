"""
Whether releases can build and run layers in the new dtypes of a plan, and which policies of a
SavedModel can change without its graph and checkpoint.

A release rebuilds a SavedModel's layer from its config if it has the class, and creates the
variables in the layer's variable dtype. It revives other layers from the functions that were traced
when the model was saved; these compute in the old dtypes. So a policy may change if the variable
dtypes do not change, and if no revived layer computes with changed values. Other changes require
``--retrace``.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from policytool.formats.edits import EditKind
from policytool.migration.plan import Refusal
from policytool.migration.planning import propagation
from policytool.migration.planning.decisions import Decisions
from policytool.model import custom_classes
from policytool.model.model import Cause, Obstacle
from policytool.model.tree.site import MODEL_IDENTIFIERS
from policytool.releases import dtype_support, keras_objects, policy
from policytool.releases.dtypes import HALVES
from policytool.releases.layer_classes import layer_facts
from policytool.releases.policy import Policy
from policytool.releases.releases import is_since

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from policytool.formats.document import Document
    from policytool.formats.edits import Edit
    from policytool.model.loaded_model import LoadedModel
    from policytool.model.model import Verdict

REVIVING: Final = frozenset({"tf1.15", "tf2.0", "tf2.1"})
"""
Releases that revive the layers of a SavedModel of a later release. The model that they load is not
a Keras model, or its layers have the global policy.
"""

REVIVES_ALL: Final = (
    "TF 2.1 and earlier restore all layers from their traces, which compute in the old dtype"
)
"""The reason why older releases fail on a SavedModel with new dtypes in any policy format."""


_RETRACE: Final = "use --retrace"


def check_revived(loaded: LoadedModel, decisions: Decisions) -> None:
    """Add a refusal for each layer whose policy the metadata alone cannot change."""
    if not loaded.is_saved_object:
        return
    affected = [
        index for index in sorted(decisions.by_site) if _is_affected(loaded, decisions, index)
    ]
    if not affected:
        return
    decisions.refusals += _checkpoint_refusals(loaded, decisions, affected)
    decisions.refusals += _revival_refusals(loaded, affected)
    decisions.refusals += _input_refusals(loaded, decisions, affected)


def loaders(
    document: Document, edits: Iterable[Edit], verdicts: Sequence[Verdict]
) -> Sequence[Verdict]:
    """
    Return the verdicts on a rewritten file, including failures of releases that revive more layers
    from traces than the newest release.
    """
    if not document.nodes or not any(edit.kind is EditKind.NUMERICS for edit in edits):
        return verdicts
    layers = map(keras_objects.arguments_of, document.parts.values())
    used = {
        name for layer in layers for name in custom_classes.activations(layer.get("activation"))
    }
    first_release_by_class = {
        name: first for name, first in custom_classes.first_built().items() if name in used
    }
    return tuple(
        _with_reason(verdict, _revives_more(verdict.loader, first_release_by_class))
        for verdict in verdicts
    )


def _with_reason(verdict: Verdict, reason: str | None) -> Verdict:
    """Return a verdict with an additional, last reason; unchanged if the reason is None."""
    if reason is None:
        return verdict
    return verdict.with_further_cause(Cause(kind=Obstacle.GRAPH, reason=reason))


def _revives_more(loader: str, first_release_by_class: Mapping[str, str]) -> str | None:
    if loader in REVIVING:
        return REVIVES_ALL
    unknown = sorted(
        name for name, first in first_release_by_class.items() if not is_since(loader, first)
    )
    return (
        (
            f"the release does not have the activation {unknown[0]}, so it restores the layer "
            "from its traces, which compute in the old dtype"
        )
        if unknown
        else None
    )


def is_revived(loaded: LoadedModel, index: int) -> bool:
    """Return whether releases revive the layer from traces if they lack the custom classes."""
    return _revival_reason(loaded, index) is not None


def _revival_reason(loaded: LoadedModel, index: int) -> str | None:
    """
    Return why a layer is revived from traces, as the end of a sentence; None if it is rebuilt.

    Each layer of a model is rebuilt separately; other layers are rebuilt together with all layers
    in their config.
    """
    site = loaded.sites[index]
    if layer_facts(site.class_name).is_op_layer or _is_graph_network(loaded, index):
        return None
    if custom_classes.is_opaque(site):
        return f"uses the custom class {site.class_name}"
    if site.is_model:
        return None
    for name in custom_classes.custom_names(loaded.config(index)):
        return f"uses {name}, which is not part of Keras"
    for inner in loaded.below(index):
        if (
            inner != index
            and inner not in loaded.makers
            and (reason := _revival_reason(loaded, inner)) is not None
        ):
            return f"contains {loaded.layers[inner].path}, which {reason}"
    return None


def _is_graph_network(loaded: LoadedModel, index: int) -> bool:
    """
    Return whether a model of a custom class is functional, so that its graph is rebuilt as a model
    of a Keras class.
    """
    site = loaded.sites[index]
    node = loaded.document.nodes.get(site.node) if site.node is not None else None
    metadata = loaded.document.parts.get(node.part or "") if node is not None else None
    return (
        node is not None
        and node.identifier in MODEL_IDENTIFIERS
        and isinstance(metadata, dict)
        and metadata.get("is_graph_network") is True
    )


def _is_affected(loaded: LoadedModel, decisions: Decisions, index: int) -> bool:
    decision = decisions.by_site[index]
    return isinstance(decision.policy, Policy) and decision.policy.name != loaded.policy_name(index)


def _checkpoint_refusals(
    loaded: LoadedModel, decisions: Decisions, affected: list[int]
) -> Iterator[Refusal]:
    """Yield a refusal for each layer whose variables would have to be stored in another dtype."""
    for index in affected:
        layer, new_policy = loaded.layers[index], decisions.by_site[index].policy
        after = decisions.variable_dtype(loaded, index)
        if (
            after == layer.variable_dtype
            or not loaded.has_weights(index)
            or _keeps_variable_dtypes(loaded, index, new_policy.name)
        ):
            continue
        mixed = (
            f", so the model would fail to load; use mixed_{after}, or "
            if after in HALVES
            else "; "
        )
        yield Refusal(
            code="checkpoint-stays",
            message=(
                f"{layer.path} would have {after} variables, but the checkpoint is unchanged and "
                f"contains {layer.variable_dtype}{mixed} {_RETRACE}"
            ),
            path=layer.path,
        )


def _keeps_variable_dtypes(loaded: LoadedModel, index: int, name: str) -> bool:
    """
    Return whether the dtype of a layer's variables is the same under its current and a new policy
    (BatchNormalization of Keras 2 in 16 bits).
    """
    variables = loaded.layers[index].variables
    kept = [
        dtype_support.variable_dtype(
            loaded.loader, loaded.sites[index].class_name, name, variable.name
        )
        for variable in variables
    ]
    return bool(variables) and all(
        dtype == variable.dtype for dtype, variable in zip(kept, variables, strict=True)
    )


def _revival_refusals(loaded: LoadedModel, affected: list[int]) -> Iterator[Refusal]:
    """
    Yield a refusal for each layer that is restored from traces, and that changes or contains a
    layer that changes.
    """
    reported_holders = set[int]()
    for index in affected:
        holder = _outermost_revived(loaded, index)
        if holder is None or holder in reported_holders:
            continue
        reported_holders.add(holder)
        path, layer = loaded.layers[holder].path, loaded.layers[index].path
        layer_words = path if holder == index else f"{path} (with {layer})"
        message = (
            f"{path} is a Lambda, whose bytecode runs only in the Python version that saved it, "
            f"and other versions restore it from its traces; {_RETRACE}, or exclude it with --set"
            if loaded.sites[holder].class_name == "Lambda"
            else (
                f"{path} {_revival_reason(loaded, holder)}. Without its code, {layer_words} is "
                f"restored from its traces and computes as before; {_RETRACE}"
                f"{_keep_suggestion(loaded, holder)}"
            )
        )
        yield Refusal(code="revived-from-traces", message=message, path=path)


def _keep_suggestion(loaded: LoadedModel, holder: int) -> str:
    """
    Return a suggestion to keep a layer and its inner layers unchanged; empty for the whole model,
    or if they have different policies.
    """
    policies = {loaded.layers[index].policy for index in loaded.below(holder)}
    return (
        (f", or keep its policy with --set '{loaded.layers[holder].path}(/.*)?={policies.pop()}'")
        if holder and len(policies) == 1
        else ""
    )


def _outermost_revived(loaded: LoadedModel, index: int) -> int | None:
    """Return the outermost revived layer among a layer and the layers that contain it, if any."""
    site = loaded.sites[index]
    for names in (site.names, *site.also_at):
        for end in range(1, len(names) + 1):
            holder = loaded.by_names.get(names[:end])
            if holder is not None and is_revived(loaded, holder):
                return holder
    return None


def _input_refusals(
    loaded: LoadedModel, decisions: Decisions, affected: list[int]
) -> Iterator[Refusal]:
    """
    Yield a refusal for each revived layer that does not cast its inputs and would get another dtype
    than it was traced with.
    """
    before, after = (
        propagation.input_dtypes(loaded, Decisions()),
        propagation.input_dtypes(loaded, decisions),
    )
    for index, dtypes_after in after.items():
        casts = (
            loaded.sites[index].autocast is not False
            and loaded.layers[index].compute_dtype is not None
        )
        if (
            not casts
            and dtypes_after != before.get(index, dtypes_after)
            and index not in affected
            and is_revived(loaded, index)
        ):
            path = loaded.layers[index].path
            words_before, words_after = (
                " and ".join(sorted(before.get(index, ()))),
                " and ".join(sorted(dtypes_after)),
            )
            yield Refusal(
                code="revived-from-traces",
                message=(
                    f"{path} {_revival_reason(loaded, index)}. Without its code, {path} is "
                    f"restored from its traces for {words_before} inputs, but it would receive "
                    f"{words_after}; keep the preceding layers in {words_before} with --set, or "
                    f"{_RETRACE}"
                ),
                path=path,
            )


_INITIALIZER: Final = re.compile(r"(\w+_)?initializer|inner_init")
_TENSORFLOW_JS: Final = "float32"
"""The only float dtype of TensorFlow.js."""

_PARTS: Final = frozenset({"cell", "cells", "forward_layer", "backward_layer"})
"""The attributes with the cells of an RNN and the directions of a Bidirectional."""

_ALIASES: Final = {"orthogonal": "Orthogonal", "orthogonalinitializer": "Orthogonal"}
"""
The class names of initializers that do not support all dtypes, by their lower-case name in configs:
an alias (Keras 1 and 2), or the class name in Keras 3.0 to 3.6.
"""


def check_buildable(loaded: LoadedModel, decisions: Decisions) -> None:
    """Add a refusal for each layer that cannot be built or run under its new policy."""
    for index, decision in sorted(decisions.by_site.items()):
        site = loaded.sites[index]
        new_policy = decision.policy
        if (
            not isinstance(new_policy, Policy)
            or new_policy.name == loaded.layers[index].policy
            or custom_classes.is_opaque(site)
        ):
            continue
        name = new_policy.quantization.source if new_policy.quantization else new_policy.name
        decisions.refusals += _kernel(loaded, index, name)
        decisions.refusals += _initializers(loaded, index, policy.policy_from_name(name))
    if loaded.document.format == "tfjs":
        decisions.refusals += _unfed_inputs(loaded, decisions)
    if not loaded.is_keras3:
        decisions.refusals += _units(loaded, decisions)


def _unfed_inputs(loaded: LoadedModel, decisions: Decisions) -> Iterator[Refusal]:
    """
    Yield a refusal for each input layer with a dtype that TensorFlow.js does not support. It
    ignores the dtypes of all other layers.
    """
    for index in sorted(decisions.by_site):
        dtype = decisions.compute_dtype(loaded, index)
        if (
            loaded.is_input(index)
            and dtype != _TENSORFLOW_JS
            and dtype != loaded.layers[index].compute_dtype
        ):
            path = loaded.layers[index].path
            yield Refusal(
                code="tfjs-input",
                message=(
                    f"{path} would become an input with dtype {dtype}, which TensorFlow.js does "
                    f"not support; keep it in float32 with --set '{path}=float32'"
                ),
                path=path,
            )


def _units(loaded: LoadedModel, decisions: Decisions) -> Iterator[Refusal]:
    """
    Yield a refusal for each recurrent layer whose parts would compute in different dtypes, which
    fails in Keras 2 when the layer is built.
    """
    for index, site in enumerate(loaded.sites):
        below = [
            child
            for child in loaded.children[index]
            if loaded.sites[child].attribute in _PARTS and loaded.sites[child].sub_policy is None
        ]
        both = layer_facts(site.class_name).wraps == "directions"
        joined_layers = below if both else [index, *below] if below else []
        before = {loaded.layers[part].compute_dtype for part in joined_layers}
        after = {decisions.compute_dtype(loaded, part) for part in joined_layers}
        configs = {
            loaded.sites[part].address for part in joined_layers
        }  # both directions may have the same config
        if len(after) > 1 and after != before and len(configs) == len(joined_layers):
            path = loaded.layers[index].path
            parts = " and ".join(loaded.layers[part].path for part in joined_layers)
            yield Refusal(
                code="one-unit",
                message=(
                    f"{path} fails in Keras 2 if {parts} compute in different dtypes; set them to "
                    "the same policy"
                ),
                path=path,
            )


def _kernel(loaded: LoadedModel, index: int, name: str) -> Iterator[Refusal]:
    layer = loaded.layers[index]
    message = dtype_support.layer_failure(loaded.loader, loaded.sites[index].class_name, name)
    if message is not None and not loaded.is_input(index):
        yield Refusal(
            code="no-kernel",
            message=(
                f"{layer.path} ({layer.class_name}) cannot run under {name} on a CPU: {message}; "
                f"keep it in float32 with --set '{layer.path}=float32'"
            ),
            path=layer.path,
        )


def _initializers(loaded: LoadedModel, index: int, target: Policy) -> Iterator[Refusal]:
    """
    Yield a refusal for an initializer that does not support the variable dtype of the target
    policy. Releases run the initializer before they read the stored variable.
    """
    layer = loaded.layers[index]
    for key, value in loaded.config(index).items():
        if not _INITIALIZER.fullmatch(key):
            continue
        name = keras_objects.class_of(value) if isinstance(value, dict) else value
        initializer = _ALIASES.get(str(name).lower(), str(name))
        if (
            dtype_support.initializer_failure(
                loaded.loader, initializer, target.variable_dtype or ""
            )
            is not None
        ):
            mixed = f"mixed_{target.variable_dtype}"
            yield Refusal(
                code="no-initializer",
                message=(
                    f"{layer.path} ({layer.class_name}) cannot be built under {target.name} "
                    f"because its {key}, {initializer}, does not support this variable dtype; use "
                    f"--set '{layer.path}={mixed}', which keeps its variables in float32"
                ),
                path=layer.path,
            )
            return
