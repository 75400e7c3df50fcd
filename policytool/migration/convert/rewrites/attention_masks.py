"""
Masks that travel to a MultiHeadAttention: TF 2.10 and later and Keras 3 heed them, TF 2.4 to 2.9 do
not.

Read from ``_compute_attention_mask`` in keras/layers/attention/multi_head_attention.py, which came
with Keras 2.10; measured with TF 2.4 and Keras 3.15, whose outputs differ by a tenth of their size
for a padded batch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from policytool.migration.convert.rewrites._base import ConversionContext, Rewrite
from policytool.migration.convert.rewrites._mask_graph import MaskGraph, each_network
from policytool.migration.convert.traversal import references

if TYPE_CHECKING:
    from policytool.migration.convert.architecture import Argument, Network, Unit

_CLASS: Final = "MultiHeadAttention"
_CAUSAL: Final = "use_causal_mask"
"""An argument of its calls that came with the heeding of masks."""

_SINCE: Final = (2, 10)
_TENSORFLOW: Final = "tf"
_KERAS: Final = "keras2"


def _heeds(release: str) -> bool:
    """Return whether a release has a MultiHeadAttention heed masks that travel."""
    if release.startswith(_KERAS):
        return False
    _, is_tensorflow, version = release.rpartition(_TENSORFLOW)
    return (
        not is_tensorflow
        or "_" in version
        or tuple(int(part) for part in version.split(".")) >= _SINCE
    )


def _apply(root: Unit, situation: ConversionContext) -> Unit:
    if _heeds(situation.source_release) == _heeds(situation.target.loader):
        return root

    def check_masks(network: Network, graph: MaskGraph) -> Network:
        for unit in network.units:
            if (
                unit.class_name == _CLASS
                and not _heeds(situation.target.loader)
                and any(call.kwargs.get(_CAUSAL) for call in unit.calls)
            ):
                message = (
                    f"{unit.path} ({_CLASS}) is called with {_CAUSAL}, which "
                    f"{situation.target.loader} does not take: give it an attention_mask"
                )
                situation.log.refuse("call", unit, f"{message} in the source")
            if (
                unit.class_name == _CLASS
                and not unit.custom
                and any(graph.may_be_masked(one) for one in references(_call_arguments(unit)))
            ):
                source, target = situation.source_release, situation.target.loader
                heeding, other = (source, target) if _heeds(source) else (target, source)
                what = (
                    f"{unit.path} ({_CLASS}) is called with what may have a mask, which {heeding} "
                    f"heeds and {other} does not"
                )
                situation.log.refuse(
                    "mask",
                    unit,
                    f"{what}: make no mask (mask_zero=False), and give the layer an attention_mask "
                    "in the source",
                )
        return network

    return each_network(root, check_masks)


def _call_arguments(unit: Unit) -> Argument:
    """Return all that a layer is called with."""
    return [item for call in unit.calls for item in (*call.args, *call.kwargs.values())]


REWRITE: Final = Rewrite(
    name="attention-masks",
    applies=lambda situation: True,  # noqa: ARG005  # releases of Keras 2 differ
    apply=_apply,
)
