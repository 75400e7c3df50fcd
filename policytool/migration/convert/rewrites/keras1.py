"""Models of Keras 1."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from policytool.migration.convert.architecture import ObjectKind, Role, Thing, Unit, map_units
from policytool.migration.convert.rewrites import _keras1_tables as tables
from policytool.migration.convert.rewrites import _keras1_weights as weights
from policytool.migration.convert.rewrites._base import ConversionContext, rewrite
from policytool.migration.convert.target import display_value
from policytool.model.tree import INPUT_CLASS
from policytool.releases import generations

if TYPE_CHECKING:
    from collections.abc import Mapping

    from policytool.migration.convert.architecture import Unit, Value
    from policytool.migration.convert.rewrites._base import ConversionContext


_KERNELS: Final = frozenset(
    {
        *(
            "Convolution2D",
            "AtrousConvolution2D",
            "Convolution3D",
            "Deconvolution2D",
            "SeparableConvolution2D",
            "ConvLSTM2D",
        ),
        *("MaxPooling2D", "AveragePooling2D", "MaxPooling3D", "AveragePooling3D"),
    }
)
"""Classes that slide something over an image, whose channels may stand first."""

_SEQUENCE_PADS: Final = ("left_pad", "right_pad")
_IMAGE_PADS: Final = ("top_pad", "bottom_pad", "left_pad", "right_pad")


def _penalty(key: str, value: Mapping[str, Value]) -> Thing | None:
    """
    Return a regulariser or constraint of Keras 1, which stands as its name beside its arguments;
    None for one that is gone.
    """
    name = value.get("name")
    if key.endswith("_constraint"):
        kept = {
            ("max_value" if item == "m" else item): value[item] for item in value if item != "name"
        }
        constraint = {"MaxNorm": "MaxNorm", "NonNeg": "NonNeg", "UnitNorm": "UnitNorm"}.get(
            str(name)
        )
        return (
            Thing(kind=ObjectKind.CONSTRAINT, class_name=constraint, config=kept)
            if constraint is not None
            else None
        )
    if name not in {"WeightRegularizer", "ActivityRegularizer", "L1L2Regularizer", "L1L2"}:
        return None
    return Thing(
        kind=ObjectKind.REGULARIZER,
        class_name="L1L2",
        config={"l1": value.get("l1", 0.0), "l2": value.get("l2", 0.0)},
    )


def _pad_config(config: dict[str, Value], class_name: str) -> dict[str, Value]:
    """
    Return a config whose padding of an image stands as Keras 2 has it: by axis, each with its two
    sides.
    """
    padding = config.get("padding")
    if class_name == "ZeroPadding1D" and isinstance(padding, dict):
        config["padding"] = [padding.get(side, 0) for side in _SEQUENCE_PADS]
    if class_name == "ZeroPadding2D":
        sides = (
            [padding.get(side, 0) for side in _IMAGE_PADS] if isinstance(padding, dict) else padding
        )
        if isinstance(sides, list) and len(sides) == len(_IMAGE_PADS):
            config["padding"] = [sides[:2], sides[2:]]
    return config


def _deconvolution(
    config: dict[str, Value], unit: Unit, context: ConversionContext
) -> dict[str, Value]:
    """
    Return the config of a Conv2DTranspose that gives what a Deconvolution2D says that it gives.

    Keras 2 works the size out by itself: n steps give n * stride (``same``), or that and what a
    kernel is longer than a stride (``valid``). Another size is refused; ``output_padding``, which
    could say it, is dropped by Keras 3.0 to 3.12.
    """
    shape = config.pop("output_shape", None)
    axes = slice(2, 4) if config.get("data_format") == "channels_first" else slice(1, 3)
    sizes = shape[axes] if isinstance(shape, list) else []
    strides, kernel = config.get("strides"), config.get("kernel_size")
    fits = isinstance(strides, list) and isinstance(kernel, list) and len(sizes) == len(strides)
    for size, step, side in zip(
        sizes,
        strides if isinstance(strides, list) else (),
        kernel if isinstance(kernel, list) else (),
        strict=False,
    ):
        whole = isinstance(size, int) and isinstance(step, int) and isinstance(side, int)
        fits = (
            fits
            and whole
            and (size - (max(side - step, 0) if config.get("padding") == "valid" else 0)) % step  # type: ignore[operator]
            == 0
        )
    if not fits:
        context.log.refuse(
            "argument",
            unit,
            f"{unit.path} (Deconvolution2D) has an output_shape that differs from the one that "
            "Conv2DTranspose computes from its input",
        )
    return config


_NO_VALUE: Final = (None, 0, 0.0)


def theano(context: ConversionContext) -> bool:
    """
    Return whether Theano wrote the file's variables.

    Keras 1 does not say its backend; the variables of TensorFlow alone have names that end in
    ``:0``.
    """
    writer = context.loaded.document.writer.backend
    tensors = context.loaded.document.tensors
    return writer == "theano" or (
        writer is None
        and bool(tensors)
        and not any(tensor.path[-1].endswith(":0") for tensor in tensors or ())
    )


@rewrite(
    applies=lambda context: context.loaded.generation is generations.keras1.GENERATION,
)
def keras1(root: Unit, context: ConversionContext) -> Unit:
    """
    Converts Keras 1 classes, keys, values and stored variables to the Keras 2 format.

    What Keras 1 computed and later releases do not is refused: merges by a function, batch
    normalisation by batches, Theano's placing of padding.
    """
    reverses = theano(context)

    def change(unit: Unit) -> Unit:
        if unit.custom or unit.role is not Role.LAYER:
            return unit
        return (
            _refuse(unit, context)
            if unit.class_name in tables.GONE
            else _layer(unit, context, reverses=reverses)
        )

    return map_units(root, change)


def _refuse(unit: Unit, context: ConversionContext) -> Unit:
    context.log.refuse(
        "class",
        unit,
        f"{unit.path} is a Keras 1 {unit.class_name}, which later releases do not support",
    )
    return unit


def _layer(unit: Unit, context: ConversionContext, *, reverses: bool) -> Unit:
    class_name = (
        tables.MERGES.get(str(unit.config.get("mode")))
        if unit.class_name == "Merge"
        else tables.CLASSES.get(unit.class_name, unit.class_name)
    )
    if class_name is None or (unit.class_name == "Merge" and "layers" in unit.config):
        how = (
            "of separate models"
            if "layers" in unit.config
            else f"with mode {display_value(str(unit.config.get('mode')))}"
        )
        context.log.refuse(
            "class",
            unit,
            f"{unit.path} is a Keras 1 Merge {how}, which later releases do not support",
        )
        return unit
    _judge(unit, context, reverses=reverses)
    stored = (
        {variable.name: variable.shape for variable in context.loaded.layers[unit.site].variables}
        if unit.site is not None
        else {}
    )
    shapes = {name: shape for name, shape in stored.items() if shape is not None}
    config = _merge(unit) if unit.class_name == "Merge" else _config(unit, context)
    if class_name != unit.class_name:
        context.log.change("class", unit, f"{unit.class_name} of Keras 1 becomes {class_name}")
    changed = replace(unit, class_name=class_name, config=config)
    if context.loaded.document.tensors is None:
        return changed
    layout = weights.weight_layout(unit.class_name, unit.config, shapes, reverses=reverses)
    return replace(
        changed,
        layout={
            name: recipe
            for name, recipe in layout.items()
            if name != "bias" or config.get("use_bias", True) is not False
        },
    )


def _judge(unit: Unit, context: ConversionContext, *, reverses: bool) -> None:
    """Refuse what later releases compute otherwise, and tell what training loses."""
    config, log = unit.config, context.log
    if unit.class_name == "BatchNormalization" and config.get("mode") not in _NO_VALUE:
        log.refuse(
            "argument",
            unit,
            f"{unit.path} (BatchNormalization) has mode "
            f"{display_value(str(config['mode']))}, but later releases support only mode 0",
        )
    if config.get("border_mode") not in {None, "valid", "same"}:
        log.refuse(
            "argument",
            unit,
            f"{unit.path} ({unit.class_name}) has border_mode "
            f"{display_value(str(config['border_mode']))}, which later releases do not support",
        )
    if unit.class_name == "Embedding" and config.get("dropout") not in _NO_VALUE:
        log.caution(
            "training",
            unit,
            f"{unit.path} (Embedding) has a dropout of {config['dropout']}, which later releases "
            "do not support; it only affects training",
        )
    if config.get("dim_ordering") == "th" and unit.class_name in _KERNELS:
        log.note(
            "channels-first",
            unit,
            f"{unit.path} uses the channels_first data format, which TensorFlow supports only on "
            "GPUs",
        )
    if reverses and not _same_in_tensorflow(unit):
        log.refuse(
            "argument",
            unit,
            f"{unit.path} ({unit.class_name}) was trained with Theano, whose padding "
            "differs from TensorFlow's",
        )


def _same_in_tensorflow(unit: Unit) -> bool:
    """
    Return whether Theano pads a layer as TensorFlow does: not at all, or half of an odd kernel on
    each side.
    """
    config = unit.config
    if unit.class_name in {"Deconvolution2D", "ConvLSTM2D", "SeparableConvolution2D"}:
        return False
    if config.get("border_mode") != "same":
        return True
    size = [
        config[key]
        for keys in (("filter_length",), *tables.KERNEL_SIZES)
        for key in keys
        if key in config
    ]
    strides = config.get("subsample", config.get("subsample_length", 1))
    moves = strides if isinstance(strides, list) else [strides]
    return (
        bool(size)
        and all(isinstance(side, int) and side % 2 == 1 for side in size)
        and all(step == 1 for step in moves)
    )


def _merge(unit: Unit) -> dict[str, Value]:
    mode, config = unit.config["mode"], unit.config
    kept = {key: config[key] for key in ("trainable",) if key in config}
    if mode == "concat":
        return {**kept, "axis": config.get("concat_axis", -1)}
    return (
        {**kept, "axes": config.get("dot_axes", -1), "normalize": False} if mode == "dot" else kept
    )


def _config(unit: Unit, context: ConversionContext) -> dict[str, Value]:
    class_name, config = unit.class_name, unit.config
    keys = {**tables.KEYS, **tables.OWN_KEYS.get(class_name, {})}
    renamed: dict[str, Value] = {}
    for key, value in config.items():
        if key in tables.SAID_ELSEWHERE and not (class_name == "Embedding" and key == "input_dim"):
            continue
        if (class_name, key) in tables.UNUSED:
            continue
        renamed[keys.get(key, key)] = _value(unit, key, value, context)
    for together in tables.KERNEL_SIZES:
        if together[0] in config:
            renamed["kernel_size"] = [renamed.pop(key) for key in together]
    if "forget_bias_init" in config:
        renamed["unit_forget_bias"] = config["forget_bias_init"] == "one"
    if class_name == "GRU":
        renamed["reset_after"] = False
    if class_name == INPUT_CLASS and isinstance(config.get("input_dtype"), str):
        renamed["dtype"] = config["input_dtype"]
    if class_name == "Deconvolution2D":
        return _deconvolution(renamed, unit, context)
    return _pad_config(renamed, class_name)


def _value(unit: Unit, key: str, value: Value, context: ConversionContext) -> Value:
    if key in {"init", "inner_init"} or key.endswith("_init"):
        return _initializer(unit, value, context) if isinstance(value, str) else value
    if key.endswith(("_regularizer", "_constraint")) and isinstance(value, dict):
        penalty = _penalty(key, value)
        if penalty is None:
            context.log.refuse(
                "argument",
                unit,
                f"{unit.path} ({unit.class_name}) sets {key} to "
                f"{display_value(str(value.get('name')))}, which later releases do not support",
            )
        return penalty
    return tables.DATA_FORMATS.get(str(value), value) if key == "dim_ordering" else value


def _initializer(unit: Unit, name: str, context: ConversionContext) -> Value:
    if name not in tables.INITIALIZERS:
        context.log.refuse(
            "argument",
            unit,
            f"{unit.path} ({unit.class_name}) has the initializer {display_value(name)}, "
            "which Keras 1 does not have",
        )
        return name
    class_name, config = tables.INITIALIZERS[name]
    return Thing(kind=ObjectKind.INITIALIZER, class_name=class_name, config=dict(config))
