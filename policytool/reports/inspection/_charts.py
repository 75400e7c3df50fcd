"""The charts of ``inspect``: layers by compute dtype, and stored bytes by dtype."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from policytool.releases.dtypes import HALVES
from policytool.reports._words import bytes_words
from policytool.reports.inspection.fields import dtype_words
from policytool.reports.page import Bar, Bars, Tone

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from policytool.model.model import Layer


def charts(layers: Sequence[Layer]) -> Iterator[Bars]:
    """Yield the charts, but for those without a bar."""
    computing = Counter(
        dtype_words(layer, layer.compute_dtype) for layer in layers if layer.class_name is not None
    )
    stored = Counter[str]()
    for layer in layers:
        for variable in layer.variables:
            stored[variable.dtype] += variable.bytes
    if computing:
        yield _chart("Layers by compute dtype", computing, lambda count: f"{count:,}")
    if any(stored.values()):
        yield _chart("Stored bytes by dtype", stored, bytes_words)


def _chart(title: str, amounts: Mapping[str, int], words: Callable[[int], str]) -> Bars:
    return Bars(
        title=title,
        bars=tuple(
            Bar(
                label=dtype,
                value=amount,
                text=words(amount),
                tone=Tone.HALF if dtype in HALVES else Tone.PLAIN,
            )
            for dtype, amount in sorted(amounts.items(), key=lambda item: (-item[1], item[0]))
        ),
    )
