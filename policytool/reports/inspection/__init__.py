"""
The results of ``inspect`` as reports: a page for people, JSON, CSV and Parquet.

The page says which current releases load the model and how to convert it, what the file is, its
layers, and what needs attention. What a graph computes in is compared with what its layers declare:
metadata and graph of a SavedModel are written together but read apart, as Keras loads the one and a
server runs the other. If somebody changed the policies afterwards, the signatures still compute as
they were traced.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from policytool.commands.inspect import ExportSummary, ModelExtras, SuggestedFix
from policytool.formats import TITLES, orbax
from policytool.formats.document import LOST_VALUES
from policytool.formats.saved_model import DAMAGE, MISSING, SLOTS
from policytool.model.model import Effect, Source
from policytool.model.signature_layers import is_default, layer_call, needs_tf_keras
from policytool.releases import dtypes
from policytool.releases.dtypes import HALVES
from policytool.releases.releases import CURRENT, EXPORTERS, release_name
from policytool.reports import layout
from policytool.reports.fields import table_cells, table_columns
from policytool.reports.inspection._layer_tree import has_only_weights, layer_table
from policytool.reports.inspection.fields import (
    COMPUTE,
    LAYER_TABLE,
    REPORT,
    ROW_COLUMNS,
    dtype_words,
    every_row,
    model_values,
    rows,
    shape_text,
)
from policytool.reports.page import (
    Bar,
    Bars,
    Block,
    Command,
    Fact,
    Facts,
    Figures,
    Graph,
    Notes,
    Page,
    Sentence,
    Tone,
    Verdict,
)
from policytool.reports.reporter import Reporter, json_reporter, reporters_for_people
from policytool.reports.rows import csv_reporter, parquet_reporter
from policytool.reports.words import (
    EFFECTS,
    FAILS,
    LOADS,
    OUTCOMES,
    UNKNOWN,
    bytes_words,
    failure_facts,
    generation_words,
    loader_lines,
    loader_ranges,
    loss_scale_words,
    many,
    migrate_words,
    training_lines,
)
from policytool.support.grouping import group_pairs
from policytool.support.patterns import selection
from policytool.support.text.phrases import join_and_count

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from policytool.commands.inspect import FittingArchitectures, SelectedInspection
    from policytool.formats.document import TracedOp
    from policytool.model.model import Layer, Model, Signature
    from policytool.reports.layout import View


_HALVES: Final = ("float16", "bfloat16")
"""
What is looked for on both sides; float32 proves nothing, because a mixed model computes its softmax
and its sums in it anyway.
"""

_LISTS: Final[Mapping[str | None, str]] = {
    "allow": "16 bits",
    "infer": "16 bits after ops in 16 bits",
    "deny": "stays as it is",
    "clear": "16 bits between ops in 16 bits",
    None: "unknown op, stays as it is",
}
"""
The effect of each list of automatic mixed precision on its ops, those first that move a model to 16
bits.

Source: tensorflow/core/grappler/optimizers/auto_mixed_precision_lists.h.
"""

_KINDS: Final = 4
"""Kinds of ops named of each list, the commonest first; a header is read, not searched."""


class Declared(Struct, frozen=True, kw_only=True):
    """The dtypes that a model's layers declare to compute in."""

    by_any: frozenset[str]
    by_layers_with_variables: frozenset[str]
    """Without those of layers that may leave no op behind: inputs, dropout, models."""


def declared_dtypes(model: Model) -> Declared:
    """Return the declared compute dtypes of a model's layers."""
    holding = [
        layer
        for layer in model.layers
        if any(dtypes.is_float(variable.dtype) for variable in layer.variables)
    ]
    return Declared(
        by_any=_compute_dtypes(model.layers), by_layers_with_variables=_compute_dtypes(holding)
    )


def contradiction(declared: Declared, signature: Signature) -> str | None:
    """
    Return how a signature contradicts its layers, as a part of a sentence; None if it does not, or
    if its graph was not read.

    It does if layers with variables declare a 16-bit dtype in which no op computes, or if ops
    compute in a 16-bit dtype that no layer declares. If no layer declares a dtype, nothing is
    compared.
    """
    computed = signature.compute_dtypes
    if not computed or not declared.by_any:
        return None
    unmet = [
        dtype
        for dtype in _HALVES
        if dtype in declared.by_layers_with_variables and dtype not in computed
    ]
    undeclared = [dtype for dtype in _HALVES if dtype in computed and dtype not in declared.by_any]
    clauses = [f"layers declare {' and '.join(unmet)}"] * bool(unmet) + [
        f"no layer declares {' or '.join(undeclared)}"
    ] * bool(undeclared)
    return " and ".join(clauses) or None


def computes_words(declared: Declared, signature: Signature) -> str:
    """
    Return the dtypes in which a signature computes, and any contradiction; empty if its graph was
    not read.
    """
    if not signature.compute_dtypes:
        return ""
    casts = " and ".join(signature.cast_dtypes)
    rounded = f"; values are cast to {casts} and back" if casts else ""
    return f"computes {_in_words(declared, signature)}{rounded}"


def contradictions(model: Model) -> list[str]:
    """Return a sentence for each way in which signatures contradict the layers."""
    declared = declared_dtypes(model)
    names_by_words = group_pairs(
        (_in_words(declared, signature), signature.name)
        for signature in model.signatures
        if contradiction(declared, signature)
    )
    return [
        (
            f"{', '.join(names)} {'compute' if len(names) > 1 else 'computes'} {words}: servers "
            "run the graph, regardless of the policies"
        )
        for words, names in names_by_words.items()
    ]


def ops_words(ops: Sequence[TracedOp]) -> str:
    """
    Return ops by the effect of TensorFlow's automatic mixed precision: ``12 MatMul in float32,
    3 Conv2D in float32 (mixed precision: 16 bits)``.
    """
    grouped = ((words, [op for op in ops if op.amp == amp]) for amp, words in _LISTS.items())
    return "; ".join(
        f"{_kinds(listed_ops)} (mixed precision: {words})"
        for words, listed_ops in grouped
        if listed_ops
    )


def _in_words(declared: Declared, signature: Signature) -> str:
    conflict = contradiction(declared, signature)
    *others, last = signature.compute_dtypes
    dtypes_said = f"{', '.join(others)} and {last}" if others else last
    return f"in {dtypes_said}" + (f", although {conflict}" if conflict else "")


def _compute_dtypes(layers: Iterable[Layer]) -> frozenset[str]:
    return frozenset(layer.compute_dtype for layer in layers if layer.compute_dtype)


def _kinds(ops: Iterable[TracedOp]) -> str:
    ordered = sorted(ops, key=lambda op: (-op.count, op.op, op.dtype))
    kind_texts = [f"{op.count} {op.op} in {op.dtype}" for op in ordered[:_KINDS]]
    further_count = sum(op.count for op in ordered[_KINDS:])
    return ", ".join([*kind_texts, f"{further_count} others"] if further_count else kind_texts)


_TONES: Final = {LOADS: Tone.GOOD}

_SIZES_WIDTH: Final = 130
"""Columns of a terminal from which the table has the sizes of layers; pipes have 120."""


def has_sizes(view: View) -> bool:
    """Return whether the page shows the output shapes and the numbers of parameters of layers."""
    return view.is_searchable or view.width >= _SIZES_WIDTH


def page(selected: SelectedInspection, view: View) -> Page:
    """Return the page, with a group for each model."""
    return Page(
        groups=tuple(
            tuple(_model(selected, model, layers, view)) for model, layers in selected.shown()
        ),
        failures=failure_facts(selected.inspection.failures),
    )


def _model(
    selected: SelectedInspection, model: Model, layers: Sequence[Layer], view: View
) -> Iterator[Block]:
    extras = selected.extras.get(model.path, ModelExtras())
    yield _verdict(model)
    if view.is_searchable:
        yield _figures(model)
    fix = extras.fix or SuggestedFix()
    if fix.arguments is not None:
        yield Command(label=_fix_label(fix), words=migrate_words(model.path, fix.arguments))
    yield from _architectures(extras.fits)
    facts = list(_facts(model, every_release=selected.selection.every_release))
    if exports := _export_words(extras.exports):
        facts.append(Fact(label="exports", text=exports))
    yield Facts(facts=tuple(facts))
    if view.is_searchable:
        yield from charts(layers)
        if drawing := _graph(layers):
            yield drawing
    if layers:
        yield layer_table(
            layers,
            variables=view.variables,
            sizes=has_sizes(view),
            whole=selected.is_selection,
        )
    else:
        yield Sentence(
            text=_no_layers(model, selected.selection.layer),
            tone=Tone.DIM,
        )
    if any(layer.source is Source.GLOBAL for layer in layers):
        yield Sentence(
            text="(global): not stored in the file; set by the program that loads it",
            tone=Tone.DIM,
        )
    sentences = attention(model)
    if fix.obstacle is not None:
        sentences.append(f"the conversion to Keras 3 was not planned: {fix.obstacle}")
    if sentences:
        yield Notes(texts=tuple(sentences), tone=Tone.CAUTION)


def _fix_label(fix: SuggestedFix) -> str:
    """Return the label of a command, with its effect, and with its result if that may exist."""
    parts = [EFFECTS[fix.effect]] if fix.effect is not Effect.UNCHANGED else []
    if fix.existing is not None:
        parts.append(f"{layout.file(fix.existing)} exists: it may be the result")
    return f"fix ({'; '.join(parts)})" if parts else "fix"


def _no_layers(model: Model, pattern: str | None) -> str:
    """Return why the table has no layers, with the paths that a pattern has to match."""
    if not model.layers:
        return "The file has no layers."
    if pattern is None:
        return "No layer is selected."
    path = model.layers[-1].path
    pattern = f".*{selection.escape(path.rpartition('/')[2])}"
    return f"No layer is selected. Paths are such as {path}; {pattern} matches it."


def _figures(model: Model) -> Figures:
    """Return the size of a model, and the number of releases that load it."""
    summary = model.summary
    loading = sum(verdict.loads for verdict in model.loaders)
    figures = [
        ("layers", f"{summary.layers:,}"),
        ("stored parameters", f"{summary.parameters:,}"),
        ("stored", bytes_words(summary.bytes)),
        *([("releases load it", f"{loading} of {len(model.loaders)}")] if model.loaders else []),
    ]
    return Figures(figures=tuple(Fact(label=label, text=text) for label, text in figures))


def _architectures(fits: FittingArchitectures | None) -> Iterator[Block]:
    """Yield the architectures that weights fit, with the command that joins them."""
    if fits is None:
        return
    label = f"fits {', '.join(map(layout.file, fits.names))}"
    if fits.command is None:
        yield Sentence(text=label)
    else:
        yield Command(label=label, words=migrate_words(fits.command[0], fits.command[1:]))


def _verdict(model: Model) -> Verdict:
    """
    Return the answer to whether the model can be used: code that runs when it is loaded, the
    programs that serve it, the releases that load it, why current ones do not, and which predict
    something else.
    """
    current = [verdict for verdict in model.loaders if verdict.loader in CURRENT]
    warning, serving = _code_warning(model), _serving(model)
    parts = [Sentence(text=warning, tone=Tone.BAD)] if warning else []
    if serving is not None:
        parts.append(serving)
    elif model.format == "savedmodel" and _defect(model) is None:
        parts.append(
            Sentence(text="no signature, which TF Serving and TFSMLayer need", tone=Tone.CAUTION)
        )
    if not current:
        if (defect := _defect(model)) is not None:
            parts.append(Sentence(text=defect, tone=Tone.BAD))
        parts = parts or [Sentence(text=totals(model)[0])]
        return Verdict(parts=tuple(parts), subject=model.path)
    among = [verdict.loader for verdict in model.loaders]
    loading = [verdict.loader for verdict in model.loaders if verdict.loads]
    lines = [("loads in", loader_ranges(loading, among), Tone.GOOD)] if loading else []
    newest_loads = current[-1].loads  # then it is no fault of the file that others fail
    is_usable = newest_loads or (serving is not None and serving.tone is Tone.GOOD)
    tones = {UNKNOWN: Tone.CAUTION, FAILS: Tone.PLAIN if is_usable else Tone.BAD}
    lines += [
        (label, text, tones[label]) for label, text in loader_lines(current) if label in tones
    ]
    function = "load_model: " if serving else ""
    parts += [
        Sentence(text=f"{'' if number else function}{label} {text}", tone=tone)
        for number, (label, text, tone) in enumerate(lines)
    ]
    parts += [Sentence(text=text, tone=Tone.CAUTION) for text in _changed_results(model)]
    return Verdict(parts=tuple(parts), subject=model.path)


def _changed_results(model: Model) -> Iterator[str]:
    """Yield what releases compute differently, although they load the model."""
    among = [verdict.loader for verdict in model.loaders]
    for cause, loaders in group_pairs(
        (cause, verdict.loader)
        for verdict in model.loaders
        if verdict.loads
        for cause in verdict.changed_results
    ).items():
        layers = f" ({join_and_count(cause.layers, _LAYERS)})" if cause.layers else ""
        yield f"wrong predictions in {loader_ranges(loaders, among)}: {cause.reason}{layers}"


_LAYERS: Final = 3
"""The most layers that a sentence names."""


def _code_warning(model: Model) -> str:
    """Return the advice not to load a model that contains code; nothing without code."""
    clauses = model.executed_code
    further = f"; {many(len(clauses) - 1, 'more cause')}" if clauses[1:] else ""
    return f"do not load it unless you trust its author: {clauses[0]}{further}" if clauses else ""


_PICKLED: Final = "pickled-weights"
"""The code of an observation."""


def _serving(model: Model) -> Sentence | None:
    """
    Return the programs that run a SavedModel, and its signature; None for other models. No program
    runs a damaged one, and no other program runs signatures that call Python.
    """
    if not model.signatures:
        return None
    if _defect(model) is not None:
        return Sentence(text="no program can run its signatures", tone=Tone.BAD)
    running = [signature for signature in model.signatures if not signature.calls_python]
    if not running:
        text = "its signatures call Python, so they run only in the process that wrote it"
        return Sentence(text=text, tone=Tone.BAD)
    first = min(running, key=lambda signature: signature.name != "serving_default")
    further_count = len(running) - 1
    others = f" and {further_count} more" if further_count else ""
    every_layer = all(signature.runs_as_layer for signature in running)
    programs = (
        "TF Serving, tf.saved_model.load, and keras.layers.TFSMLayer in Keras 3"
        if every_layer
        else "TF Serving and tf.saved_model.load"
    )
    has_layers = any(signature.runs_as_layer for signature in running)
    loaders = f"tf.saved_model.load {'and TFSMLayer need' if has_layers else 'needs'}"
    package = (
        f"; in TF 2.16 and later, {loaders} the package tf_keras for its optimizer"
        if needs_tf_keras(model.observations)
        else ""
    )
    text = (
        f"{programs} run its {'signatures' if further_count else 'signature'} "
        f"{signature_words(first, with_shapes=False)}{others}"
        f"{'' if every_layer else _layer_words(running)}"
        f"{_older_releases(model)}"
        f"{package}"
    )
    return Sentence(text=text, tone=Tone.GOOD)


def _older_releases(model: Model) -> str:
    """
    Return which releases may not run a graph: those before the release that wrote it, which may
    lack an op, an attribute of an op, or a kind of saved object. Only the ops are known.
    """
    later, version = model.later_ops, model.writer.tensorflow
    lacking = (
        f"{release_name(later.newest_without)} and older do not have the "
        f"op{'s' if later.ops[1:] else ''} {join_and_count(later.ops, _LAYERS)}"
        if later is not None
        else ""
    )
    if version is None:
        return f"; {lacking}" if lacking else ""
    written = ".".join(version.split(".")[:2])
    return f"; releases before TF {written}, which wrote it, may not" + (
        f": {lacking}" if lacking else ""
    )


def _layer_words(signatures: Sequence[Signature]) -> str:
    """Return how Keras 3 calls those of the signatures that it can; nothing if it can call none."""
    layers = [signature for signature in signatures if signature.runs_as_layer]
    if not layers:
        return ""
    only = (
        "use"
        if any(is_default(signature, signatures) for signature in layers)
        else f"only {join_and_count([entry.name for entry in layers], _LAYERS)} can be used:"
    )
    return f"; in Keras 3, {only} {layer_call(signatures)}"


def _defect(model: Model) -> str | None:
    """Return why stored values cannot be read; None if no defect is known."""
    codes = {DAMAGE, MISSING, *LOST_VALUES}
    defects = (entry.message for entry in model.observations if entry.code in codes)
    return next(defects, None)


def _facts(model: Model, *, every_release: bool) -> Iterator[Fact]:
    yield Fact(label="file", text=" · ".join(origin(model)))
    if model.summary.layers:
        yield Fact(label=f"{_row_noun(model)}s", text="; ".join(totals(model)))
    if every_release:
        yield from (
            Fact(label=label, text=text, tone=_TONES.get(label, Tone.PLAIN))
            for label, text in loader_lines(model.loaders)
        )
    else:
        current = [verdict for verdict in model.loaders if verdict.loader in CURRENT]
        yield from (Fact(label=label, text=text) for label, text in training_lines(current))
    if optimizer := _optimizer_words(model):
        yield Fact(label="optimizer", text=optimizer)
    declared, stored_alone = declared_dtypes(model), has_only_weights(model.layers)
    for signature in model.signatures:
        yield from _signature(signature, declared, ops=stored_alone)


_READERS: Final = {"json": "model_from_json", "yaml": "model_from_yaml"}
"""The function of Keras that reads an architecture, by format."""


def origin(model: Model) -> list[str]:
    """Return the format, the kind of config and the writer in words."""
    written = [
        f"{name} {version}"
        for name, version in (
            ("Keras", model.writer.keras),
            ("TensorFlow", model.writer.tensorflow),
        )
        if version
    ]
    is_orbax = any(entry.code == orbax.WITHOUT_CONFIG for entry in model.observations)
    facts = ["Orbax checkpoint" if is_orbax else TITLES.get(model.format, model.format)]
    if model.format in _READERS:
        facts.append(f"read by {_READERS[model.format]}, not load_model")
    if model.generation is not None:
        facts.append(f"config of {generation_words(model.generation)}")
    if written:
        facts.append("written by " + ", ".join(written))
    if model.writer.backend and model.writer.backend != "tensorflow":
        facts.append(f"backend {model.writer.backend}")
    return facts


def _optimizer_words(model: Model) -> str | None:
    """Return the optimizer and its loss scale as text; None if the file has no optimizer."""
    if model.optimizer is None:
        return None
    scale = loss_scale_words(model.optimizer.loss_scale)
    return model.optimizer.class_name + (f", loss scale {scale}" if scale else ", no loss scaling")


def _export_words(exports: Iterable[ExportSummary]) -> str:
    """Return the formats to which Keras exports a model, with the dtypes of weights in them."""
    titles = group_pairs((_export_pattern(entry), EXPORTERS[entry.exporter]) for entry in exports)
    return "; ".join(pattern.format(", ".join(names)) for pattern, names in titles.items())


def _export_pattern(entry: ExportSummary) -> str:
    if entry.failing:
        return f"not {{}} ({entry.failing})"
    if entry.unmeasured:
        return f"unknown for {{}} ({entry.unmeasured} was not measured)"
    weights = " and ".join(entry.weights)
    return f"{{}} with {weights} weights" if weights else "{}"


def _row_noun(model: Model) -> str:
    """Return what a row of the table is: a graph without metadata has scopes of names."""
    is_graph = model.format == "savedmodel" and has_only_weights(model.layers)
    return "scope" if is_graph else "layer"


def totals(model: Model) -> tuple[str, str]:
    """
    Return the number of layers with each policy, and the number and the size of the stored
    parameters.
    """
    summary = model.summary
    counts = ", ".join(
        f"{count:,} {name}"
        for name, count in sorted(summary.policies.items(), key=lambda item: (-item[1], item[0]))
    )
    unset_count = summary.layers - sum(summary.policies.values())
    unknown = not summary.parameters and any(
        observation.code == _PICKLED for observation in model.observations
    )
    stored = (
        f"{summary.parameters:,} parameter{'s' if summary.parameters != 1 else ''}, "
        f"{bytes_words(summary.bytes)} stored"
    )
    unset_words = f", {unset_count:,} without a policy" if counts and unset_count else ""
    return (
        f"{many(summary.layers, _row_noun(model))}: {counts or 'no policy'}{unset_words}",
        "number of parameters unknown" if unknown else stored,
    )


def _signature(signature: Signature, declared: Declared, *, ops: bool) -> Iterator[Fact]:
    yield Fact(label="signature", text=signature_words(signature))
    if signature.calls_python:
        text = "calls Python, so it runs only in the process that wrote it"
        yield Fact(label="", text=text, tone=Tone.BAD)
    if computes := computes_words(declared, signature):
        tone = Tone.BAD if contradiction(declared, signature) else Tone.DIM
        yield Fact(label="", text=computes, tone=tone)
    if signature.ops and ops:
        yield Fact(label="", text=ops_words(signature.ops), tone=Tone.DIM)


def signature_words(signature: Signature, *, with_shapes: bool = True) -> str:
    """Return a signature with its arguments, results, and their dtypes and shapes."""
    sides = [
        ", ".join(
            f"{key}: {dtype}{_fixed_shape(shapes.get(key)) if with_shapes else ''}"
            for key, dtype in side.items()
        )
        for side, shapes in (
            (signature.inputs, signature.input_shapes),
            (signature.outputs, signature.output_shapes),
        )
    ]
    return f"{signature.name}({sides[0]}) → {sides[1]}"


def _fixed_shape(shape: Sequence[int | None] | None) -> str:
    return f" {shape_text(shape)}" if shape is not None else ""


def attention(model: Model) -> list[str]:
    """Return notes and next steps, the most urgent first."""
    sentences = contradictions(model)
    deprecated = sum(layer.deprecated and layer.source is Source.DECLARED for layer in model.layers)
    if deprecated:
        layers = f"{deprecated} layer{'s store' if deprecated != 1 else ' stores'}"
        sentences.append(f"{layers} a policy in a Keras 2 format, which Keras 3 cannot read")
    scaled = sum(
        layer.deprecated and layer.loss_scale is not None and not layer.loss_scale_default
        for layer in model.layers
    )
    if scaled:
        policies = "policies include" if scaled != 1 else "policy includes"
        sentences.append(f"{scaled} {policies} a loss scale, which TF 2.4 and later ignore")
    said = (SLOTS,) if model.signatures else ()  # in the headline
    return sentences + [entry.message for entry in model.observations if entry.code not in said]


_SHOWN: Final = 3
"""Policies that the line names."""


def headline(model: Model) -> str:
    """Return the line, without the path of the model."""
    current = [verdict for verdict in model.loaders if verdict.loader in CURRENT]
    outcomes = {
        label: [verdict.loader for verdict in current if verdict.outcome is outcome]
        for outcome, label in OUTCOMES.items()
    }
    loading = [
        f"{label} {loader_ranges(releases)}" for label, releases in outcomes.items() if releases
    ]
    return "; ".join([_layers(model), *loading])


def _layers(model: Model) -> str:
    total = len(model.layers)
    layers = many(total, _row_noun(model))
    counts = sorted(model.summary.policies.items(), key=lambda item: (-item[1], item[0]))
    if not counts:
        return f"{layers}, no policy" if total else layers
    if len(counts) == 1:
        return f"{layers}, {counts[0][0]}"
    policy_counts_text = ", ".join(f"{count} {policy}" for policy, count in counts[:_SHOWN])
    further_count = len(counts) - _SHOWN
    return f"{layers}: {policy_counts_text}" + (
        f" and {further_count} more policies" if further_count > 0 else ""
    )


def charts(layers: Sequence[Layer]) -> Iterator[Bars]:
    """Yield the charts that have a bar."""
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


def _graph(layers: Sequence[Layer]) -> Graph | None:
    """Return the graph of the layers, coloured by compute dtype, if their connections are known."""
    from policytool.reports import layer_graph  # only HTML needs it

    def mark(layer: Layer) -> layer_graph.LayerMark:
        cells = table_cells(_SHOWN_FIELDS, layer)
        compute = cells[_SHOWN_FIELDS.index(COMPUTE)]
        details = zip(table_columns(_SHOWN_FIELDS), cells, strict=True)
        return layer_graph.LayerMark(
            text=compute.text,
            tone=compute.tone,
            details=tuple(
                Fact(label=column.title, text=cell.text) for column, cell in details if cell.text
            ),
        )

    return layer_graph.layer_graph(
        "Layers by compute dtype, from input to output", layers, mark, _LEGEND
    )


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


_SHOWN_FIELDS: Final = LAYER_TABLE[1:]
"""The fields that the graph shows of a selected layer, in addition to its path."""

_LEGEND: Final = (
    Sentence(text="float32, or the dtype of the inputs"),
    Sentence(text="16 bits", tone=Tone.HALF),
    Sentence(text="dtype not in the file", tone=Tone.DIM),
)
"""The colours of layers in the graph."""

REPORTERS: Final[tuple[Reporter[SelectedInspection], ...]] = (
    *reporters_for_people(page, "policytool inspect"),
    csv_reporter(ROW_COLUMNS, every_row),
    json_reporter(REPORT),
)
"""The first is the default."""

PARQUET_REPORTER: Final = parquet_reporter(ROW_COLUMNS, every_row)

__all__ = [
    "PARQUET_REPORTER",
    "REPORTERS",
    "ROW_COLUMNS",
    "has_sizes",
    "headline",
    "model_values",
    "page",
    "rows",
]
