"""
The parts of a model file that run code, name code, open other files, or never end when a library
loads the model.

They are detected in the configs, as data: those of the model, of its training, and of all objects
of a SavedModel. Each name in a config should be on a list of names that only compute. Other names
are known to be harmful, unknown, or custom code.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from policytool.formats.document import Address
from policytool.model.hazards._judging import LAMBDA, LAMBDA_ADVICE, RUNNING, Harm, Hazard, find
from policytool.releases import keras_objects
from policytool.releases.symbols import (
    PRINTING,
    HarmfulOp,
    attribute_values,
    calling_ops,
    is_placed_op,
    is_pure_op,
    op,
    path_inputs,
    placed_ops,
)
from policytool.support.steps import spend
from policytool.support.text.jsontext import steps as steps_of
from policytool.support.text.phrases import leads_out

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from policytool.formats.document import Document
    from policytool.model.tree import Site
    from policytool.support.text.jsontext import Json


_COMPILED: Final = ("training_config", "compile_config")
"""The keys of the training configuration in the config of a model."""

OUTSIDE: Final = (
    "external-link",
    "user-defined-link",
    "external-storage",
    "virtual-dataset",
    "escaping-link",
    "escaping-shard",
    "escaping-asset",
)
"""Codes of observations about values outside the file, which readers did not read."""


def of(document: Document, entries: Mapping[Address, int]) -> tuple[Hazard, ...]:
    """
    Return the hazards in the configs, each once per layer, in the order of the file.

    :param entries: by the address of an object that serializes a layer: the layer's site
    """
    owners = _owners(entries)
    hazards: dict[tuple[Harm, str, int | None, str | None, bool], Hazard] = {}
    for part, value in document.parts.items():
        for inner, steps, site in _dicts(value, owners.get(part)):
            module = inner.get("module")
            for harm, name, description in find(inner):
                if harm is Harm.CUSTOM and document.nodes and _may_be_function(inner, name):
                    harm = Harm.UNKNOWN  # noqa: PLW2901  # what it is in this document
                custom = harm is Harm.CUSTOM
                imported = module if isinstance(module, str) and module else None
                # modules differ in harm, and releases may ignore objects in a training
                # configuration
                key = (
                    harm,
                    name,
                    site,
                    imported if custom else None,
                    custom and _is_in_training_config(document, part, steps),
                )
                if key in hazards:
                    continue
                hazards[key] = Hazard(
                    harm=harm,
                    name=name,
                    what=description,
                    address=Address.below(Address(part=part, pointer=""), *steps),
                    site=site,
                    module=imported,
                )
    return tuple(hazards.values())


@dataclass(slots=True)
class _Owners:
    """The layers at a place in a part, and below it."""

    site: int | None = None
    below: dict[str, _Owners] = field(default_factory=dict)


def _owners(entries: Mapping[Address, int]) -> dict[str, _Owners]:
    """Return the tree of layers in each part of the file, by the steps of their pointers."""
    owners_by_part: dict[str, _Owners] = defaultdict(_Owners)
    for entry, site in entries.items():
        owners = owners_by_part[entry.part]
        for step in steps_of(entry.pointer):
            owners = owners.below.setdefault(step, _Owners())
        owners.site = site
    return owners_by_part


def _may_be_function(value: dict[str, Json], name: str) -> bool:
    """
    Return whether a release may use a class name in a SavedModel as the name of a Keras function,
    which it would call with the config: such names are in lower case.
    """
    return name == keras_objects.class_of(value) and not (name[:1].isupper() or ">" in name)


def is_training_only(document: Document, address: Address) -> bool:
    """
    Return whether an address is in the training configuration of the model, which releases read
    only when they compile the model.
    """
    return _is_in_training_config(document, address.part, steps_of(address.pointer))


def _is_in_training_config(document: Document, part: str, steps: Sequence[str | int]) -> bool:
    return (part == document.training_part != document.config_part) or (
        bool(steps) and steps[0] in _COMPILED
    )


def leading_out(site: Site) -> str | None:
    """Return a layer's name that is a path out of a directory; None if it has no such name."""
    names = (
        site.given_name,
        site.name,
        (site.config or {}).get("name"),
    )  # Keras uses the name in the config, even if the entry has another
    return next((name for name in names if isinstance(name, str) and leads_out(name)), None)


def _dicts(
    value: Json, owners: _Owners | None
) -> Iterator[tuple[dict[str, Json], tuple[str | int, ...], int | None]]:
    """
    Yield every object in a part with the steps to it and the layer that contains it.

    Pointers are built only for the few objects that are reported, because each pointer repeats the
    keys above its object.
    """
    pending: list[tuple[Json, tuple[str | int, ...], _Owners | None, int | None]] = [
        (value, (), owners, None)
    ]
    count = 0
    while pending:
        item, steps, owners, site = pending.pop()
        count += 1
        if isinstance(item, dict):
            if owners is not None and owners.site is not None:
                site = owners.site
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
                (child, (*steps, key), owners and owners.below.get(str(key)), site)
                for key, child in children
                if isinstance(child, dict | list)
            ]
        )
    spend(count, walk="objects that may do harm")


__all__ = [
    "LAMBDA",
    "LAMBDA_ADVICE",
    "OUTSIDE",
    "PRINTING",
    "RUNNING",
    "Harm",
    "HarmfulOp",
    "Hazard",
    "attribute_values",
    "calling_ops",
    "is_placed_op",
    "is_pure_op",
    "is_training_only",
    "leading_out",
    "of",
    "op",
    "path_inputs",
    "placed_ops",
]
