"""The options of commands that run models: check and tune."""

from collections.abc import Collection, Iterable, Mapping
from typing import Annotated, Literal

from policytool.commands.arguments.declaration import Group, Kind, LimitArguments, Option, StrPath
from policytool.commands.arguments.shared import (
    PolicyArguments,
    RunArguments,
    TensorFlowArguments,
    WriteArguments,
)
from policytool.numerics.check_results.verdicts import OutputKind
from policytool.numerics.tuning.search import MAX_TRIALS
from policytool.numerics.verdicts.safety import MAX_CHANGE


class CheckArguments(PolicyArguments, RunArguments, TensorFlowArguments, LimitArguments):
    """The options of ``check``."""

    to: Annotated[
        str | None,
        Option(
            "New policy, as in migrate; or int8, int4.",
            Group.POLICY,
            essential=True,
            metavar="POLICY",
            is_automatic=True,
            completion="policies",
        ),
    ] = None
    record: Annotated[
        StrPath | None,
        Option(
            "Run only MODEL, and record inputs, outputs and statistics of its layers in FILE.",
            Group.MEASUREMENT,
            essential=True,
            kind=Kind.FILE,
            metavar="FILE",
        ),
    ] = None
    against: Annotated[
        StrPath | None,
        Option(
            "Compare MODEL with the recorded run in FILE.",
            Group.MEASUREMENT,
            essential=True,
            kind=Kind.FILE,
            metavar="FILE",
        ),
    ] = None
    measure: Annotated[
        Collection[Literal["isolated", "gradients", "timing", "tf32", "deterministic", "values"]],
        Option(
            "Also measure each layer in isolation if there is no error to explain (isolated), one "
            "backward pass and the gradients that need loss scaling (gradients), latency, "
            "throughput and peak memory (timing), or the effect of TF32 on the reference, on GPUs "
            "that support it (tf32). With deterministic, measure only with deterministic kernels. "
            "With --record, also record all values of all layers (values).",
            Group.MEASUREMENT,
        ),
    ] = ()
    device: Annotated[
        str,
        Option(
            "Device to run on; all uses every GPU in parallel.",
            Group.TENSORFLOW,
            metavar="auto|cpu|gpu:N|all",
            is_automatic=True,
        ),
    ] = "auto"
    max_change: Annotated[
        float,
        Option(
            "Largest share of predictions that may change; for numbers, half of it is the largest "
            "error relative to their spread.",
            Group.MEASUREMENT,
            essential=True,
            metavar="PERCENT",
            default_text=f"{100 * MAX_CHANGE:g}",
        ),
    ] = 100 * MAX_CHANGE
    output_kind: Annotated[
        Mapping[str, str] | Iterable[str] | None,
        Option(
            "Kind of an output, if it is not recognized; can be repeated. KIND is one of "
            f"{', '.join(OutputKind)}.",
            Group.MEASUREMENT,
            metavar="NAME=KIND",
        ),
    ] = None


class TuneArguments(
    PolicyArguments, RunArguments, WriteArguments, TensorFlowArguments, LimitArguments
):
    """The options of ``tune``."""

    to: Annotated[
        str | None,
        Option(
            "Policy of the layers that are converted, such as mixed_float16; or int8 or int4, to "
            "which Keras 3 quantizes them.",
            Group.POLICY,
            essential=True,
            metavar="POLICY",
            is_automatic=True,
            completion="policies",
        ),
    ] = None
    tolerance: Annotated[
        float | Mapping[str, float] | Iterable[str] | None,
        Option(
            "Allowed relative error, for all outputs or only for those that match PATTERN.",
            Group.MEASUREMENT,
            essential=True,
            metavar="[PATTERN=]NUMBER",
            default_text="0.01, unless --metric is set",
        ),
    ] = None
    gradients: Annotated[
        bool,
        Option(
            "Also require gradients that are finite and close to those in float32.",
            Group.MEASUREMENT,
        ),
    ] = False
    budget: Annotated[
        int | str,
        Option(
            "Maximum number of sets of layers to try, or the number of seconds after which no "
            "trial begins, such as 600s.",
            Group.SEARCH,
            metavar="N|SECONDSs",
        ),
    ] = MAX_TRIALS
    resume: Annotated[
        StrPath | None,
        Option(
            "Record all trials in FILE, and continue from it if it exists.",
            Group.SEARCH,
            kind=Kind.FILE,
            metavar="FILE",
        ),
    ] = None
    output: Annotated[
        StrPath | None,
        Option(
            "Output file or directory.",
            Group.OUTPUT,
            essential=True,
            names=("-o",),
            kind=Kind.LOCAL_OUTPUT,
            metavar="FILE|DIR",
            default_text="next to the input",
        ),
    ] = None
    existing: Annotated[
        Literal["fail", "replace"],
        Option("Fail if the output exists, or replace it.", Group.SAFETY),
    ] = "fail"
    device: Annotated[
        str,
        Option("Device to run on.", Group.TENSORFLOW, metavar="auto|cpu|gpu:N", is_automatic=True),
    ] = "auto"
