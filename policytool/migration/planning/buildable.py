"""
What no loader can build or run in the dtype that the plan asks for; refused by layer and reason.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from policytool.migration.plan import Refusal
from policytool.model import custom_classes
from policytool.releases import dtype_support, keras_objects, policy
from policytool.releases.layer_classes import layer_facts
from policytool.releases.policy import Policy

if TYPE_CHECKING:
    from collections.abc import Iterator

    from policytool.migration.planning.decisions import Decisions
    from policytool.model.loaded_model import LoadedModel

_INITIALIZER: Final = re.compile(r"(\w+_)?initializer|inner_init")
_TENSORFLOW_JS: Final = "float32"
"""The only float dtype that TensorFlow.js has."""

_PARTS: Final = frozenset({"cell", "cells", "forward_layer", "backward_layer"})
"""What holds the cells of an RNN and the directions of a Bidirectional."""

_ALIASES: Final = {"orthogonal": "Orthogonal", "orthogonalinitializer": "Orthogonal"}
"""
How configs name the initialisers that some dtype cannot have: by alias (Keras 1 and 2), or as Keras
3.0 to 3.6 call the class.
"""


def check(loaded: LoadedModel, decisions: Decisions) -> None:
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
    Yield a refusal for each input layer that TensorFlow.js could not feed; it ignores the dtypes of
    all other layers.
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
    Yield a refusal where parts of one recurrent layer would compute in different dtypes, which
    fails in Keras 2 when it is built.
    """
    for index, site in enumerate(loaded.sites):
        below = [
            child
            for child in loaded.children[index]
            if loaded.sites[child].attribute in _PARTS and loaded.sites[child].sub_policy is None
        ]
        both = layer_facts(site.class_name).wraps == "directions"
        joined = below if both else [index, *below] if below else []
        before = {loaded.layers[part].compute_dtype for part in joined}
        after = {decisions.compute_dtype(loaded, part) for part in joined}
        configs = {
            loaded.sites[part].address for part in joined
        }  # directions of one config are told as such
        if len(after) > 1 and after != before and len(configs) == len(joined):
            path = loaded.layers[index].path
            parts = " and ".join(loaded.layers[part].path for part in joined)
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
    Yield a refusal for an initialiser that does not support the variable dtype of the target
    policy; loaders run it before they read the stored variable.
    """
    layer = loaded.layers[index]
    for key, value in loaded.config(index).items():
        if not _INITIALIZER.fullmatch(key):
            continue
        named = keras_objects.class_of(value) if isinstance(value, dict) else value
        initializer = _ALIASES.get(str(named).lower(), str(named))
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
