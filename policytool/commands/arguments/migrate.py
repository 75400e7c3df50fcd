"""The options of ``migrate``."""

from collections.abc import Collection, Mapping
from typing import Annotated, Literal

from policytool.commands.arguments.declaration import Group, Kind, LimitArguments, Option, StrPath
from policytool.commands.arguments.shared import PolicyArguments, ProcessArguments, WriteArguments


def _starts_nothing(verify: object) -> bool:
    """Return whether this value of ``verify`` never starts an additional process."""
    return verify in (False, "auto")


class MigrateArguments(PolicyArguments, WriteArguments, ProcessArguments, LimitArguments):
    """The options of ``migrate``."""

    to: Annotated[
        str | None,
        Option(
            "New policy for all layers that use the model's policy.",
            Group.POLICY,
            essential=True,
            metavar="POLICY",
            is_automatic=True,
            completion="policies",
        ),
    ] = None
    keep: Annotated[
        Collection[Literal["loss-scale", "optimizer"]],
        Option(
            "Move the loss scale of a policy to the optimizer instead of dropping it (loss-scale), "
            "or leave the saved optimizer unchanged instead of adapting its loss scaling to the "
            "new policy (optimizer).",
            Group.POLICY,
            is_automatic=True,
        ),
    ] = ()
    target: Annotated[
        str | None,
        Option(
            "Write the model for this release, such as keras3, tf_keras or tf2.4, and convert it "
            "if necessary.",
            Group.POLICY,
            essential=True,
            metavar="RELEASE",
            is_automatic=True,
            completion="targets",
        ),
    ] = None
    weights: Annotated[
        StrPath | None,
        Option(
            "With --target, the weights of an architecture (JSON, YAML): HDF5, shards or a "
            "checkpoint. The output contains both.",
            Group.INPUT,
            kind=Kind.FILE,
            metavar="FILE",
        ),
    ] = None
    allow: Annotated[
        Collection[Literal["overflow", "weight-rewrite"]],
        Option(
            "Write values that overflow the new dtype as infinity (overflow), or let conversions "
            "rescale weights if predictions would otherwise change (weight-rewrite).",
            Group.SAFETY,
        ),
    ] = ()
    retrace: Annotated[
        bool,
        Option(
            "Re-export SavedModels with TensorFlow, so that their graphs and variables follow the "
            "new policies.",
            Group.POLICY,
        ),
    ] = False
    output: Annotated[
        StrPath | None,
        Option(
            "Output file or directory, or a URL such as s3://BUCKET/DIR/.",
            Group.OUTPUT,
            essential=True,
            names=("-o",),
            kind=Kind.OUTPUT,
            metavar="FILE|DIR",
            default_text="next to the input",
        ),
    ] = None
    in_place: Annotated[
        bool | Literal["no-backup"],
        Option(
            "Replace the input, and keep the original as NAME.bak (--in-place=no-backup: do not "
            "keep it).",
            Group.OUTPUT,
            essential=True,
            kind=Kind.SWITCH_OR_CHOICE,
            metavar="[=no-backup]",
        ),
    ] = False
    existing: Annotated[
        Literal["fail", "skip", "replace"],
        Option(
            "Fail if an output or a backup exists, skip models whose output exists, for example "
            "after an interrupted run, or replace existing outputs and backups.",
            Group.SAFETY,
        ),
    ] = "fail"
    verify: Annotated[
        bool | None,
        Option(
            "Run TensorFlow to compare predictions before and after the change, and write the "
            "result only if they agree within the tolerance.",
            Group.TENSORFLOW,
            essential=True,
            kind=Kind.SWITCH_OR_AUTO,
            is_negatable=True,
            has_variable=True,
            is_automatic=True,
            is_automatic_value=_starts_nothing,
            default_text="with --target, if TensorFlow can load the model",
        ),
    ] = None
    python: Annotated[
        str | Mapping[str, str] | None,
        Option(
            "Python interpreter with TensorFlow, a release such as tf2.15, which uv then installs, "
            "or auto for the releases that fit; source=PYTHON and target=PYTHON set one for each "
            "side of a conversion.",
            Group.TENSORFLOW,
            kind=Kind.SIDES,
            metavar="[SIDE=]PYTHON",
            has_variable=True,
        ),
    ] = None
