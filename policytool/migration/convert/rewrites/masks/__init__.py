"""
The masks of layers, and the results of layers at masked steps, converted for a release that
computes them differently: for merging layers, softmaxes, and attention layers with fully masked
steps.

If a step of an input is masked, Keras 3.4 and later use a factor of 1 for Multiply, and the values
of the other inputs for Maximum and Minimum; if all inputs are masked, Multiply returns 0
(``_merge_function`` in keras/src/layers/merging). The conversion adds operations before the layer
that compute these values.

Softmax of Keras 2, and of Keras 3 before 3.10, adds a large negative number where a mask is false,
so a fully masked row gets equal weights. Keras 3.10 and later return zeros where the mask is false
(``Softmax.call``; measured with all minor releases from 3.0 to 3.15 and tf_keras 2.21).

For fully masked steps, attention layers of Keras 2 and Keras 3 return averages; but Keras 3.10 and
later attend to nothing if the layer has dropout or returns its scores. A second call of the same
layer computes either result. Called on the mean of its values as a single step, it returns the
average of all steps, because each step has the same weight and the projection of a mean is the mean
of projections. Called on values without steps, it attends to nothing, and returns the bias of its
last projection.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from msgspec import structs

from policytool.migration.convert.architecture import (
    Role,
    Unit,
    is_attention,
    named_arguments,
    prune,
    walk,
)
from policytool.migration.convert.masks import (
    CAST,
    MaskTable,
    fully_masked_result,
    is_mask_operation,
    read_masks,
    rule_of,
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
from policytool.migration.convert.masks.fully_masked import attending_masks, differing_attentions
from policytool.migration.convert.rewrites._base import ConversionContext, rewrite
from policytool.migration.convert.rewrites.masks._writing import (
    MaskBuilder,
    change_networks,
    with_masks,
)
from policytool.migration.convert.tensor_facts import compute_dtype
from policytool.model.calls import Call, Reference, Slice
from policytool.releases.keras_operations import MODULES
from policytool.releases.policy import Policy
from policytool.releases.releases import KERAS3, family_of, is_since, release_name

if TYPE_CHECKING:
    from collections.abc import Mapping

    from policytool.migration.convert.masks import Scope
    from policytool.model.calls import Argument


_MERGES: Final = frozenset({"Multiply", "Maximum", "Minimum"})


def with_merged_values(
    root: Unit, needed: Mapping[CallKey, Used], release: str, table: MaskTable
) -> tuple[Unit, frozenset[CallKey]]:
    """
    Return a model with operations that replace the masks of merging layers whose masks a release
    ignores, and the calls that therefore need no masks any more.

    :param needed: the masks that each call computes with
    """

    def change(unit: Unit, builder: MaskBuilder) -> list[Unit]:
        """
        Mask the inputs of each call that needs it, and return the layer after the added operations.
        """
        calls = list(unit.calls)
        for number, call in enumerate(unit.calls):
            key = (builder.scope, unit.name, number)
            masks = needed.get(key, frozenset())
            changed = (
                _call_with_masked_inputs(unit, call, masks, release, builder) if masks else None
            )
            if changed is not None:
                calls[number] = changed
                builder.done.add(key)
        return [*builder.take(), replace(unit, calls=tuple(calls))]

    return change_networks(root, table, change)


def _call_with_masked_inputs(
    unit: Unit, call: Call, masks: Used, release: str, builder: MaskBuilder
) -> Call | None:
    """Return a call on inputs with the masks applied; None if operations cannot apply them."""
    first = next(iter(call.args), None)
    if unit.custom or unit.class_name not in _MERGES or not isinstance(first, list | tuple):
        return None
    tensors = [item for item in first if isinstance(item, Reference)]
    rule = rule_of(unit, named_arguments(unit, call), len(tensors), release)
    mask_by_place = dict(masks)
    masks_by_input = [mask_by_place.get(str(place)) for place in range(len(tensors))]
    dtype = compute_dtype(unit)
    if (
        len(tensors) < len(first)
        or rule is None
        or read_masks(rule, masks_by_input)
        or any(builder.dtype(tensor) != dtype for tensor in tensors)
    ):
        return None
    kept = [
        None if mask is None else _steps(builder, builder.add_mask(mask, unit), unit)
        for mask in masks_by_input
    ]
    if any(
        step is None and mask is not None for step, mask in zip(kept, masks_by_input, strict=True)
    ):
        return None
    change = _factors if unit.class_name == "Multiply" else _others
    merged: list[Argument] = [*change(builder, unit, tensors, kept)]
    return structs.replace(call, args=(merged, *call.args[1:]))


def _steps(builder: MaskBuilder, mask: Reference | None, user: Unit) -> Reference | None:
    """Return a mask of steps with an additional axis, along which it applies to all channels."""
    return None if mask is None else builder.operation("ExpandDims", user, (mask,), axis=-1)


def _factors(
    builder: MaskBuilder, unit: Unit, tensors: list[Reference], kept: list[Reference | None]
) -> list[Reference]:
    """
    Return the inputs of a product with 1 at masked steps. If all inputs are masked at a step, the
    result there is 0, because the first factor is.
    """
    build = builder.operation
    factors = [
        tensor
        if mask is None
        else build("Where", unit, (mask, tensor, build("OnesLike", unit, (tensor,))))
        for tensor, mask in zip(tensors, kept, strict=True)
    ]
    masks = [mask for mask in kept if mask is not None]
    if len(masks) < len(tensors):
        return factors
    first_mask = masks[0]
    for mask in masks[1:]:
        first_mask = build("LogicalOr", unit, (first_mask, mask))
    none = build("ZerosLike", unit, (tensors[0],))
    return [build("Where", unit, (first_mask, factors[0], none)), *factors[1:]]


def _others(
    builder: MaskBuilder, unit: Unit, tensors: list[Reference], kept: list[Reference | None]
) -> list[Reference]:
    """
    Return the last two values to compare: the result for all inputs but the last, and the last
    input. Masked inputs are replaced by the result for the others.
    """
    build = builder.operation
    result, mask = tensors[0], kept[0]
    pair = [result]
    for place, (tensor, kept_mask) in enumerate(zip(tensors[1:], kept[1:], strict=True)):
        if place:
            result = build(unit.class_name, unit, tuple(pair))
        masked_tensor = (
            tensor if kept_mask is None else build("Where", unit, (kept_mask, tensor, result))
        )
        result = result if mask is None else build("Where", unit, (mask, result, masked_tensor))
        mask = None if None in (mask, kept_mask) else build("LogicalOr", unit, (mask, kept_mask))
        pair = [result, masked_tensor]
    return pair


_FIRST_WITH_ZEROS: Final = "keras3.10"
_LARGE: Final = {"float16": -32752.0}
_LARGE_ELSE: Final = -1e9
"""The number that Keras 2 adds in other dtypes (``_large_compatible_negative`` in softmax.py)."""


def gives_zeros(release: str) -> bool:
    """Return whether a Softmax of a release returns zeros where a mask is false."""
    return family_of(release) == KERAS3 and is_since(release, _FIRST_WITH_ZEROS)


def with_softmaxes(
    root: Unit, needed: Mapping[CallKey, Used], table: MaskTable, *, zeros: bool
) -> tuple[Unit, frozenset[CallKey]]:
    """
    Return a model whose Softmax layers keep the source's results for fully masked rows, which the
    target computes differently, and the calls for which that could be written.

    :param needed: the masks that each call computes with
    :param zeros: whether the source computes zeros for fully masked rows
    """

    def change(unit: Unit, builder: MaskBuilder) -> list[Unit]:
        """
        Return a Softmax with operations that lower the masked scores before it, or write zeros
        after it.
        """
        calls = list(unit.calls)
        before: list[Unit] = []
        behind: list[Unit] = []
        for number, call in enumerate(unit.calls if is_softmax(unit) else ()):
            key = (builder.scope, unit.name, number)
            mask = _mask(unit, needed.get(key, frozenset()), builder)
            if mask is None or not isinstance(call.args[0], Reference):
                continue
            before += builder.take()
            if zeros:
                output = Reference(layer=unit.name, call=number)
                builder.stand_ins[output] = _zeroed(unit, output, mask, builder)
                behind += builder.take()
            else:
                calls[number] = Call(
                    args=(_lower_masked_scores(unit, call.args[0], mask, builder),)
                )
            builder.done.add(key)
        builder.keeping |= {operation.name for operation in behind}
        return [*before, *builder.take(), replace(unit, calls=tuple(calls)), *behind]

    return change_networks(root, table, change)


def _mask(unit: Unit, masks: Used, builder: MaskBuilder) -> Reference | None:
    """
    Return the tensor of the only mask of a call; None if there are several, or if it cannot be
    computed.
    """
    all_masks = [mask for _, mask in masks]
    return builder.add_mask(all_masks[0], unit) if len(all_masks) == 1 else None


def _zeroed(unit: Unit, output: Reference, mask: Reference, builder: MaskBuilder) -> Reference:
    """Return the output with zeros where a mask is false."""
    build = builder.operation
    kept = build(CAST, unit, (mask,), f"{MODULES}core", dtype="bool")
    return build("Where", unit, (kept, output, build("ZerosLike", unit, (output,))))


def _lower_masked_scores(
    unit: Unit, tensor: Reference, mask: Reference, builder: MaskBuilder
) -> Reference:
    """Return scores with a large negative number added where a mask is false."""
    build, dtype = builder.operation, compute_dtype(unit) or "float32"
    kept = build(CAST, unit, (mask,), f"{MODULES}core", dtype=dtype)
    excluded = build("Subtract", unit, (1.0, kept))
    return build(
        "Add", unit, (tensor, build("Multiply", unit, (excluded, _LARGE.get(dtype, _LARGE_ELSE))))
    )


_RANK: Final = 3

_UNHIDDEN: Final = "float64"
"""The dtype in which masks of Keras 2 do not hide scores, so the result is not an average."""

_NO_STEPS: Final = (Slice(), Slice(stop=0))
ZEROS: Final = "zeros"
"""The scores in releases that attend to nothing at fully masked steps."""


def can_select(unit: Unit, masks: Used, result: str) -> bool:
    """
    Return whether an attention's result for fully masked steps can be written with operations.

    :param result: the result, such as ``zeros``
    """
    policy = unit.config.get("dtype")
    arguments = named_arguments(unit, unit.calls[0])
    return (
        is_attention(unit)
        and len(unit.calls) == 1
        and all(isinstance(arguments.get(name), Reference) for name in ("query", "value"))
        and isinstance(policy, Policy)
        and (result == ZEROS or policy.compute_dtype != _UNHIDDEN)
        and _rank(unit) in (None, _RANK)
        and unit.config.get("attention_axes") in (None, [1])
        and attending_masks(unit.calls[0], masks) is not None
    )


def with_selections(
    root: Unit, results: Mapping[CallKey, str], needed: Mapping[CallKey, Used], table: MaskTable
) -> tuple[Unit, frozenset[CallKey]]:
    """
    Return a model in which some attention layers have other results for fully masked steps, and the
    calls for which that could be written.

    :param results: the results by call. A call is left as it is if its mask comes from outside a
        nested model, because the mask is not a tensor in that model.
    """

    def change(unit: Unit, builder: MaskBuilder) -> list[Unit]:
        """
        Return the units that replace an attention layer with two calls; otherwise the unit itself.
        """
        key = (builder.scope, unit.name, 0)
        replacements = (
            _units_of_two_calls(unit, needed[key], results[key], builder) if key in results else []
        )
        builder.done |= {key} if replacements else set()
        return replacements or [unit]

    return change_networks(root, table, change) if results else (root, frozenset())


def _units_of_two_calls(unit: Unit, masks: Used, result: str, builder: MaskBuilder) -> list[Unit]:
    """
    Return a layer that is called twice, with the operations around it; an empty list if its mask
    cannot be computed by operations.
    """
    arguments = named_arguments(unit, unit.calls[0])
    query, attending_mask = arguments["query"], attending_masks(unit.calls[0], masks)
    mask = (
        builder.attention_mask(attending_mask, query, None, unit)
        if isinstance(query, Reference) and attending_mask is not None
        else None
    )
    if mask is None:
        builder.take()
        return []
    second = _second_call(unit, arguments, result, builder)
    new_units = [*builder.take(), replace(unit, calls=(*unit.calls, second))]
    _select(unit, mask, result, builder)
    return [*new_units, *builder.take()]


def _second_call(
    unit: Unit, arguments: Mapping[str, Argument], result: str, builder: MaskBuilder
) -> Call:
    """Return a call without a mask on the mean of all values, or on no values for zeros."""
    values: dict[str, Argument] = {
        name: builder.operation("GetItem", unit, (tensor, _NO_STEPS))
        if result == ZEROS
        else builder.operation("Mean", unit, (tensor,), axis=[1], keepdims=True)
        for name in ("value", "key")
        if isinstance(tensor := arguments.get(name), Reference)
    }
    query = arguments["query"]
    copied = builder.copy(query, unit) if isinstance(query, Reference) else query
    return Call(args=(copied, values.pop("value")), kwargs=values)


def _select(unit: Unit, mask: Reference, result: str, builder: MaskBuilder) -> None:
    """Select the output of the second call for the fully masked steps."""
    build, selected = builder.operation, builder.stand_ins
    first, second = Reference(layer=unit.name), Reference(layer=unit.name, call=1)
    is_attended = build("Any", unit, (mask,), axis=-1, keepdims=True)
    selected[first] = build("Where", unit, (is_attended, first, second))
    builder.keeping.add(selected[first].layer)
    if unit.calls[0].kwargs.get("return_attention_scores"):
        scores = Reference(layer=unit.name, output=1)
        none = build("ZerosLike", unit, (scores,))
        masked_scores = (
            none if result == ZEROS else build("Softmax", unit, (none,), f"{MODULES}nn", axis=-1)
        )
        heads = build("ExpandDims", unit, (is_attended,), axis=1)
        selected[scores] = build("Where", unit, (heads, scores, masked_scores))
        builder.keeping |= {none.layer, selected[scores].layer}


def _rank(unit: Unit) -> int | None:
    """Return the number of axes of an attention's query; None if the file does not contain it."""
    build = unit.build or {}
    known = build.get("shapes_dict")
    shapes = {**build, **(known if isinstance(known, dict) else {}), **unit.config}
    shape = shapes.get("query_shape")
    return len(shape) if isinstance(shape, list | tuple) else None


_PASSES: Final = 3
"""The number of passes that write masks; a pass may remove a mask that reached a later layer."""


@rewrite(
    applies=lambda context: True,  # noqa: ARG005  # releases of one library differ too
)
def masks(root: Unit, context: ConversionContext) -> Unit:
    """
    Preserves masks: each call uses the same masks in the target as in the source.

    The rules by which tensors keep masks differ between releases
    (:mod:`policytool.migration.convert.masks.flow`). If a call in the target would use another
    mask, the mask is written into the graph: as the argument ``mask`` or ``attention_mask``,
    computed by operations, or removed by a copy of the input, which has no mask. Masks that Keras 3
    wrote as arguments are omitted with their operations if the tensors in the target have them.
    """
    if root.network is None or not has_masks(root):
        return root
    target, table = context.target.release, MaskTable()
    needed = MaskFlow(root.network, context.source_release, table, is_source=True).used
    result = _with_fully_masked_results(root, needed, context, table)
    result, merged = with_merged_values(result, needed, target, table)
    needed = _without(needed, merged)
    result, needed = _with_softmaxes(root, result, needed, context, table)
    wrong = _differences(result, needed, context, table)
    for _ in range(_PASSES):
        if not wrong:
            break
        result = with_masks(result, [()], needed, wrong, table)
        wrong = _differences(result, needed, context, table)
    for key, (source_masks, target_masks) in wrong.items():
        unit = _unit(root, key)
        if unit.network is not None:
            continue  # a layer in it is refused
        context.log.refuse("mask", unit, _refusal(unit, source_masks, target_masks, context))
    _log_changes(root, result, context)
    return _without_unused(result)


def _with_fully_masked_results(
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
        (scope, unit.name, 0): _fully_masked_result(
            root, scope, unit, needed[scope, unit.name, 0], context
        )
        for scope, unit in differing_attentions(root.network, needed, releases, table)
    }
    selected = {key: word for key, word in source_results.items() if word is not None}
    result, selected_calls = with_selections(result, selected, needed, table)
    for key in source_results:
        if key not in selected_calls:
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
    remaining = softmaxes - written if zeros else softmaxes
    return result, _without(needed, frozenset(remaining))


def _without(needed: Mapping[CallKey, Used], calls: frozenset[CallKey]) -> dict[CallKey, Used]:
    """Return the masks of calls, without those of calls that no longer need masks."""
    return {key: frozenset() if key in calls else masks for key, masks in needed.items()}


def _fully_masked_result(
    root: Unit, scope: Scope, unit: Unit, masks: Used, context: ConversionContext
) -> str | None:
    """
    Return the source's result for the fully masked steps of an attention; None if the target cannot
    compute it.
    """
    outer_units = [
        _unit(root, (scope[:end], scope_part.rpartition(":")[0], 0))
        for end, scope_part in enumerate(scope)
    ]
    if not context.crosses or any(len(outer_unit.calls) > 1 for outer_unit in outer_units):
        return None
    arguments = named_arguments(unit, unit.calls[0])
    result = fully_masked_result(unit, arguments, context.source_release)
    return result.value if result is not None and can_select(unit, masks, result.value) else None


def _differences(
    root: Unit, needed: Mapping[CallKey, Used], context: ConversionContext, table: MaskTable
) -> dict[CallKey, tuple[Used, Used]]:
    """Return the calls that use other masks than they need: the needed and the used masks."""
    if root.network is None:
        return {}
    release, drops_casts = context.target.release, context.drops_casts
    used = MaskFlow(root.network, release, table, drops_casts=drops_casts).used
    differing = {
        key: (masks, used.get(key, frozenset()))
        for key, masks in needed.items()
        if masks != used.get(key, frozenset())
    }
    computing = {key for key in differing if _unit(root, key).network is None}
    scopes = {scope for scope, _, _ in computing}
    outer_scopes = {scope[:end] for scope in scopes for end in range(1, len(scope) + 1)}
    return {
        (scope, name, number): masks
        for (scope, name, number), masks in differing.items()
        if (scope, name, number) in computing or (*scope, f"{name}:{number}") in outer_scopes
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


def _refusal(unit: Unit, source_masks: Used, target_masks: Used, context: ConversionContext) -> str:
    """Return the message for a layer that uses other masks in the target than in the source."""
    layer_words = f"{unit.path} ({unit.class_name}) uses "
    before, after = (
        "no mask" if not masks else f"the mask of {_words(masks)}"
        for masks in (source_masks, target_masks)
    )
    source, target = release_name(context.source_release), release_name(context.target.release)
    difference = (
        f"{before} in {source}, but {after} in {target}"
        if before != after
        else f"other masks of its inputs in {source} than in {target}"
    )
    return (
        f"{layer_words}{difference}, and no argument changes this; disable the mask "
        "(mask_zero=False), or pass the mask as an argument in the source"
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


def _log_changes(before: Unit, after: Unit, context: ConversionContext) -> None:
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
