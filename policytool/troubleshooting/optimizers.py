"""Messages about optimizers, losses and metrics, which `compile=True` loads."""

from __future__ import annotations

import re
from typing import Final

from policytool.troubleshooting.entry import Entry, Family, Step, exact, issue, likely

_WITHOUT: Final = Step(
    text=(
        "If you do not continue training, pass `compile=False` to `load_model`. Predictions need "
        "no optimizer."
    )
)
_TO_KERAS_3: Final = Step(
    text="To keep training, convert the model with its optimizer:",
    command="policytool migrate model.h5 --target keras3",
)
_LOSS_SCALE: Final = re.compile(r"loss_scale|LossScale")

OPTIMIZERS: Final = Family(
    title="Optimizers, losses and metrics",
    entries=(
        Entry(
            id="unknown-optimizer",
            title="ValueError: Unknown optimizer: LossScaleOptimizerV3",
            patterns=(
                exact(r"Unknown optimizer: '?(?:LossScaleOptimizer(?:V1|V3)?|Custom>\w{1,60})"),
                likely(r"Unknown optimizer: '?\w"),
            ),
            releases="TF 1.15 to 2.10",
            cause=(
                "A later release wrote the optimizer. TF 2.4 renamed `LossScaleOptimizer`, and "
                "TF 2.11 renamed all optimizers, which HDF5 files show as `Custom>Adam` or "
                "`LossScaleOptimizerV3`."
            ),
            check=Step(
                text="Show why the training configuration fails to load:",
                command="policytool audit model.h5 --target tf2.4 --select PT205",
            ),
            fix=(
                _WITHOUT,
                Step(
                    text="To keep training, convert the optimizer:",
                    command="policytool migrate model.h5 --target tf2.4",
                ),
            ),
        ),
        Entry(
            id="loss-scale-optimizer",
            title="KeyError: 'inner_optimizer'",
            patterns=(
                exact(r"KeyError: 'inner_optimizer'"),
                exact(r"LossScaleOptimizer'?>? could not be deserialized properly"),
                likely(r"KeyError: '(?:optimizer|name)'", _LOSS_SCALE),
            ),
            releases="TF 2.3 and earlier, Keras 3",
            cause=(
                "The model stores a `LossScaleOptimizer` in the format of another release. Keras 2 "
                "has three formats, and Keras 3 reads none of them."
            ),
            check=Step(
                text="Show the saved optimizer and the releases that load it:",
                command="policytool inspect model.h5 --releases all",
            ),
            fix=(_WITHOUT, _TO_KERAS_3),
        ),
        Entry(
            id="loss-scale-multiplier",
            title=(
                "ValueError: Cannot deserialize LossScaleOptimizer with a DynamicLossScale "
                "whose multiplier is not 2"
            ),
            patterns=(exact(r"DynamicLossScale whose multiplier is not 2"),),
            releases="TF 2.4 to 2.15, tf_keras",
            cause=(
                "TF 2.3 or earlier wrote a dynamic loss scale that grows by another factor than 2. "
                "Later releases support only 2."
            ),
            check=Step(text="Show the loss scale:", command="policytool inspect model.h5"),
            fix=(
                _WITHOUT,
                Step(
                    text="Or write the model without the loss scale, and with its optimizer:",
                    command="policytool migrate model.h5 --target tf2.15",
                ),
            ),
        ),
        Entry(
            id="optimizer-argument",
            title="TypeError: Unexpected keyword argument passed to optimizer: weight_decay",
            patterns=(
                exact(r"Unexpected keyword argument passed to optimizer: \w"),
                exact(r"\w{1,40} is not a valid argument, kwargs should be empty"),
                exact(r"Argument\(s\) not recognized: \{'(?:lr|decay|learning_rate|epsilon)'"),
            ),
            releases="all releases",
            cause=(
                "The saved optimizer has an argument that this release does not support: "
                "`weight_decay` and `jit_compile` since TF 2.11, or `lr` and `decay` of Keras 2.2 "
                "and earlier."
            ),
            check=Step(
                text="Show the argument:",
                command="policytool audit model.h5 --target tf2.9 --select PT205",
            ),
            fix=(
                _WITHOUT,
                Step(
                    text="To keep training, convert the optimizer, for example for TF 2.9:",
                    command="policytool migrate model.h5 --target tf2.9",
                ),
            ),
            sources=(issue("GantMan/nsfw_model", 164),),
        ),
        Entry(
            id="metric-name",
            title=(
                "ValueError: Could not deserialize 'keras.metrics.mse' because it is not a "
                "KerasSaveable subclass"
            ),
            patterns=(
                exact(r"Could not deserialize 'keras\.(?:metrics|losses)\.\w{1,60}' because it"),
                exact(
                    r"Could not locate function '(?:mse|mae|mape|msle|mean_\w{1,60}|kld|"
                    r"binary_crossentropy|accuracy|acc|r2_score)'"
                ),
                likely(r"Could not locate function '(?:\w{0,40}crossentropy|\w{0,40}accuracy)'"),
            ),
            releases="Keras 3",
            cause=(
                "The HDF5 file stores a loss or metric by its name, such as `mse`. Keras 3 does "
                "not find some of these names, even in files that it wrote."
            ),
            check=Step(
                text="Show why the training configuration fails to load:",
                command="policytool audit model.h5 --target keras3 --select PT205",
            ),
            fix=(_WITHOUT, _TO_KERAS_3),
        ),
        Entry(
            id="loss-scale-attributes",
            title="AttributeError: 'LossScaleOptimizer' object has no attribute 'get_scaled_loss'",
            patterns=(exact(r"'LossScaleOptimizer(?:V\d)?' object has no attribute '\w{1,60}'"),),
            releases="TF 2.11 to 2.15, tf_keras, Keras 3",
            cause=(
                "The methods of `LossScaleOptimizer` differ between releases: `get_scaled_loss` of "
                "Keras 2 is `scale_loss` in Keras 3. If the error appears while a model is "
                "loaded, this release cannot restore the saved optimizer."
            ),
            check=Step(
                text="Show how a saved model stores the optimizer:",
                command="policytool inspect model.h5",
            ),
            fix=(
                Step(
                    text=(
                        "In Python code, use `optimizer.scale_loss(loss)` in Keras 3, which needs "
                        "no `get_unscaled_gradients`."
                    )
                ),
                _WITHOUT,
            ),
            sources=(
                issue("tensorflow/tensorflow", 64124),
                issue("keras-team/keras", 18112),
            ),
        ),
        Entry(
            id="optimizer-state",
            title=(
                "Error in loading the saved optimizer state. ... starting with a freshly "
                "initialized optimizer"
            ),
            patterns=(
                exact(r"starting with a freshly initialized optimizer"),
                exact(r"Error in loading the saved optimizer state"),
                likely(r"Skipping variable loading for optimizer '"),
            ),
            releases="TF 2.4 to 2.15, tf_keras, Keras 3",
            cause=(
                "This release loads the model, but not the state of its optimizer, such as the "
                "moments of Adam. Training continues as if it had just begun."
            ),
            check=Step(
                text="Show which release restores the state:",
                command="policytool audit model.h5 --target tf2.15 --select PT206",
            ),
            fix=(_TO_KERAS_3, Step(text="If you do not continue training, ignore the warning.")),
        ),
    ),
)
