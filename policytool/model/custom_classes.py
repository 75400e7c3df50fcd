"""
Layers whose declared policy does not prove what they compute in.

Custom code, Lambda, ops of a graph wrapped as layers, and other frameworks' modules compute as
their code says, whatever their policy.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from policytool.releases.layer_classes import known_classes, layer_facts

if TYPE_CHECKING:
    from collections.abc import Iterable

    from policytool.model.tree import Site

_KERAS_MODULES: Final = ("keras.", "tf_keras.", "tensorflow.python.keras.", "tensorflow.keras.")


def is_opaque(site: Site) -> bool:
    """Return whether the class at ``site`` is not Keras' own, or is one that runs foreign code."""
    if layer_facts(site.class_name).is_opaque:
        return True
    if site.registered_name is not None and site.registered_name != site.class_name:
        return True
    if site.module is not None:
        return not f"{site.module}.".startswith(_KERAS_MODULES)
    return site.class_name not in known_classes()


def names(sites: Iterable[Site]) -> list[str]:
    """
    Return the names by which a file calls classes that are no library's: what the code has to be
    found under.
    """
    return sorted(
        {
            site.registered_name or site.class_name or ""
            for site in sites
            if is_opaque(site) and not layer_facts(site.class_name).is_opaque
        }
    )
