"""Messages about values and dtypes while a model runs."""

from __future__ import annotations

from typing import Final

from policytool.troubleshooting.entry import KERAS, Entry, Family, Step, exact, issue, likely

_DTYPES: Final = r"(?:float16|bfloat16|float32|float64|half|float|double)"

NUMERICS: Final = Family(
    title="Values and dtypes at run time",
    entries=(
        Entry(
            id="nan",
            title="InvalidArgumentError: Tensor had NaN values",
            patterns=(
                exact(r"Tensor had (?:-?Inf(?:inity)?|NaN)(?: and (?:-?Inf|NaN))? values"),
                exact(r"Detected Infinity or NaN in output \d"),
                exact(r"Invalid loss, terminating training"),
                likely(r"(?:^|[ ,-])(?:val_)?loss: (?:nan|inf)\b"),
            ),
            releases="all releases",
            cause=(
                "A layer computes NaN or infinity. float16 represents at most 65,504, and flushes "
                "values below 6e-8 to zero: large activations, `exp`, small epsilons and masks "
                "overflow or divide by zero."
            ),
            check=Step(
                text="Find settings and weights that float16 cannot represent:",
                command="policytool audit model.h5 --weights --select PT3",
            ),
            fix=(
                Step(
                    text=(
                        "Find the layer with your data: `policytool check model.h5 --to "
                        "mixed_float16 --inputs data.npz`. `policytool tune` finds the layers to "
                        "keep in float32."
                    )
                ),
                Step(
                    text="Or use bfloat16, which has the range of float32:",
                    command="policytool migrate model.h5 --to mixed_bfloat16",
                ),
                Step(text="In training, scale the loss with a `LossScaleOptimizer`."),
            ),
            sources=(
                issue("keras-team/keras", 22586),
                issue("keras-team/keras", 17571),
                issue("tensorflow/models", 10426),
            ),
        ),
        Entry(
            id="mixed-dtypes",
            title=(
                "TypeError: Input 'y' of 'AddV2' Op has type float32 that does not match "
                "type float16"
            ),
            patterns=(
                exact(rf"Op has type {_DTYPES} that does not match type {_DTYPES}"),
                exact(
                    r"cannot compute \w{1,60} as input #\d\(zero-based\) was expected to be an? "
                    rf"{_DTYPES} tensor but is an? {_DTYPES} tensor"
                ),
                exact(
                    rf"Tensor conversion requested dtype {_DTYPES} for Tensor with dtype {_DTYPES}"
                ),
                likely(rf"must have the same dtype, got .{{0,60}}?{_DTYPES}", KERAS),
            ),
            releases="all releases",
            cause=(
                "A layer combines tensors of two dtypes: a custom layer creates float32 tensors "
                "under a mixed policy, an RNN and its cell have different policies, or TensorFlow "
                "functions connect layers of different policies."
            ),
            check=Step(
                text="Show the policy of each layer:", command="policytool inspect model.h5"
            ),
            fix=(
                Step(
                    text=("In a custom layer, cast constants and weights to `self.compute_dtype`.")
                ),
                Step(
                    text="Or give all layers one policy:",
                    command="policytool migrate model.h5 --to float32 --include-exceptions",
                ),
            ),
            sources=(
                issue("tensorflow/similarity", 303),
                issue("keras-team/keras", 16907),
                issue("tensorflow/tensorflow", 46064),
            ),
        ),
        Entry(
            id="no-kernel",
            title=(
                "NotFoundError: Could not find device for node: ... All kernels registered "
                "for op MaxPool3D"
            ),
            patterns=(
                exact(r"Could not find device for node.{0,300}T=DT_(?:HALF|BFLOAT16)"),
                exact(r"Value for attr 'T' of (?:bfloat16|half) is not in the list of allowed"),
                exact(r"No OpKernel was registered to support Op .{0,200}DT_(?:HALF|BFLOAT16)"),
                likely(r"No OpKernel was registered to support Op"),
                likely(r"Could not find device for node"),
            ),
            releases="all releases",
            cause=(
                "TensorFlow has no implementation of the op for this dtype and device, such as "
                "MaxPooling3D in float16 on a CPU, or the initializer of an LSTM in pure bfloat16."
            ),
            check=Step(
                text="Find such layers for a device:",
                command="policytool audit model.h5 --device cpu --select PT310",
            ),
            fix=(
                Step(
                    text="Give the layer a policy with an implementation:",
                    command="policytool migrate model.h5 --to float32 --include-exceptions",
                ),
                Step(
                    text=(
                        "Instead of pure bfloat16 or float16, use mixed_bfloat16 or mixed_float16."
                    )
                ),
            ),
            sources=(issue("tensorflow/tensorflow", 59743),),
        ),
    ),
)
