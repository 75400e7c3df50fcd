"""Values in the words of people."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from policytool.formats import REWRITTEN
from policytool.releases.policy import Dynamic, Fixed
from policytool.releases.releases import LOADERS, get
from policytool.reports._traced import contradictions

if TYPE_CHECKING:
    from collections.abc import Sequence

    from policytool.model.model import Model, Verdict

_FAMILIES: Final = (("tf_keras", "tf_keras "), ("keras", "Keras "), ("tf", "TF "))


def attention(model: Model) -> list[str]:
    """Return what the reader should know or do, most pressing first."""
    deprecated = sum(layer.deprecated for layer in model.layers)
    found = contradictions(model)
    if deprecated:
        layers = (
            f"{deprecated} "
            f"layer{'s spell their policies' if deprecated != 1 else ' spells its policy'} as "
            "Keras 2 did"
        )
        mends = ", which `policytool migrate` writes" if model.format in REWRITTEN else ""
        found.append(f"{layers}; Keras 3 reads the bare name instead{mends}")
    scaled = sum(
        layer.deprecated and layer.loss_scale is not None and not layer.loss_scale_default
        for layer in model.layers
    )
    if scaled:
        scales = (
            "policies have loss scales of their own"
            if scaled != 1
            else "policy has a loss scale of its own"
        )
        found.append(f"{scaled} {scales}, which loaders from TF 2.4 on drop without a word")
    return found + [observation.message for observation in model.observations]


def generation_words(generation: str | None) -> str:
    """Return a generation as people say it: ``TF 2.3 to 2.4``, ``Keras 3.4 and later``."""
    if generation is None:
        return "unknown generation"
    for prefix, words in _FAMILIES:
        if generation.startswith(prefix):
            rest = generation.removeprefix(prefix)
            return words + (
                f"{rest[:-1]} and later" if rest.endswith("+") else rest.replace("-", " to ")
            )
    return generation


def loss_scale_words(scale: Dynamic | Fixed | None) -> str:
    """Return a loss scale in words; nothing for none."""
    match scale:
        case Fixed(value=value):
            return f"fixed {value:g}"
        case Dynamic() if scale == Dynamic():
            return "dynamic"
        case Dynamic():
            multiplier = (
                "" if scale.multiplier == Dynamic().multiplier else f", times {scale.multiplier:g}"
            )
            return f"dynamic from {scale.initial:g}, {scale.growth_steps} steps{multiplier}"
    return ""


def bytes_words(count: int) -> str:
    """Return a number of bytes in the unit that keeps it readable."""
    size = float(count)
    for unit in ("bytes", "KiB", "MiB", "GiB"):
        if size < 1024 or unit == "GiB":  # noqa: PLR2004  # binary units
            break
        size /= 1024
    return f"{count} bytes" if unit == "bytes" else f"{size:.1f} {unit}"


UNCOMPILED: Final = "uncompiled"
"""The label of the loaders that need ``compile=False``."""


def loader_lines(found: Sequence[Verdict]) -> list[tuple[str, str]]:
    """
    Return a label and a text for the loaders that take the file, for what leaves others open, for
    each reason why others refuse it, and for each why they take it with ``compile=False`` alone.
    """
    if not found:
        return []
    taking = [verdict.loader for verdict in found if verdict.loads]
    refused = [(verdict.loader, verdict.reason) for verdict in found if verdict.reason is not None]
    left = [
        (verdict.loader, verdict.not_judged) for verdict in found if verdict.not_judged is not None
    ]
    nobody = [] if left else [("loads in", "none of the loaders that were tried")]
    return [
        *([("loads in", loader_ranges(taking))] if taking else nobody),
        *_by_reason("not judged", left),
        *_by_reason("refused by", refused),
        *_by_reason(UNCOMPILED, _untrained(found)),
    ]


def _untrained(found: Sequence[Verdict]) -> list[tuple[str, str]]:
    """Return the loaders that take the model and not its training configuration, and why."""
    return [
        (verdict.loader, said)
        for verdict in found
        if verdict.training is not None
        and (said := verdict.training.reason or verdict.training.doubt) is not None
    ]


def _by_reason(label: str, found: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
    """Return a line for each reason, with the loaders that have it."""
    reasons = dict.fromkeys(reason for _, reason in found)
    return [
        (label, f"{loader_ranges([loader for loader, said in found if said == reason])}: {reason}")
        for reason in reasons
    ]


def loader_ranges(loaders: Sequence[str], among: Sequence[str] = LOADERS) -> str:
    """
    Return loaders in words, neighbours of one library joined: ``TF 2.4 to 2.15, tf_keras 2.21``.

    :param among: all releases, of which neighbours stand side by side
    """
    parts: list[list[str]] = []
    for loader in loaders:
        last = parts[-1][-1] if parts else None
        if (
            last
            and among.index(loader) == among.index(last) + 1
            and get(loader).library == get(last).library
        ):
            parts[-1].append(loader)
        else:
            parts.append([loader])
    return ", ".join(
        generation_words(part[0]) + (f" to {get(part[-1]).version}" if len(part) > 1 else "")
        for part in parts
    )
