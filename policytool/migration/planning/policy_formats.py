"""
The policy formats in the migrated file, and the detection of outdated formats.

The default format of a plain policy is its name, which TF 2.5 and later, tf_keras and all Keras 3
releases read. Policy dicts of Keras 3.4 are current and stay dicts. ``--target`` selects the format
of another generation.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from msgspec import Struct

from policytool.formats.document import Address
from policytool.formats.edits import Edit, EditKind
from policytool.migration.plan import Refusal
from policytool.model.loaded_model import current_name, once_per_model
from policytool.model.tree import Unspelled
from policytool.releases import generations, keras_objects, policy
from policytool.releases.generations import GENERATIONS, Generation
from policytool.releases.policy import Policy, PolicyMap
from policytool.releases.policy_formats import KERAS2_CLASSES
from policytool.support.errors import PolicyNameError, SpellingError
from policytool.support.text import jsontext
from policytool.support.text.jsontext import ABSENT

if TYPE_CHECKING:
    from collections.abc import Iterator

    from policytool.migration.planning.decisions import Decision, Decisions
    from policytool.model.loaded_model import LoadedModel
    from policytool.support.text.jsontext import Json

_DTYPE: Final = "dtype"
NEEDS_DECISION: Final = "needs-decision"
"""The code of a refusal of a policy whose replacement only the user can choose."""


class PolicyWriter(Struct, frozen=True, kw_only=True):
    """Writes policies for one file."""

    loaded: LoadedModel
    target: Generation | None

    def policy_value(self, new_policy: Policy | PolicyMap, before: Json | Unspelled) -> Json:
        """
        Return the JSON value of the new policy, which replaces ``before``.

        :raises SpellingError: if the target generation cannot represent the policy.
        """
        if self.target is not None:
            return (
                before
                if isinstance(before, dict) and self._reads_as(new_policy, before)
                else self.target.render(new_policy)
            )
        is_dict = isinstance(new_policy, PolicyMap) or (
            isinstance(before, dict)
            and (
                new_policy.quantization is not None
                or keras_objects.class_of(before) not in KERAS2_CLASSES
            )
        )
        return GENERATIONS[-1].render(new_policy) if is_dict else new_policy.name

    def _reads_as(self, new_policy: Policy | PolicyMap, before: dict[str, Json]) -> bool:
        """
        Return whether the target already reads a dict as the new policy; later releases of a family
        add keys that earlier releases ignore.
        """
        if self.target is None or isinstance(new_policy, PolicyMap):
            return False
        try:
            parsed_policy = self.target.parse(before)
        except SpellingError:
            return False
        return isinstance(parsed_policy, Policy) and (
            parsed_policy.name,
            parsed_policy.effective_loss_scale,
        ) == (
            new_policy.name,
            new_policy.effective_loss_scale,
        )


def edits(loaded: LoadedModel, decisions: Decisions, target: Generation | None) -> tuple[Edit, ...]:
    """
    Return the edits that write every decision and update outdated policy formats; refusals are
    added to the decisions.
    """
    writer = PolicyWriter(loaded=loaded, target=target)
    edits_by_address: dict[Address, Edit] = {}
    for index, decision in sorted(decisions.by_site.items()):
        _add_decision(writer, index, decision, edits_by_address, decisions)
    decided = {address for index in decisions.by_site for address in loaded.addresses[index]}
    for address, edit, refusal in _format_changes(
        loaded, target.id if target is not None else None
    ):
        if address in decided:
            continue
        if edit is not None:
            edits_by_address[address] = edit
        if refusal is not None and (
            refusal.code != NEEDS_DECISION or refusal not in decisions.refusals
        ):
            decisions.refusals.append(refusal)
    return tuple(edits_by_address.values())


@once_per_model
def _format_changes(
    loaded: LoadedModel, target_id: str | None
) -> tuple[tuple[Address, Edit | None, Refusal | None], ...]:
    """Return the format edits and refusals of all dtype values in the file."""
    target = next((generation for generation in GENERATIONS if generation.id == target_id), None)
    writer = PolicyWriter(loaded=loaded, target=target)
    return tuple(
        (address, *outcome)
        for address, value in loaded.dtypes
        if (outcome := _format_edit(writer, address, value)) != (None, None)
    )


def _add_decision(
    writer: PolicyWriter,
    index: int,
    decision: Decision,
    edits_by_address: dict[Address, Edit],
    decisions: Decisions,
) -> None:
    """Add an edit for every place in the file that stores a layer's policy."""
    loaded, new_policy = writer.loaded, decision.policy
    site, layer = loaded.sites[index], loaded.layers[index]
    changes = _policy_differs(loaded.own_policies.get(index), new_policy, layer.policy) or (
        isinstance(site.spelled, Unspelled) and decisions.changes_any_layer(loaded)
    )
    for address in loaded.addresses[index]:
        before = loaded.value_at(address)
        try:
            if not loaded.is_input(index):
                after = writer.policy_value(new_policy, before)
            else:  # the dtype of the input tensor, which is never a policy dict
                after = (
                    new_policy.name
                    if isinstance(new_policy, PolicyMap)
                    else new_policy.compute_dtype
                )
        except SpellingError as error:
            decisions.refusals.append(
                Refusal(code="not-writable", message=f"{layer.path}: {error}", path=layer.path)
            )
            return
        if before == after or (not changes and not _is_outdated(before) and writer.target is None):
            continue
        edit = Edit(
            kind=EditKind.NUMERICS if changes else EditKind.FORMAT,
            address=address,
            path=layer.path,
            before=ABSENT if isinstance(before, Unspelled) else before,
            after=after,
            reason=decision.reason,
        )
        other = edits_by_address.setdefault(address, edit)
        if other.after != after:
            decisions.refusals.append(
                Refusal(
                    code="one-config",
                    message=(
                        f"{layer.path} and {other.path} are built from the same config and share "
                        "one policy; set both to the same policy"
                    ),
                    path=layer.path,
                )
            )
            return


def _policy_differs(
    own_policy: Policy | PolicyMap | None, new_policy: Policy | PolicyMap, name: str | None
) -> bool:
    if isinstance(new_policy, PolicyMap) or isinstance(own_policy, PolicyMap):
        return own_policy != new_policy
    return current_name(name) != new_policy.name


def policies_under_other_keys(config: Json) -> Iterator[tuple[str | int, ...]]:
    """Yield the steps to each Keras 2 policy dict under a key other than ``dtype``."""
    for steps, value in jsontext.containers(config):
        if (
            isinstance(value, dict)
            and _is_outdated(value)
            and isinstance(value["config"], dict)
            and "name" in value["config"]
            and steps[-1:] != (_DTYPE,)
        ):
            yield steps


def _is_outdated(value: Json | Unspelled) -> bool:
    """
    Return whether the newest releases do not support a policy format: a policy dict of Keras 2, or
    a removed name.
    """
    if isinstance(value, dict):
        is_of_keras2 = keras_objects.class_of(value) in KERAS2_CLASSES
        return is_of_keras2 and isinstance(value.get("config"), dict)
    if isinstance(value, str):
        try:
            return policy.is_removed(policy.policy_from_name(value))
        except PolicyNameError:
            return False
    return False


def _format_edit(
    writer: PolicyWriter, address: Address, value: Json
) -> tuple[Edit | None, Refusal | None]:
    """
    Return the edit for a policy format that is outdated or that the target writes differently, or
    the refusal if there is no such edit.
    """
    if not _is_outdated(value) and writer.target is None:
        return None, None
    path = owner(writer.loaded, address)
    try:
        stored_policy = generations.parse(value, writer.loaded.generation)
        current_policy = _current_policy(stored_policy)
        if current_policy is None:
            return None, _removed_policy_refusal(stored_policy, path, address.pointer)
        after = writer.policy_value(current_policy, value)
    except SpellingError as error:
        if writer.target is None or not _is_policy(writer.loaded, address):
            return None, None
        return None, Refusal(
            code="not-writable", message=f"{path or address.pointer}: {error}", path=path
        )
    if after == value or (writer.target is not None and not _is_policy(writer.loaded, address)):
        return None, None
    edit = Edit(
        kind=EditKind.FORMAT,
        address=address,
        path=path,
        before=value,
        after=after,
        reason=_reason(value, writer),
    )
    return edit, None


def _reason(value: Json, writer: PolicyWriter) -> str:
    if writer.target is not None:
        return f"{writer.target.title} writes this format"
    if isinstance(value, str):
        life = policy.lifecycle(policy.policy_from_name(value))
        return f"{life.removed} removed this policy name"
    kind = keras_objects.class_of(value) or "Policy"
    return (
        f"{kind} dicts are a Keras 2 format, whereas TF 2.5 and later, tf_keras and Keras 3 read "
        "the plain name"
    )


def _is_policy(loaded: LoadedModel, address: Address) -> bool:
    """
    Return whether a ``dtype`` is a layer's policy; those of inputs, initializers and metrics are
    plain dtypes in all releases.
    """
    indices = loaded.places.get(address)
    return indices is not None and not loaded.is_input(indices[0])


def _current_policy(stored_policy: Policy | PolicyMap) -> Policy | PolicyMap | None:
    """Return the policy under its current name; None if no current policy is equivalent."""
    if isinstance(stored_policy, PolicyMap) or not policy.is_removed(stored_policy):
        return stored_policy
    name = current_name(stored_policy.name)
    return (
        policy.policy_from_name(name, stored_policy.loss_scale)
        if name is not None and name != stored_policy.name
        else None
    )


def owner(loaded: LoadedModel, address: Address) -> str | None:
    """Return the path of the layer whose config contains an address; None if there is none."""
    steps = address.pointer.split("/")
    for end in range(len(steps), 0, -1):
        for place in ("/".join((*steps[:end], _DTYPE)), "/".join(steps[:end])):
            indices = loaded.places.get(Address(part=address.part, pointer=place))
            if indices is not None:
                return loaded.layers[indices[0]].path
    return None


def _removed_policy_refusal(removed: Policy | PolicyMap, path: str | None, place: str) -> Refusal:
    subject = path or place
    name = removed.name
    if isinstance(removed, Policy) and removed.quantization:
        advice = f"Keras 3.3 removed it; choose a policy with --set '{subject}=POLICY'"
    elif isinstance(removed, Policy) and removed.compute_dtype is not None:
        advice = (
            f"no current policy computes in {removed.compute_dtype} with {removed.variable_dtype} "
            f"variables; choose a policy with --set '{subject}=POLICY'"
        )
    else:
        advice = (
            "it uses the dtype of its first input, which the file does not contain; choose a "
            f"policy with --set '{subject}=float32', or use a pattern for several layers"
        )
    return Refusal(
        code=NEEDS_DECISION, message=f"{subject} has the policy {name!r}: {advice}", path=path
    )
