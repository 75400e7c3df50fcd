"""The place of a layer in a file, before its policy is read."""

from __future__ import annotations

from enum import Enum, auto
from typing import TYPE_CHECKING, Final

from msgspec import Struct
from msgspec.structs import replace

from policytool.releases.layer_classes import Category, classes_of, public_class_name
from policytool.support import limits
from policytool.support.errors import LimitError
from policytool.support.grouping import group_pairs

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from policytool.formats.document import Address
    from policytool.releases.generations import SubPolicy
    from policytool.releases.keras_objects import KerasObject
    from policytool.support.text.jsontext import Json

MODEL_CLASSES: Final = classes_of(Category.MODEL)
"""
Classes of Keras whose config lists layers.

``Network`` is the class of functional networks that are not a ``Model`` in TF 1.13 to 2.2.
"""

MODEL_IDENTIFIERS: Final = frozenset(
    {"_tf_keras_model", "_tf_keras_network", "_tf_keras_sequential"}
)
"""Identifiers of SavedModel nodes that are Keras models."""

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
"""Identifiers of SavedModel nodes that only contain other nodes."""

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
"""Edges for internal use of Keras: to objects that are not layers, or to unnamed variables."""


class Unspelled(Enum):
    """A missing key, in contrast to JSON's null, which some releases write."""

    ABSENT = auto()


class Site(Struct, frozen=True, kw_only=True):
    """A layer at its first place."""

    names: tuple[str, ...]
    """The names from the root to the layer."""

    also_at: tuple[tuple[str, ...], ...] = ()
    class_name: str
    registered_name: str | None = None
    module: str | None = None
    attribute: str
    """
    The attribute or config key of the parent that contains the layer; :data:`LAYERS` for the layers
    of a model.
    """

    listed: bool = False
    """Whether the layer is in a list or a dict of that name."""

    parent: int | None
    """The index of the parent's site; None for the root."""

    spelled: Json | Unspelled
    """The value of the ``dtype`` key."""

    entry: Address | None = None
    """The address of the object that serializes it; None for a layer that its parent creates."""

    copies: tuple[Address, ...] = ()
    """The addresses of the objects that serialize a shared layer at its additional places."""

    address: Address | None
    """The address of its policy, even if no policy is stored."""

    given_name: str | None = None
    """The name in the file if the built layer has another name (directions of a Bidirectional)."""

    sub_policy: SubPolicy | None = None
    """The source of the policy of a layer that its parent creates; None for other layers."""

    numbered: bool = False
    """Whether the actual name may end in a number that only the names of weights contain."""

    stored: tuple[str, ...] | None = None
    """The group with its variables, if the weights file names the layer (KerasHub)."""

    names_above: int = 1
    """The number of names above the layers of its model, which are not in its path in Keras 3."""

    autocast: bool | None = None
    is_model: bool = False
    config: dict[str, Json] | None = None
    node: int | None = None
    """The node of a SavedModel's object graph."""

    @property
    def name(self) -> str:
        """The name of the built layer."""
        return self.names[-1]


def children_of(sites: Sequence[Site]) -> Mapping[int | None, Sequence[int]]:
    """Return the indices of the sites directly below each site; None has the top-level sites."""
    return group_pairs((site.parent, index) for index, site in enumerate(sites))


def with_sites_above(sites: Sequence[Site], index: int) -> Iterator[int]:
    """Yield a site and the sites around it, from the inside to the outside."""
    above: int | None = index
    while above is not None:
        yield above
        above = sites[above].parent


def path_of(names: tuple[str, ...]) -> str:
    """Return the path of a layer in reports; ``/`` inside a name becomes ``~1``."""
    return "/".join(name.replace("/", "~1") for name in names)


def split_class(serialized: KerasObject) -> tuple[str, str | None]:
    """
    Return the class name and the registered name. HDF5 and SavedModels of Keras 2 write
    ``package>Class`` as the class name.
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
    place_count = characters = 0
    for index, first in enumerate(sites):
        site = (
            replace(first, also_at=tuple(also_at[index]), copies=tuple(copies.get(index, ())))
            if index in also_at
            else first
        )
        above = result[site.parent].also_at if site.parent is not None else ()
        place_count += 1 + len(site.also_at) + len(above)
        characters += (1 + len(site.also_at) + len(above)) * (
            len(site.names) + sum(map(len, site.names))
        )
        if excess := limits.LAYERS.exceeded_message(
            place_count, counting=True
        ) or limits.PATH_CHARACTERS.exceeded_message(characters, counting=True):
            raise LimitError(f"if every use of a layer is counted, the model has {excess}")
        inherited = tuple((*names, site.name) for names in above)
        own_places = frozenset(site.also_at) if inherited else frozenset()
        new = tuple(names for names in inherited if names not in own_places)
        result.append(replace(site, also_at=(*site.also_at, *new)) if new else site)
    return tuple(result)
