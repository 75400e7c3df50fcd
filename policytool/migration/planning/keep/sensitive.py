"""Layer classes that are known to compute wrongly in a 16-bit dtype (``risks`` in their facts)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from policytool.migration.planning.keep._base import KeepRule
from policytool.model import custom_classes
from policytool.releases.layer_classes import layer_facts
from policytool.releases.releases import family_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from policytool.model.loaded_model import LoadedModel
    from policytool.model.tree import Site
    from policytool.releases.policy import Policy


def find(loaded: LoadedModel, policy: Policy) -> Iterator[tuple[int, str]]:
    """Yield the layers of such classes."""
    for index, site in enumerate(loaded.sites):
        why = reason(loaded.loader, site, policy.name)
        if why is not None:
            yield index, why


def reason(library: str, site: Site, policy: str) -> str | None:
    """
    Return what goes wrong with a layer under a policy, in the library that loads it; None where
    nothing is known to.
    """
    if custom_classes.is_opaque(site):
        return None
    config: Mapping[str, object] = site.config or {}
    family = family_of(library)
    risks = layer_facts(site.class_name).risks
    return next((risk.reason for risk in risks if risk.concerns(family, policy, config)), None)


RULE: Final = KeepRule(name="sensitive", find=find)
