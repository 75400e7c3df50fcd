"""Options that several commands share with the same meaning."""

from collections.abc import Collection, Iterable, Mapping
from typing import Annotated, Literal

from policytool.commands.arguments.declaration import (
    Arguments,
    ArrayValues,
    Group,
    Kind,
    Option,
    StrPath,
)


class PolicyArguments(Arguments):
    """The options for policies of layers."""

    set: Annotated[
        Mapping[str, str] | Iterable[str] | None,
        Option(
            "Set the policy of matching layers. PATTERN is a layer path, or a regular expression "
            "that matches the full path.",
            Group.POLICY,
            essential=True,
            metavar="PATTERN=POLICY",
            is_automatic=True,
        ),
    ] = None
    include: Annotated[
        Collection[Literal["exceptions", "outputs"]],
        Option(
            "With --to, also change layers with an explicit policy (exceptions), or layers that "
            "compute the outputs and all after them (outputs). By default, a 16-bit policy keeps "
            "the latter in float32.",
            Group.POLICY,
            is_automatic=True,
        ),
    ] = ()


class RunArguments(Arguments):
    """The options for running a model: weights, inputs, labels and metric."""

    weights: Annotated[
        StrPath | None,
        Option(
            "Weights file, if MODEL contains only an architecture.",
            Group.INPUT,
            kind=Kind.FILE,
            metavar="FILE",
        ),
    ] = None
    inputs: Annotated[
        StrPath | ArrayValues | None,
        Option(
            "A .npz file with one array for each input, a .npy file or FILE.npz:KEY for a model "
            "with one input, or a function that returns or yields batches, such as "
            "my_data:batches.",
            Group.INPUT,
            essential=True,
            kind=Kind.INPUTS,
            metavar="FILE|MODULE:FUNCTION",
            default_text="synthetic inputs",
        ),
    ] = None
    batches: Annotated[
        int | str | None,
        Option(
            "Number of synthetic batches, or maximum number of batches from the --inputs function, "
            "and examples per batch, such as 4, 4x32 or x32.",
            Group.INPUT,
            metavar="[N][xSIZE]",
            default_text="1 synthetic batch for check and 4 for tune; all batches from the "
            "function",
        ),
    ] = None
    labels: Annotated[
        StrPath | ArrayValues | None,
        Option(
            "Labels for --metric: a .npz file with one array for each output, or a .npy file or "
            "FILE.npz:KEY for one output. Optional in tune for your own function.",
            Group.INPUT,
            essential=True,
            kind=Kind.FILE,
            metavar="FILE",
        ),
    ] = None
    metric: Annotated[
        str | None,
        Option(
            "Metric of the task or your own MODULE:FUNCTION, and the largest drop, such as "
            "accuracy=0.002.",
            Group.MEASUREMENT,
            essential=True,
            metavar="NAME[=DROP]",
            default_text="0.01; for errors, 1% of the reference",
            completion="metrics",
        ),
    ] = None


class ProcessArguments(Arguments):
    """The options for the child process that runs models, and for the code that it may run."""

    custom_objects: Annotated[
        Iterable[str] | None,
        Option(
            "Module with custom classes and functions, or a dict of them.",
            Group.TENSORFLOW,
            metavar="MODULE[:NAME]",
        ),
    ] = None
    trust: Annotated[
        bool,
        Option(
            "Load models with code that is not on the allow-list, such as Lambda layers.",
            Group.SAFETY,
            essential=True,
        ),
    ] = False
    backend: Annotated[
        Literal["auto", "tensorflow", "jax", "torch"],
        Option(
            "Backend of Keras 3. By default, that of KERAS_BACKEND or keras.json if it is "
            "installed, or else the first installed one.",
            Group.TENSORFLOW,
            is_automatic=True,
        ),
    ] = "auto"


class TensorFlowArguments(ProcessArguments):
    """The options of commands that run one child process with TensorFlow."""

    python: Annotated[
        str | None,
        Option(
            "Python interpreter with TensorFlow, a release such as tf2.15, which uv then installs, "
            "or auto for the release that fits the model. With check --against, also a range such "
            "as keras3.3..keras3.10.",
            Group.TENSORFLOW,
            metavar="PYTHON",
            has_variable=True,
        ),
    ] = None


class WriteArguments(Arguments):
    """The options for writing the new model."""

    preview: Annotated[
        bool, Option("Show the result without writing files.", Group.OUTPUT, essential=True)
    ] = False
