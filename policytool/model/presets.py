"""The policies that KerasHub gives to the layers of a preset when it loads the preset."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from policytool.formats import keras_hub
from policytool.formats.document import Observation
from policytool.formats.keras_archive import TASK
from policytool.formats.keras_hub import TASK_GROUP
from policytool.releases.policy import GLOBAL_SOURCE
from policytool.support.text.phrases import join_first

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from policytool.formats.document import Document
    from policytool.model.model import Layer
    from policytool.model.tree import Site

REPLACED: Final = "preset-policy"
"""The code of an observation about a stored policy that KerasHub replaces by the global policy."""

QUANTIZED: Final = "preset-quantized"
"""The code of an observation about a policy map that KerasHub replaces by the global policy."""

TASK_FAILS: Final = "preset-task"
"""The code of an observation about a task that does not load."""

# get_backbone_kwargs and _resolve_dtype in keras_hub/src/utils/preset_utils.py of 0.22.1 to 0.32.0
_QUANTIZED: Final = frozenset({"int8", "uint8"})
_SINCE: Final = "KerasHub 0.22 and later"


def is_preset(document: Document) -> bool:
    """Return whether a document is a KerasHub preset."""
    return document.format == keras_hub.FORMAT.document_format


def with_effective_policies(
    document: Document, layers: Sequence[Layer], sites: Sequence[Site]
) -> tuple[Layer, ...]:
    """Return the layers of a preset with the policies that they have after it is loaded."""
    is_kept = TASK in document.parts and any(layer.quantization for layer in layers)
    in_entries = _below_entries(sites)
    effective: list[Layer] = []
    for index, (layer, site) in enumerate(zip(layers, sites, strict=True)):
        policy = layer.policy or GLOBAL_SOURCE
        is_entry = site.parent is not None and site.entry is not None
        if not (is_kept or is_entry or policy == GLOBAL_SOURCE):
            policy = f"{policy} or {GLOBAL_SOURCE}" if index in in_entries else GLOBAL_SOURCE
        effective.append(replace(layer, effective_policy=policy))
    return tuple(effective)


def _below_entries(sites: Sequence[Site]) -> set[int]:
    """
    Return the layers that have a config other than that of the backbone, or are in such a layer,
    which may pass its policy on, as its code decides.
    """
    indices: set[int] = set()
    for index, site in enumerate(sites):
        if site.parent is not None and (site.entry is not None or site.parent in indices):
            indices.add(index)
    return indices


def about_loading(
    document: Document, layers: Sequence[Layer], sites: Sequence[Site]
) -> Iterator[Observation]:
    """Yield observations about the policies of a loaded preset, and of its task."""
    if TASK in document.parts:
        yield from _about_task(layers, sites)
    quantized = {index for index, layer in enumerate(layers) if layer.quantization is not None}
    if quantized:
        # the maps of other configs, such as those of the encoders of SigLIP, are kept
        if lost := len(quantized - _below_entries(sites)):
            counted = "1 quantized layer" if lost == 1 else f"{lost} quantized layers"
            kept = "the task keeps it; " if TASK in document.parts else ""
            yield Observation(
                code=QUANTIZED,
                message=f"{_SINCE} replace the policy map by the global policy if they load only "
                f"the backbone, which then fails at the {counted}; {kept}pass the stored map to "
                "from_preset as dtype to keep it",
            )
    elif layers[0].policy is not None:
        own = [
            layer.path
            for layer, site in zip(layers[1:], sites[1:], strict=True)
            if site.entry is not None and layer.policy is not None and _is_outermost(site, sites)
        ]
        kept = (
            f", but layers below {join_first(own)} may keep the policy in its config" if own else ""
        )
        yield Observation(
            code=REPLACED,
            message=replacement(layers[0].policy, kept),
        )


def _about_task(layers: Sequence[Layer], sites: Sequence[Site]) -> Iterator[Observation]:
    """Yield observations about why the task of a preset does not load."""
    quantized = [
        layer.path
        for layer, site in zip(layers, sites, strict=True)
        if (site.stored or ())[:1] == (TASK_GROUP,)
        and layer.quantization is None
        and any(variable.dtype in _QUANTIZED for variable in layer.variables)
    ]
    if quantized:
        yield Observation(
            code=TASK_FAILS,
            message=f"KerasHub 0.32 fails to load the task, because {join_first(quantized)} stores "
            "quantized weights, but no file has its policy; quantize only the backbone",
        )
    elif (layers[0].policy or "").startswith("mixed_"):
        yield Observation(
            code=TASK_FAILS,
            message=f"KerasHub 0.32 fails to load the task, because the backbone was saved in "
            f"{layers[0].policy}; pass dtype={layers[0].policy!r} to from_preset",
        )


def replacement(policy: str, kept: str = "") -> str:
    """Return the sentence that KerasHub replaces a policy, perhaps except in some layers."""
    return (
        f"{_SINCE} replace {policy} by the global policy{kept}; pass dtype={policy!r} to "
        "from_preset to keep it"
    )


def _is_outermost(site: Site, sites: Sequence[Site]) -> bool:
    """Return whether only the backbone is above a layer in the config."""
    return site.parent is not None and sites[site.parent].parent is None
