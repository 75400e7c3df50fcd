"""
Layers whose declared policy does not prove what they compute in.

Custom code, Lambda, ops of a graph wrapped as layers, and other frameworks' modules compute as
their code says, whatever their policy.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from policytool.releases.layer_classes import builtin_classes

if TYPE_CHECKING:
    from collections.abc import Iterable

    from policytool.model.tree import Site

OP_LAYERS: Final = frozenset(
    {
        "TFOpLambda",
        "SlicingOpLambda",
        "ClassMethod",
        "InstanceMethod",
        "InstanceProperty",
        "TensorFlowOpLayer",
    }
)
"""
Classes of Keras 2 that wrap a TensorFlow op: they compute in the dtypes of their inputs, whatever
their policy (tf_keras 2.21, src/layers/core/tf_op_layer.py).
"""

OPAQUE_CLASSES: Final = frozenset(
    {
        "Lambda",
        *OP_LAYERS,
        *("KerasLayer", "TFSMLayer", "TorchModuleWrapper", "JaxLayer", "FlaxLayer"),
    }
)
"""Built-in classes that run code or graphs of someone else's; ``KerasLayer`` is TF Hub's."""

_KERAS_MODULES: Final = ("keras.", "tf_keras.", "tensorflow.python.keras.", "tensorflow.keras.")


def is_opaque(site: Site) -> bool:
    """Return whether the class at ``site`` is not Keras' own, or is one that runs foreign code."""
    if site.class_name in OPAQUE_CLASSES:
        return True
    if site.registered_name is not None and site.registered_name != site.class_name:
        return True
    if site.module is not None:
        return not f"{site.module}.".startswith(_KERAS_MODULES)
    return site.class_name not in builtin_classes()


def names(sites: Iterable[Site]) -> list[str]:
    """
    Return the names by which a file calls classes that are no library's: what the code has to be
    found under.
    """
    return sorted(
        {
            site.registered_name or site.class_name or ""
            for site in sites
            if is_opaque(site) and site.class_name not in OPAQUE_CLASSES
        }
    )
