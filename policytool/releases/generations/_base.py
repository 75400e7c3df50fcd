"""
What a generation of Keras is: the releases that share one spelling of configs, and the rules for
what their configs leave unsaid.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum, auto
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from policytool.releases.layer_classes import Category, classes_of, layer_facts

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from policytool.releases.policy import Policy, PolicyMap
    from policytool.support.text.jsontext import Json


class Unsaid(Enum):
    """Who decides a layer's dtype where its config has no ``dtype``."""

    LOADER = auto()
    """The global policy of the process that loads the file."""

    FLOATX = auto()
    """
    The backend's ``floatx`` of the process that built the model: all its layers share it, and the
    variables are stored in it.
    """


class SubPolicy(Enum):
    """Which policy a layer gives to the sub-layers that it makes by itself."""

    OWN = auto()
    """Its own."""

    GLOBAL = auto()
    """None: they take the global policy of the process that builds them."""


@dataclass(frozen=True, kw_only=True, slots=True)
class SubLayer:
    """A layer that a built-in layer makes by itself and does not write into its config."""

    attribute: str
    """The attribute that holds it, which names its place in ``.keras`` weights."""

    class_name: str
    name: str
    policy: SubPolicy = SubPolicy.OWN
    numbered: bool = False
    """Whether the name may carry a number (``lstm_cell_3``), which only the weights' names tell."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Generation:
    """A family of releases with one spelling; :mod:`policytool.releases.releases` names them."""

    id: str
    title: str
    parse: Callable[[Json], Policy | PolicyMap]
    """
    Return the policy that a config's ``dtype`` value spells.

    :raises SpellingError: for a value that this generation does not write.
    """

    render: Callable[[Policy | PolicyMap], Json]
    """
    Return the value that this generation writes for a policy.

    :raises SpellingError: for a policy that it has no words for, with the reason.
    """

    unsaid: Unsaid = Unsaid.LOADER
    composites: Mapping[str, tuple[SubLayer, ...]] = field(
        default_factory=lambda: MappingProxyType({})
    )
    """Class name to the sub-layers that its instances make by themselves."""


def _cells(*, to_tf25: bool = False) -> Mapping[str, tuple[SubLayer, ...]]:
    """Return the cells that each recurrent layer creates, which have their own dtype."""
    cells_by_layer = {}
    for name in classes_of(Category.RECURRENT):
        facts = layer_facts(name)
        older = facts.sublayers_to_tf25 if to_tf25 else {}
        cells_by_layer[name] = tuple(
            SubLayer(
                attribute=attribute,
                class_name=sublayer.class_name,
                name=sublayer.name,
                numbered=True,
            )
            for attribute, sublayer in (older or facts.sublayers).items()
        )
    return MappingProxyType({name: cells for name, cells in cells_by_layer.items() if cells})


def _projections(policy: SubPolicy, *, private: bool = False) -> Mapping[str, tuple[SubLayer, ...]]:
    """
    Return the projections that each attention layer creates.

    :param private: whether the names of all attributes begin with an underscore, as in Keras 2;
        Keras 3 walks attributes by name, and finds MultiHeadAttention's public properties first
    """
    projections_by_layer = {
        name: tuple(
            SubLayer(
                attribute=f"_{attribute.removeprefix('_')}" if private else attribute,
                class_name=sublayer.class_name,
                name=sublayer.name,
                policy=policy,
            )
            for attribute, sublayer in layer_facts(name).sublayers.items()
        )
        for name in classes_of(Category.ATTENTION)
    }
    return MappingProxyType(
        {name: projections for name, projections in projections_by_layer.items() if projections}
    )


CELLS: Final = _cells()
CELLS_TO_TF25: Final = _cells(to_tf25=True)
"""Up to TF 2.5 there is one convolutional cell, of another class and name."""

WITH_GLOBAL_POLICY: Final = _projections(SubPolicy.GLOBAL, private=True)
WITH_OWN_POLICY: Final = _projections(SubPolicy.OWN, private=True)
KERAS3_ATTENTION: Final = _projections(SubPolicy.OWN)
