"""A place where a layer stands in a file, before its policy is read."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum, auto
from typing import TYPE_CHECKING, Final

from policytool.releases.layer_classes import Category, classes_of, public_class_name
from policytool.support import limits
from policytool.support.errors import LimitError
from policytool.support.grouping import grouped

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from policytool.formats.document import Address
    from policytool.releases.generations import SubPolicy
    from policytool.releases.keras_objects import KerasObject
    from policytool.support.text.jsontext import Json

MODEL_CLASSES: Final = classes_of(Category.MODEL)
"""
Classes of Keras whose config lists layers.

``Network`` is the Functional of TF 1.13 to 2.2 where it is no ``Model``.
"""

MODEL_IDENTIFIERS: Final = frozenset(
    {"_tf_keras_model", "_tf_keras_network", "_tf_keras_sequential"}
)
"""Identifiers of nodes in a SavedModel that are models of Keras."""

INPUT_CLASS: Final = "InputLayer"
LAYERS: Final = "layers"

CONTAINERS: Final = frozenset(
    {
        "trackable_list_wrapper",
        "trackable_dict_wrapper",
        "trackable_tuple_wrapper",
        "_generic_user_object",
    }
)
"""Identifiers of nodes in a SavedModel that only hold others."""

BOOKKEEPING: Final = frozenset(
    {
        *(
            "keras_api",
            "signatures",
            "optimizer",
            "losses",
            "regularization_losses",
            "call_and_return_all_conditional_losses",
        ),
        *(
            "variables",
            "trainable_variables",
            "non_trainable_variables",
            "weights",
            "trainable_weights",
            "non_trainable_weights",
        ),
        *("layer_metrics", "layer_regularization_losses"),
    }
)
"""Edges of Keras' own that lead to no layer, or to variables under names that say nothing."""


class Unspelled(Enum):
    """A missing key, in contrast to JSON's null, which some releases write."""

    ABSENT = auto()


@dataclass(frozen=True, kw_only=True, slots=True)
class Site:
    """One layer, at its first place."""

    names: tuple[str, ...]
    """Names from the root down."""

    also_at: tuple[tuple[str, ...], ...] = ()
    class_name: str
    registered_name: str | None = None
    module: str | None = None
    attribute: str
    """
    What the parent holds it by: :data:`LAYERS` for a model's layers, else the attribute or config
    key.
    """

    listed: bool = False
    """Whether the parent holds it in a list or a dict of that name."""

    parent: int | None
    """Index of the parent's site; None for the root."""

    spelled: Json | Unspelled
    """The value of the ``dtype`` key."""

    entry: Address | None = None
    """Where its object stands; None for a layer that its parent makes by itself."""

    copies: tuple[Address, ...] = ()
    """Where the objects stand that serialize a shared layer at its further places."""

    address: Address | None
    """Where its policy stands, or would stand."""

    given_name: str | None = None
    """The name in the file, where the built layer has another (directions of a Bidirectional)."""

    sub_policy: SubPolicy | None = None
    """For a layer that its parent makes by itself: whose policy it takes."""

    numbered: bool = False
    """Whether the true name may carry a number that only the weights' names tell."""

    autocast: bool | None = None
    is_model: bool = False
    config: dict[str, Json] | None = None
    node: int | None = None
    """The node of a SavedModel's object graph."""

    @property
    def name(self) -> str:
        """The layer's own name as it is built."""
        return self.names[-1]


def children_of(sites: Sequence[Site]) -> Mapping[int | None, Sequence[int]]:
    """Return the indices of the sites directly below each site; those of None are the topmost."""
    return grouped((site.parent, index) for index, site in enumerate(sites))


def path_of(names: tuple[str, ...]) -> str:
    """Return a layer path as reports show it: ``/`` inside a name becomes ``~1``."""
    return "/".join(name.replace("/", "~1") for name in names)


def split_class(serialized: KerasObject) -> tuple[str, str | None]:
    """
    Return class name and registered name; H5 and SavedModels of Keras 2 write ``package>Class`` as
    the class name.
    """
    class_name = public_class_name(serialized.class_name)
    if ">" in class_name:
        return serialized.own_class, serialized.registered_name or class_name
    return class_name, serialized.registered_name


def with_shared_places(
    sites: list[Site],
    also_at: Mapping[int, Iterable[tuple[str, ...]]],
    copies: Mapping[int, Iterable[Address]],
) -> tuple[Site, ...]:
    """
    Return the sites with the additional paths of shared layers and of the layers below them. A
    parent comes before its children.

    :param also_at: the additional paths of each shared layer, by site index
    :param copies: the objects that serialize each shared layer at these paths, by site index

    :raises LimitError: if the number of paths or their total length exceeds a limit.
    """
    result: list[Site] = []
    places = characters = 0
    for index, first in enumerate(sites):
        site = (
            replace(first, also_at=tuple(also_at[index]), copies=tuple(copies.get(index, ())))
            if index in also_at
            else first
        )
        above = result[site.parent].also_at if site.parent is not None else ()
        places += 1 + len(site.also_at) + len(above)
        characters += (1 + len(site.also_at) + len(above)) * (
            len(site.names) + sum(map(len, site.names))
        )
        if excess := limits.LAYERS.exceeded_message(
            places, counting=True
        ) or limits.PATH_CHARACTERS.exceeded_message(characters, counting=True):
            raise LimitError(f"if every use of a layer is counted, the model has {excess}")
        inherited = tuple((*names, site.name) for names in above)
        own = frozenset(site.also_at) if inherited else frozenset()
        new = tuple(names for names in inherited if names not in own)
        result.append(replace(site, also_at=(*site.also_at, *new)) if new else site)
    return tuple(result)
