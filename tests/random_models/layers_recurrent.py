"""Recurrent layers, their cells, and wrappers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from tests.random_models import layers_conv, layers_dense
from tests.random_models.steps import Step, Value, window_length

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tests.random_models.description import Shape
    from tests.random_models.drawing import Draw
    from tests.random_models.steps import Maker

_CLASSES: Final = ("LSTM", "GRU", "SimpleRNN")
_MERGES: Final = (*("concat",) * 4, *("sum", "mul", "ave") * 2, None)


def _cell_config(draw: Draw, what: str) -> dict[str, Any]:
    """Return the arguments that a layer and its cell both have."""
    config: dict[str, Any] = {"units": draw.units(), **draw.parts("kernel", "bias")}
    if draw.chance(0.2):
        config["activation"] = draw.pick(("relu", "sigmoid", "tanh"))
    if draw.chance(0.2):
        config["use_bias"] = False
    if draw.chance(0.15):
        config["dropout"] = 0.2
    if draw.chance(0.1):
        config["recurrent_dropout"] = 0.2
    if what != "SimpleRNN" and draw.chance(0.06):
        config["recurrent_activation"] = "hard_sigmoid"
    if what == "LSTM" and draw.chance(0.1):
        config["unit_forget_bias"] = False
    if what == "GRU" and draw.chance(0.25):
        config["reset_after"] = False
    return config


def recurrent_config(draw: Draw, value: Value, what: str, *, sequences: bool) -> dict[str, Any]:
    """Return the arguments of a recurrent layer."""
    config = {**_cell_config(draw, what), "return_sequences": sequences}
    if draw.chance(0.12):
        config["go_backwards"] = True
    if value.shape[0] is not None and draw.chance(0.12):
        config["unroll"] = True
    if draw.chance(0.08):
        config["zero_output_for_mask"] = True
    return config


def _is_sequence(value: Value) -> bool:
    return value.rank == 2 and value.channels is not None


def _result(value: Value, units: int, *, sequences: bool) -> Shape:
    return (value.shape[0], units) if sequences else (units,)


def _recurrent(draw: Draw, value: Value) -> Step | None:
    if not _is_sequence(value):
        return None
    what, sequences = draw.pick(_CLASSES), draw.chance(0.6)
    config = recurrent_config(draw, value, what, sequences=sequences)
    states = 0
    if draw.chance(0.15):
        config["return_state"] = True
        states = 2 if what == "LSTM" else 1
    return Step(
        what=what,
        config=config,
        shape=_result(value, config["units"], sequences=sequences),
        several=1 + states,
    )


def _rnn(draw: Draw, value: Value) -> Step | None:
    if not _is_sequence(value):
        return None
    cells: list[dict[str, Any]] = []
    for _ in range(draw.pick((1, 1, 2, 3))):
        what = draw.pick(_CLASSES)
        cells.append({"class": f"{what}Cell", "config": _cell_config(draw, what)})
    sequences = draw.chance(0.6)
    units = cells[-1]["config"]["units"]
    config: dict[str, Any] = {
        "cell": cells[0] if len(cells) == 1 else cells,
        "return_sequences": sequences,
    }
    if len(cells) > 1 and draw.chance(0.5):
        config["cell"] = {"class": "StackedRNNCells", "config": {"cells": cells}}
    return Step(what="RNN", config=config, shape=_result(value, units, sequences=sequences))


def _bidirectional(draw: Draw, value: Value) -> Step | None:
    if not _is_sequence(value):
        return None
    what, sequences = draw.pick(_CLASSES), draw.chance(0.6)
    config = recurrent_config(draw, value, what, sequences=sequences)
    merge = draw.pick(_MERGES)
    wrapper: dict[str, Any] = {
        "layer": {"class": what, "config": config},
        "merge_mode": merge,
    }
    if draw.chance(0.2):
        backwards = {**config, "go_backwards": not config.get("go_backwards", False)}
        wrapper["backward_layer"] = {"class": what, "config": backwards}
    units = config["units"] * (2 if merge == "concat" else 1)
    return Step(
        what="Bidirectional",
        config=wrapper,
        shape=_result(value, units, sequences=sequences),
        several=1 if merge else 2,
    )


def _time_distributed(draw: Draw, value: Value) -> Step | None:
    if value.rank not in {2, 3, 4}:
        return None
    inner = Value(ref="", shape=value.shape[1:])
    makers: list[Maker] = [layers_dense.MAKERS["Dense"], layers_dense.MAKERS["BatchNormalization"]]
    if inner.rank in {2, 3}:
        makers += [layers_conv.MAKERS["Conv"], layers_conv.MAKERS["DepthwiseConv"]]
    if inner.rank == 2:
        makers.append(_recurrent_alone)
    step = draw.pick(makers)(draw, inner)
    if step is None:
        return None
    layer = {"class": step.what, "config": dict(step.config)}
    return Step(
        what="TimeDistributed", config={"layer": layer}, shape=(value.shape[0], *step.shape)
    )


def _recurrent_alone(draw: Draw, value: Value) -> Step | None:
    if not _is_sequence(value):
        return None
    units = draw.units()
    return Step(what=draw.pick(_CLASSES), config={"units": units}, shape=(units,))


def _conv_lstm(draw: Draw, value: Value) -> Step | None:
    if value.rank not in {3, 4} or value.channels is None:
        return None
    filters, sequences = draw.pick((2, 3)), draw.chance(0.5)
    known = [size for size in value.shape[1:-1] if size is not None]
    window, padding = draw.whole(1, min(3, *known, 3)), draw.pick(("same", "valid"))
    if len(known) < value.rank - 2:
        if draw.keras3:
            return None
        padding = "same"
    config: dict[str, Any] = {
        "filters": filters,
        "kernel_size": window,
        "padding": padding,
        "return_sequences": sequences,
        **draw.parts("kernel", "bias"),
    }
    if draw.chance(0.8):
        config["recurrent_activation"] = "sigmoid"
    shape = tuple(window_length(size, window, 1, padding) for size in value.shape[1:-1])
    head = (value.shape[0],) if sequences else ()
    return Step(what=f"ConvLSTM{value.rank - 2}D", config=config, shape=(*head, *shape, filters))


MAKERS: Final[Mapping[str, Maker]] = {
    "Recurrent": _recurrent,
    "RNN": _rnn,
    "Bidirectional": _bidirectional,
    "TimeDistributed": _time_distributed,
    "ConvLSTM": _conv_lstm,
}
