"""The options of a migration."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from policytool.releases import dtypes, policy
from policytool.releases.releases import running_release, target_and_containers
from policytool.support.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

UNCHANGED_POLICIES: Final = "migrated"
"""The suffix of an output that no option names, which has the policies of the original."""

RETARGETS: Final = ("float16", "bfloat16", "float32", "float64", "mixed_float16", "mixed_bfloat16")
"""The policies that a migration can set without quantizing weights."""

QUANTIZATIONS: Final = ("int8", "int4")
"""The modes in which Keras 3 quantizes layers for ``check`` and ``tune``."""

_UNQUANTIZED: Final = "float32"
"""The policy with which ``--set`` leaves a layer unquantized."""


class Outputs(StrEnum):
    """Whether a 16-bit policy applies to the layers that compute the model's outputs."""

    KEEP = "keep"
    FOLLOW = "follow"


class LossScales(StrEnum):
    """Whether the loss scale of a policy is kept."""

    DROP = "drop"
    KEEP = "keep"


class Optimizers(StrEnum):
    """Whether a saved optimizer changes with the policy of the model."""

    FOLLOW = "follow"
    KEEP = "keep"


class Assignment(Struct, frozen=True, kw_only=True):
    """An option ``--set PATTERN=POLICY``."""

    pattern: str
    policy: str


class Options(Struct, frozen=True, kw_only=True):
    """The options of a call. The defaults only upgrade policy formats."""

    to: str | None = None
    assignments: tuple[Assignment, ...] = ()
    include_exceptions: bool = False
    outputs: Outputs = Outputs.KEEP
    loss_scale: LossScales = LossScales.DROP
    optimizer: Optimizers = Optimizers.FOLLOW
    target: str | None = None
    """The target release, such as ``tf2.4``; None for the policy format of the newest release."""

    target_name: str | None = None
    """The target as the user named it, used in the output name: ``keras3``, ``tf2.14``."""

    running: str | None = None
    """The release that will run the result, if ``target`` is an older release."""

    containers: tuple[str, ...] = ()
    """
    The containers that the target supports, if they are fewer than those of the release ``target``.
    """

    allow_weight_rewrite: bool = False
    """
    Whether a conversion may multiply weights, if a function differs in the target and no other
    change gives the same results.
    """

    retrace: bool = False
    """Whether a SavedModel is re-exported, so that its graph and checkpoint match its metadata."""

    @property
    def quantizes(self) -> bool:
        """Whether Keras quantizes the layers, except those that are set to float32."""
        return self.to in QUANTIZATIONS

    @property
    def suffix(self) -> str:
        """The suffix in the default name of the output."""
        return (
            self.to
            or self.target_name
            or self.target
            or ("retraced" if self.retrace else UNCHANGED_POLICIES)
        )


def checked_policy(name: str, option: str) -> str:
    """
    Return the name of a policy if a migration can set it.

    :raises UsageError: if the policy is unknown, removed or quantized, or if no layer computes in
        the dtype.
    """
    if name in RETARGETS:
        return name
    valid = ", ".join(RETARGETS)
    if name == "float8":
        raise UsageError(
            f"{option} {name} is for training: the file keeps its float32 weights, and saves no "
            f"bytes; use `policytool tune --to {QUANTIZATIONS[0]}`. {option} supports {valid}"
        )
    named_policy = policy.policy_from_name(name)
    if named_policy.quantization or name in QUANTIZATIONS:
        mode = name if name in QUANTIZATIONS else QUANTIZATIONS[0]
        raise UsageError(
            f"{option} {name} would quantize weights; use `policytool tune --to {mode}`, or "
            f"model.quantize() in Keras. {option} supports {valid}"
        )
    life = policy.lifecycle(named_policy)
    if life.removed:
        raise UsageError(
            f"{option} {name} uses a policy name that {life.removed} removed; use "
            f"{life.replacement} instead. {option} supports {valid}"
        )
    reason = (
        "is not a dtype that layers support" if dtypes.is_float(name) else "is not a float dtype"
    )
    raise UsageError(f"{option} {name} {reason}; {option} supports {valid}")


def assignment(text: str) -> Assignment:
    """
    Parse ``PATTERN=POLICY``.

    :raises UsageError: if the text has another form, or if a migration cannot set the policy.
    """
    pattern, equals, name = text.rpartition("=")
    if not equals or not pattern:
        raise UsageError(
            f"--set {text!r} is not in the form PATTERN=POLICY, where PATTERN is a layer path or "
            "a regular expression"
        )
    return Assignment(pattern=pattern, policy=checked_policy(name, "--set"))


def options_from_arguments(
    to: str | None,
    assignments: Iterable[str],
    *,
    include: Collection[str] = (),
    keep: Collection[str] = (),
    target: str | None = None,
    allow_weight_rewrite: bool = False,
    retrace: bool = False,
    quantizes: bool = False,
) -> Options:
    """
    Return the options for the arguments of a call.

    :param assignments: texts of the form ``PATTERN=POLICY``
    :param include: additional layers that ``to`` changes: ``exceptions``, ``outputs``
    :param keep: settings that a new policy does not change: ``loss-scale``, ``optimizer``
    :param target: a release by any name that ``--target`` accepts
    :param quantizes: whether ``to`` may be one of :data:`QUANTIZATIONS`
    :raises UsageError: if a migration cannot set a policy, or if the target is not a release.
    """
    if quantizes and to in QUANTIZATIONS:
        return _quantization(to, [assignment(text) for text in assignments], include)
    loader, containers = target_and_containers(target) if target is not None else (None, ())
    return Options(
        to=checked_policy(to, "--to") if to is not None else None,
        assignments=tuple(assignment(text) for text in assignments),
        include_exceptions="exceptions" in include,
        outputs=Outputs.FOLLOW if "outputs" in include else Outputs.KEEP,
        loss_scale=LossScales.KEEP if "loss-scale" in keep else LossScales.DROP,
        optimizer=Optimizers.KEEP if "optimizer" in keep else Optimizers.FOLLOW,
        target=loader,
        target_name=target,
        running=running_release(target),
        containers=containers,
        allow_weight_rewrite=allow_weight_rewrite,
        retrace=retrace,
    )


def _quantization(
    mode: str, assignments: Iterable[Assignment], include: Collection[str]
) -> Options:
    """
    Return the options that quantize a model.

    :raises UsageError: if an assignment does not leave a layer unquantized, or if ``include`` names
        layers, because a quantization includes all of them.
    """
    if include:
        raise UsageError(
            f"--include applies to dtype policies, and --to {mode} quantizes all layers; remove it"
        )
    for assigned in assignments:
        if assigned.policy != _UNQUANTIZED:
            raise UsageError(
                f"--set {assigned.pattern}={assigned.policy} contradicts --to {mode}, which "
                "leaves the policies of unquantized layers unchanged; use "
                f"--set {assigned.pattern}=float32 to leave these layers unquantized"
            )
    return Options(to=mode, assignments=tuple(assignments))
