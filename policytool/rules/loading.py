"""Rules about compatibility with releases."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from policytool.formats.document import LOST_VALUES
from policytool.migration import planning
from policytool.migration.plan import REBUILD
from policytool.migration.planning import decisions
from policytool.model import custom_classes, exports, tfjs_objections
from policytool.model.compatibility import stored_variables
from policytool.model.hazards import LAMBDA, RUNNING
from policytool.model.model import Cause, Obstacle, verdict_of
from policytool.model.signature_layers import layer_call, needs_tf_keras
from policytool.releases.layer_classes import layer_facts
from policytool.releases.releases import (
    EXPORTERS,
    KERAS3,
    TFJS,
    conversion_target,
    family_of,
    generation_of,
    get,
    newest,
    position,
    release_name,
    running_release,
    target_and_containers,
)
from policytool.rules import fixes
from policytool.rules.base import Fix, Needs, Remedy, Severity, rule

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from policytool.formats.document import Address
    from policytool.model.exports import LayerExport
    from policytool.model.loaded_model import LoadedModel
    from policytool.model.model import Verdict
    from policytool.rules.base import AuditOptions, Finding, Rule, RuleInput


_EDITABLE: Final = frozenset({Obstacle.POLICY, Obstacle.STORAGE})
"""The parts of a file that ``migrate`` without a conversion can change."""


_REPORTED_ELSEWHERE: Final = frozenset({Obstacle.POLICY, Obstacle.VARIABLES})
"""The parts of a file that the PT1 rules and PT506 report."""

_SHOWN_LAYERS: Final = 3


def _target_verdicts(case: RuleInput, options: AuditOptions) -> Iterator[Verdict]:
    """Yield the verdict of each target, in their order."""
    by_loader = {verdict.loader: verdict for verdict in case.model.loaders}
    yield from (by_loader[target] for target in options.targets if target in by_loader)


def _target_name(options: AuditOptions, loader: str) -> str:
    """Return the user's name of a release: the first target with this release."""
    names = map(conversion_target, options.names)
    return next((name for name in names if target_and_containers(name)[0] == loader), loader)


def _edit_remedy(case: RuleInput, verdict: Verdict) -> Remedy | None:
    """
    Return the options of ``migrate`` that make a release load the file; None if there are none.

    No plan is created if other parts than policies and storage cause the failure.
    """
    if case.loaded is None or not all(cause.kind in _EDITABLE for cause in verdict.causes):
        return None
    target = verdict.loader if generation_of(verdict.loader) is not None else None
    plan = planning.plan(case.loaded, planning.Options(target=target))
    after = verdict_of(plan.loaders_after, verdict.loader)
    has_edits = plan.edits or plan.casts
    return (
        Remedy(fix=Fix.SAFE, target=target)
        if has_edits and not plan.refusals and after is not None and after.reason is None
        else None
    )


def _cause_detail(verdict: Verdict, cause: Cause) -> str:
    """
    Return the part of a finding's identity that distinguishes a cause from others of the same
    target.
    """
    return f"{verdict.loader} {cause.kind} {cause.class_name or ''} {' '.join(cause.keys)}".rstrip()


def _cause_finding(
    rule: Rule,
    case: RuleInput,
    cause: Cause,
    text: str,
    *,
    detail: str,
    remedy: Remedy | None = None,
    advice: str | None = None,
) -> Finding:
    """Return a finding about a cause, at its first layer; the message names the others."""
    return rule.finding(
        f"{text}: {cause.reason}{_further_layers(cause)}",
        path=cause.layers[0] if cause.layers else None,
        address=_cause_address(case, cause),
        detail=detail,
        remedy=remedy,
        advice=advice,
    )


def _cause_layers(cause: Cause) -> str:
    """Return the phrase that names the layers of a cause."""
    return f" ({_join_layers(cause.layers)})" if cause.layers else ""


def _further_layers(cause: Cause) -> str:
    """Return the layers of a cause except the first, which is the path of the finding."""
    return f" (also {_join_layers(cause.layers[1:])})" if cause.layers[1:] else ""


def _join_layers(layers: tuple[str, ...]) -> str:
    further_count = len(layers) - _SHOWN_LAYERS
    further = f" and {further_count} more" if further_count > 0 else ""
    return f"{', '.join(layers[:_SHOWN_LAYERS])}{further}"


def _cause_address(case: RuleInput, cause: Cause) -> Address | None:
    """
    Return the address of the policy of a cause's first layer, which is next to the affected value.
    """
    if not cause.layers:
        return None
    return next(
        (layer.address for layer in case.model.layers if layer.path == cause.layers[0]), None
    )


_BUILD: Final = "build the model from its code and load the weights into it"
"""The advice for a model that no release loads, not even the one that wrote it."""


_OBSTACLE_ADVICE: Final = {
    Obstacle.DTYPE: (
        "set a policy whose dtypes are supported: float32, or mixed_float16 or mixed_bfloat16 "
        "to replace a pure 16-bit policy"
    ),
}


_WITHOUT_CONFIG: Final = {
    "weights": (
        "build the model from its code and call load_weights, or pass the file to migrate "
        "--weights with the architecture"
    ),
    "savedmodel": "call its signatures with tf.saved_model.load",
}
"""The advice for files without a config, by format."""


@rule(
    id="PT501",
    severity=Severity.ERROR,
    fix=Fix.SAFE,
    example='{"class_name": "Dense", "config": {"units": 4, "quantization_config": null, ...}}, '
    "audited with --target keras3.6",
    needs=Needs.TARGET,
)
def incompatible_with_target(case: RuleInput, options: AuditOptions) -> Iterator[Finding]:
    """
    Model fails to load in the target release.

    The target release does not support a class, op, config key or file format that the model uses,
    has no kernel for a dtype, or requires a config key that the file does not contain. Each cause
    is a separate finding. The PT1 rules report incompatible policy formats. No release of Keras
    loads a model of TensorFlow.js. If ``migrate`` without
    ``--target`` fixes the model, the finding contains that command. If ``migrate --target`` can
    convert the model to a new file, the finding contains that command; otherwise, it states the
    reason. ``audit`` uses the same plan as ``migrate``, but ``--fix`` never converts a model. The
    release that wrote the file can still load it.

    Sources: tests of every class and key (fixtures/layer_arguments.py) and of every dtype
    (fixtures/layer_dtypes.py) in every release, and the results of loading the fixtures in every
    release (fixtures/loads.py; docs/reference/compatibility.md).
    """
    for name in options.names if case.document.format == TFJS else ():
        loader, _ = target_and_containers(name)
        if name != TFJS:
            yield incompatible_with_target.finding(
                f"fails to load in {release_name(loader)}: Keras loads no TensorFlow.js models",
                detail=f"{loader} {Obstacle.CONTAINER}",
                advice=fixes.conversion_advice(
                    case, name, "use the Keras model from which it was converted"
                ),
            )
    for verdict in _target_verdicts(case, options):
        causes = [cause for cause in verdict.causes if cause.kind not in _REPORTED_ELSEWHERE]
        remedy = _edit_remedy(case, verdict) if causes else None
        for cause in causes:
            yield _cause_finding(
                incompatible_with_target,
                case,
                cause,
                f"fails to load in {release_name(verdict.loader)}",
                detail=_cause_detail(verdict, cause),
                remedy=remedy,
                advice=None
                if remedy or cause.kind is Obstacle.NAME
                else fixes.conversion_advice(
                    case, verdict.loader, _fallback_advice(case, cause, verdict.loader)
                ),
            )
    yield from _archive_findings(case, options)


def _archive_findings(case: RuleInput, options: AuditOptions) -> Iterator[Finding]:
    """
    Yield a finding for each target with a different archive layout: TF 2.13 and 2.14, which share
    the verdicts of TF 2.12.
    """
    if case.loaded is None or case.document.format != "keras":
        return
    writers = {release.id for release in case.loaded.origins}
    for name in options.names:
        if name == TFJS or not running_release(name):
            continue
        if "keras" not in get(name).formats and writers != {name}:
            loader, _ = target_and_containers(name)
            yield incompatible_with_target.finding(
                f"{name} fails to load the model: it reads only its own layout of .keras "
                "archives, which no other release writes",
                detail=f"{name} container",
                advice=fixes.conversion_advice(case, loader, _rebuild_advice(case)),
            )


def _runs_code(case: RuleInput) -> bool:
    """Return whether the model runs code, or names harmful functions, when it is loaded."""
    model_hazards = case.loaded.hazards if case.loaded is not None else ()
    return any(hazard.harm in RUNNING for hazard in model_hazards) or any(
        case.observations("pickled-weights")
    )


def _fallback_advice(case: RuleInput, cause: Cause, loader: str) -> str:
    """Return advice on a failure that migrate cannot fix by a conversion."""
    rebuild = _rebuild_advice(case)
    if case.loaded is None:
        call = layer_call(case.model.signatures) if family_of(loader) == KERAS3 else None
        if call is not None:
            return f"{_package_words(case, loader)}use it as a layer: {call}"
        advice = _WITHOUT_CONFIG.get(case.document.format, rebuild)
        return f"{_package_words(case, loader)}{advice}{_releases_with_ops(case, loader)}"
    # a policy does not help if the release also lacks a class
    if cause.kind in _OBSTACLE_ADVICE and not fixes.lacks_class(case, loader):
        return _OBSTACLE_ADVICE[cause.kind]
    return f"if you trust its author, {rebuild}" if _runs_code(case) else rebuild


def _package_words(case: RuleInput, loader: str) -> str:
    """Return which package loads a SavedModel in the TensorFlow of Keras 3, before the advice."""
    needs = family_of(loader) == KERAS3 and needs_tf_keras(case.model.observations)
    return "install tf_keras, and " if needs else ""


def _releases_with_ops(case: RuleInput, loader: str) -> str:
    """Return which releases run the signatures of a SavedModel; nothing if the release does."""
    later = case.model.later_ops
    if later is None or position(loader) > position(later.newest_without):
        return ""
    name = release_name(later.newest_without)
    return f" in a later release: {name} and older do not have its op {later.ops[0]}"


def _rebuild_advice(case: RuleInput) -> str:
    """Return advice on a model that no command can repair."""
    return _BUILD if all(verdict.reason is not None for verdict in case.model.loaders) else REBUILD


@rule(
    id="PT502",
    severity=Severity.NOTE,
    example='{"class_name": "Lambda", "config": {"function": ["4wEAAAAA...", null, null], ...}}, '
    "audited with --target keras3",
    needs=Needs.TARGET,
)
def unknown_compatibility(case: RuleInput, options: AuditOptions) -> Iterator[Finding]:
    """
    Compatibility of the model with the target release is unknown.

    The model contains a Lambda layer, an op that is called by name, or a key that no known release
    writes; PT603 reports custom classes. Only loading the model in the target release shows whether
    it is compatible. If the release certainly loads the model after ``migrate --target``, the
    finding contains this command.

    Sources: docs/reference/compatibility.md, which lists the checks and the results of loading the
    fixtures in real releases.
    """
    # If the target fails to load the model, PT501 reports it.
    custom = {
        site.class_name
        for site in (case.loaded.sites if case.loaded is not None else ())
        if custom_classes.is_opaque(site) and not layer_facts(site.class_name).is_opaque
    }
    for verdict in _target_verdicts(case, options):
        if verdict.reason is None:
            for doubt in verdict.doubts:
                if doubt.kind is Obstacle.RESULTS or doubt.class_name in custom:
                    continue  # PT504 reports the first, and PT603 the second
                yield _cause_finding(
                    unknown_compatibility,
                    case,
                    doubt,
                    f"compatibility with {release_name(verdict.loader)} is unknown",
                    detail=_cause_detail(verdict, doubt),
                    advice=fixes.doubt_advice(
                        case,
                        verdict.loader,
                        _target_name(options, verdict.loader),
                        _check_advice(verdict.loader, doubt),
                    ),
                )


def _check_advice(loader: str, doubt: Cause) -> str:
    """Return advice on a doubt that migrate cannot remove by a conversion."""
    if doubt.kind is Obstacle.CONTAINER:
        return "load the model with tf.saved_model.load and use its signatures"
    if doubt.class_name == LAMBDA:
        return (
            f"to check, load the model in {release_name(loader)}, but only if you trust its author"
        )
    return f"to check, load the model in {release_name(loader)} with the code of its classes"


@rule(
    id="PT503",
    severity=Severity.ERROR,
    fix=Fix.SAFE,
    example="an HDF5 file whose variables are stored as bfloat16",
)
def no_compatible_release(case: RuleInput, options: AuditOptions) -> Iterator[Finding]:
    """
    Model fails to load in every checked release.

    The checked releases include the release that wrote the file, or the releases directly before
    and after it. The cause is therefore one of the following: the file was already unreadable when
    it was written, it was damaged or edited later, or no other release can read its format.
    ``migrate --target`` can often convert the file for a release of the same library. The finding
    is a note for a file with only weights, which ``load_weights`` reads.

    Sources: docs/reference/compatibility.md. Among the fixtures, the causes are bfloat16 variables
    in HDF5, subclassed models in HDF5, models with Keras 3 operations in HDF5, and archives with an
    unexpected file extension (fixtures/loads.json).
    """
    # The cause is that of the release whose library wrote the file.
    verdicts = case.model.loaders
    if not verdicts or any(verdict.reason is None for verdict in verdicts):
        return
    if case.document.format == "weights" and not options.targets:  # PT501 reports targets
        yield no_compatible_release.finding(
            "contains only weights, so load_model fails in every release",
            severity=Severity.NOTE,
            advice=_WITHOUT_CONFIG["weights"],
        )
    if case.loaded is None:
        return
    own_verdict = next(verdict for verdict in verdicts if verdict.loader == case.loaded.loader)
    if any(cause.kind is Obstacle.VARIABLES for cause in own_verdict.causes):
        return  # PT506 reports it
    cause = next(
        (cause for cause in own_verdict.causes if cause.kind is not Obstacle.POLICY),
        own_verdict.causes[0],
    )
    remedy = _edit_remedy(case, own_verdict)
    is_target = own_verdict in _target_verdicts(case, options)  # PT501 has the advice
    yield no_compatible_release.finding(
        f"fails to load in all {len(verdicts)} checked releases; in "
        f"{release_name(own_verdict.loader)}: {cause.reason}{_cause_layers(cause)}",
        remedy=remedy,
        advice=None
        if remedy or is_target or cause.kind is Obstacle.NAME
        else _conversion_advice(case, own_verdict.loader),
    )


def _conversion_advice(case: RuleInput, own: str) -> str | None:
    """Return advice for the library that wrote the file, or otherwise for the newest Keras."""
    advice = fixes.conversion_advice(case, own, _BUILD)
    if advice is None or fixes.conversion_advice(case, newest(KERAS3).id, _BUILD) is not None:
        return advice
    return f"migrate --target {KERAS3} converts the model"


@rule(
    id="PT504",
    severity=Severity.WARNING,
    example='{"class_name": "LSTM", "config": {"recurrent_activation": "hard_sigmoid", ...}} in a '
    "Keras 2 file, audited with --target keras3",
    needs=Needs.TARGET,
)
def changed_activation(case: RuleInput, options: AuditOptions) -> Iterator[Finding]:
    """
    Activation function has a different formula, or another axis, in the target release.

    ``hard_sigmoid`` is 0.2 x + 0.5 in Keras 2 and x / 6 + 0.5 in Keras 3, clipped to the range from
    0 to 1. In an LSTM or ConvLSTM2D with this activation, the gates return different values, and
    outputs differ by about 10%. If the file is loaded without conversion, the activation keeps its
    name, but its formula silently changes. ``migrate --target`` keeps predictions unchanged: it
    scales the input of the activation with an additional layer or, in recurrent layers with
    ``--allow weight-rewrite``, rescales the weights. The rule does not check custom functions with
    the same name. When Keras 3 reads HDF5, it ignores several axes of a Softmax or
    UnitNormalization, and uses the last axis; a ``.keras`` file keeps them. When it reads HDF5 with
    layers quantized by GPTQ or AWQ, these have no kernel, and calling the model fails. Layers that
    join inputs pass on other masks: Keras 2 masks a step if it is masked in any input, Keras 3.0 to
    3.3 in none, and later releases if it is masked in all inputs.

    Sources: every activation function of every release, called with the same inputs
    (fixtures/layer_arguments.py).
    """
    if case.loaded is None or not options.targets:
        return
    for verdict in _target_verdicts(case, options):
        condition = "" if verdict.reason is None else " if it loads"
        for cause in verdict.changed_results:
            yield _cause_finding(
                changed_activation,
                case,
                cause,
                f"wrong predictions in {release_name(verdict.loader)}{condition}",
                detail=_cause_detail(verdict, cause),
                advice=fixes.conversion_advice(case, verdict.loader, cause.remedy),
            )


@rule(
    id="PT505",
    severity=Severity.WARNING,
    fix=Fix.SAFE,
    example='"dtype": {"class_name": "Policy", ...} in an HDF5 file, audited without --target',
)
def newest_keras_fails(case: RuleInput, options: AuditOptions) -> Iterator[Finding]:
    """
    Model fails to load in the newest Keras.

    ``pip install tensorflow`` and ``pip install keras`` install the newest Keras. One finding
    summarizes all causes. With ``--target``, this rule reports nothing, and the other loading rules
    report each cause. If the model is meant for another release, specify that release with
    ``--target``, or skip this rule with ``--ignore``. Signatures of a SavedModel run without Keras,
    so the finding is a note if the model has any.

    Sources: docs/reference/compatibility.md.
    """
    # PT503 reports a model that no release loads, and PT506 stored variables.
    verdicts = case.model.loaders
    if (
        options.names
        or case.loaded is None
        or all(verdict.reason is not None for verdict in verdicts)
    ):
        return
    verdict = verdict_of(verdicts, newest(KERAS3).id)
    if verdict is None or not verdict.causes or verdict.causes[0].kind is Obstacle.VARIABLES:
        return
    first, *others = verdict.causes
    further_words = f"; {len(others)} more cause{'s' if others[1:] else ''}" if others else ""
    is_served = bool(case.model.signatures) and first.kind is Obstacle.CONTAINER
    yield newest_keras_fails.finding(
        f"{release_name(verdict.loader)}, the newest Keras, fails to load the model: {first.reason}"
        f"{_cause_layers(first)}{further_words}",
        severity=Severity.NOTE if is_served else None,
        remedy=_edit_remedy(case, verdict),
        advice=_package_words(case, verdict.loader) + _WITHOUT_CONFIG["savedmodel"]
        if is_served
        else None,
    )


@rule(
    id="PT506",
    severity=Severity.ERROR,
    example="a Dense layer with 3 units, for which a kernel of the shape (16, 7) is stored",
)
def mismatched_variables(case: RuleInput, options: AuditOptions) -> Iterator[Finding]:
    """
    Stored variables do not match the layers of the model.

    Keras creates the variables of each layer from the config, and then restores the stored values
    by their positions. Loading fails if the file has no weights, if it has more or fewer variables
    for a layer than the layer creates, or if a shape differs. A SavedModel declares all variables
    in its graph, including those of optimizers. TensorFlow restores them by their paths, and fails
    if its checkpoint is damaged, lacks a variable, or stores another shape or dtype. The usual
    causes are a save that was interrupted, an incomplete copy, and weights of another model.
    ``audit`` compares the number and the shapes of the variables without reading their values. With
    ``--weights``, it also verifies the checksums of all values in a checkpoint or in HDF5. It
    does not compare the variables of custom layers in other formats, and sizes that do not follow
    from the config. ``migrate`` does not write such a model. Save the model again, or copy the file
    again.

    Sources: the variables of every layer class in every release (fixtures/layer_variables.py), and
    damaged files loaded in Keras 3.15 and tf_keras 2.21 (tests/compat/test_stored_variables.py).
    """
    every = case.model.loaders
    loader_by_cause = _variable_causes(
        list(_target_verdicts(case, options)) if options.targets else every
    )
    if not loader_by_cause and stored_variables.damage(every) is not None:
        loader_by_cause = _variable_causes(every)  # the targets fail for other reasons too
    for cause, loader in loader_by_cause.items():
        yield _cause_finding(
            mismatched_variables,
            case,
            cause,
            f"fails to load in {release_name(loader)}",
            detail=cause.reason,
            advice=cause.remedy,
        )
    yield from mismatched_variables.observation_findings(case, *LOST_VALUES, advice=_COPY_AGAIN)
    reasons = {reason.partition(";")[0]: path for path, reason in case.damaged.items()}
    for reason, path in reasons.items() if not loader_by_cause else ():
        yield mismatched_variables.finding(
            f"fails to load in every release: {reason}",
            detail="/".join(path),
            advice=_COPY_AGAIN,
        )


_COPY_AGAIN: Final = "save the model again, or copy the file again"


def _variable_causes(verdicts: Iterable[Verdict]) -> dict[Cause, str]:
    """Return the causes about stored variables, each with the last release that it prevents."""
    return {
        cause: verdict.loader
        for verdict in verdicts
        for cause in verdict.causes
        if cause.kind is Obstacle.VARIABLES
    }


@rule(
    id="PT507",
    severity=Severity.ERROR,
    example='{"format": "layers-model", ... {"class_name": "InputLayer", "config": '
    '{"batch_shape": [null, 4], ...}}',
)
def tensorflow_js_fails(case: RuleInput, options: AuditOptions) -> Iterator[Finding]:
    """
    Model fails to load in TensorFlow.js.

    TensorFlow.js 4.22 loads only layers models with configs in the format of Keras 2. The converter
    also writes configs of Keras 3, and classes that TensorFlow.js does not have, such as
    MultiHeadAttention, or a GRU with ``reset_after``. ``migrate --target tfjs`` writes a layers
    model that TensorFlow.js loads, if it has all classes of the model. The rule checks models of
    TensorFlow.js that are audited without ``--target``, and every model with ``--target tfjs``.

    Sources: tests of every layer class in TensorFlow.js 4.22 (fixtures/tfjs_layers.py), and
    https://github.com/tensorflow/tfjs/issues/8494.
    """
    is_meant = TFJS in options.names if options.names else case.document.format == TFJS
    if case.loaded is None or not is_meant:
        return
    container = Cause(
        kind=Obstacle.CONTAINER, reason="TensorFlow.js loads only layers models (model.json)"
    )
    is_layers_model = case.document.format == TFJS
    for cause in tfjs_objections.objections(case.loaded) if is_layers_model else (container,):
        yield _cause_finding(
            tensorflow_js_fails,
            case,
            cause,
            f"fails to load in {release_name(TFJS)}",
            detail=f"{TFJS} {cause.kind} {cause.class_name or ''} {cause.reason}",
            advice=fixes.conversion_advice(case, TFJS, _TFJS_ADVICE),
        )


_TFJS_ADVICE: Final = (
    "convert the model to a graph model: export a SavedModel, and run tensorflowjs_converter on it"
)


_EXPORT_STAGES: Final = {
    "export": "Keras fails to export",
    "run": "the runtime fails to run the exported file of",
    "outputs": "the exported file gives different results for",
}


@rule(
    id="PT508",
    severity=Severity.ERROR,
    fix=Fix.UNSAFE,
    example='{"class_name": "Dense", "config": {"dtype": "mixed_bfloat16", ...}}, audited with '
    "--target onnx",
    needs=Needs.TARGET,
)
def export_fails(case: RuleInput, options: AuditOptions) -> Iterator[Finding]:
    """
    Model cannot be exported with its policies.

    ``model.export(PATH, format="onnx")`` of Keras 3 writes ONNX; ``litert``, ``openvino`` and
    ``tf_saved_model`` are other formats. The exporters check no policies. With some classes and
    policies, the export fails, the runtime of the format does not run the file, or the file gives
    different results. The rule checks the target of the same name, such as ``--target onnx``. A
    note lists classes and policies that were not measured. ``migrate --to float32`` writes a model
    that can be exported, if its layers can be exported in float32.

    Sources: exports of each class with each policy, and of activation functions and operations in
    each dtype, run in ONNX Runtime, LiteRT, OpenVINO and TensorFlow (fixtures/exports.py).
    """
    if case.loaded is None or not exports.newest_keras_loads(case.model):
        return  # PT501 reports it
    for name in options.names:
        if name in EXPORTERS:
            verdict = exports.export_verdict(case.loaded, name)
            for failing in verdict.failing:
                yield _export_finding(case, case.loaded, name, failing)
            if verdict.unmeasured:
                first = verdict.unmeasured[0]
                names = tuple(one.name for one in verdict.unmeasured)
                yield export_fails.finding(
                    f"{release_name(name)}: not measured: {_join_layers(names)}",
                    path=first.layers[0] if first.layers else None,
                    detail=f"{name} {first.name}",
                    severity=Severity.NOTE,
                    advice=f'to check, run model.export(PATH, format="{name}") and the new file',
                )


def _export_finding(
    case: RuleInput, loaded: LoadedModel, name: str, failing: LayerExport
) -> Finding:
    stage, message = (failing.export.fails, failing.export.message) if failing.export else ("", "")
    place = Cause(kind=Obstacle.DTYPE, reason=message, layers=failing.layers)
    others = [
        release_name(verdict.exporter)
        for verdict in exports.export_verdicts(loaded)
        if not verdict.failing and not verdict.unmeasured
    ]
    instead = f"export the model to {' or '.join(others)}" if others else "replace the layers"
    return export_fails.finding(
        f"{release_name(name)}: {_EXPORT_STAGES[str(stage)]} {failing.name}: {message}"
        f"{_further_layers(place)}",
        path=failing.layers[0] if failing.layers else None,
        address=_cause_address(case, place),
        detail=f"{name} {failing.name}",
        severity=Severity.WARNING if stage == "outputs" else None,
        remedy=_export_remedy(loaded, failing) if failing.needs_float32 else None,
        advice=None if failing.needs_float32 else instead,
    )


def _export_remedy(loaded: LoadedModel, failing: LayerExport) -> Remedy:
    """Return the change to float32: ``--to`` changes only layers with the policy of the model."""
    if failing.policy in {None, decisions.base_policy(loaded)}:  # operations follow the layers
        return Remedy(fix=Fix.UNSAFE, to="float32")
    return Remedy(fix=Fix.UNSAFE, assignments=tuple((path, "float32") for path in failing.layers))
