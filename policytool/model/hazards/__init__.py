"""
What of a model file runs code, names code, opens other files, or has no end when a library loads
the model.

It is read from the configs as data: of the model, of its training, of every object of a SavedModel.
What a config names has to be on a list of what only computes; of what is not, some is known to do
harm, and the rest is unknown or someone's own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from policytool.formats.document import Address
from policytool.model.hazards._harm import Harm, Hazard
from policytool.model.hazards._judging import LAMBDA, find
from policytool.releases.symbols.harmful import PRINTING, HarmfulOp, op
from policytool.releases.symbols.ops import (
    attribute_values,
    calling_ops,
    is_placed_op,
    is_pure_op,
    path_inputs,
    placed_ops,
)
from policytool.support.text.jsontext import pointer
from policytool.support.text.paths import leads_out

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from policytool.formats.document import Document
    from policytool.model.tree import Site
    from policytool.support.text.jsontext import Json


_COMPILED: Final = ("/training_config", "/compile_config")
"""Where a model's own training configuration stands in its config."""

OUTSIDE: Final = (
    "external-link",
    "user-defined-link",
    "external-storage",
    "virtual-dataset",
    "escaping-link",
    "escaping-shard",
    "escaping-asset",
)
"""What readers observe of values that lie outside the file, and did not follow."""


def of(document: Document, places: Mapping[Address, tuple[int, ...]]) -> tuple[Hazard, ...]:
    """
    Return what is found in the configs, each once per layer, in the order of the file.

    :param places: where the layers' policies stand or would stand, as
        :func:`policytool.model.tree.places` tells it.
    """
    owners = {
        (at.part, at.pointer.removesuffix("/dtype").removesuffix("/config")): sites[0]
        for at, sites in places.items()
    }
    hazards: dict[tuple[Harm, str, int | None, str | None, bool], Hazard] = {}
    for part, value in document.parts.items():
        for inner, steps, site in _dicts(value, part, owners):
            module = inner.get("module")
            for harm, name, what in find(inner):
                hazard = Hazard(
                    harm=Harm.UNKNOWN
                    if harm is Harm.CUSTOM and document.nodes and _may_be_function(inner, name)
                    else harm,
                    name=name,
                    what=what,
                    address=Address(part=part, pointer=steps),
                    site=site,
                    module=module if isinstance(module, str) and module else None,
                )
                # of modules one may be worse than another, and what trains a model may be left
                # alone
                custom = hazard.harm is Harm.CUSTOM
                hazards.setdefault(
                    (
                        hazard.harm,
                        name,
                        site,
                        hazard.module if custom else None,
                        custom and trains(document, hazard.address),
                    ),
                    hazard,
                )
    return tuple(hazards.values())


def _may_be_function(value: dict[str, Json], name: str) -> bool:
    """
    Return whether a SavedModel's loader may take a class for a function of Keras' own, which it
    would call with the config: those have small letters.
    """
    return name == value.get("class_name") and not (name[:1].isupper() or ">" in name)


def trains(document: Document, address: Address) -> bool:
    """
    Return whether something stands in the model's own training configuration, which loaders leave
    alone unless they compile the model.
    """
    return (
        address.part == document.training_part != document.config_part
    ) or address.pointer.startswith(_COMPILED)


def leading_out(site: Site) -> str | None:
    """Return a layer's name that is a path out of a directory; None where it has no such name."""
    names = (
        site.given_name,
        site.name,
        (site.config or {}).get("name"),
    )  # Keras builds by the one in the config, whatever stands beside it
    return next((name for name in names if isinstance(name, str) and leads_out(name)), None)


def _dicts(
    value: Json, part: str, owners: Mapping[tuple[str, str], int]
) -> Iterator[tuple[dict[str, Json], str, int | None]]:
    """Yield every object in a value with its pointer and the layer it stands in."""
    pending: list[tuple[Json, str, int | None]] = [(value, "", None)]
    while pending:
        item, steps, site = pending.pop()
        if isinstance(item, dict):
            site = owners.get((part, steps), site)
            yield item, steps, site
        children = (
            item.items()
            if isinstance(item, dict)
            else enumerate(item)
            if isinstance(item, list)
            else ()
        )
        pending += reversed(
            [
                (child, steps + pointer(key), site)
                for key, child in children
                if isinstance(child, dict | list)
            ]
        )


__all__ = [
    "LAMBDA",
    "OUTSIDE",
    "PRINTING",
    "Harm",
    "HarmfulOp",
    "Hazard",
    "attribute_values",
    "calling_ops",
    "is_placed_op",
    "is_pure_op",
    "leading_out",
    "of",
    "op",
    "path_inputs",
    "placed_ops",
    "trains",
]
