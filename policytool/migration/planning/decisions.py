"""
The new policy of each layer, independent of the policy format.

``--set`` sets the policy of the layers that it matches; ``--to`` sets the policy of layers that
have the base policy. An RNN and its cells get the same policy, because Keras 2 fails if they
differ.

The base policy is the policy of the model: ``--to`` replaces it, and its loss scale is used. The
config of a Functional does not contain it. It is the stored policy of the root, or else the most
common policy of the float layers with weights; the first policy wins a tie.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from msgspec import Struct
from msgspec.structs import replace

from policytool.migration.plan import Refusal
from policytool.migration.planning import quantized_attention
from policytool.migration.planning.keep import layers_to_keep
from policytool.migration.planning.options import Outputs
from policytool.model.layer_policies import keras_path
from policytool.model.tree import MODEL_CLASSES
from policytool.releases import dtypes, policy
from policytool.releases.policy import Policy, PolicyMap
from policytool.support.errors import PolicyNameError, UsageError
from policytool.support.patterns.matching import check_pattern, matching_in
from policytool.support.text.phrases import did_you_mean, most_similar

if TYPE_CHECKING:
    from collections.abc import Collection

    from policytool.migration.planning.options import Assignment, Options
    from policytool.model.loaded_model import LoadedModel
    from policytool.support.patterns.matching import Matcher


_SUGGESTED: Final = 3
"""The most layers that an error suggests."""

_SIXTEEN_BITS: Final = ("float16", "bfloat16", "mixed_float16", "mixed_bfloat16")


def base_policy(loaded: LoadedModel) -> str | None:
    """
    Return the name of the model's policy; None if no layer has a policy.

    Layers that stay in float32 under every 16-bit policy (outputs, a last softmax, classes known to
    fail) do not count, because every mixed model has them. The layers that count depend only on the
    structure of the model, and the first policy wins a tie. A second migration to the same policy
    therefore has that policy as its base and changes nothing.
    """
    root = loaded.layers[0] if loaded.layers else None
    has_own = root is not None and root.policy is not None and loaded.is_floating(0)
    name = loaded.policy_name(0) if has_own else None
    if name:
        return name
    # the layers that count must not depend on the requested policy
    kept = {
        index
        for name in _SIXTEEN_BITS
        for index in layers_to_keep(loaded, policy.policy_from_name(name), Outputs.KEEP)
    }
    names = map(loaded.policy_name, _deciding_layers(loaded, kept))
    votes = Counter(name for name in names if name is not None)
    return votes.most_common(1)[0][0] if votes else None


def _deciding_layers(loaded: LoadedModel, kept: Collection[int]) -> list[int]:
    """
    Return the float layers that determine the model's policy: layers with weights, or else all
    layers except inputs. Kept layers count only if there is no other layer.
    """
    floating = [
        index
        for index, site in enumerate(loaded.sites)
        if loaded.is_floating(index) and not loaded.is_input(index) and site.sub_policy is None
    ]
    free = [index for index in floating if index not in kept]
    weighted = [index for index in floating if loaded.has_weights(index)]
    return [index for index in weighted if index not in kept] or free or weighted or floating


def matches(loaded: LoadedModel, assignments: tuple[Assignment, ...]) -> dict[int, Assignment]:
    """
    Return the assignment for each matching site; an exact path overrides regular expressions.

    :raises UsageError: if a pattern matches no layer or is not a regular expression, or if two
        patterns match the same layer.
    :raises ModelFileError: if matching exceeds the limit of steps.
    """
    exact: dict[int, Assignment] = {}
    matched: dict[int, list[Assignment]] = {}
    with matching_in(loaded.document.path) as matcher:
        for assignment in assignments:
            named_layers = [
                index
                for index, layer in enumerate(loaded.layers)
                if assignment.pattern in {layer.path, *layer.also_at}
            ]
            for index in named_layers:
                if exact.setdefault(index, assignment) != assignment:
                    raise UsageError(
                        f"--set sets {loaded.layers[index].path} of {loaded.document.path} twice, "
                        f"to {exact[index].policy} and to {assignment.policy}"
                    )
            if not named_layers:
                matching_layers = _fully_matching(loaded, assignment.pattern, matcher)
                if not matching_layers:
                    raise UsageError(
                        f"--set {assignment.pattern}={assignment.policy} matches no layer of "
                        f"{loaded.document.path}{_similar_path(loaded, assignment.pattern)}"
                    )
                for index in matching_layers:
                    matched.setdefault(index, []).append(assignment)
    for index, matched_patterns in matched.items():
        if index not in exact:
            if len({candidate.pattern for candidate in matched_patterns}) > 1:
                patterns = " and ".join(repr(candidate.pattern) for candidate in matched_patterns)
                raise UsageError(
                    f"{loaded.layers[index].path} of {loaded.document.path} matches two patterns, "
                    f"{patterns}; use its exact path instead"
                )
            exact[index] = matched_patterns[0]
    return dict(sorted(exact.items()))


def _similar_path(loaded: LoadedModel, pattern: str) -> str:
    """
    Return the end of a sentence about a pattern that matches nothing, with a question if it is the
    end of the paths of a few layers, or similar to a path or to its last part.
    """
    paths = [layer.path for layer in loaded.layers]
    endings = [path for path in paths if path.endswith(f"/{pattern}")]
    if endings:
        names = " or ".join(map(repr, endings[:_SUGGESTED]))
        return f". Did you mean {names}?"
    path_by_name = {path.rpartition("/")[2]: path for path in reversed(paths)}
    if name := most_similar(pattern, path_by_name):
        return f". Did you mean {path_by_name[name]!r}?"
    suggestion = did_you_mean(pattern, paths)
    return suggestion if suggestion != "." else ""


def _fully_matching(loaded: LoadedModel, pattern: str, matcher: Matcher) -> list[int]:
    """
    Return the layers whose whole path matches a pattern. If some of them are settable, return only
    those: inputs and layers that take IDs are set only by their exact path.
    """
    check_pattern(pattern, f"--set {pattern!r} is not a layer path and")
    matching_layers = [
        index
        for index, layer in enumerate(loaded.layers)
        if any(matcher.fullmatch(pattern, path) for path in (layer.path, *layer.also_at))
    ]
    return [index for index in matching_layers if is_settable(loaded, index)] or matching_layers


def is_settable(loaded: LoadedModel, index: int) -> bool:
    """Return whether a regular expression that matches several layers sets this layer."""
    return loaded.can_say(index) and loaded.is_floating(index) and not loaded.is_input(index)


FLOAT32: Final = policy.policy_from_name("float32")
CELLS: Final = frozenset({"cell", "cells"})


class Decision(Struct, frozen=True, kw_only=True):
    """The new policy of a layer, with the reason."""

    policy: Policy | PolicyMap
    reason: str
    by_user: bool = False
    """Whether ``--set`` sets the policy."""

    kept: bool = False
    """Whether the layer stays in float32 although ``--to`` would change it."""


@dataclass
class Decisions:
    """The decisions for all layers; the steps of :func:`decide` add to them."""

    by_site: dict[int, Decision] = field(default_factory=dict)
    base: str | None = None
    refusals: list[Refusal] = field(default_factory=list)

    def changes_any_layer(self, loaded: LoadedModel) -> bool:
        """
        Return whether any layer gets another policy. If none does, policies that the file does not
        contain need not be written.
        """
        return any(
            decision.policy.name != loaded.layers[index].policy
            for index, decision in self.by_site.items()
        )

    def compute_dtype(self, loaded: LoadedModel, index: int) -> str | None:
        """Return the new compute dtype of the layer."""
        decision = self.by_site.get(index)
        if decision is not None and isinstance(decision.policy, Policy):
            return decision.policy.compute_dtype
        layer = loaded.layers[index]
        if (
            decision is not None
            and layer.policy is not None
            and isinstance(decision.policy, PolicyMap)
        ):
            return _in_map(decision.policy, keras_path(loaded.sites[index]), layer.compute_dtype)
        return layer.compute_dtype

    def variable_dtype(self, loaded: LoadedModel, index: int) -> str | None:
        """Return the new variable dtype of the layer."""
        decision = self.by_site.get(index)
        if decision is not None and isinstance(decision.policy, Policy):
            return decision.policy.variable_dtype
        return loaded.layers[index].variable_dtype


def _in_map(policies: PolicyMap, path: str, otherwise: str | None) -> str | None:
    entry = dict(policies.policies).get(path, policies.default)
    return entry.compute_dtype if entry else otherwise


def decide(loaded: LoadedModel, options: Options) -> Decisions:
    """
    Return the decision for each layer that the options change or keep.

    :raises UsageError: if two patterns match the same layer, or a pattern matches no layer.
    """
    decisions = Decisions()
    _decide_assigned(loaded, options.assignments, decisions)
    if options.to is not None:
        _decide_followers(loaded, options, decisions)
    _join_cells(loaded, decisions)
    _join_wrappers(loaded, decisions)
    _join_sublayers(loaded, decisions)
    _decide_quantized_attention(loaded, decisions)
    if options.to is not None:
        _decide_nested_inputs(loaded, policy.policy_from_name(options.to), decisions)
    return decisions


def _decide_assigned(
    loaded: LoadedModel, assignments: tuple[Assignment, ...], decisions: Decisions
) -> None:
    matched = matches(loaded, assignments)
    for index, assignment in matched.items():
        reason = f"--set {assignment.pattern}={assignment.policy}"
        if not loaded.can_say(index):
            path = loaded.layers[index].path
            decisions.refusals.append(
                Refusal(
                    code="no-dtype",
                    message=(
                        f"{path} has no dtype in the file, so policytool cannot apply {reason}; "
                        "set the policy of the layer that contains it"
                    ),
                    path=path,
                )
            )
            continue
        assigned_policy = policy.policy_from_name(assignment.policy)
        if (decided := _retarget(loaded, index, assigned_policy, decisions)) is not None:
            decisions.by_site[index] = Decision(policy=decided, reason=reason, by_user=True)


def _decide_followers(loaded: LoadedModel, options: Options, decisions: Decisions) -> None:
    target = policy.policy_from_name(options.to or "")
    kept = layers_to_keep(loaded, target, options.outputs)
    decisions.base = base_policy(loaded)
    for index in range(len(loaded.sites)):
        if (
            index in decisions.by_site
            or loaded.is_input(index)
            or not loaded.is_floating(index)
            or not loaded.can_say(index)
        ):
            continue
        if isinstance(loaded.own_policies.get(index), PolicyMap):
            keep_reason = kept.get(index) if _follows(loaded, index, options, decisions) else None
            _decide_map(loaded, index, target, keep_reason, decisions)
        elif _follows(loaded, index, options, decisions):
            _decide_follower(loaded, index, target, kept.get(index), decisions)


def _follows(loaded: LoadedModel, index: int, options: Options, decisions: Decisions) -> bool:
    """
    Return whether ``--to`` applies to a layer: if it has the base policy, or, with ``--include
    exceptions``, any policy except the target.
    """
    name = loaded.policy_name(index)
    return name != options.to and (options.include_exceptions or name == decisions.base)


def _decide_follower(
    loaded: LoadedModel, index: int, target: Policy, reason: str | None, decisions: Decisions
) -> None:
    if reason is not None:
        decisions.by_site[index] = Decision(
            policy=_retarget(loaded, index, FLOAT32, decisions) or FLOAT32,
            reason=reason,
            kept=True,
        )
    elif (decided := _retarget(loaded, index, target, decisions)) is not None:
        decisions.by_site[index] = Decision(
            policy=decided, reason=f"it uses the policy of the model, {decisions.base}"
        )


def _decide_map(
    loaded: LoadedModel, index: int, target: Policy, reason: str | None, decisions: Decisions
) -> None:
    """
    Change the entries of a layer's policy map that follow the base policy: to the target, or to
    float32 if the layer is kept in float32.
    """
    own_map = loaded.own_policies[index]
    assert isinstance(own_map, PolicyMap)  # noqa: S101  # the caller asked
    new_policy = FLOAT32 if reason is not None else target
    changed = tuple(
        (key, _entry(loaded, index, entry, new_policy, decisions))
        for key, entry in own_map.policies
    )
    decided = PolicyMap(
        default=_entry(loaded, index, own_map.default, new_policy, decisions), policies=changed
    )
    if decided != own_map:
        decisions.by_site[index] = Decision(
            policy=decided,
            reason=reason
            or f"the entries of its policy map use the policy of the model, {decisions.base}",
            kept=reason is not None,
        )


def _entry(
    loaded: LoadedModel, index: int, entry: Policy | None, target: Policy, decisions: Decisions
) -> Policy | None:
    """
    Return the new policy of one entry of a policy map; entries with another policy than the base
    policy are unchanged.
    """
    if entry is None:
        return None
    name = entry.quantization.source if entry.quantization else entry.name
    if name != decisions.base:
        return entry
    return _requantize(loaded, index, entry, target, decisions) or entry


def _decide_quantized_attention(loaded: LoadedModel, decisions: Decisions) -> None:
    """Add the policies of quantized projections; without them, no release loads the file."""
    for index, modes in quantized_attention.policy_maps(loaded):
        decided = decisions.by_site.get(index)
        base = decided.policy if decided is not None else loaded.own_policies[index]
        if isinstance(base, Policy):
            new_policy = quantized_attention.quantized_map(base, modes)
            reason = "its projections are quantized, and the file does not contain their policies"
            if new_policy is not None:
                decisions.by_site[index] = Decision(policy=new_policy, reason=reason)


def _retarget(
    loaded: LoadedModel, index: int, target: Policy, decisions: Decisions
) -> Policy | None:
    """
    Return the new policy of a layer for ``target``; a quantized layer keeps its mode.
    """
    own_policy = loaded.own_policies.get(index)
    current = own_policy if isinstance(own_policy, Policy) else None
    return _requantize(loaded, index, current, target, decisions)


def _requantize(
    loaded: LoadedModel, index: int, current: Policy | None, target: Policy, decisions: Decisions
) -> Policy | None:
    """
    Return the target policy for a layer; for a quantized layer, the policy of its mode. If Keras
    does not support that, add a refusal and return None.
    """
    if current is None or current.quantization is None:
        return target
    mode, path = current.quantization.mode, loaded.layers[index].path
    try:
        quantized = policy.quantized_policy(
            mode, target.name, amax_history_length=current.quantization.amax_history_length
        )
        trouble = (
            f"Keras does not support {quantized.name}" if policy.is_removed(quantized) else None
        )
        if mode == "int4" and quantized.compute_dtype == "float16":
            trouble = (
                "Keras computes per-channel int4 incorrectly in float16 (relative error of "
                "about 1, measured with Keras 3.12)"
            )
    except PolicyNameError as error:
        quantized, trouble = target, str(error)
    if trouble is None:
        return quantized
    decisions.refusals.append(
        Refusal(
            code="quantized",
            message=(
                f"{path} is quantized in mode {mode}, but {trouble}; use mixed_bfloat16, or "
                f"exclude the layer with --set '{path}={current.quantization.source}'"
            ),
            path=path,
        )
    )
    return None


def _join_cells(loaded: LoadedModel, decisions: Decisions) -> None:
    """Set the policy of an RNN for its cells too, unless ``--set`` sets theirs."""
    for index in list(decisions.by_site):
        decision = decisions.by_site[index]
        cells = [
            child
            for child in loaded.children[index]
            if loaded.sites[child].attribute in CELLS and loaded.sites[child].sub_policy is None
        ]
        for cell in (inner for child in cells for inner in loaded.below(child)):
            if (
                not (cell in decisions.by_site and decisions.by_site[cell].by_user)
                and loaded.can_say(cell)
                and loaded.is_floating(cell)
            ):
                reason = (
                    decision.reason
                    if decision.kept
                    else (
                        f"it is a cell of {loaded.layers[index].path}, and Keras 2 requires the "
                        "same policy for both"
                    )
                )
                decisions.by_site[cell] = replace(decision, reason=reason, by_user=False)


def _join_sublayers(loaded: LoadedModel, decisions: Decisions) -> None:
    """
    Set the policy of a layer for the layers that it creates too. No release reads the metadata of
    the created layers.
    """
    for index, maker in loaded.makers.items():
        own_decision, decided = decisions.by_site.get(index), decisions.by_site.get(maker)
        path, owner = loaded.layers[index].path, loaded.layers[maker].path
        if (
            own_decision is not None
            and own_decision.by_user
            and (decided is None or decided.policy != own_decision.policy)
        ):
            decisions.refusals.append(
                Refusal(
                    code="no-dtype",
                    message=(
                        f"{path} is created by {owner}, which always assigns its own policy to "
                        f"it; set the policy of {owner}"
                    ),
                    path=path,
                )
            )
        elif decided is None:
            decisions.by_site.pop(index, None)
        elif loaded.can_say(index) and loaded.is_floating(index):
            decisions.by_site[index] = Decision(
                policy=decided.policy, reason=f"{owner} creates it and assigns its own policy to it"
            )


def _join_wrappers(loaded: LoadedModel, decisions: Decisions) -> None:
    """
    Keep the wrappers of kept layers in float32 too, because the layer in a TimeDistributed of Keras
    3 computes with the policy of the wrapper.
    """
    for index in sorted(decisions.by_site, reverse=True):
        decision, parent = decisions.by_site[index], loaded.sites[index].parent
        outer = decisions.by_site.get(parent) if parent is not None else None
        if (
            decision.kept
            and outer is not None
            and not outer.kept
            and not outer.by_user
            and loaded.sites[index].attribute == "layer"
        ):
            decisions.by_site[parent or 0] = Decision(
                policy=FLOAT32,
                reason=f"it wraps {loaded.layers[index].path}, which stays in float32",
                kept=True,
            )


def _decide_nested_inputs(loaded: LoadedModel, target: Policy, decisions: Decisions) -> None:
    """
    Widen the float inputs of nested models if the target is wider.

    A nested model casts its input values to the dtype of its input layer. Between float64 layers, a
    float32 input layer rounds 1 + 1e-12 to 1.
    """
    for index, site in enumerate(loaded.sites):
        layer = loaded.layers[index]
        nested = (
            site.parent not in {None, 0}
            and loaded.sites[site.parent or 0].class_name in MODEL_CLASSES
        )
        if (
            not (loaded.is_input(index) and nested and dtypes.is_float(layer.compute_dtype))
            or index in decisions.by_site
            or not loaded.can_say(index)
        ):
            continue
        if dtypes.itemsize(target.compute_dtype or "") > dtypes.itemsize(
            layer.compute_dtype or ""
        ) and _feeds_followers(loaded, index, decisions):
            wider = policy.policy_from_name(target.compute_dtype or "")
            decisions.by_site[index] = Decision(
                policy=wider,
                reason=f"it is an input of a nested model and would round {target.compute_dtype} "
                f"to {layer.compute_dtype}",
            )


def _feeds_followers(loaded: LoadedModel, index: int, decisions: Decisions) -> bool:
    parent = loaded.sites[index].parent
    return any(child in decisions.by_site for child in loaded.children[parent or 0])
