"""Rules about the formats of stored policies."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from msgspec.structs import replace

from policytool.formats.document import Address
from policytool.migration import planning
from policytool.migration.planning.options import RETARGETS
from policytool.migration.planning.policy_formats import NEEDS_DECISION
from policytool.migration.planning.training import has_explicit_scale
from policytool.model import writer_version
from policytool.model.compatibility.evidence import Evidence
from policytool.model.compatibility.incompatibilities import REFUSALS
from policytool.model.loaded_model import current_name
from policytool.model.model import Obstacle, verdict_of
from policytool.releases import keras_objects, policy
from policytool.releases.keras_objects import SHARED_ID
from policytool.releases.policy import PolicyMap
from policytool.releases.policy_formats import KERAS2_CLASSES
from policytool.releases.releases import TFJS, release_name
from policytool.rules.base import Fix, Needs, Remedy, Severity, rule
from policytool.rules.stored_policies import (
    StoredPolicy,
    describe_layers,
    group_by_name,
    policy_place,
    stored_policies,
)
from policytool.support.grouping import group_pairs
from policytool.support.text import jsontext

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from policytool.model.loaded_model import LoadedModel
    from policytool.model.model import Verdict
    from policytool.rules.base import AuditOptions, Finding, RuleInput
    from policytool.support.text.jsontext import Json


def _policies(case: RuleInput) -> tuple[StoredPolicy, ...]:
    """Return the policies of a model's layers as its file stores them."""
    return stored_policies(case.loaded) if case.loaded is not None else ()


@rule(
    id="PT101",
    severity=Severity.WARNING,
    fix=Fix.SAFE,
    example='"dtype": {"class_name": "PolicyV1", "config": {"name": "mixed_float16", "loss_scale": '
    '{"class_name": "FixedLossScale", ...}}}',
)
def experimental_policy(case: RuleInput, options: AuditOptions) -> Iterator[Finding]:
    """
    Layers use a policy created with the experimental API of TF 2.0 to 2.8.

    For these policies, TF 2.1 to 2.3 wrote ``Policy`` with a ``loss_scale``, and TF 2.4 to 2.8
    wrote ``PolicyV1``. Current releases write neither format. TF 2.1 to 2.3 cannot read PolicyV1,
    Keras 3 cannot read either format, and TF 2.4 and later silently drop the loss scale.
    ``migrate`` writes only the policy name, which keeps predictions unchanged. The rules
    loss-scale-dropped and ineffective-loss-scale report how the dropped loss scale affects
    training. With ``--target``, the finding is a note, because incompatible-policy-format reports
    targets that cannot read the format. It is also a note for models that run without their
    policies: SavedModels with signatures, and TensorFlow.js models.

    Sources: tensorflow/python/keras/mixed_precision/policy.py in TF 2.3.4 and 2.5.3; the
    measurements in docs/reference/compatibility.md.
    """
    policies = [entry for entry in _policies(case) if entry.is_experimental]
    if policies:
        path, layers = describe_layers(policies)
        names = ", ".join(sorted({str(entry.name) for entry in policies}))
        classes = " and ".join(sorted({str(entry.class_name) for entry in policies}))
        scaled = (
            " with a loss scale"
            if any(has_explicit_scale(entry.value) for entry in policies)
            else ""
        )
        message = (
            f"{layers} {'uses' if path else 'use'} {names} in the format of the "
            f"experimental API ({classes}{scaled})"
        )
        is_exported = bool(case.model.signatures) or case.model.format == TFJS
        is_note = is_exported or bool(options.targets)
        yield experimental_policy.finding(
            message,
            path=path,
            address=policies[0].address,
            severity=Severity.NOTE if is_note else None,
            remedy=Remedy(fix=Fix.SAFE),
        )


@rule(
    id="PT102",
    severity=Severity.ERROR,
    fix=Fix.SAFE,
    example='"dtype": "float16_with_float32_vars"',
)
def removed_policy_name(case: RuleInput, _options: AuditOptions) -> Iterator[Finding]:
    """
    Layers use a policy name that later releases removed.

    TF 1.15 and 2.0 supported ``<dtype>_with_float32_vars``, such as ``float16_with_float32_vars``.
    TF 2.1 and later raise an error for these names, and even TF 1.15 and 2.0 fail to load files
    that contain them. Only Keras 3.1 and 3.2 supported int8 quantization with float16 as the
    compute dtype. ``migrate`` writes the current names of these policies, ``mixed_float16`` and
    ``mixed_bfloat16``. ``float64_with_float32_vars`` has no equivalent.

    Sources: tensorflow/python/keras/mixed_precision/experimental/policy.py in TF 2.0.4 and 2.1.4;
    keras/src/dtype_policies/dtype_policy.py in Keras 3.2 and 3.3; measured with
    ``Dense.from_config`` in TF 2.0 to 2.15, tf_keras 2.21 and Keras 3.0 to 3.15, all of which raise
    an error.
    """
    policies = [entry for entry in _policies(case) if entry.is_removed]
    for name, renamed in group_by_name(policies).items():
        path, layers = describe_layers(renamed)
        life = policy.lifecycle(policy.policy_from_name(name))
        message = (
            f"{layers} {'uses' if path else 'use'} the policy name {name}, which {life.removed} "
            f"removed; the current name is {life.replacement}"
        )
        remedy = _rename_remedy(name, str(life.replacement), renamed)
        yield removed_policy_name.finding(
            message,
            path=path,
            address=renamed[0].address,
            detail=name,
            remedy=remedy,
            advice=None if remedy else f"use {life.replacement} instead",
        )


def _rename_remedy(name: str, replacement: str, policies: list[StoredPolicy]) -> Remedy | None:
    if current_name(name) != name:
        return Remedy(fix=Fix.SAFE)
    if replacement not in RETARGETS or not all(entry.is_layer for entry in policies):
        return None
    return Remedy(
        fix=Fix.UNSAFE, assignments=tuple((entry.path, replacement) for entry in policies)
    )


_IMPLICIT_INFER: Final = "_infer"


_EXPLICIT_INFER: Final = "infer"


@rule(
    id="PT103",
    severity=Severity.ERROR,
    example='"dtype": {"class_name": "Policy", "config": {"name": "infer"}}',
)
def infer_policy(case: RuleInput, _options: AuditOptions) -> Iterator[Finding]:
    """
    Layers infer their dtype from their first input (policies ``infer`` and ``_infer``).

    The file does not contain the compute dtype of such a layer: with a float64 input, the layer
    computes in float64. TF 2.3 to tf_keras 2.21 read ``_infer`` in a ``Policy`` or ``PolicyV1``
    dict; TF 2.1 and 2.2 read ``infer`` in a ``Policy`` dict. No release can read these policies in
    any other format, and Keras 3 cannot read them in any format.

    Sources: tensorflow/python/keras/mixed_precision/experimental/policy.py in TF 2.2.3 and 2.3.4;
    measured with ``Dense.from_config`` in TF 2.0 to 2.15, tf_keras 2.21 and Keras 3.0 to 3.15.
    """
    policies = [entry for entry in _policies(case) if entry.is_inferred]
    for name, inferred in group_by_name(policies).items():
        path, layers = describe_layers(inferred)
        severity, loaders = _infer_support(name, inferred)
        message = (
            f"{layers} {'uses' if path else 'use'} the policy {name}, which infers the dtype from "
            f"the first input; {loaders}"
        )
        advice = f"set a policy: policytool migrate --set '{path or 'PATTERN'}=POLICY'"
        yield infer_policy.finding(
            message,
            path=path,
            address=inferred[0].address,
            detail=name,
            severity=severity,
            advice=advice,
        )


def _infer_support(name: str, policies: Sequence[StoredPolicy]) -> tuple[Severity, str]:
    if name == _IMPLICIT_INFER and all(entry.class_name in KERAS2_CLASSES for entry in policies):
        return Severity.WARNING, "TF 2.4 and later and tf_keras can read it, but Keras 3 cannot"
    if name == _EXPLICIT_INFER and all(entry.class_name == "Policy" for entry in policies):
        return Severity.ERROR, "only TF 2.1 and 2.2 read it"
    return Severity.ERROR, "no release reads it"


@rule(
    id="PT104",
    severity=Severity.ERROR,
    fix=Fix.SAFE,
    example='"dtype": {"class_name": "Policy", "config": {"name": "mixed_float16"}}, audited with '
    "--target keras3",
    needs=Needs.TARGET,
)
def incompatible_policy_format(case: RuleInput, options: AuditOptions) -> Iterator[Finding]:
    """
    Policy format is not supported by the target release.

    TF 2.1 to 2.4 read mixed policies only from dicts, not from plain names: TF 2.1 to 2.3 from
    ``Policy`` dicts, and TF 2.4 also from ``PolicyV1`` dicts, as do later releases and tf_keras.
    Keras 3.4 and later write ``DTypePolicy`` dicts, which Keras 2 cannot read. Keras 3.3 and later
    cannot read Keras 2 dicts. TF 2.5 and all later releases can read a plain policy name. This rule
    covers only the policy format; the loading rules (PT5) report other incompatibilities.

    Sources: measured with 15 releases, which loaded 872 files written by 17 releases and 250 files
    written by ``migrate``; the table in docs/reference/compatibility.md.
    """
    loaded = case.loaded
    if loaded is None:
        return
    for target in options.targets:
        reason = _policy_reason(case.model.loaders, target)
        if reason is not None:
            path, layers = describe_layers(_unreadable_policies(loaded, reason))
            remedy, advice = _format_remedy(loaded, target)
            message = f"{release_name(target)} cannot read the policy of {layers}: {reason}"
            yield incompatible_policy_format.finding(
                message, path=path, detail=target, remedy=remedy, advice=advice
            )


def _policy_reason(verdicts: Sequence[Verdict], target: str) -> str | None:
    """Return the reason why a target cannot read the policies; None if it can."""
    verdict = verdict_of(verdicts, target)
    causes = verdict.causes if verdict is not None else ()
    return next((cause.reason for cause in causes if cause.kind is Obstacle.POLICY), None)


def _unreadable_policies(loaded: LoadedModel, reason: str) -> list[StoredPolicy]:
    """Return the policies that cause a reason: each alone would make the release fail with it."""
    releases = frozenset(release.id for release in loaded.origins)
    blank = Evidence(document=loaded.document, traits=writer_version.of({}), releases=releases)
    rows = [
        row
        for row in REFUSALS
        if row.reason == reason
        and row.kind is Obstacle.POLICY
        and loaded.document.format in row.formats
    ]
    policies = stored_policies(loaded)
    unreadable = [
        entry
        for entry in policies
        if any(
            row.shows(replace(blank, traits=writer_version.of({"dtype": entry.value})))
            for row in rows
        )
    ]
    return unreadable or list(policies)


def _format_remedy(loaded: LoadedModel, target: str) -> tuple[Remedy | None, str | None]:
    """
    Return the migration after which the target can read the policies, or otherwise advice. The
    migration uses the newest policy format if the target supports it, and else its own format.
    """
    advice = f"PT501 reports further incompatibilities with {release_name(target)}"
    if any(
        isinstance(entry, PolicyMap) or entry.quantization for entry in loaded.own_policies.values()
    ):
        advice = "no policy format of the target release can represent the policy"
    for option in (None, target):
        plan = planning.plan(loaded, planning.Options(target=option))
        if plan.edits and not plan.refusals and _policy_reason(plan.loaders_after, target) is None:
            return Remedy(fix=Fix.SAFE, target=option), None
        advice = next(
            (
                f"migrate requires a decision: {refusal.message}"
                for refusal in plan.refusals
                if refusal.code == NEEDS_DECISION
            ),
            advice,
        )
    return None, advice


_MIXED_FORMATS: Final = "mixed-policy-formats"


@rule(
    id="PT105",
    severity=Severity.WARNING,
    fix=Fix.SAFE,
    example='"dtype": {"class_name": "Policy", ...} in one layer and {"class_name": "DTypePolicy", '
    "...} in another",
)
def mixed_policy_formats(case: RuleInput, _options: AuditOptions) -> Iterator[Finding]:
    """
    File mixes policy formats from different releases.

    Each release writes all policies in a single format. If a file contains both Keras 2 and Keras 3
    dicts, or a version number that does not match the format of its config, the config was edited,
    merged or converted. Such a file may fail to load in every release: Keras 2 cannot read one of
    the formats, and Keras 3 cannot read the other. The rule does not report mixed formats if a
    single release reads them all. For example, it accepts files written by ``migrate``, which omits
    keys with default values and writes policies as names.

    Sources: the policy formats in files written by TF 1.15 to 2.15, tf_keras 2.21 and Keras 3.0 to
    3.15.
    """
    for observation in case.observations(_MIXED_FORMATS):
        yield mixed_policy_formats.finding(
            observation.message,
            detail=_MIXED_FORMATS,
            severity=Severity.NOTE,
            advice="list the policies of the layers with policytool inspect",
        )
    policies = [entry for entry in _policies(case) if entry.class_name is not None]
    old, new = (
        [entry for entry in policies if (entry.class_name in KERAS2_CLASSES) is is_outdated]
        for is_outdated in (True, False)
    )
    if old and new:
        (_, in_keras2), (_, in_keras3) = describe_layers(old), describe_layers(new)
        message = (
            f"policies use the Keras 2 format in {in_keras2} and the Keras 3 format in "
            f"{in_keras3}, and no release reads both"
        )
        yield mixed_policy_formats.finding(message, detail="policies", remedy=Remedy(fix=Fix.SAFE))


_NUMBERED_ARCHIVES: Final = "tf2.12"
"""The release whose ``.keras`` files are read by object number, unlike those of later releases."""


_LONGEST_NAME: Final = 60


class NumberedObject(NamedTuple):
    """An object with a number, and its address."""

    root: Address
    steps: tuple[str | int, ...]
    value: dict[str, Any]

    @property
    def address(self) -> Address:
        """The address of the object; created only for findings, because it is text."""
        return Address.below(self.root, *self.steps)


@rule(
    id="PT106",
    severity=Severity.WARNING,
    fix=Fix.UNSAFE,
    example='{"class_name": "Policy", "config": {"name": "mixed_float16"}, "shared_object_id": 5} '
    'and the same number for "mixed_bfloat16"',
)
def shared_object_id(case: RuleInput, _options: AuditOptions) -> Iterator[Finding]:
    """
    Different objects have the same ``shared_object_id``.

    TF 2.5 and later assign numbers to the objects in a config, and repeat the config of a shared
    object wherever it is used. If several objects have the same number, TF 2.5 to tf_keras 2.21
    silently replace all of them with the first one, even if their values or classes differ. Editing
    any copy of a shared policy except the first therefore has no effect. Likewise, an initializer
    is replaced if an earlier object has the same number.

    Sources: tensorflow/python/keras/utils/generic_utils.py in TF 2.5.3
    (``SharedObjectLoadingScope``); measured with files written by TF 2.5 to 2.15 and loaded in TF
    2.5 to 2.15 and tf_keras 2.21. In these files, the policy of one layer was changed, or
    initializers of two different classes were given the same number. Objects are replaced in HDF5
    files, SavedModels, and ``.keras`` files written by TF 2.12. In JSON, TF 2.12 and earlier
    replace all objects, and later releases replace all objects except policies. In ``.keras`` files
    written by TF 2.13 and later or by Keras 3, no objects are replaced, so this rule does not check
    these files.
    """
    loaded = case.loaded
    if loaded is None or (
        case.document.format == "keras"
        and {release.id for release in loaded.origins} != {_NUMBERED_ARCHIVES}
    ):
        return
    for objects in _objects_by_number(loaded).values():
        first = objects[0]
        different = [entry for entry in objects[1:] if entry.value != first.value]
        first_text = _object_text(first.value) if different else ""
        others = [entry for entry in different if _object_text(entry.value) != first_text]
        if others:
            yield _shared_id_finding(loaded, first, others)


def _shared_id_finding(
    loaded: LoadedModel, first: NumberedObject, others: list[NumberedObject]
) -> Finding:
    other = others[0]
    further_words, verb = (
        (f" and {len(others) - 1} more", "have") if len(others) > 1 else ("", "has")
    )
    message = (
        f"{_describe_object(other.value)} at {policy_place(loaded, other.address)}{further_words} "
        f"{verb} the same {SHARED_ID} ({first.value[SHARED_ID]}) as "
        f"{_describe_object(first.value)} at {policy_place(loaded, first.address)}, and releases "
        "use only the latter"
    )
    policies = all(
        keras_objects.class_of(entry.value) in KERAS2_CLASSES for entry in (first, *others)
    )
    remedy = Remedy(fix=Fix.UNSAFE) if policies else None
    classes = "/".join(
        sorted({str(keras_objects.class_of(entry.value)) for entry in (first, *others)})
    )
    advice = None if remedy else f"remove the {SHARED_ID} from the objects that differ"
    return shared_object_id.finding(
        message, address=other.address, detail=classes, remedy=remedy, advice=advice
    )


def _objects_by_number(loaded: LoadedModel) -> dict[tuple[str, Json], list[NumberedObject]]:
    """
    Return the objects of each number, in the order in which releases read them. The numbers in the
    two files of TF 2.5 are independent.
    """
    return group_pairs(
        ((root.part.partition("#")[0], number), NumberedObject(root, steps, value))
        for root, config in loaded.configs
        for steps, value in jsontext.containers(config)
        if isinstance(value, dict)
        and isinstance(number := value.get(SHARED_ID), int)
        and keras_objects.CLASS in value
        and "config" in value
    )


def _object_text(value: Json) -> str:
    """Return the class and the config of an object as text, without object numbers."""
    serialized = keras_objects.read(value)
    return json.dumps(
        jsontext.without(
            value
            if serialized is None
            else keras_objects.short(serialized.class_name, serialized.config),
            SHARED_ID,
        ),
        sort_keys=True,
    )


def _describe_object(value: dict[str, Any]) -> str:
    name = keras_objects.arguments_of(value).get("name")
    class_name = str(keras_objects.class_of(value))
    text = f"{class_name} {name}" if isinstance(name, str) else class_name
    return text if len(text) <= _LONGEST_NAME else f"{text[:_LONGEST_NAME]}..."


@rule(
    id="PT107",
    severity=Severity.ERROR,
    example='"dtype": "mixed_flaot16"',
)
def unknown_policy(case: RuleInput, _options: AuditOptions) -> Iterator[Finding]:
    """
    Policy does not exist in any Keras release.

    TF 1.15 to 2.15, tf_keras 2.21 and Keras 3.0 to 3.15 have no policy with this name or class. The
    policy is a typo, a custom class, or newer than this version of policytool. The model fails to
    load unless you pass a custom object with this name.

    Source: the names and classes that each release reads and writes, determined by running the
    releases.
    """
    addresses = {layer.path: layer.address for layer in case.model.layers}
    for observation in case.observations("unknown-policy"):
        path = observation.where
        advice = f"set another policy: policytool migrate --set '{path}=POLICY'"
        yield unknown_policy.finding(
            observation.message, path=path, address=addresses.get(path or ""), advice=advice
        )


_KERAS2_CLASS: Final = "Policy"


@rule(
    id="PT108",
    severity=Severity.NOTE,
    fix=Fix.SAFE,
    example='"dtype": {"class_name": "Policy", "config": {"name": "mixed_float16"}}',
)
def keras2_policy_dict(case: RuleInput, options: AuditOptions) -> Iterator[Finding]:
    """
    Policies are stored as Keras 2 dicts, so the model fails to load in Keras 3.

    TF 2.1 to 2.15 and tf_keras write a mixed policy as a ``Policy`` dict, which they can also read.
    Keras 3 fails with ``'str' object has no attribute 'quantization_mode'``. TF 2.5 and later,
    tf_keras and every Keras 3 release read the policy name, which ``migrate`` writes instead. With
    ``--target``, the rule incompatible-policy-format reports such policies for each target that
    cannot read them.

    Sources: keras/src/dtype_policies/__init__.py in Keras 3.15 (``deserialize``); measured with
    Keras 3.0 to 3.15 on files written by 12 releases; leondgarse/Keras_insightface issue 132.
    """
    # Other rules report policies of the experimental API, removed names, and policies that a
    # target cannot read.
    if options.targets:
        return
    policies = [entry for entry in _policies(case) if entry.class_name == _KERAS2_CLASS]
    plain = [
        entry
        for entry in policies
        if not (entry.is_experimental or entry.is_removed or entry.is_inferred)
    ]
    if plain:
        path, layers = describe_layers(plain)
        names = ", ".join(sorted({str(entry.name) for entry in plain}))
        message = (
            f"{layers} {'stores' if path else 'store'} {names} as a Keras 2 dict, which Keras "
            "3 cannot read"
        )
        yield keras2_policy_dict.finding(
            message, path=path, address=plain[0].address, remedy=Remedy(fix=Fix.SAFE)
        )
