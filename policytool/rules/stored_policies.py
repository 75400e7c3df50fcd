"""The policies of layers as a file stores them, including all copies, for several rules."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from policytool.migration.planning.policy_formats import owner
from policytool.migration.planning.training import has_explicit_scale
from policytool.model.loaded_model import once_per_model
from policytool.releases import keras_objects, policy
from policytool.support.errors import PolicyNameError
from policytool.support.grouping import group_pairs
from policytool.support.text.phrases import join_first

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from policytool.formats.document import Address
    from policytool.model.loaded_model import LoadedModel
    from policytool.support.text.jsontext import Json

_PLAIN: Final = "Policy"
_EXPERIMENTAL: Final = "PolicyV1"
_INFER: Final = "infer"


class StoredPolicy(Struct, frozen=True, kw_only=True):
    """The stored policy of a layer, without equal copies."""

    path: str
    """The path of the layer, or the address in the file of a policy that is not of a layer."""

    value: Json
    address: Address
    is_layer: bool

    @property
    def class_name(self) -> str | None:
        """The class of a policy dict; None for a plain name."""
        return keras_objects.class_of(self.value)

    @property
    def name(self) -> str | None:
        """The name of the policy, which is plain or in a dict."""
        return keras_objects.policy_name(self.value)

    @property
    def is_experimental(self) -> bool:
        """Whether the experimental API, which TF 2.9 removed, wrote the policy."""
        return self.class_name == _EXPERIMENTAL or (
            self.class_name == _PLAIN and has_explicit_scale(self.value)
        )

    @property
    def is_inferred(self) -> bool:
        """Whether the policy uses the dtype of the layer's first input."""
        return (
            self.name is not None
            and self.name.lstrip("_").startswith(_INFER)
            and _is_removed(self.name)
        )

    @property
    def is_removed(self) -> bool:
        """Whether releases removed the name of the policy, and the name contains a dtype."""
        return (
            self.name is not None
            and (self.name.endswith(policy.WITH_VARS) or "_from_" in self.name)
            and _is_removed(self.name)
            and not self.is_inferred
        )


@once_per_model
def stored_policies(loaded: LoadedModel) -> tuple[StoredPolicy, ...]:
    """
    Return the stored policy of each layer, in the order of the file. Equal copies are returned
    once.

    Input layers, plain dtypes of objects that are not layers, and layers that another layer creates
    are left out.
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
    noun = "layers" if all(entry.is_layer for entry in policies) else "places"
    return None, f"{len(paths)} {noun} ({join_first(paths)})"


def group_by_name(policies: Sequence[StoredPolicy]) -> Mapping[str, list[StoredPolicy]]:
    """Return the policies of each name, in the order of the file."""
    return group_pairs((entry.name, entry) for entry in policies if entry.name is not None)


def _is_removed(name: str) -> bool:
    try:
        return policy.is_removed(policy.policy_from_name(name))
    except PolicyNameError:
        return False
