"""What the user asks a migration for."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from policytool.releases import dtypes, policy
from policytool.releases.releases import running_release, target_and_containers
from policytool.support.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

RETARGETS: Final = ("float16", "bfloat16", "float32", "float64", "mixed_float16", "mixed_bfloat16")
"""The policies that a model can be changed to without quantising its weights."""


class Outputs(StrEnum):
    """What becomes of the layers that make a model's outputs under a 16-bit policy."""

    KEEP = "keep"
    FOLLOW = "follow"


class LossScales(StrEnum):
    """What becomes of a policy's loss scale."""

    DROP = "drop"
    KEEP = "keep"


class Optimizers(StrEnum):
    """What becomes of a saved optimizer when the model's policy changes."""

    FOLLOW = "follow"
    KEEP = "keep"


@dataclass(frozen=True, kw_only=True, slots=True)
class Assignment:
    """One ``--set PATTERN=POLICY``."""

    pattern: str
    policy: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Options:
    """One call's options; the defaults modernise and change nothing else."""

    to: str | None = None
    assignments: tuple[Assignment, ...] = ()
    include_exceptions: bool = False
    outputs: Outputs = Outputs.KEEP
    loss_scale: LossScales = LossScales.DROP
    optimizer: Optimizers = Optimizers.FOLLOW
    target: str | None = None
    """The loader to write for, such as ``tf2.4``; None for the spelling of the newest."""

    target_name: str | None = None
    """The name by which the target was asked for, which the output gets: ``keras3``, ``tf2.14``."""

    running: str | None = None
    """The release that is to run the result, if it is written as for an older one, ``target``."""

    containers: tuple[str, ...] = ()
    """
    The containers that the target takes, where it takes fewer than the loader that it is written
    as.
    """

    allow_weight_rewrite: bool = False
    """
    Whether a conversion may multiply weights, where a function is another in the target and nothing
    else gives the same results.
    """

    retrace: bool = False
    """
    Whether a SavedModel is built and traced anew, so that its graph and its checkpoint follow its
    metadata.
    """

    @property
    def suffix(self) -> str:
        """What the default name of the output says."""
        return (
            self.to
            or self.target_name
            or self.target
            or ("retraced" if self.retrace else "migrated")
        )


def checked_policy(name: str, option: str) -> str:
    """
    Return the name of a policy that a layer can be changed to.

    :raises UsageError: for names that no release has, removed ones, quantised ones, and dtypes that
        no layer computes in.
    """
    named_policy = policy.policy_from_name(name)
    if name in RETARGETS:
        return name
    valid = ", ".join(RETARGETS)
    if named_policy.quantization:
        raise UsageError(
            f"{option} {name} would quantize weights; use model.quantize() in Keras instead. "
            f"{option} supports {valid}"
        )
    life = policy.lifecycle(named_policy)
    if life.removed:
        raise UsageError(
            f"{option} {name} uses a policy name that {life.removed} removed; use "
            f"{life.replacement} instead. {option} supports {valid}"
        )
    what = "is not a dtype that layers support" if dtypes.is_float(name) else "is not a float dtype"
    raise UsageError(f"{option} {name} {what}; {option} supports {valid}")


def assignment(text: str) -> Assignment:
    """
    Return what ``PATTERN=POLICY`` says.

    :raises UsageError: for text of another form and for policies that no layer can have.
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
) -> Options:
    """
    Return the options that the arguments of a call ask for.

    :param assignments: texts of the form ``PATTERN=POLICY``
    :param include: the layers that ``to`` changes too: ``exceptions``, ``outputs``
    :param keep: what a new policy does not change: ``loss-scale``, ``optimizer``
    :param target: a release by any name that ``--target`` accepts
    :raises UsageError: for policies that no layer can have, and for a name that is not a release.
    """
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
