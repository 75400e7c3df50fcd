"""The masks of layers."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from policytool.migration.convert.architecture import Role, Unit, named_arguments, prune, walk
from policytool.migration.convert.masks.expressions import (
    MaskTable,
    fully_masked_result,
    is_mask_operation,
)
from policytool.migration.convert.masks.flow import (
    EXPLICIT,
    GIVEN_MASKS,
    CallKey,
    MaskFlow,
    Used,
    has_masks,
    is_softmax,
)
from policytool.migration.convert.masks.fully_masked import differing_attentions
from policytool.migration.convert.rewrites._base import ConversionContext, rewrite
from policytool.migration.convert.rewrites.masks._values import (
    can_select,
    gives_zeros,
    with_merged_values,
    with_selections,
    with_softmaxes,
)
from policytool.migration.convert.rewrites.masks._writing import with_masks
from policytool.model.calls import Call
from policytool.releases.releases import release_name

if TYPE_CHECKING:
    from collections.abc import Mapping

    from policytool.migration.convert.masks.expressions import Scope

_PASSES: Final = 3
"""How often masks are written: what one writes may end a mask that travelled before."""


@rewrite(
    applies=lambda context: True,  # noqa: ARG005  # releases of one library differ too
)
def masks(root: Unit, context: ConversionContext) -> Unit:
    """
    Preserves masks: each call uses the same masks in the target as in the source.

    Masks travel by rules that differ from release to release
    (:mod:`policytool.migration.convert.masks.flow`). Where a call of the target would compute with
    another mask, the mask is written into the graph: as the argument ``mask`` or
    ``attention_mask``, made by operations, or by a copy of the input, which has no mask. Masks that
    Keras 3 wrote as arguments, and that travel with the tensors in the target anyway, are left out
    with their operations.
    """
    if root.network is None or not has_masks(root):
        return root
    target, table = context.target.release, MaskTable()
    needed = MaskFlow(root.network, context.source_release, table, is_source=True).used
    result = _with_unattended(root, needed, context, table)
    result, merged = with_merged_values(result, needed, target, table)
    needed = _without(needed, merged)
    result, needed = _with_softmaxes(root, result, needed, context, table)
    wrong = _differences(result, needed, target, table)
    for _ in range(_PASSES):
        if not wrong:
            break
        result = with_masks(result, [()], needed, wrong, table)
        wrong = _differences(result, needed, target, table)
    for key, (had, has) in wrong.items():
        unit = _unit(root, key)
        if unit.network is not None:
            continue  # a layer in it is refused
        context.log.refuse("mask", unit, _refusal(unit, had, has, context))
    _tell_changes(root, result, context)
    return _without_unused(result)


def _with_unattended(
    root: Unit,
    needed: Mapping[CallKey, Used],
    context: ConversionContext,
    table: MaskTable,
) -> Unit:
    """
    Return the model without mask arguments, and with operations that keep the source's results for
    the fully masked steps of attention layers.
    """
    result = _without_arguments(root)
    if root.network is None:
        return result
    releases = (context.source_release, context.target.release)
    source_results: dict[CallKey, str | None] = {
        (scope, unit.name, 0): _given_unattended(
            root, scope, unit, needed[scope, unit.name, 0], context
        )
        for scope, unit in differing_attentions(root.network, needed, releases, table)
    }
    selected = {key: word for key, word in source_results.items() if word is not None}
    result, done = with_selections(result, selected, needed, table)
    for key in source_results:
        if key not in done:
            unit = _unit(root, key)
            context.log.refuse("mask", unit, _refusal_of_rows(unit, context))
    return result


def _with_softmaxes(
    root: Unit,
    result: Unit,
    needed: Mapping[CallKey, Used],
    context: ConversionContext,
    table: MaskTable,
) -> tuple[Unit, dict[CallKey, Used]]:
    """
    Return the model with operations that keep the source's results for the fully masked rows of
    Softmax layers, and the masks that calls still need.
    """
    zeros = gives_zeros(context.source_release)
    if zeros == gives_zeros(context.target.release) or not any(map(is_softmax, walk(root))):
        return result, dict(needed)
    softmaxes = {key for key, masks in needed.items() if masks and is_softmax(_unit(root, key))}
    softmax_masks = {key: needed[key] for key in softmaxes}
    result, written = with_softmaxes(result, softmax_masks, table, zeros=zeros)
    for key in sorted(softmaxes - written):
        unit = _unit(root, key)
        context.log.refuse("mask", unit, _refusal_of_softmax(unit))
    settled = softmaxes - written if zeros else softmaxes
    return result, _without(needed, frozenset(settled))


def _without(needed: Mapping[CallKey, Used], calls: frozenset[CallKey]) -> dict[CallKey, Used]:
    """Return what calls compute with, some of which need no masks any more."""
    return {key: frozenset() if key in calls else masks for key, masks in needed.items()}


def _given_unattended(
    root: Unit, scope: Scope, unit: Unit, masks: Used, context: ConversionContext
) -> str | None:
    """
    Return what an attention computes in the source for its fully masked steps; None if that cannot
    be written for the target.
    """
    around = [
        _unit(root, (scope[:end], scope_part.rpartition(":")[0], 0))
        for end, scope_part in enumerate(scope)
    ]
    if not context.crosses or any(len(outer_unit.calls) > 1 for outer_unit in around):
        return None
    arguments = named_arguments(unit, unit.calls[0])
    result = fully_masked_result(unit, arguments, context.source_release)
    return result.value if result is not None and can_select(unit, masks, result.value) else None


def _differences(
    root: Unit, needed: Mapping[CallKey, Used], release: str, table: MaskTable
) -> dict[CallKey, tuple[Used, Used]]:
    """Return the calls that use other masks than they need: the needed and the used masks."""
    if root.network is None:
        return {}
    used = MaskFlow(root.network, release, table).used
    differing = {
        key: (masks, used.get(key, frozenset()))
        for key, masks in needed.items()
        if masks != used.get(key, frozenset())
    }
    computing = {key for key in differing if _unit(root, key).network is None}
    scopes = {scope for scope, _, _ in computing}
    around = {scope[:end] for scope in scopes for end in range(1, len(scope) + 1)}
    return {
        (scope, name, number): masks
        for (scope, name, number), masks in differing.items()
        if (scope, name, number) in computing or (*scope, f"{name}:{number}") in around
    }


def _without_arguments(unit: Unit) -> Unit:
    """Return a model without mask arguments in the calls of built-in layers."""
    if unit.network is None:
        return unit
    units = tuple(
        replace(
            _without_arguments(member),
            calls=tuple(
                Call(
                    args=call.args,
                    kwargs={
                        key: value for key, value in call.kwargs.items() if key not in EXPLICIT
                    },
                )
                for call in member.calls
            )
            if not member.custom
            else member.calls,
        )
        for member in unit.network.units
    )
    return replace(unit, network=replace(unit.network, units=units))


def _unit(root: Unit, key: CallKey) -> Unit:
    """Return the layer of a call."""
    scope, name, _ = key
    unit = root
    for part in (*(scope_part.rpartition(":")[0] for scope_part in scope), name):
        if unit.network is not None:
            unit = unit.network.unit(part)
    return unit


def _refusal(unit: Unit, had: Used, has: Used, context: ConversionContext) -> str:
    what = f"{unit.path} ({unit.class_name}) uses "
    before, after = (
        "no mask" if not masks else f"the mask of {_words(masks)}" for masks in (had, has)
    )
    return (
        f"{what}{before} in {release_name(context.source_release)}, but {after} in "
        f"{release_name(context.target.release)}, and no argument changes this; disable the "
        "mask (mask_zero=False), or pass the mask as an argument in the source"
    )


def _refusal_of_rows(unit: Unit, context: ConversionContext) -> str:
    return (
        f"{unit.path} ({unit.class_name}) may have fully masked steps that affect an output "
        f"and have different values in {release_name(context.source_release)} and "
        f"{release_name(context.target.release)}; set dropout to 0 and do not return attention "
        "scores, or remove the padding from its output"
    )


def _refusal_of_softmax(unit: Unit) -> str:
    return (
        f"{unit.path} (Softmax) uses a mask that the conversion cannot add to its model, and "
        "releases treat fully masked rows differently; move the layer to a functional model that "
        "is called once, or remove the mask from its input"
    )


def _words(masks: Used) -> str:
    return f"{len(masks)} of its inputs" if len(masks) > 1 else "its input"


def _tell_changes(before: Unit, after: Unit, context: ConversionContext) -> None:
    """Log the layers whose calls have changed, with the reason for their masks."""
    old = {(unit.path, unit.name): unit for unit in walk(before) if unit.role is not Role.OPERATION}
    for unit in walk(after):
        previous = old.get((unit.path, unit.name))
        if previous is None or previous.calls == unit.calls:
            continue
        is_given = any(key in GIVEN_MASKS for call in unit.calls for key in call.kwargs)
        text = (
            f"its mask becomes a call argument because {release_name(context.target.release)} "
            "would use a different mask"
            if is_given
            else (
                "its mask is no longer a call argument because "
                f"{release_name(context.target.release)} propagates it with the tensor"
            )
        )
        context.log.change("mask", unit, text)


def _without_unused(unit: Unit) -> Unit:
    """Return a model without mask operations that nothing uses."""
    if unit.network is None:
        return unit
    network = replace(
        unit.network, units=tuple(_without_unused(member) for member in unit.network.units)
    )
    return replace(unit, network=network if network.is_chain else prune(network, is_mask_operation))
