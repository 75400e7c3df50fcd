"""Attention of a sequence to itself, or to another one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from tests.random_models.steps import Step

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tests.random_models.drawing import Draw
    from tests.random_models.steps import Maker, Value


def _multi_head(draw: Draw, value: Value) -> Step | None:
    if value.rank != 2 or value.channels is None:
        return None
    heads = draw.whole(1, 3)
    config: dict[str, Any] = {"num_heads": heads, "key_dim": draw.whole(2, 4)}
    channels = value.channels
    if draw.chance(0.2):
        config["value_dim"] = draw.whole(2, 4)
    if draw.chance(0.15):
        channels = draw.units()
        config["output_shape"] = channels
    if draw.chance(0.15):
        config["use_bias"] = False
    if draw.chance(0.25):
        config["dropout"] = 0.1
    call: dict[str, Any] = {}
    if draw.chance(0.25):
        call["use_causal_mask"] = True
    scores = draw.chance(0.2)
    if scores:
        call["return_attention_scores"] = True
    return Step(
        what="MultiHeadAttention",
        config=config,
        call=call,
        shape=(value.shape[0], channels),
        copies=draw.pick((2, 2, 3)),
        spread=True,
        several=1 + scores,
    )


def _dot_attention(draw: Draw, value: Value) -> Step | None:
    if value.rank != 2 or value.channels is None:
        return None
    what = draw.pick(("Attention", "AdditiveAttention"))
    config: dict[str, Any] = {"use_scale": draw.chance(0.5)}
    if what == "Attention" and draw.chance(0.3):
        config["score_mode"] = "concat"
    if draw.chance(0.2):
        config["dropout"] = 0.1
    call: dict[str, Any] = {"use_causal_mask": True} if draw.chance(0.2) else {}
    scores = draw.chance(0.2)
    if scores:
        call["return_attention_scores"] = True
    return Step(
        what=what,
        config=config,
        call=call,
        shape=value.shape,
        copies=draw.pick((2, 2, 3)),
        several=1 + scores,
    )


def _grouped(draw: Draw, value: Value) -> Step | None:
    if value.rank != 2 or value.channels is None or not draw.keras3:
        return None
    config = {"num_query_heads": 4, "num_key_value_heads": draw.pick((1, 2)), "head_dim": 2}
    return Step(what="GroupQueryAttention", config=config, shape=value.shape, copies=2, spread=True)


MAKERS: Final[Mapping[str, Maker]] = {
    "MultiHeadAttention": _multi_head,
    "Attention": _dot_attention,
}
RARE: Final[Mapping[str, Maker]] = {"GroupQueryAttention": _grouped}
