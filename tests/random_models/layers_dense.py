"""Dense layers, activations and normalizations."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from tests.random_models.steps import Step

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tests.random_models.drawing import Draw
    from tests.random_models.steps import Maker, Value


def _dense(draw: Draw, value: Value) -> Step | None:
    if not value.rank or value.channels is None:
        return None
    units = draw.units()
    config = {
        "units": units,
        "activation": draw.activation(),
        "use_bias": draw.chance(0.85),
        **draw.parts("kernel", "bias"),
    }
    return Step(what="Dense", config=config, shape=(*value.shape[:-1], units))


def _einsum_dense(draw: Draw, value: Value) -> Step | None:
    if value.rank not in {1, 2} or value.channels is None:
        return None
    units, heads = draw.units(), draw.whole(1, 3)
    if value.rank == 1:
        equation, shape, bias = "ab,bc->ac", (units,), "c"
        return Step(
            what="EinsumDense",
            config={"equation": equation, "output_shape": units, "bias_axes": bias},
            shape=shape,
        )
    if draw.chance(0.5):
        config: dict[str, Any] = {"equation": "abc,cd->abd", "bias_axes": draw.pick(("d", None))}
        inner: tuple[int | None, ...] = (value.shape[0], units)
    else:
        config = {"equation": "abc,cde->abde", "bias_axes": "de"}
        inner = (value.shape[0], heads, units)
    config = {**config, "output_shape": list(inner), "activation": draw.activation()}
    return Step(what="EinsumDense", config=config, shape=inner)


def _activation(draw: Draw, value: Value) -> Step:
    return Step(
        what="Activation", config={"activation": draw.activation() or "relu"}, shape=value.shape
    )


def _plain(what: str, **options: tuple[Any, ...]) -> Maker:
    """Return a maker of a layer that keeps the shape; of each option one value is drawn."""

    def make(draw: Draw, value: Value) -> Step:
        config = {name: draw.pick(values) for name, values in options.items()}
        return Step(
            what=what,
            config={name: item for name, item in config.items() if item is not None},
            shape=value.shape,
        )

    return make


def _prelu(draw: Draw, value: Value) -> Step | None:
    if not value.rank:
        return None
    shared = [axis + 1 for axis, size in enumerate(value.shape) if size is None]
    if value.rank > 1 and not shared and draw.chance(0.4):
        shared = [1]
    if len(shared) == value.rank:
        return None
    return Step(what="PReLU", config={"shared_axes": shared} if shared else {}, shape=value.shape)


def _softmax(draw: Draw, value: Value) -> Step | None:
    if not value.rank:
        return None
    axis: Any = draw.pick((-1, -1, 1))
    return Step(what="Softmax", config={"axis": axis}, shape=value.shape)


def _batch_normalization(draw: Draw, value: Value) -> Step | None:
    if value.channels is None:
        return None
    config = {
        "momentum": draw.pick((0.99, 0.9)),
        "epsilon": draw.pick((0.001, 1e-5)),
        "center": draw.chance(0.85),
        "scale": draw.chance(0.85),
        **draw.parts("beta", "gamma"),
    }
    if value.rank == 3 and value.shape[0] is not None and draw.chance(0.15):
        config["axis"] = 1
    return Step(what="BatchNormalization", config=config, shape=value.shape)


def _layer_normalization(draw: Draw, value: Value) -> Step | None:
    if value.channels is None:
        return None
    config: dict[str, Any] = {"epsilon": draw.pick((0.001, 1e-6)), "center": draw.chance(0.85)}
    if value.rank > 1 and value.shape[-2] is not None and draw.chance(0.15):
        config["axis"] = [-2, -1]
    return Step(what="LayerNormalization", config=config, shape=value.shape)


def _group_normalization(draw: Draw, value: Value) -> Step | None:
    if value.rank < 2 or value.channels is None or None in value.shape:
        return None
    groups = [number for number in (1, 2, 4) if value.channels % number == 0]
    return Step(
        what="GroupNormalization",
        config={"groups": draw.pick(groups), "epsilon": draw.pick((0.001, 1e-5))},
        shape=value.shape,
    )


def _spectral(draw: Draw, value: Value) -> Step | None:
    if not draw.keras3:  # tf_keras 2.21 cannot build its own
        return None
    inner = _dense(draw, value)
    if inner is None:
        return None
    layer = {"class": "Dense", "config": dict(inner.config)}
    return Step(what="SpectralNormalization", config={"layer": layer}, shape=inner.shape)


def _dropout(draw: Draw, value: Value) -> Step | None:
    noise: Any = [None, *(1 for _ in value.shape)] if draw.chance(0.1) else None
    return Step(
        what="Dropout",
        config={"rate": 0.3, "noise_shape": noise, "seed": draw.pick((None, 7))},
        shape=value.shape,
    )


def _spatial_dropout(_: Draw, value: Value) -> Step | None:
    if value.rank not in {2, 3, 4}:
        return None
    return Step(what=f"SpatialDropout{value.rank - 1}D", config={"rate": 0.2}, shape=value.shape)


MAKERS: Final[Mapping[str, Maker]] = {
    "Dense": _dense,
    "EinsumDense": _einsum_dense,
    "Activation": _activation,
    "ReLU": _plain("ReLU", max_value=(None, 6.0), negative_slope=(0.0, 0.1), threshold=(0.0, 0.2)),
    "LeakyReLU": _plain("LeakyReLU"),
    "ELU": _plain("ELU", alpha=(1.0, 0.7)),
    "PReLU": _prelu,
    "Softmax": _softmax,
    "BatchNormalization": _batch_normalization,
    "LayerNormalization": _layer_normalization,
    "GroupNormalization": _group_normalization,
    "UnitNormalization": _plain("UnitNormalization"),
    "Dropout": _dropout,
    "SpatialDropout": _spatial_dropout,
    "GaussianNoise": _plain("GaussianNoise", stddev=(0.1, 0.5)),
    "GaussianDropout": _plain("GaussianDropout", rate=(0.1, 0.5)),
    "AlphaDropout": _plain("AlphaDropout", rate=(0.1, 0.5)),
    "ActivityRegularization": _plain("ActivityRegularization", l1=(0.0, 0.1), l2=(0.0, 0.1)),
}
RARE: Final[Mapping[str, Maker]] = {"SpectralNormalization": _spectral}
