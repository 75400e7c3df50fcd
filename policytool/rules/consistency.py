"""Rules that compare what a file declares with what it contains."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from policytool.formats import keras_hub
from policytool.formats.keras_archive import TASK
from policytool.formats.tfjs import QUANTIZED
from policytool.migration.planning import notes
from policytool.model import presets, traced_dtypes
from policytool.model.model import Source
from policytool.model.reading import HALF_GRAPH
from policytool.releases import dtype_support, dtypes, policy
from policytool.releases.layer_classes import layer_facts
from policytool.releases.releases import KERAS2
from policytool.rules.base import Fix, Needs, Remedy, Severity, rule
from policytool.rules.half_precision import float32_remedy
from policytool.support.grouping import group_pairs
from policytool.support.text.phrases import join_first

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from policytool.formats.document import Signature
    from policytool.model.loaded_model import LoadedModel
    from policytool.model.model import Layer
    from policytool.rules.base import AuditOptions, Finding, RuleInput


_BFLOAT16: Final = "bfloat16"


_STAND_IN: Final = "float32"


@rule(
    id="PT401",
    severity=Severity.WARNING,
    example="dense declares float16 with float16 variables, but stores float32",
)
def stored_dtype_differs(case: RuleInput, _options: AuditOptions) -> Iterator[Finding]:
    """
    Stored variables have a different dtype than their layer declares.

    Releases create each variable in the dtype from the config and silently cast the stored values.
    float32 values lose precision in float16 variables, and float16 values do not regain precision
    in float32 variables. The rule checks the float variables of built-in Keras layers whose policy
    is in the file. It accounts for layers that keep their variables in a different dtype, such as
    BatchNormalization under the Keras 2 float16 policy. It accepts bfloat16 variables stored as
    float32 if no release can read bfloat16 from the file format (PT403). The rule skips quantized
    layers and integer variables. For TensorFlow.js models, which store only float32 or quantized
    values, the finding is a note.

    Sources: the variables of every layer class under every policy in tf_keras 2.21 and Keras 3.15
    (policytool/releases/data/layer_dtypes.json). When tf_keras 2.21 loaded a TF 2.15 file with
    float16 or float64 values instead of float32, it silently created float32 variables.
    """
    yield from stored_dtype_differs.observation_findings(
        case, QUANTIZED, severities={QUANTIZED: Severity.NOTE}
    )
    if case.loaded is None or not notes.stores_dtypes(case.loaded):
        return
    for layer in case.model.layers:
        expected = _expected_dtypes(case.loaded, layer)
        stored = (
            sorted(
                {variable.dtype for variable in layer.variables if dtypes.is_float(variable.dtype)}
                - expected
            )
            if expected
            else []
        )
        if stored:
            message = (
                f"{layer.path} declares {layer.policy} with {layer.variable_dtype} "
                f"variables, but stores {', '.join(stored)}"
            )
            advice = (
                "load the model and save it again, because releases cast the stored values to "
                f"{layer.variable_dtype} when they load the file"
            )
            yield stored_dtype_differs.finding(
                message, path=layer.path, address=layer.address, advice=advice
            )


def _expected_dtypes(loaded: LoadedModel, layer: Layer) -> frozenset[str]:
    """
    Return the dtypes in which a layer's variables may be stored; empty if these are unknown.
    """
    variable = layer.variable_dtype
    if (
        layer.opaque
        or layer.quantization is not None
        or layer.policy is None
        or variable is None
        or not dtypes.is_float(variable)
    ):
        return frozenset()
    class_dtypes = dtype_support.variable_dtypes(
        loaded.loader, layer.class_name or "", layer.policy
    )
    stand_in = {_STAND_IN} if _BFLOAT16 in {variable, *class_dtypes} else set()
    return frozenset({variable, *class_dtypes, *stand_in})


@rule(
    id="PT402",
    severity=Severity.WARNING,
    fix=Fix.UNSAFE,
    example="3 of 12 layers with matrix products declare mixed_float16 but compute in float32 in "
    "the saved graph",
)
def traced_dtype_differs(case: RuleInput, _options: AuditOptions) -> Iterator[Finding]:
    """
    Traced dtypes of a SavedModel's graph differ from the policies of its layers.

    A SavedModel contains the policies of its layers and the graph that was traced when the model
    was saved. Signatures run the graph and ignore the policies, whereas Keras rebuilds the layers
    from the policies. If only the metadata was edited, serving and training use different models.
    The rule compares only the matrix products, convolutions and RNN kernels of each layer. Other
    ops are not reliable evidence: for example, a float16 BatchNormalization layer computes in
    float32 by design.

    Sources: tensorflow/core/grappler/optimizers/auto_mixed_precision_lists.h for the ops; graphs
    saved by TF 2.1 to tf_keras 2.21, all of which match their metadata.
    """
    # The observation is about a group of layers that declare the same policy and compute in the
    # same other dtypes.
    yield from traced_dtype_differs.observation_findings(
        case, "traced-dtype-differs", remedy=Remedy(fix=Fix.UNSAFE, retrace=True)
    )


@rule(
    id="PT403",
    severity=Severity.ERROR,
    fix=Fix.SAFE,
    example="6 variables are stored as bfloat16 (dense/dense/kernel:0, ...), which no release can "
    "read from this file format",
)
def unreadable_bfloat16(case: RuleInput, _options: AuditOptions) -> Iterator[Finding]:
    """
    Variables are stored as bfloat16, which no release can read from this file format.

    HDF5 has no bfloat16 type, so Keras writes two untyped bytes per value. Only Keras 3 can read
    them, and only from its own ``.keras`` files. No release can read them from whole-model HDF5
    files or from Keras 2 ``.keras`` files, not even the release that wrote the file (``No cast
    function available``, ``data type 'bfloat16' not understood``). ``migrate`` stores the same
    values as float32, which every release reads under a bfloat16 policy.

    Sources: files written by TF 2.3 and 2.15, which were loaded in all releases from TF 2.3 to
    Keras 3.15 before and after ``migrate`` converted them (fixtures/loads.json,
    fixtures/loads_migrated.json).
    """
    # One finding for the whole file, because a single bfloat16 variable makes it fail to load.
    document = case.document
    if (
        case.loaded is None
        or not notes.stores_dtypes(case.loaded)
        or notes.reads_bfloat16(case.loaded)
    ):
        return
    tensors = [
        tensor
        for tensor in (*(document.tensors or ()), *document.state)
        if tensor.dtype == _BFLOAT16
    ]
    if tensors:
        counted = "1 variable is" if len(tensors) == 1 else f"{len(tensors)} variables are"
        listed = join_first(["/".join(tensor.path) for tensor in tensors])
        message = (
            f"{counted} stored as bfloat16 ({listed}), which no release can read from this "
            "file format"
        )
        yield unreadable_bfloat16.finding(message, remedy=Remedy(fix=Fix.SAFE))


@rule(
    id="PT404",
    severity=Severity.ERROR,
    example="the output predictions of serving_default changed from float32 to float16",
    needs=Needs.BASELINE,
)
def signature_changed(case: RuleInput, options: AuditOptions) -> Iterator[Finding]:
    """
    Signature is missing or differs from the baseline in the names or dtypes of its inputs or
    outputs.

    Clients of a served model depend on the dtypes of its signatures. Unless the last layer uses the
    float32 policy, a policy change can also change the dtype of the model's outputs, and the first
    symptom is a failing client. The rule reports a new signature as a note, because it does not
    affect existing clients.

    Sources: tf-keras issue 303 and https://github.com/keras-team/keras/issues/17420; the section on
    float32 outputs in https://www.tensorflow.org/guide/mixed_precision.
    """
    before = {
        signature.name: signature for signature in options.signatures.get(case.model.path, ())
    }
    after = {signature.name: signature for signature in case.model.signatures}
    for name in sorted({*before, *after} if before else ()):
        if name not in after:
            yield signature_changed.finding(
                f"the signature {name} is missing",
                detail=name,
                advice=(
                    "export the signature again, or write the baseline again if no client uses "
                    "the signature"
                ),
            )
        elif name not in before:
            yield signature_changed.finding(
                f"the signature {name} is new", detail=name, severity=Severity.NOTE
            )
        else:
            yield from _signature_changes(before[name], after[name])


def _signature_changes(before: Signature, after: Signature) -> Iterator[Finding]:
    for kind, old, new in (
        ("input", before.inputs, after.inputs),
        ("output", before.outputs, after.outputs),
    ):
        for argument, message in _argument_changes(old, new):
            yield signature_changed.finding(
                f"the {kind} {argument} of {before.name} {message}",
                detail=f"{before.name}/{kind}/{argument}",
                advice=_signature_advice(kind, is_dtype=argument in old and argument in new),
            )


def _signature_advice(kind: str, *, is_dtype: bool) -> str:
    """Return what to do about an argument of a signature that changed, or that one side lacks."""
    former = f"the dtype of the {kind} layer" if is_dtype else f"the {kind}s and their names"
    return f"restore {former}, or write the baseline again if the change is intended"


def _argument_changes(old: Mapping[str, str], new: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    for argument in sorted({*old, *new}):
        if argument not in new:
            yield argument, "is missing"
        elif argument not in old:
            yield argument, f"is new ({new[argument]})"
        elif old[argument] != new[argument]:
            yield argument, f"changed from {old[argument]} to {new[argument]}"


@rule(
    id="PT405",
    severity=Severity.NOTE,
    example='"class_name": "Dense", "autocast": false',
)
def autocast_lost(case: RuleInput, _options: AuditOptions) -> Iterator[Finding]:
    """
    Layers have ``autocast=False``, which only SavedModels written by TF 2.12 and later preserve.

    A layer with ``autocast=False`` does not cast its inputs. If the attribute is lost, the layer
    casts its inputs to its compute dtype. TF 2.12, TF 2.15 and tf_keras 2.21 restore the attribute
    from a SavedModel; TF 2.9 and older neither write nor read it. The attribute is also lost if
    Keras builds the layer from a config in HDF5, ``.keras`` or JSON. The rule skips Functional and
    Sequential models, op layers, and classes that always disable autocasting.

    Sources: a model with ``Dense(autocast=False)`` that was saved and loaded as a SavedModel and as
    HDF5 in TF 2.9, 2.12, 2.15 and tf_keras 2.21; https://github.com/keras-team/tf-keras/issues/328.
    """
    if case.loaded is None:
        return
    for site, layer in zip(case.loaded.sites, case.model.layers, strict=True):
        facts = layer_facts(site.class_name)
        disabled = facts.is_op_layer or KERAS2 in facts.without_autocast
        if layer.autocast is False and not site.is_model and not disabled:
            message = (
                f"{layer.path} has autocast=False, which is lost if the model is saved in a "
                "format other than SavedModel or loaded in TF 2.9 or older"
            )
            yield autocast_lost.finding(
                message,
                path=layer.path,
                address=layer.address,
                advice="to keep the setting in every format, disable autocasting in the "
                "constructor of a custom class",
            )


@rule(
    id="PT406",
    severity=Severity.WARNING,
    example="keras_metadata.pb contains mixed_bfloat16, but saved_model.pb contains mixed_float16",
)
def metadata_differs(case: RuleInput, _options: AuditOptions) -> Iterator[Finding]:
    """
    The two copies of the Keras metadata in a SavedModel differ.

    TF 2.5 writes the metadata of each layer to both ``keras_metadata.pb`` and ``saved_model.pb``.
    TF 2.5 and later read the first file, and TF 2.4 and older read the second, so these releases
    build different models from the same directory. The rule ignores the IDs of shared objects,
    because some files contain these IDs in only one copy.

    Sources: keras/saving/saved_model/load.py in TF 2.5.3; SavedModels written by TF 2.5.3.
    """
    yield from metadata_differs.observation_findings(
        case, "metadata-differs", advice="save the model again in the release that will load it"
    )


@rule(
    id="PT407",
    severity=Severity.WARNING,
    example="attention/query_dense declares float32 and stores a kernel in int8",
)
def undeclared_quantization(case: RuleInput, _options: AuditOptions) -> Iterator[Finding]:
    """
    Layer stores integer kernels, but its policy declares no quantization.

    Releases build the layer with float kernels, which the file does not contain. Keras 3 writes
    such files for a quantized MultiHeadAttention, because its inner layers are quantized but
    missing from its config.

    Sources: a MultiHeadAttention that was quantized to int8 and saved by Keras 3.15.1, which fails
    to load its own file: "Layer 'key' expected 2 variables, but received 0 variables during
    loading".
    """
    yield from undeclared_quantization.observation_findings(
        case,
        "undeclared-quantization",
        advice="save the model before you quantize it, and quantize it after loading",
    )


@rule(
    id="PT408",
    severity=Severity.NOTE,
    example='"keras_version": "2.2.4-tf", "dtype": "float32"',
)
def policy_not_stored(case: RuleInput, _options: AuditOptions) -> Iterator[Finding]:
    """
    File was written by TF 2.0 or older, which does not store mixed policies.

    TF 1.14 to 2.0 store the dtype of a layer's variables instead of its policy. A mixed_float16
    model therefore loads as float32 in every release, runs slower and returns different results.
    The file does not show whether the model used a mixed policy. Standalone Keras 2.2 and 2.3 had
    no policies, so their files are not affected.

    Sources: HDF5, JSON and YAML files written by TF 1.15.0 and 2.0.4 under each policy that they
    support.
    """
    yield from policy_not_stored.observation_findings(
        case,
        "policy-not-stored",
        advice=(
            "if the model used mixed_float16, restore the policy with migrate --to mixed_float16"
        ),
    )


@rule(
    id="PT409",
    severity=Severity.NOTE,
    example='"class_name": "Dense", "config": {"name": "dense", "dtype": null, ...}',
)
def depends_on_global_policy(case: RuleInput, _options: AuditOptions) -> Iterator[Finding]:
    """
    Layers with weights have no stored policy, so they use the global policy at load time.

    A layer without a stored policy (``null``, or a policy map without a default) uses the global
    policy of the process that loads it. The same model can run in float32 in one program and in
    mixed_float16 in another, with different results and memory use. The rule reports one note per
    file. HDF5 and ``.keras`` files never store the policy of the model itself, so the rule checks
    only layers with weights. For a KerasHub preset, the note is about its stored policy:
    ``from_preset`` of KerasHub 0.22 and later replaces each policy except maps of quantized layers.

    Sources: a model whose ``DTypePolicyMap`` has no default, written and loaded by Keras 3.15.1.
    The layers of this model computed in float32 under the global policy float32, and in float16
    under mixed_float16. Presets that KerasHub 0.32 wrote and loaded under three global
    policies (fixtures/writer/presets.py), and keras_hub/src/utils/preset_utils.py of KerasHub
    0.22.1 to 0.30.
    """
    yield from depends_on_global_policy.observation_findings(case, presets.REPLACED)
    layers = [
        layer
        for layer in case.model.layers
        if layer.source is Source.GLOBAL
        and not presets.is_preset(case.document)
        and any(dtypes.is_float(variable.dtype) for variable in layer.variables)
    ]
    if layers:
        listed = join_first([layer.path for layer in layers])
        counted = (
            "1 layer with weights has"
            if len(layers) == 1
            else f"{len(layers)} layers with weights have"
        )
        message = (
            f"{counted} no stored policy and {'uses' if len(layers) == 1 else 'use'} the global "
            f"policy at load time ({listed})"
        )
        yield depends_on_global_policy.finding(
            message,
            advice="if the config of the layer supports a policy, use migrate --set; otherwise, "
            "set the global policy before you load the model",
        )


@rule(
    id="PT410",
    severity=Severity.WARNING,
    example="a preset with 15 int8 layers and without task.json",
)
def preset_quantization_lost(case: RuleInput, _options: AuditOptions) -> Iterator[Finding]:
    """
    Policy map of a quantized KerasHub preset is replaced when its backbone is loaded.

    ``Backbone.from_preset`` of KerasHub 0.22 and later ignores the stored policy map and builds
    layers with the global policy, which cannot load quantized kernels. A task such as ``CausalLM``
    keeps the map if the preset has a ``task.json``. In this case, the finding is a note.

    Sources: presets that KerasHub 0.32 quantized to int8 and int4. Each backbone failed to load
    with "expected 1 variables, but received 0 variables", and loaded with the stored map as
    ``dtype``.
    """
    has_task = case.loaded is not None and TASK in case.loaded.document.parts
    severity = Severity.NOTE if has_task else Severity.WARNING
    yield from preset_quantization_lost.observation_findings(
        case,
        presets.QUANTIZED,
        severities={presets.QUANTIZED: severity},
        advice="pass dtype=keras.dtype_policies.deserialize(MAP) to from_preset, where MAP is the "
        "dtype in config.json",
    )


@rule(
    id="PT411",
    severity=Severity.WARNING,
    example="a preset with model.weights.h5 and shards of an earlier version",
)
def preset_files(case: RuleInput, _options: AuditOptions) -> Iterator[Finding]:
    """
    KerasHub preset lacks files, or contains weights that are not read.

    KerasHub reads ``model.weights.h5`` if it exists, and otherwise the shards that
    ``model.weights.json`` lists. Other weights files in the directory, and variables in a shard for
    which the index does not name it, have no effect. They often remain from an earlier version.

    Sources: keras_hub/src/utils/preset_utils.py in KerasHub 0.32.0.
    """
    yield from preset_files.observation_findings(
        case,
        keras_hub.LEFT_OVER,
        keras_hub.MISSING,
        advice="save the preset to a new directory, or copy all its files again",
    )


@rule(
    id="PT412",
    severity=Severity.WARNING,
    example="a TextClassifier in mixed_bfloat16",
)
def preset_task_fails(case: RuleInput, _options: AuditOptions) -> Iterator[Finding]:
    """
    Task of a KerasHub preset does not load.

    ``from_preset`` of a task reads the policy of the backbone in ``config.json``, and raises
    ``ValueError: Invalid dtype`` for the mixed policies. Layers that the task adds to the backbone
    have no policy in any file: if they were quantized with the task, their weights do not fit. The
    backbone itself loads, and so does a new task, whose layers have new weights.

    Sources: tasks that KerasHub 0.32 saved under three policies and quantized to int8 and int4
    (fixtures/writer/presets.py).
    """
    yield from preset_task_fails.observation_findings(case, presets.TASK_FAILS)


@rule(
    id="PT413",
    severity=Severity.ERROR,
    fix=Fix.UNSAFE,
    needs=Needs.FORBID,
    example='"class_name": "Dense", "config": {"dtype": "float16", ...}, with forbid = ["float16"]',
)
def forbidden_policy(case: RuleInput, options: AuditOptions) -> Iterator[Finding]:
    """
    Layers have a policy that the setting ``forbid`` names, or a graph computes in its dtype.

    The policy is stored in the file, or is the default of the release that wrote it. A SavedModel
    without Keras metadata has no policies. The rule then reports each signature with matrix
    products, convolutions or RNN kernels in the compute dtype of a forbidden policy: float16 for
    ``float16`` and ``mixed_float16``. It also reports operations of a model that cast to this
    dtype, if no layer has it, such as ``ops.cast(x, "float16")``.

    Source: the policies and the ops of signatures that ``inspect`` shows.
    """
    loaded = case.loaded if _STAND_IN not in options.forbidden else None
    for index, layer in enumerate(case.model.layers):
        if layer.policy in options.forbidden:
            yield forbidden_policy.finding(
                f"{layer.path} has the forbidden policy {layer.policy}",
                path=layer.path,
                detail=layer.policy or "",
                remedy=float32_remedy(loaded, [index]) if loaded is not None else None,
            )
    if case.loaded is None:
        yield from _forbidden_graphs(case, options)
    for dtype, noun in _forbidden_dtypes(options).items():
        for observation in case.observations(HALF_GRAPH):
            if observation.where == dtype:
                yield forbidden_policy.finding(
                    f"{observation.message}; it is the compute dtype of the forbidden {noun}",
                    detail=f"operations {dtype}",
                )


def _forbidden_dtypes(options: AuditOptions) -> dict[str | None, str]:
    """Return the compute dtypes of the forbidden policies, each with the policies in words."""
    named = (policy.policy_from_name(name) for name in options.forbidden)
    return {
        dtype: f"{'policy' if len(names) == 1 else 'policies'} {' and '.join(names)}"
        for dtype, names in group_pairs(
            (entry.compute_dtype, entry.name) for entry in named if entry.quantization is None
        ).items()
    }


def _forbidden_graphs(case: RuleInput, options: AuditOptions) -> Iterator[Finding]:
    """Yield a finding for each signature that computes in the dtype of a forbidden policy."""
    advice = (
        f"export the model again with layers in {_STAND_IN}"
        if _STAND_IN not in options.forbidden
        else None
    )
    for trace, ops in traced_dtypes.matrix_ops(case.document):
        subject = f"{'signature' if trace.signature else 'function'} {trace.entry}"
        for dtype, noun in _forbidden_dtypes(options).items():
            kinds = [f"{op.count} {op.op}" for op in ops if op.dtype == dtype]
            if kinds:
                yield forbidden_policy.finding(
                    f"{subject} computes {join_first(kinds)} in {dtype}, the compute dtype of the "
                    f"forbidden {noun}",
                    detail=f"{subject} {dtype}",
                    advice=advice,
                )
