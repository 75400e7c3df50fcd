"""
The fields of ``inspect``, of which JSON, CSV, Parquet and the table of layers consist.

A new column is a field, and its name in ``ROW_COLUMNS`` or its field in ``LAYER_TABLE``.
"""

from __future__ import annotations

from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from policytool.model.model import Source
from policytool.model.tree import MODEL_CLASSES
from policytool.releases import dtypes
from policytool.releases.dtypes import HALVES
from policytool.releases.layer_classes import layer_facts
from policytool.releases.policy import GLOBAL_SOURCE
from policytool.reports.fields import (
    CODE,
    COUNT,
    DTYPE,
    DTYPES,
    FLAG,
    INTEGER,
    OPTIONAL_TEXT,
    POSITIVE,
    SENTENCE,
    TEXT,
    CellType,
    Field,
    Record,
    Report,
    Type,
    choice,
    choice_of,
    fields_of,
    items,
    mapping,
    nullable,
    streamed_list,
)
from policytool.reports.page import Cell, Column, Tone
from policytool.reports.rows import row_columns, row_values
from policytool.reports.shared_fields import (
    ADDRESS,
    FORMAT,
    LOSS_SCALE,
    PATH_TEXT,
    RELEASE_VERDICT,
    WRITER,
    WRITTEN_BY_TEXT,
    StoredLossScale,
    failures_field,
)
from policytool.reports.words import loss_scale_words
from policytool.support.text.jsontext import ABSENT

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from policytool.commands.inspect import SelectedInspection
    from policytool.formats.document import Observation, Signature, TracedOp
    from policytool.model.model import Layer, Model, Optimizer, Summary, Variable
    from policytool.releases.policy import Quantization
    from policytool.reports.layout import View


def dtype_words(layer: Layer, name: str | None) -> str:
    """Return a dtype of a layer; if the file has none, what determines it."""
    return name or (GLOBAL_SOURCE if layer.source is Source.GLOBAL else "?")


def _policy_cell(layer: Layer) -> Cell:
    tone = _dtypes_tone(layer) if layer.policy else Tone.DIM
    return Cell(text=dtype_words(layer, layer.policy), tone=tone)


def _dtypes_tone(layer: Layer) -> Tone:
    """Return the tone of a layer's policy: mixed and 16-bit policies are emphasized."""
    is_mixed = layer.compute_dtype != layer.variable_dtype
    return (
        Tone.MIXED
        if is_mixed and layer.compute_dtype not in {None, "float32"}
        else _dtype_tone(layer.compute_dtype)
    )


def _dtype_tone(dtype: str | None) -> Tone:
    return Tone.HALF if dtype in HALVES else Tone.PLAIN


def _dtype_source_cell(layer: Layer) -> Cell:
    """
    Return the cell with the source of a layer's dtypes; empty if the file declares them, or if
    they come from the global policy, which the policy column shows.
    """
    is_plain = layer.source in {Source.DECLARED, Source.GLOBAL}
    return Cell(text="" if is_plain else layer.source.value, tone=Tone.DIM)


def has_other_traced_dtype(layer: Layer) -> bool:
    """
    Return whether a layer has traced ops, none of which has the compute dtype of its policy. Models
    compute nothing themselves, and the ops of op layers have the dtypes of their inputs, so both
    are left out.
    """
    is_judged = layer.class_name not in MODEL_CLASSES and not layer.opaque
    return (
        is_judged
        and bool(layer.traced_dtypes)
        and dtypes.is_float(layer.compute_dtype)
        and layer.compute_dtype not in layer.traced_dtypes
    )


def _traced_cell(layer: Layer) -> Cell:
    return Cell(
        text=", ".join(layer.traced_dtypes),
        tone=Tone.CAUTION if has_other_traced_dtype(layer) else Tone.PLAIN,
    )


def _stored_cell(layer: Layer) -> Cell:
    stored = ", ".join(stored_dtypes(layer))
    return Cell(
        text=stored if stored != layer.variable_dtype else "",
        tone=Tone.CAUTION if _has_other_stored_dtype(layer) else Tone.PLAIN,
    )


def _has_other_stored_dtype(layer: Layer) -> bool:
    """Return whether variables are stored in another dtype than the policy's variable dtype."""
    floats = {variable.dtype for variable in layer.variables if dtypes.is_float(variable.dtype)}
    return (
        dtypes.is_float(layer.variable_dtype)
        and layer.quantization is None
        and bool(floats - {layer.variable_dtype})
    )


def stored_dtypes(layer: Layer) -> list[str]:
    """Return the dtypes in which the layer's variables are stored."""
    return list(dict.fromkeys(variable.dtype for variable in layer.variables))


def _notes_cell(layer: Layer) -> Cell:
    tone = Tone.CAUTION if has_other_traced_dtype(layer) else Tone.DIM
    return Cell(text="; ".join(_notes(layer)), tone=tone)


def _notes(layer: Layer) -> Iterator[str]:
    """Yield notes on a layer in addition to its policy and dtypes."""
    if has_other_traced_dtype(layer):
        yield "graph differs"
    if layer.loss_scale is not None and not layer.loss_scale_default:
        yield f"loss scale {loss_scale_words(layer.loss_scale)}"
    if layer.quantization is not None:
        yield "quantized"
    if layer.opaque:
        is_op = layer_facts(layer.class_name).is_op_layer
        yield "TensorFlow function" if is_op else "custom code"
    if layer.autocast is False and layer.class_name not in MODEL_CLASSES:
        yield "no autocast"
    if layer.also_at:
        yield "also " + ", ".join(layer.also_at)


def _loss_scale(holder: Layer | Optimizer) -> StoredLossScale | None:
    if holder.loss_scale is None:
        return None
    return StoredLossScale(holder.loss_scale, getattr(holder, "loss_scale_default", False))


_OP: Final[Record[TracedOp]] = Record(
    "",
    (
        Field("op", TEXT, "The type of the op."),
        Field("dtype", TEXT, "The dtype in which it computes."),
        Field("count", POSITIVE, "Number of such ops."),
        Field(
            "amp",
            nullable(choice("allow", "infer", "deny", "clear")),
            "The list of automatic mixed precision that has the op.",
        ),
    ),
)
_OPS: Final = items(_OP)
_OPS_TEXT: Final = (
    "Graph ops that are on the automatic mixed precision lists or multiply int8, by name and dtype."
)

VARIABLE: Final[Record[Variable]] = Record(
    "",
    (
        Field("name", TEXT, "The name of the variable."),
        Field(
            "shape",
            nullable(items(Type({"type": "integer", "minimum": -1}))),
            "Null if unknown; -1 for an unknown dimension.",
        ),
        Field("dtype", DTYPE, "The dtype in which the variable is stored."),
    ),
)

_QUANTIZATION: Final[Record[Quantization]] = Record(
    "",
    (
        Field("mode", TEXT, "The quantization mode."),
        Field("source", TEXT, "The policy of the layer before it was quantized."),
        Field(
            "amax_history_length",
            INTEGER,
            "Set only for float8, if the file contains it.",
            value=lambda quantization: (
                ABSENT
                if quantization.amax_history_length is None
                else quantization.amax_history_length
            ),
            is_optional=True,
        ),
    ),
)

PATH: Final[Field[Layer]] = Field(
    "path",
    TEXT,
    "Names from the root to the layer, joined by /. A / in a name is written as ~1.",
    column=Column(title="layer", minimum=12, is_name=True),
)
TRACED: Final[Field[Layer]] = Field(
    "traced_dtypes",
    DTYPES,
    "The float dtypes of the layer's ops in the graph of a SavedModel; empty if the file has no "
    "functions.",
    column=Column(title="traced", priority=2, minimum=16),
    cell=_traced_cell,
    condition="if the file has a graph",
)


def _count_text(count: int | None) -> str:
    return "?" if count is None else f"{count:,}"


def _shape_text(layer: Layer) -> str:
    return shape_text(layer.output_shape) if layer.output_shape is not None else ""


def shape_text(sizes: Iterable[int | None]) -> str:
    """Return a shape, with a question mark for each size that is not fixed."""
    return f"({', '.join('?' if size is None else str(size) for size in sizes)})"


PARAMETERS: Final[Field[Layer]] = Field(
    "parameters",
    nullable(COUNT),
    "The number of parameters of the layer itself, without the layers in it: those of its stored "
    "variables, or else those that it creates. Null if unknown.",
    column=Column(title="parameters"),
    cell=lambda layer: Cell(text=_count_text(layer.parameters)),
)
_OUTPUT_SHAPE: Final[Field[Layer]] = Field(
    "output_shape",
    nullable(items(nullable(COUNT))),
    "The shape of the output, with the batch; the first output if the layer has several. Null if "
    "unknown; sizes that are not fixed or not known are null.",
    column=Column(title="output shape", priority=8),
    cell=lambda layer: Cell(text=_shape_text(layer)),
    condition="if the terminal is wide enough",
)
SIZES: Final = frozenset({PARAMETERS.name, _OUTPUT_SHAPE.name})
"""The columns that grow from block to block of a model."""

COMPUTE: Final[Field[Layer]] = Field(
    "compute_dtype",
    nullable(DTYPE),
    "The compute dtype of the policy; null if unknown.",
    column=Column(title="compute"),
    cell=lambda layer: Cell(
        text=dtype_words(layer, layer.compute_dtype),
        tone=_dtype_tone(layer.compute_dtype) if layer.compute_dtype else Tone.DIM,
    ),
    condition="always",
)

LAYER: Final[Record[Layer]] = Record(
    "layer",
    (
        PATH,
        Field("also_at", items(TEXT, uniqueItems=True), "The other paths of a shared layer."),
        Field("name", TEXT, "The name of the layer, without its parents."),
        Field(
            "class_name",
            OPTIONAL_TEXT,
            "The class of the layer; null if the file stores only variables.",
            column=Column(title="class", priority=5, minimum=12, is_name=True, is_last=True),
            cell=lambda layer: Cell(text=layer.class_name or "", tone=Tone.DIM),
            condition="if the terminal is wide enough",
        ),
        Field("registered_name", OPTIONAL_TEXT, "The name under which the class is registered."),
        Field(
            "policy",
            OPTIONAL_TEXT,
            "The policy; null if unknown, or if the program that loads the model sets it, which "
            "the table shows as `(global)`.",
            column=Column(title="policy", priority=6, minimum=14),
            cell=_policy_cell,
            condition="if the terminal is wide enough",
        ),
        Field(
            "effective_policy",
            TEXT,
            "The policy that `from_preset` of KerasHub gives to the layer of a preset if it is "
            "called without `dtype`: a policy, `(global)` for the global policy, or both, joined "
            "by `or`, if the code of the layer decides. Only for presets.",
            value=lambda layer: layer.effective_policy or ABSENT,
            is_optional=True,
            column=Column(title="effective", priority=5, minimum=14),
            cell=lambda layer: Cell(text=layer.effective_policy or ""),
            condition="for KerasHub presets",
        ),
        COMPUTE,
        Field(
            "variable_dtype",
            nullable(DTYPE),
            "The variable dtype of the policy; null if unknown.",
            column=Column(title="variable"),
            cell=lambda layer: Cell(
                text=dtype_words(layer, layer.variable_dtype),
                tone=_dtype_tone(layer.variable_dtype) if layer.variable_dtype else Tone.DIM,
            ),
            condition="always",
        ),
        Field(
            "source",
            choice_of(Source),
            "The source of the dtypes: declared in the file, the default of the release that "
            "wrote it, the global policy at load time, or unknown.",
            column=Column(title="source", priority=4),
            cell=_dtype_source_cell,
            condition="if it is `default` or `unknown`",
        ),
        Field("loss_scale", LOSS_SCALE, "Null without a loss scale.", value=_loss_scale),
        Field("quantization", nullable(_QUANTIZATION), "Null if the layer is not quantized."),
        Field(
            "deprecated",
            FLAG,
            "Whether the policy is in a format that current releases no longer write.",
        ),
        Field("autocast", nullable(FLAG), "Null if the file format does not store it."),
        Field(
            "opaque",
            FLAG,
            "Whether the class is custom, which means that its code determines its dtypes.",
        ),
        TRACED,
        Field("traced_ops", _OPS, _OPS_TEXT),
        Field(
            "inputs",
            items(TEXT, uniqueItems=True),
            "The paths of the layers whose outputs the layer uses, which are the connections of "
            "the graph.",
        ),
        PARAMETERS,
        _OUTPUT_SHAPE,
        Field("variables", items(VARIABLE), "The stored variables."),
        Field(
            "address",
            nullable(ADDRESS),
            "The location of the dtype in the file; null if the file does not contain it.",
        ),
    ),
)


STORED: Final[Field[Layer]] = Field(
    "stored_dtypes",
    items(DTYPE, cell=CellType.WORDS),
    "The dtypes of the stored variables.",
    value=stored_dtypes,
    column=Column(title="stored", priority=1, minimum=16),
    cell=_stored_cell,
    condition="if they differ from the variable dtype",
)
_VARIABLES: Final[Field[Layer]] = Field(
    "variables",
    COUNT,
    "The number of stored variables.",
    value=lambda layer: len(layer.variables),
    column=Column(title="variables"),
    cell=lambda layer: Cell(text=str(len(layer.variables))),
)
_TOTALS: Final[Record[Layer]] = Record(
    "",
    (
        _VARIABLES,
        PARAMETERS,
        Field(
            "bytes",
            COUNT,
            "The size of the stored variables in bytes.",
            value=lambda layer: sum(variable.bytes for variable in layer.variables),
        ),
        STORED,
    ),
)
"""The columns about a layer's variables, which do not have separate rows."""

NOTES: Final[Field[Layer]] = Field(
    "notes",
    TEXT,
    "Loss scale, quantization, custom code, disabled autocast, other paths of a shared layer, "
    "`graph differs`.",
    column=Column(title="notes", priority=3, minimum=16, is_beneath=True),
    cell=_notes_cell,
    condition="if there are any",
)


LAYER_TABLE: Final = (
    PATH,
    *LAYER.select("class_name", "policy", "effective_policy", "compute_dtype", "variable_dtype"),
    STORED,
    TRACED,
    *LAYER.select("source"),
    PARAMETERS._replace(
        column=Column(title="parameters", priority=7),
        cell=lambda layer: Cell(
            text="" if layer.parameters == 0 else _count_text(layer.parameters)
        ),
        condition="if the terminal is wide enough",
    ),
    _OUTPUT_SHAPE,
    NOTES,
)
"""The columns of the table of layers; the cell of the first is the label in the tree."""

STORED_TABLE: Final = (
    PATH._replace(column=Column(title="layer or scope", minimum=12, is_name=True)),
    STORED._replace(column=Column(title="stored")),
    _VARIABLES,
    PARAMETERS,
    TRACED._replace(column=Column(title="traced", priority=1)),
)
"""The columns for files that say no more of their layers than their variables and ops."""

_SHAPES: Final = mapping(nullable(items(nullable(COUNT))))
_SHAPES_TEXT: Final = (
    "Map of argument names to shapes, in which sizes that are not fixed are null. A shape is null "
    "if its number of dimensions is not fixed."
)

_SIGNATURE: Final[Record[Signature]] = Record(
    "",
    (
        Field("name", TEXT, "The name of the signature."),
        Field("inputs", mapping(DTYPE), "Map of argument names to dtypes."),
        Field("outputs", mapping(DTYPE), "Map of argument names to dtypes."),
        Field("input_shapes", _SHAPES, _SHAPES_TEXT),
        Field("output_shapes", _SHAPES, _SHAPES_TEXT),
        Field(
            "compute_dtypes",
            DTYPES,
            "The float dtypes of its ops; empty if the graph could not be read.",
        ),
        Field("cast_dtypes", DTYPES, "Float dtypes to which values are only cast, and back."),
        Field(
            "calls_python",
            FLAG,
            "Whether it calls Python, so that it runs only in the process that wrote it.",
        ),
        Field("ops", _OPS, _OPS_TEXT),
    ),
)
_SUMMARY: Final[Record[Summary]] = Record(
    "",
    (
        Field("layers", COUNT, "Number of layers."),
        Field("parameters", COUNT, "Number of stored parameters."),
        Field("bytes", COUNT, "Size of the stored variables in bytes."),
        Field(
            "policies",
            mapping(POSITIVE),
            "Map of policies to the number of layers that have them.",
        ),
    ),
)
_OBSERVATION: Final[Record[Observation]] = Record(
    "",
    (
        Field("code", CODE),
        Field("message", SENTENCE, "What is unusual."),
        Field(
            "where",
            OPTIONAL_TEXT,
            "The layer path, HDF5 group or archive member that the observation is about.",
        ),
    ),
)
_OPTIMIZER: Final[Record[Optimizer]] = Record(
    "",
    (
        Field("class_name", TEXT, "The class, without any loss-scaling wrapper."),
        Field("loss_scale", LOSS_SCALE, "Null without a loss scale.", value=_loss_scale),
    ),
)

_MODEL: Final[Record[Model]] = Record(
    "",
    (
        Field("path", TEXT, PATH_TEXT),
        Field("format", FORMAT, "The format of the model."),
        Field("writer", WRITER, "The versions and the backend that the file records."),
        Field("optimizer", nullable(_OPTIMIZER), "Null if the file contains no optimizer."),
        Field("signatures", items(_SIGNATURE), "The signatures of a SavedModel."),
        Field(
            "summary",
            _SUMMARY,
            "Totals for all layers of the file, including layers that are not shown.",
        ),
        Field("observations", items(_OBSERVATION), "Unusual properties of the file."),
        Field("written_by", OPTIONAL_TEXT, WRITTEN_BY_TEXT, value=attrgetter("generation")),
        Field(
            "releases",
            items(RELEASE_VERDICT),
            "The verdict of each checked release; empty for files that no release loads directly.",
            value=attrgetter("loaders"),
        ),
    ),
)


class ListedModel(NamedTuple):
    """A model, and the layers to show."""

    model: Model
    layers: tuple[Layer, ...]


MODEL: Final[Record[ListedModel]] = Record(
    "model",
    (
        *fields_of("model", _MODEL.select("path", "format", "writer")),
        Field(
            "layers",
            items(LAYER),
            "Every layer once, in model order, starting with the model itself.",
        ),
        *fields_of("model", _MODEL.fields[3:]),
    ),
)


def model_values(model: Model, layers: tuple[Layer, ...]) -> dict[str, Any]:
    """Return the entry of a model in the JSON report, with the layers to show."""
    return MODEL.values(ListedModel(model, layers))


REPORT: Final[Report[SelectedInspection]] = Report(
    "inspect",
    1,
    "Layers and dtype policies of saved models. Additions keep the version number; any other "
    "change increases it. Dtypes have their Keras names; values that the file does not contain "
    "are null.",
    (
        Field(
            "models",
            streamed_list(MODEL),
            "Models in the order of the inputs.",
            value=lambda selected: (ListedModel(*listed) for listed in selected.shown()),
        ),
        failures_field()._replace(value=attrgetter("inspection.failures")),
    ),
)

ROW_COLUMNS: Final = (
    *row_columns(_MODEL, ("path", "format", "written_by"), "model."),
    *row_columns(
        LAYER,
        (
            *("path", "also_at", "name", "class_name", "registered_name"),
            *("policy", "compute_dtype", "variable_dtype", "source"),
            *("loss_scale.kind", "loss_scale.value", "loss_scale.initial"),
            *("loss_scale.growth_steps", "loss_scale.multiplier", "loss_scale.default"),
            *("quantization.mode", "quantization.source", "quantization.amax_history_length"),
            *("deprecated", "autocast", "opaque", "traced_dtypes"),
        ),
    ),
    *row_columns(_TOTALS, ("variables", "parameters", "bytes", "stored_dtypes")),
    *row_columns(LAYER, ("address.part", "address.pointer", "effective_policy")),
)
"""The columns of CSV and Parquet, one row for each layer; later releases add columns at the end."""

_ROW_MODEL: Final[Record[Model]] = Record("", _MODEL.select("path", "format", "written_by"))


def rows(model: Model, layers: Iterable[Layer]) -> Iterator[list[Any]]:
    """Yield the values of each layer, in the order of ``ROW_COLUMNS``."""
    of_model = _ROW_MODEL.values(model)
    for layer in layers:
        values = {"model": of_model, **LAYER.values(layer), **_TOTALS.values(layer)}
        yield row_values(ROW_COLUMNS, values)


def every_row(selected: SelectedInspection, _view: View) -> Iterator[list[Any]]:
    """Yield the values of each layer to show."""
    for model, layers in selected.shown():
        yield from rows(model, layers)
