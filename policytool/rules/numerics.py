"""Rules about overflow, underflow and rounding."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from policytool.migration.planning import keep
from policytool.migration.planning.decisions import base_policy
from policytool.model import custom_classes, optimizer_config
from policytool.model.rounded_weights import compute_dtype, deciding
from policytool.model.tree.site import with_sites_above
from policytool.releases import dtype_support
from policytool.releases.dtypes import HALVES
from policytool.releases.layer_classes import layer_facts
from policytool.releases.releases import release_name, releases_in
from policytool.rules.base import Device, Fix, Needs, Remedy, Severity, rule
from policytool.rules.half_precision import (
    ROUNDS_TO_ZERO,
    SMALLEST_NORMAL,
    computes_half,
    float32_remedy,
    has_graph,
    judged_model,
    libraries,
    numbers_in,
    numbers_out_of_range,
    policy_remedy,
    rounded_variables,
)
from policytool.support.errors import SpellingError
from policytool.support.grouping import group_pairs
from policytool.support.text.jsontext import number
from policytool.support.text.phrases import join_first

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from policytool.formats.casting import Counts
    from policytool.formats.document import Document
    from policytool.model.loaded_model import LoadedModel
    from policytool.model.model import Layer, Signature
    from policytool.rules.base import AuditOptions, Finding, RuleInput


@rule(
    id="PT301",
    severity=Severity.WARNING,
    fix=Fix.UNSAFE,
    example='{"class_name": "Dense", "config": {"name": "predictions", "dtype": "mixed_float16", '
    '...}}, listed in "output_layers"',
)
def output_not_float32(case: RuleInput, options: AuditOptions) -> Iterator[Finding]:
    """
    Output layer computes in 16 bits.

    The layers that produce a model's outputs should compute in float32, regardless of the other
    layers. In 16 bits, losses and metrics are less accurate, and clients that expect float32 from a
    signature receive a different dtype. float16 has a precision of about 3 decimal digits, and
    bfloat16 has slightly less. The rule detects outputs in the graph of a functional or sequential
    model; the outputs of a subclassed model are unknown. ``migrate --set`` sets the layer to
    float32. The signatures of a SavedModel keep their traced dtypes until ``--retrace`` re-exports
    the model.

    Sources: "Ensure the output is float32" in TensorFlow's guide to mixed precision,
    https://www.tensorflow.org/guide/mixed_precision; with TF 2.21 and tf_keras 2.21, a model whose
    layers all use mixed_float16 exports a signature with float32 inputs and float16 outputs.
    """
    # Signatures count only if no layer is known to return 16 bits.
    loaded = judged_model(case, options)
    findings = list(_output_findings(loaded)) if loaded is not None else []
    yield from findings
    if not findings:
        for signature in case.model.signatures:
            yield from _signature_findings(signature)


def _half_layers(loaded: LoadedModel, *reasons: str) -> Mapping[int, tuple[int, ...]]:
    """
    Return the layers that affect an output for one of these reasons and compute in 16 bits, each
    with the layers in it that compute in 16 bits.
    """
    named: dict[int, str] = {}
    for index, reason in keep.final_layers(loaded):
        named.setdefault(index, reason)
    halves = {
        index
        for index, reason in named.items()
        if reason in reasons and _returns_half(loaded, index)
    }
    outermost = [
        index
        for index in sorted(halves)
        if halves.intersection(with_sites_above(loaded.sites, index)) == {index}
    ]
    return {top: tuple(sorted(halves & set(loaded.below(top)))) for top in outermost}


def _returns_half(loaded: LoadedModel, index: int) -> bool:
    """
    Return whether a layer returns 16 bits: UpSampling2D of Keras 2 always returns float32, and
    Bidirectional of Keras 3 casts the outputs of its layers.
    """
    outer = next(
        (
            above
            for above in with_sites_above(loaded.sites, index)
            if above != index and layer_facts(loaded.sites[above].class_name).wraps == "directions"
        ),
        None,
    )
    if loaded.is_keras3 and outer is not None:
        return _returns_half(loaded, outer)
    if not computes_half(loaded, index):
        return False
    argument = loaded.config(index).get("interpolation")
    policy = loaded.policy_name(index) or ""
    dtype = dtype_support.output_dtype(
        loaded.loader,
        loaded.sites[index].class_name,
        argument if isinstance(argument, str) else None,
        policy,
    )
    return dtype is None or dtype in HALVES


def _output_findings(loaded: LoadedModel) -> Iterator[Finding]:
    for index, members in _half_layers(loaded, keep.OUTPUT).items():
        layer = loaded.layers[index]
        softmax = " is a softmax and" if keep.is_softmax(loaded, index) else ""
        message = (
            f"{layer.path}{softmax} computes an output of the model in "
            f"{compute_dtype(loaded, index)}"
        )
        yield output_not_float32.finding(
            message, path=layer.path, address=layer.address, remedy=float32_remedy(loaded, members)
        )


def _signature_findings(signature: Signature) -> Iterator[Finding]:
    halves = {name: dtype for name, dtype in signature.outputs.items() if dtype in HALVES}
    if halves:
        listed = ", ".join(f"{name} as {dtype}" for name, dtype in halves.items())
        advice = "cast the output to float32 in the model, and export the model again"
        yield output_not_float32.finding(
            f"the signature {signature.name} returns {listed}",
            detail=f"signature {signature.name}",
            advice=advice,
        )


@rule(
    id="PT302",
    severity=Severity.WARNING,
    fix=Fix.UNSAFE,
    example='{"class_name": "Softmax", "config": {"name": "probabilities", "dtype": '
    '"mixed_float16", '
    "...}}, followed by a Reshape in float32",
)
def softmax_not_float32(case: RuleInput, options: AuditOptions) -> Iterator[Finding]:
    """
    Softmax before the output computes in 16 bits.

    A softmax between the last layer with weights and an output computes the model's probabilities.
    float16 rounds probabilities below 0.00000006 to zero and represents probabilities below 0.00006
    with reduced precision. As a result, the sum of the probabilities is no longer 1, and logarithms
    become infinite. For 1,000 logits with a standard deviation of 20, the error in the
    probabilities was 3% in float16 and 17% in bfloat16. Layers between the softmax and the output
    also round the probabilities. The rule does not report a softmax in the middle of a model, such
    as in attention. If the softmax is the output layer, the rule output-not-float32 reports it.

    Sources: "Ensure the output is float32" in TensorFlow's guide to mixed precision,
    https://www.tensorflow.org/guide/mixed_precision; measured on CPU with Keras 3.15.1 and tf_keras
    2.21.0.
    """
    loaded = judged_model(case, options)
    if loaded is None:
        return
    softmaxes = _half_layers(loaded, keep.SOFTMAX)
    for index, members in _half_layers(loaded, keep.SOFTMAX, keep.BETWEEN).items():
        layer = loaded.layers[index]
        consequence = (
            "is a softmax before the output"
            if index in softmaxes
            else "is between a softmax and the output"
        )
        message = f"{layer.path} {consequence} and computes in {compute_dtype(loaded, index)}"
        yield softmax_not_float32.finding(
            message, path=layer.path, address=layer.address, remedy=float32_remedy(loaded, members)
        )


_LARGEST_MEAN: Final = {"float16": 20.0, "bfloat16": 2.5}
"""
The mean, in standard deviations, whose rounding shifts the output by 0.01: 20 * 2**-11, 2.5 *
2**-8.
"""


@rule(
    id="PT303",
    severity=Severity.WARNING,
    fix=Fix.UNSAFE,
    example='{"class_name": "GlobalAveragePooling2D", "config": {"dtype": "mixed_float16", ...}} '
    "in a Keras 2 file",
)
def wrong_in_16_bits(case: RuleInput, options: AuditOptions) -> Iterator[Finding]:
    """
    Layer computes in a 16-bit dtype that is known to produce wrong results for its class.

    The affected classes depend on the library: tf_keras averages and normalizes in the compute
    dtype, whereas Keras 3 casts to float32 and back. The rule checks the library that wrote the
    file and, with ``--target``, the target library as well. Most of these errors produce neither
    NaN nor a warning: in float16, the tf_keras GlobalAveragePooling2D layer returns 2 instead of 10
    if all 128x128 values are 10. A config does not contain the size of pooled images or the learned
    values of a Normalization layer, so findings for these classes are notes. If the config of a
    Normalization layer contains its mean and variance, the rule checks these values. ``migrate
    --to`` keeps all these layers in float32.

    Sources: each class was run on a CPU with TensorFlow 2.21, Keras 3.15.1 and tf_keras 2.21.0, and
    compared with a float32 layer that had the same weights; the finding contains the result. The
    results agree with the lists of ops that automatic mixed precision in TensorFlow and PyTorch
    keeps in float32, except for classes that upcast their inputs themselves.
    """
    loaded = judged_model(case, options)
    if loaded is None:
        return
    releases = libraries(loaded, options)
    for index, layer in enumerate(loaded.layers):
        reason = _wrong_reason(loaded, index, releases) if computes_half(loaded, index) else None
        dtype = compute_dtype(loaded, index) or ""
        if reason is not None and not (
            layer_facts(layer.class_name).adapts_statistics
            and _has_exact_statistics(loaded.sites[index].class_name, loaded.config(index), dtype)
        ):
            severity = (
                Severity.NOTE
                if any(risk.depends_on_values for risk in layer_facts(layer.class_name).risks)
                and not loaded.config(index).get("mean")
                else Severity.WARNING
            )
            message = f"{layer.path} ({layer.class_name}) computes in {dtype}: {reason}"
            yield wrong_in_16_bits.finding(
                message,
                path=layer.path,
                address=layer.address,
                severity=severity,
                remedy=float32_remedy(loaded, (index,)),
            )


def _wrong_reason(loaded: LoadedModel, index: int, releases: Iterable[str]) -> str | None:
    """Return the problem in the first release that has one; None if no release has a problem."""
    policy, site = loaded.policy_name(index) or "", loaded.sites[index]
    known = next(
        (
            reason
            for library in releases
            if (reason := keep.risk_reason(library, site, policy)) is not None
        ),
        None,
    )
    return known or (
        keep.window_reason(site) if compute_dtype(loaded, index) == "float16" else None
    )


def _has_exact_statistics(class_name: str, config: Mapping[str, object], dtype: str) -> bool:
    """
    Return whether the dtype is exact enough for the statistics of a Normalization. The rule
    constant-out-of-range reports numbers that the dtype cannot represent.
    """
    means, variances = numbers_in(config.get("mean")), numbers_in(config.get("variance"))
    if not means or not variances:
        return False
    if dtype == "float16" and any(numbers_out_of_range(class_name, config)):
        return True
    pairs = (
        zip(means, variances, strict=True)
        if len(means) == len(variances)
        else ((mean, variance) for mean in means for variance in variances)
    )
    return all(
        abs(mean) <= _LARGEST_MEAN[dtype] * max(variance, 0.0) ** 0.5 for mean, variance in pairs
    )


_DIVIDING_OPTIMIZERS: Final = frozenset(
    {"Adadelta", "Adam", "AdamW", "Adamax", "Lamb", "Muon", "Nadam", "RMSprop", "ScheduleFreeAdamW"}
)
"""Optimizers that divide by a sum of squares with initial value 0; that of Adagrad is 0.1."""


_ADAMAX_EPSILON: Final = 1e-7


@rule(
    id="PT304",
    severity=Severity.WARNING,
    fix=Fix.UNSAFE,
    example='{"class_name": "GroupNormalization", "config": {"epsilon": 1e-12, "dtype": '
    '"mixed_float16", ...}} in a Keras 2 file',
)
def epsilon_underflow(case: RuleInput, options: AuditOptions) -> Iterator[Finding]:
    """
    Layer or optimizer uses an epsilon that float16 cannot represent.

    An epsilon prevents a division by zero. In float16, values up to 0.00000003 become 0, and values
    below 0.00006 lose precision. The rule reports layers that use their epsilon in float16:
    GroupNormalization in Keras 2 and up to Keras 3.6, RMSNormalization in Keras 3.9 and 3.10 and,
    under the pure float16 policy, LayerNormalization in Keras 2 and up to Keras 3.5. With an
    epsilon of 1e-8, they return NaN for an input of zeros. Other releases, LayerNormalization under
    mixed_float16 and BatchNormalization cast to float32 and back. If a custom class has an epsilon
    in its config, the rule reports a note, because the file does not show how the class uses it.

    An optimizer applies its epsilon in the dtype of the model's variables. With float16 variables,
    an epsilon of 1e-8 produces NaN for every zero gradient; with Adamax, so does an epsilon of
    1e-7. With the default epsilon of 1e-7 and a learning rate of 0.01, three Adam steps moved a
    weight with a gradient of 1e-4 from 1 to -0.5 instead of 0.97. Predictions are not affected, so
    the finding about an optimizer is a note, unless ``--select`` names rules about training, such
    as PT2.

    Sources: layers measured on CPU with TF 2.9 and 2.15, tf_keras 2.21 and each release of Keras 3;
    optimizers with tf_keras 2.21 and Keras 3.15, which return the same results; https://github.com/keras-team/keras/issues/22586.
    """
    loaded = judged_model(case, options)
    if loaded is None:
        return
    for index, site in enumerate(loaded.sites):
        epsilon = number(loaded.config(index).get("epsilon"))
        if (
            epsilon is not None
            and 0 < epsilon < SMALLEST_NORMAL
            and compute_dtype(loaded, index) == "float16"
        ):
            if not custom_classes.is_opaque(site):
                releases = dict.fromkeys((loaded.loader, *options.targets))
                affected = _releases_with_epsilon(site.class_name, loaded.policy_name(index))
                if (release := next(filter(affected.__contains__, releases), None)) is not None:
                    yield _used_epsilon_finding(loaded, index, epsilon, release)
            elif epsilon <= ROUNDS_TO_ZERO:
                yield _declared_epsilon_finding(loaded, index, epsilon)
    for finding in _optimizer_epsilon_findings(loaded):
        yield replace(finding, severity=options.training_severity)


def _releases_with_epsilon(class_name: str, policy: str | None) -> frozenset[str]:
    """Return the releases in which a class uses its epsilon in float16 under a policy."""
    ranges = layer_facts(class_name).uses_epsilon.get(policy or "")
    return releases_in(ranges) if ranges is not None else frozenset()


def _used_epsilon_finding(loaded: LoadedModel, index: int, epsilon: float, release: str) -> Finding:
    layer = loaded.layers[index]
    is_zero = epsilon <= ROUNDS_TO_ZERO
    effect = "becomes 0, and an input of zeros produces NaN" if is_zero else "loses precision"
    return epsilon_underflow.finding(
        f"{layer.path} ({layer.class_name}) uses its epsilon of {epsilon:g} in float16 in "
        f"{release_name(release)}, where the epsilon {effect}",
        path=layer.path,
        address=layer.address,
        severity=Severity.WARNING if is_zero else Severity.NOTE,
        remedy=float32_remedy(loaded, (index,)),
    )


def _declared_epsilon_finding(loaded: LoadedModel, index: int, epsilon: float) -> Finding:
    layer = loaded.layers[index]
    message = (
        f"{layer.path} ({layer.class_name}) computes in float16 and has an epsilon of "
        f"{epsilon:g}, which becomes 0 in float16"
    )
    return epsilon_underflow.finding(
        message,
        path=layer.path,
        address=layer.address,
        severity=Severity.NOTE,
        remedy=float32_remedy(loaded, (index,)),
    )


def _optimizer_epsilon_findings(loaded: LoadedModel) -> Iterator[Finding]:
    try:
        optimizer = optimizer_config.innermost(optimizer_config.optimizer_config(loaded.document))
    except SpellingError:
        return  # another rule reports an optimizer that no release writes
    name, config = optimizer or ("", {})
    epsilon = number(config.get("epsilon"))
    halves = [
        layer.path
        for layer in loaded.layers
        if layer.variable_dtype == "float16" and layer.variables and layer.quantization is None
    ]
    if (
        name not in _DIVIDING_OPTIMIZERS
        or not halves
        or epsilon is None
        or not 0 < epsilon < SMALLEST_NORMAL
    ):
        return
    zero = epsilon <= ROUNDS_TO_ZERO or (name == "Adamax" and epsilon <= _ADAMAX_EPSILON)
    effect = (
        "a zero gradient produces NaN" if zero else "small gradients change weights far too much"
    )
    message = (
        f"the optimizer {name} adds an epsilon of {epsilon:g} in float16, the variable dtype of "
        f"{len(halves)} layer{'s' if halves[1:] else ''}: {effect}"
    )
    advice = (
        "keep variables in float32 (mixed_float16), or compile the model with a larger "
        "epsilon, such as 1e-4"
    )
    yield epsilon_underflow.finding(message, detail="optimizer", advice=advice)


@rule(
    id="PT305",
    severity=Severity.ERROR,
    fix=Fix.UNSAFE,
    example="a kernel that contains 70000.0, in a Dense under mixed_float16",
    needs=Needs.WEIGHTS,
)
def weights_overflow(case: RuleInput, options: AuditOptions) -> Iterator[Finding]:
    """
    Stored weights overflow to infinity in the compute dtype of their layer.

    A layer casts its variables to its compute dtype before it uses them. Under mixed_float16,
    values of 65520 and above become infinite, and results become infinite or NaN. The rule requires
    ``--weights``, because it reads the stored values. It skips custom layers, and variables that a
    layer uses in their stored dtype, such as the variables of BatchNormalization.

    Sources: IEEE 754, binary16; the list of variables that layers cast, measured with tf_keras 2.21
    and Keras 3.15 by changing each variable by less than the precision of float16. NVIDIA's Model
    Optimizer keeps a node in float32 if an initializer exceeds 65504 (modelopt/onnx/autocast).
    """
    for variable in rounded_variables(case, options):
        layer, counts = variable.layer, variable.counts
        if counts.overflow:
            verb = "becomes" if counts.overflow == 1 else "become"
            dtype = compute_dtype(variable.loaded, variable.index)
            message = (
                f"{layer.path} computes in {dtype}, in which {counts.overflow} of {counts.values} "
                f"values in {variable.name} {verb} infinite"
            )
            yield weights_overflow.finding(
                message,
                path=layer.path,
                address=layer.address,
                detail=variable.name,
                remedy=float32_remedy(variable.loaded, (variable.index,)),
            )


_MOST_VALUES: Final = 0.5


_ADDED_VARIABLES: Final = frozenset({"bias", "beta", "moving_mean"})


@rule(
    id="PT306",
    severity=Severity.WARNING,
    fix=Fix.UNSAFE,
    example="a scale of 1e-8 for each channel, in a layer under mixed_float16",
    needs=Needs.WEIGHTS,
)
def weights_flushed(case: RuleInput, options: AuditOptions) -> Iterator[Finding]:
    """
    Variable has stored values that are too small for float16.

    A layer casts its variables to its compute dtype before it uses them. In float16, values up to
    0.00000003 become 0, and values below 0.00006 lose precision. A few small values are harmless,
    although TensorRT warns about them: if the same kernel also contains larger values, the small
    values do not affect its sums. The rule reports a variable if all of its values are too small
    for float16. The finding is a warning if most values become 0, and a note otherwise. The
    variance of a Normalization layer has one value per feature, so the rule reports it if any value
    becomes 0. The rule skips biases, which are added to larger values, and variables that a layer
    uses in their stored dtype. It requires ``--weights``, because it reads the stored values.

    Sources: IEEE 754, binary16; the list of variables that layers cast, measured with tf_keras 2.21
    and Keras 3.15. Of 261 variables in 14 published models, 45 contain values that are too small
    for float16, and in three of them, most values are too small. In one regularized kernel, 90% of
    the values are too small, but the other 10% determine the sums. All of these variables also
    contain larger values.
    """
    for variable in rounded_variables(case, options):
        layer, name, counts = variable.layer, variable.name, variable.counts
        if name not in _ADDED_VARIABLES and _is_flushed(
            counts, each=layer_facts(layer.class_name).adapts_statistics and name == "variance"
        ):
            rest = counts.values - counts.zero
            severity = (
                Severity.WARNING
                if counts.flushed > _MOST_VALUES * rest or counts.flushed + counts.subnormal < rest
                else Severity.NOTE
            )
            dtype = compute_dtype(variable.loaded, variable.index)
            message = (
                f"{layer.path} computes in {dtype}, but "
                f"{counts.flushed + counts.subnormal} of {rest} nonzero values in {name} "
                f"are too small for {dtype}: {counts.flushed / rest:.0%} become 0, "
                f"{counts.subnormal / rest:.0%} lose precision"
            )
            remedy = float32_remedy(variable.loaded, (variable.index,))
            yield weights_flushed.finding(
                message,
                path=layer.path,
                address=layer.address,
                detail=name,
                severity=severity,
                remedy=remedy,
            )


def _is_flushed(counts: Counts, *, each: bool) -> bool:
    """
    Return whether all nonzero values are too small, or, with ``each``, whether any of them becomes
    0.
    """
    rest = counts.values - counts.zero
    return rest > 0 and (counts.flushed + counts.subnormal == rest or (each and counts.flushed > 0))


@rule(
    id="PT307",
    severity=Severity.ERROR,
    example="a kernel that contains NaN",
    needs=Needs.WEIGHTS,
)
def nonfinite_weights(case: RuleInput, _options: AuditOptions) -> Iterator[Finding]:
    """
    Stored weights contain NaN or infinity.

    In every dtype, a single NaN or infinity turns most results into NaN. NaN or infinity usually
    means that training diverged. With mixed_float16, training often diverges because losses are not
    scaled. The rule also checks the variables of the optimizer, but not the variables of metrics.
    It requires ``--weights``, because it reads the stored values. A note lists the values that
    could not be read.

    Sources: IEEE 754; the section on gradient overflow in TensorFlow's guide to mixed precision,
    https://www.tensorflow.org/guide/mixed_precision.
    """
    if case.counts is None:
        return
    owners = _tensor_owners(case.loaded) if case.loaded is not None else {}
    for path, counts in case.counts.items():
        if counts.nonfinite:
            layer, name = owners.get(path, (None, "/".join(path)))
            owner = layer.path if layer is not None else "the file"
            values = "value" if counts.nonfinite == 1 else "values"
            message = (
                f"{owner} has {counts.nonfinite} NaN or infinite {values} in {name}, out of "
                f"{counts.values}"
            )
            where, address = (layer.path, layer.address) if layer is not None else (None, None)
            yield nonfinite_weights.finding(
                message,
                path=where,
                address=address,
                detail=name,
                advice="use a checkpoint that was saved before training diverged",
            )
    if case.unread:
        yield _unread_finding(case)


def _tensor_owners(loaded: LoadedModel) -> Mapping[tuple[str, ...], tuple[Layer, str]]:
    """
    Return the layer and the variable name of each stored tensor, by the path of the tensor.
    """
    return {
        tensor.path: (layer, loaded.variable_name(loaded.sites[index], name))
        for index, layer in enumerate(loaded.layers)
        for name, tensor in loaded.placed.named_tensors(index)
    }


def _unread_finding(case: RuleInput) -> Finding:
    listed = join_first(["/".join(path) for path in case.unread])
    count_words = (
        "1 stored variable was"
        if len(case.unread) == 1
        else f"{len(case.unread)} stored variables were"
    )
    reason = next(iter(case.unread.values()))
    message = f"{count_words} not read, so the values are unknown ({listed}: {reason})"
    return nonfinite_weights.finding(message, detail="unread", severity=Severity.NOTE)


_LARGEST_ID: Final = {"float16": 2048, "bfloat16": 256}
"""The integer up to which each dtype represents all integers."""


_ID_COUNTS: Final = ("input_dim", "num_tokens", "max_tokens")
"""Config keys with the number of ids."""


@rule(
    id="PT308",
    severity=Severity.WARNING,
    fix=Fix.UNSAFE,
    example="a float32 Input, a Reshape under mixed_float16, and an Embedding with 30,000 rows",
)
def float_ids(case: RuleInput, options: AuditOptions) -> Iterator[Finding]:
    """
    Integer IDs are rounded to 16-bit floats before a lookup or an embedding.

    Layers cast float inputs to their compute dtype; even Reshape and Concatenate do this. float16
    represents all integers up to 2048, and bfloat16 all integers up to 256. For example, the ID
    2909 becomes 2908 in float16 and 2912 in bfloat16, and 65535 becomes infinite in float16. The
    model then silently looks up the wrong row. Layers do not cast integer inputs, but an input
    layer with a 16-bit float dtype rounds its inputs. The rule skips an embedding if the dtype can
    represent every row number exactly. It also skips IDs that reach an Embedding directly from a
    float32 input, because Embedding does not cast its inputs.

    Sources: https://github.com/keras-team/keras/issues/19332; measured with Keras 3.15.1 and
    tf_keras 2.21.0, both of which create Embedding with autocast=False.
    """
    loaded = judged_model(case, options)
    if loaded is None:
        return
    reported = set[int]()
    for index, lookup in keep.identifier_layers(loaded, inputs=True):
        dtype = compute_dtype(loaded, index) or ""
        casts = (
            dtype in HALVES
            and not layer_facts(loaded.sites[index].class_name).is_op_layer
            and loaded.layers[index].autocast is not False
        )
        if casts and index not in reported and _id_count(loaded, lookup) > _LARGEST_ID[dtype]:
            reported.add(index)
            layer = loaded.layers[index]
            message = (
                f"{layer.path} passes IDs to {loaded.layers[lookup].path} in {dtype}, which "
                f"cannot represent IDs above {_LARGEST_ID[dtype]} exactly"
            )
            yield float_ids.finding(
                message,
                path=layer.path,
                address=layer.address,
                remedy=float32_remedy(loaded, (index,)),
            )


def _id_count(loaded: LoadedModel, lookup: int) -> float:
    """Return the number of ids of a lookup; infinity if its config does not have it."""
    config = loaded.config(lookup)
    return next(
        (rows for key in _ID_COUNTS if (rows := number(config.get(key))) is not None), float("inf")
    )


@rule(
    id="PT309",
    severity=Severity.NOTE,
    fix=Fix.UNSAFE,
    example='{"class_name": "Dense", "config": {"dtype": "float16", ...}} in a compiled model',
)
def half_variables(case: RuleInput, options: AuditOptions) -> Iterator[Finding]:
    """
    Trainable variables of a model with an optimizer are stored in 16 bits.

    A training step is often much smaller than the weight that it changes. float16 has no number
    between 1 and 1.00098, and bfloat16 has no number between 1 and 1.0078, so smaller updates are
    lost. The mixed policies also compute in 16 bits, but keep variables in float32. The rule checks
    only models with an optimizer: in other models, 16-bit variables are a way to halve the file
    size. It skips layers that are not trainable.

    Predictions are not affected, so the finding is a note, unless ``--select`` names this rule or
    rules about training, such as PT2: then it is a warning.

    Sources: https://www.tensorflow.org/guide/mixed_precision; "Mixed Precision Training", section
    3.1, https://arxiv.org/abs/1710.03740.
    """
    loaded = judged_model(case, options)
    if loaded is None or case.model.optimizer is None:
        return
    by_dtype = group_pairs(
        (layer.variable_dtype or "", index)
        for index, layer in enumerate(loaded.layers)
        if layer.variable_dtype in HALVES
        and layer.quantization is None
        and loaded.config(index).get("trainable") is not False
        and loaded.has_weights(index)
        and not loaded.is_input(index)
    )
    for dtype, indices in by_dtype.items():
        yield replace(
            _half_variables_finding(loaded, dtype, indices), severity=options.training_severity
        )


def _half_variables_finding(loaded: LoadedModel, dtype: str, indices: list[int]) -> Finding:
    paths = [loaded.layers[index].path for index in indices]
    advice_words = (
        "1 layer trains its variables"
        if len(paths) == 1
        else f"{len(paths)} layers train their variables"
    )
    mixed = f"mixed_{dtype}"
    if base_policy(loaded) == dtype:
        remedy: Remedy | None = Remedy(fix=Fix.UNSAFE, to=mixed, retrace=has_graph(loaded))
    else:
        remedy = policy_remedy(loaded, indices, mixed)
    return half_variables.finding(
        f"{advice_words} in {dtype}, so small updates are lost ({join_first(paths)})",
        detail=dtype,
        remedy=remedy,
    )


_KERNEL_DTYPES: Final = frozenset({"float16", "bfloat16", "float64"})


@rule(
    id="PT310",
    severity=Severity.ERROR,
    fix=Fix.UNSAFE,
    example="a MaxPooling3D that uses mixed_float16, audited with --device cpu",
    needs=Needs.DEVICE,
)
def no_kernel(case: RuleInput, options: AuditOptions) -> Iterator[Finding]:
    """
    Layer or graph needs an op that has no kernel for its dtype on the chosen device.

    On a CPU, such a layer fails when it is called: "Could not find device for node". On a GPU,
    TensorFlow silently runs the op on the CPU if a CPU kernel exists, and copies the data between
    the devices. The rule reports this as a warning, or as an error if the CPU has no kernel either.
    The cause is always the policy, because a float32 kernel exists. The rule checks the ops of each
    Keras layer and, for a SavedModel, also the ops of its graph.

    Source: the TensorFlow 2.21 kernel registry, and layers traced with tf_keras 2.21 and Keras
    3.15. On a CPU, the registry predicted exactly which layers failed when they were called. For
    GPUs, only the registry was used; no layer was called on a GPU. The registry does not include
    the kernels that oneDNN adds on some CPUs.
    """
    # First report the layers, then the ops of the graph that none of these layers needs.
    if options.device is None:
        return
    loaded = judged_model(case, options)
    needed = set[str]()
    if loaded is not None:
        releases = libraries(loaded, options)
        for index in range(len(loaded.sites)):
            ops = _ops_without_kernel(loaded, index, releases, options.device)
            if ops:
                needed.update(ops)
                yield _layer_kernel_finding(loaded, index, ops, options.device)
    yield from _graph_kernel_findings(case.document, needed, options.device)


def _ops_without_kernel(
    loaded: LoadedModel, index: int, releases: Iterable[str], device: Device
) -> tuple[str, ...]:
    site, policy = loaded.sites[index], loaded.policy_name(index)
    if (
        policy is None
        or compute_dtype(loaded, index) not in _KERNEL_DTYPES
        or custom_classes.is_opaque(site)
    ):
        return ()
    activation = loaded.config(index).get("activation")
    name = activation if isinstance(activation, str) else None
    return next(
        (
            ops
            for library in releases
            if (ops := dtype_support.missing(library, site.class_name, name, policy, device.value))
        ),
        (),
    )


def _layer_kernel_finding(
    loaded: LoadedModel, index: int, ops: tuple[str, ...], device: Device
) -> Finding:
    layer, dtype = loaded.layers[index], compute_dtype(loaded, index) or ""
    message = (
        f"{layer.path} ({layer.class_name}) needs {' and '.join(ops)} in {dtype}, "
        f"{_kernel_text(ops, dtype, device)}"
    )
    severity = _kernel_severity(ops, dtype, device)
    return no_kernel.finding(
        message,
        path=layer.path,
        address=layer.address,
        severity=severity,
        remedy=float32_remedy(loaded, (index,)),
    )


def _graph_kernel_findings(
    document: Document, needed: set[str], device: Device
) -> Iterator[Finding]:
    counts: Counter[tuple[str, str]] = Counter()
    for trace in document.traces:
        uses: Counter[tuple[str, str]] = Counter()
        for op, count in trace.ops:
            for dtype in op.dtypes:
                if (
                    dtype in _KERNEL_DTYPES
                    and op.op not in needed
                    and dtype_support.lacks(op.op, dtype, device.value)
                ):
                    uses[op.op, dtype] += count
        counts |= uses
    for (name, dtype), count in sorted(counts.items()):
        times = "once" if count == 1 else f"{count} times"
        message = (
            f"the graph runs {name} in {dtype} {times}, {_kernel_text((name,), dtype, device)}"
        )
        yield no_kernel.finding(
            message,
            detail=f"{name} {dtype}",
            severity=_kernel_severity((name,), dtype, device),
            advice="export the model again with this part in float32",
        )


def _kernel_severity(ops: tuple[str, ...], dtype: str, device: Device) -> Severity:
    return (
        Severity.ERROR
        if device is Device.CPU
        or any(dtype_support.lacks(op, dtype, Device.CPU.value) for op in ops)
        else Severity.WARNING
    )


def _kernel_text(ops: tuple[str, ...], dtype: str, device: Device) -> str:
    support_words = "for which TensorFlow 2.21 has"
    if device is Device.CPU:
        return f"{support_words} no CPU kernel"
    if _kernel_severity(ops, dtype, device) is Severity.ERROR:
        return f"{support_words} neither a GPU nor a CPU kernel"
    return f"{support_words} no GPU kernel, so it runs on the CPU"


_FLOAT16: Final = "float16"


@rule(
    id="PT311",
    severity=Severity.NOTE,
    fix=Fix.UNSAFE,
    example="layers that use mixed_float16, audited with --device cpu",
    needs=Needs.DEVICE,
)
def half_on_cpu(case: RuleInput, options: AuditOptions) -> Iterator[Finding]:
    """
    Model computes in float16, which is slower than float32 on a CPU.

    Few CPUs have float16 instructions, so TensorFlow converts values to float32 and back for each
    op. The rule runs only with ``--device cpu`` and reports one note per model. It does not report
    bfloat16, because newer CPUs have bfloat16 instructions.

    Sources: TensorFlow's guide to mixed precision, which states that mixed_float16 runs
    significantly slower on CPUs, https://www.tensorflow.org/guide/mixed_precision. Times were
    measured with TensorFlow 2.21 and Keras 3.15 on an AMD EPYC with AVX512-BF16 but without
    AVX512-FP16. Under mixed_float16, three Dense layers took 30% more time than in float32, and two
    Conv2D layers took 70% more time. Under mixed_bfloat16, both took 30% less time.
    """
    if options.device is not Device.CPU:
        return
    loaded = judged_model(case, options)
    layers = _float16_layers(loaded) if loaded is not None else []
    if layers and loaded is not None:
        layer_words = (
            "1 layer with weights computes"
            if len(layers) == 1
            else f"{len(layers)} layers with weights compute"
        )
        yield half_on_cpu.finding(
            f"{layer_words} in float16, which is slower than float32 on CPUs",
            remedy=_cpu_remedy(loaded, layers),
        )
    elif loaded is None and (
        names := [
            signature.name
            for signature in case.model.signatures
            if _FLOAT16 in signature.compute_dtypes
        ]
    ):
        message = (
            f"{', '.join(names)} {'computes' if len(names) == 1 else 'compute'} in "
            "float16, which is slower than float32 on CPUs"
        )
        yield half_on_cpu.finding(message, advice="export the model again in float32")


def _float16_layers(loaded: LoadedModel) -> list[int]:
    return [
        index
        for index in range(len(loaded.sites))
        if compute_dtype(loaded, index) == _FLOAT16 and loaded.has_weights(index)
    ]


def _cpu_remedy(loaded: LoadedModel, layers: list[int]) -> Remedy | None:
    """
    Return ``--to float32`` if the layers use the policy of the model, because ``--to`` skips other
    layers.
    """
    base = base_policy(loaded)
    if all(loaded.policy_name(deciding(loaded, index)) == base for index in layers):
        return Remedy(fix=Fix.UNSAFE, to="float32", retrace=has_graph(loaded))
    return float32_remedy(loaded, layers)


@rule(
    id="PT312",
    severity=Severity.WARNING,
    fix=Fix.UNSAFE,
    example='{"class_name": "Masking", "config": {"mask_value": -1000000000.0, "dtype": '
    '"mixed_float16", ...}}',
)
def constant_out_of_range(case: RuleInput, options: AuditOptions) -> Iterator[Finding]:
    """
    Config of a float16 layer contains a number outside the range of float16.

    Layers cast such numbers to their compute dtype. In float16, values beyond 65504 become
    infinite, and values below 0.00000003 become 0. A Rescaling layer returns infinity and NaN for a
    scale of 1e6, and zeros for a scale of 1e-8. A Masking layer with the value -1e9 does not mask
    in Keras 3 and returns NaN in tf_keras. A Normalization layer divides by infinity. The rule
    checks only config keys whose conversion to float16 affects the results. It skips bfloat16,
    which has the same range as float32.

    Sources: measured on CPU with tf_keras 2.21 and Keras 3.15, with each key set to 1e6 and to
    1e-8, under float32 and mixed_float16. Apple's coremltools keeps an op in float32 if one of its
    constants is beyond 65504 (mil/passes/defs/quantization.py), and OpenVINO keeps an op in float32
    if its epsilon is below 6.1e-05.
    """
    loaded = judged_model(case, options)
    if loaded is None:
        return
    for index, site in enumerate(loaded.sites):
        if compute_dtype(loaded, index) == "float16" and not custom_classes.is_opaque(site):
            layer = loaded.layers[index]
            for key, value, rounded in numbers_out_of_range(site.class_name, loaded.config(index)):
                message = (
                    f"{layer.path} ({site.class_name}) computes in float16 and has a {key} "
                    f"of {value:g}, which becomes {rounded} in float16"
                )
                yield constant_out_of_range.finding(
                    message,
                    path=layer.path,
                    address=layer.address,
                    detail=key,
                    remedy=float32_remedy(loaded, (index,)),
                )
