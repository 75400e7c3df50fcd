"""
The policies of quantized layers that attention layers create.

Keras quantizes each projection of an attention layer, but does not write the policies of the
projections (keras 3.3 to 3.15), so no release loads the file. The stored variables show the mode of
each projection: the dtype of the kernel, and the number of variables after kernel and bias.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

from policytool.model.layer_policies import keras_path
from policytool.releases import policy
from policytool.releases.dtypes import is_float
from policytool.releases.layer_classes import layer_facts
from policytool.releases.layer_variables import LayerBuild, slots, variable_shape
from policytool.releases.policy import Policy, PolicyMap
from policytool.releases.releases import KERAS3, newest
from policytool.support.errors import PolicyNameError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from policytool.formats.document import Tensor
    from policytool.model.loaded_model import LoadedModel
    from policytool.releases.output_shapes import Shape

_BLOCK: Final = 128
"""The default block size of Keras 3.14 and later."""

_BLOCK_VARIABLES: Final = 3
"""The number of variables of int4 with blocks besides kernel and bias: scale, zero and group."""

_FLOAT8_VARIABLES: Final = 6
_HISTORY: Final = 1024
"""The default length of the history of largest magnitudes of float8."""

_INTEGER: Final = "int8"
"""The stored dtype of kernels in both integer modes; a byte holds two values of int4."""


def policy_maps(loaded: LoadedModel) -> Iterator[tuple[int, tuple[tuple[str, str], ...]]]:
    """
    Yield each attention layer with quantized projections but without a quantized policy, and the
    Keras path and the mode of each quantized projection.
    """
    for index, own_policy in loaded.own_policies.items():
        facts = layer_facts(loaded.sites[index].class_name)
        if not facts.makes_projections or loaded.is_saved_object:
            continue
        if isinstance(own_policy, Policy) and own_policy.quantization is None:
            modes = _modes(loaded, index)
            if modes:
                yield index, modes


def _modes(loaded: LoadedModel, index: int) -> tuple[tuple[str, str], ...]:
    """
    Return the Keras path and the mode of each quantized projection of a layer; empty if any mode is
    unclear.
    """
    site = loaded.sites[index]
    config = site.config or {}
    created = slots(site.class_name, newest(KERAS3).id, config) or ()
    build = LayerBuild(config=config, inputs=loaded.stored.shapes.inputs(index))
    kernels = {
        "/".join(slot.within): variable_shape(site.class_name, slot, build)
        for slot in created
        if slot.name == "kernel"
    }
    counts = Counter("/".join(slot.within) for slot in created)
    modes: list[tuple[str, str]] = []
    for child in loaded.children[index]:
        attribute = loaded.sites[child].attribute
        tensors = loaded.placed.sources.get(child, ())
        if attribute not in kernels or not tensors:
            continue
        if len(tensors) != counts[attribute] or not is_float(tensors[0].dtype):
            mode = _mode(tensors, counts[attribute], kernels[attribute])
            if mode is None:
                return ()
            modes.append((keras_path(loaded.sites[child]), mode))
    return tuple(modes)


def _mode(tensors: Sequence[Tensor], unquantized: int, expected: Shape | None) -> str | None:
    """
    Return the quantization mode of the variables of a projection; None if it is unclear.

    :param unquantized: the number of variables without quantization
    :param expected: the shape of the kernel without quantization
    """
    kernel, added_count = tensors[0], len(tensors) - unquantized
    if added_count == _FLOAT8_VARIABLES and kernel.dtype != _INTEGER:
        return "float8"
    if kernel.dtype != _INTEGER or kernel.shape is None:
        return None
    if added_count == 1 and expected is not None and None not in expected:
        return "int8" if kernel.shape == tuple(expected) else "int4"
    if added_count == _BLOCK_VARIABLES:
        groups, rows = tensors[-2].shape, tensors[-1].shape
        if groups and rows and groups[0] == -(-rows[0] // _BLOCK):
            return f"int4/{_BLOCK}"
    return None


def quantized_map(base: Policy, modes: Sequence[tuple[str, str]]) -> PolicyMap | None:
    """
    Return a policy map with a policy as its default and a quantized policy for each projection;
    None if a mode or policy is unknown.
    """
    try:
        entries = tuple(
            (
                path,
                policy.quantized_policy(
                    mode, base.name, amax_history_length=_HISTORY if mode == "float8" else None
                ),
            )
            for path, mode in modes
        )
    except PolicyNameError:
        return None
    return PolicyMap(default=base, policies=entries)
