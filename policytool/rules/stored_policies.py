"""How a file spells the policies of its layers: every copy, for several rules."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from policytool.migration.planning.policy_formats import owner
from policytool.migration.planning.training import has_explicit_scale
from policytool.model.loaded_model import once_per_model
from policytool.releases import keras_objects, policy
from policytool.support.errors import PolicyNameError
from policytool.support.grouping import grouped
from policytool.support.text.phrases import join_first

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from policytool.formats.document import Address
    from policytool.model.loaded_model import LoadedModel
    from policytool.support.text.jsontext import Json

_PLAIN: Final = "Policy"
_EXPERIMENTAL: Final = "PolicyV1"
_INFER: Final = "infer"


@dataclass(frozen=True, kw_only=True, slots=True)
class StoredPolicy:
    """One way in which a layer's policy is spelled."""

    path: str
    """The layer, or the place in the file where the policy belongs to none."""

    value: Json
    address: Address
    is_layer: bool

    @property
    def class_name(self) -> str | None:
        """The class of a policy dict; None for a bare name."""
        return keras_objects.class_of(self.value)

    @property
    def name(self) -> str | None:
        """The policy's name, bare or in a dict."""
        config = self.value.get("config") if isinstance(self.value, dict) else None
        name = config.get("name") if isinstance(config, dict) else self.value
        return name if isinstance(name, str) else None

    @property
    def is_experimental(self) -> bool:
        """Whether the experimental API wrote it, which TF 2.9 removed."""
        return self.class_name == _EXPERIMENTAL or (
            self.class_name == _PLAIN and has_explicit_scale(self.value)
        )

    @property
    def is_inferred(self) -> bool:
        """Whether it takes the dtype of the layer's first input."""
        return (
            self.name is not None
            and self.name.lstrip("_").startswith(_INFER)
            and _is_removed(self.name)
        )

    @property
    def is_removed(self) -> bool:
        """Whether its name is one that releases removed, and that says a dtype."""
        return (
            self.name is not None
            and (self.name.endswith(policy.WITH_VARS) or "_from_" in self.name)
            and _is_removed(self.name)
            and not self.is_inferred
        )


@once_per_model
def stored_policies(loaded: LoadedModel) -> tuple[StoredPolicy, ...]:
    """
    Return how the policy of each layer is spelled, in the file's order: once where its copies are
    alike.

    Left out are input layers, plain dtypes of what is not a layer, and layers that another makes by
    itself.
    """
    policies: dict[tuple[str, str], StoredPolicy] = {}
    for address, value in loaded.dtypes:
        indices = [
            index
            for index in loaded.places.get(address, ())
            if loaded.sites[index].sub_policy is None
        ]
        if any(loaded.is_input(index) for index in indices) or (
            not indices and isinstance(value, str)
        ):
            continue
        text = value if isinstance(value, str) else json.dumps(value)
        for path in [loaded.layers[index].path for index in indices] or [
            policy_place(loaded, address)
        ]:
            policies.setdefault(
                (path, text),
                StoredPolicy(path=path, value=value, address=address, is_layer=bool(indices)),
            )
    return tuple(policies.values())


def policy_place(loaded: LoadedModel, address: Address) -> str:
    """
    Return the layer that contains an address, or the address itself if no layer does, such as for
    the policy of a metric in a SavedModel.
    """
    return owner(loaded, address) or f"{address.part}{address.pointer}"


def describe_layers(policies: Sequence[StoredPolicy]) -> tuple[str | None, str]:
    """
    Return the path of the only layer that has these policies (None if there are several, or if it
    is not a layer), and the phrase that names the layers in a message.
    """
    paths = list(dict.fromkeys(entry.path for entry in policies))
    if len(paths) == 1:
        return (paths[0] if policies[0].is_layer else None), paths[0]
    what = "layers" if all(entry.is_layer for entry in policies) else "places"
    return None, f"{len(paths)} {what} ({join_first(paths)})"


def group_by_name(policies: Sequence[StoredPolicy]) -> Mapping[str, list[StoredPolicy]]:
    """Return those that have each name, in the file's order."""
    return grouped((entry.name, entry) for entry in policies if entry.name is not None)


def _is_removed(name: str) -> bool:
    try:
        return policy.is_removed(policy.policy_from_name(name))
    except PolicyNameError:
        return False
