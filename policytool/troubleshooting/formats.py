"""Messages about SavedModels and other file formats that a release does not support."""

from __future__ import annotations

import re
from typing import Final

from policytool.troubleshooting.entry import Entry, Family, Step, exact, general, issue, likely

_INSPECT: Final = Step(
    text="Show the release that wrote the model, and the releases that load it:",
    command="policytool inspect exported/ --releases all",
)
_TO_KERAS_3: Final = Step(
    text="If the SavedModel contains Keras configs, convert it for the newest Keras:",
    command="policytool migrate exported/ --target keras3",
)

FORMATS: Final = Family(
    title="File formats and SavedModels",
    entries=(
        Entry(
            id="savedmodel-in-keras-3",
            title=(
                "ValueError: File format not supported: ... Keras 3 only supports V3 `.keras` files"
            ),
            patterns=(
                exact(r"legacy SavedModel format is not supported by `?load_model"),
                exact(r"Keras 3 only supports V3 `?\.keras`? files"),
                general(r"File format not supported: filepath="),
            ),
            releases="Keras 3",
            cause=(
                "Keras 3 does not load SavedModels. `keras.layers.TFSMLayer` runs one for "
                "inference, without layers and weights."
            ),
            check=_INSPECT,
            fix=(
                _TO_KERAS_3,
                Step(
                    text=(
                        "If it does not, use "
                        "`keras.layers.TFSMLayer(path, call_endpoint='serving_default')`."
                    )
                ),
            ),
            sources=(
                issue("keras-team/keras", 18709),
                issue("cbrnr/sleepecg", 214),
                issue("IDAES/idaes-pse", 1369),
            ),
        ),
        Entry(
            id="call-endpoint",
            title=(
                "ValueError: The endpoint 'serve' is neither an attribute of the reloaded "
                "SavedModel"
            ),
            patterns=(exact(r"endpoint '.{1,80}?' is neither an attribute of the reloaded"),),
            releases="Keras 3",
            cause=(
                "`TFSMLayer` uses the endpoint `serve` by default, which only Keras 3 writes. "
                "SavedModels of Keras 2 usually have `serving_default`. A SavedModel without "
                "traces has no endpoint."
            ),
            check=Step(
                text="Show the signatures of the SavedModel:",
                command="policytool inspect exported/",
            ),
            fix=(
                Step(text="Pass a signature that exists: `call_endpoint='serving_default'`."),
                _TO_KERAS_3,
            ),
        ),
        Entry(
            id="add-slot",
            title="AttributeError: '_UserObject' object has no attribute 'add_slot'",
            patterns=(exact(r"'_UserObject' object has no attribute 'add_slot'"),),
            releases="TF 2.11 and later, Keras 3",
            cause=(
                "The SavedModel contains an optimizer of an older release, which this release "
                "cannot restore."
            ),
            check=_INSPECT,
            fix=(
                _TO_KERAS_3,
                Step(
                    text=(
                        "If it has no configs, load it in the release that wrote it, and save it "
                        "again with `include_optimizer=False`."
                    )
                ),
            ),
            sources=(
                issue("tensorflow/tensorflow", 56997),
                issue("tensorflow/tensorflow", 52091),
            ),
        ),
        Entry(
            id="user-object",
            title="AttributeError: '_UserObject' object has no attribute 'summary'",
            patterns=(
                exact(r"'_UserObject' object has no attribute '\w{1,60}'"),
                exact(r"'_UserObject' object is not callable"),
                exact(r"'AutoTrackable' object has no attribute '\w{1,60}'"),
            ),
            releases="TF 2.0 and later",
            cause=(
                "The SavedModel was loaded as a graph, not as a Keras model: it was loaded with "
                "`tf.saved_model.load`, or it has no Keras configs, like those of "
                "`model.export` in Keras 3."
            ),
            check=Step(
                text="Show the signatures, and the layers if there are configs:",
                command="policytool inspect exported/",
            ),
            fix=(
                _TO_KERAS_3,
                Step(text="Or call a signature: `model.signatures['serving_default']`."),
            ),
            sources=(issue("tensorflow/tensorflow", 40392),),
        ),
        Entry(
            id="missing-op",
            title="NotFoundError: Op type not registered 'DisableCopyOnRead'",
            patterns=(
                exact(r"Op type not registered '?DisableCopyOnRead"),
                likely(r"Op type not registered '?\w{1,80}"),
            ),
            releases="TF 2.1 to 2.11",
            cause=(
                "The graph of the SavedModel uses an op that this release does not have. TF 2.12 "
                "and later write `DisableCopyOnRead`. Another name may be a custom op, whose "
                "library must be imported first."
            ),
            check=_INSPECT,
            fix=(
                Step(
                    text="If the SavedModel contains Keras configs, write it as HDF5:",
                    command="policytool migrate exported/ --target tf2.9",
                ),
                Step(text="Or load it with the release that wrote it, or a later one."),
            ),
        ),
        Entry(
            id="savedmodel-metadata",
            title="ValueError: Error when loading ...: could not find attribute keras_api",
            patterns=(
                exact(r"could not find attribute keras_api"),
                likely(
                    r"JSONDecodeError: Expecting value: line 1 column 1 \(char 0\)",
                    re.compile(r"saved_model[/\\]load\.py"),
                ),
                likely(
                    r"KeyError: '?(?:sample_weight_mode|0)'?",
                    re.compile(r"saved_model[/\\]load\.py"),
                ),
            ),
            releases="TF 2.1 to 2.5",
            cause=(
                "A later release wrote the SavedModel. It stores the Keras metadata in another "
                "place or form, which this release does not find."
            ),
            check=_INSPECT,
            fix=(
                Step(
                    text="Write the model as HDF5 for this release:",
                    command="policytool migrate exported/ --target tf2.3",
                ),
                Step(text="Or load it with the release that wrote it, or a later one."),
            ),
        ),
        Entry(
            id="concrete-function",
            title=(
                "ValueError: Could not find matching concrete function to call loaded from "
                "the SavedModel"
            ),
            patterns=(
                exact(r"Could not find matching (?:concrete )?function to call"),
                exact(r"Cannot call custom layer .{1,300}? because the call function was not"),
            ),
            releases="TF 2.0 to 2.15, tf_keras",
            cause=(
                "A layer of the SavedModel was restored from its traces, and has no trace for "
                "these inputs: another dtype or shape, or a policy that was edited after saving."
            ),
            check=Step(
                text="Show the dtypes of the signatures, and the traced dtypes of layers:",
                command="policytool inspect exported/",
            ),
            fix=(
                Step(text="Call the model with the dtypes and shapes of its signature."),
                Step(
                    text="After a change of policy, re-export the SavedModel with TensorFlow:",
                    command="policytool migrate exported/ --to float32 --retrace --dry-run",
                ),
            ),
        ),
        Entry(
            id="revived-layer",
            title=(
                "RuntimeError: Unable to restore object of class '...' likely due to name conflict"
            ),
            patterns=(
                exact(r"Unable to restore object of class '.{1,120}?' likely due to name conflict"),
                exact(r"Unable to restore a layer of class \w{1,120}"),
            ),
            releases="TF 2.5 to 2.15, tf_keras",
            cause=(
                "This release cannot build a layer of the SavedModel from its config: the config "
                "has arguments of another release, or the class is not registered."
            ),
            check=Step(
                text="Show the layer and the argument:",
                command="policytool audit exported/ --target tf2.15",
            ),
            fix=(
                Step(
                    text="For a built-in layer, convert the model for this release:",
                    command="policytool migrate exported/ --target tf2.15",
                ),
                Step(text="For a custom class, register it, or pass `custom_objects`."),
            ),
        ),
        Entry(
            id="yaml-removed",
            title="RuntimeError: Method `model_from_yaml()` has been removed",
            patterns=(
                exact(r"model_from_yaml(?:\(\))?`? has been removed"),
                exact(r"has no attribute 'model_from_yaml'"),
                exact(r"constructor for the tag 'tag:yaml\.org,2002:python/object"),
            ),
            releases="TF 2.3.4 and later, Keras 3",
            cause=(
                "TF 2.3.4 and later do not read architectures from YAML, because such files can "
                "run code. Older releases fail with a PyYAML that rejects Python objects."
            ),
            check=Step(
                text="Read the architecture without running code:",
                command="policytool inspect model.yaml",
            ),
            fix=(
                Step(
                    text="Write the architecture as JSON:",
                    command="policytool migrate model.yaml --target keras3",
                ),
                Step(text="Load the result with `model_from_json`."),
            ),
        ),
        Entry(
            id="objects-not-loaded",
            title="ValueError: A total of 2 objects could not be loaded",
            patterns=(general(r"A total of \d{1,9} objects could not be loaded"),),
            releases="Keras 3",
            cause=(
                "The weights in the file do not match the layers: another release stores them "
                "in another place or form. This happens with int4 models, RNNs in "
                "wrappers, and layers that are shared with a nested model."
            ),
            check=Step(
                text="Show the stored variables of each layer, and the releases that load them:",
                command="policytool inspect model.keras --variables --releases all",
            ),
            fix=(
                Step(
                    text="Convert the model for the release that fails, for example Keras 3.0:",
                    command="policytool migrate model.keras --target keras3.0",
                ),
                Step(text="Load a quantized model with the release that quantized it."),
            ),
        ),
        Entry(
            id="missing-variables",
            title=(
                "ValueError: Layer '...' expected 2 variables, but received 0 variables "
                "during loading"
            ),
            patterns=(
                likely(
                    r"Layer '.{1,120}?' expected \d{1,6} variables, but received \d{1,6} variables"
                ),
            ),
            releases="TF 2.12 to 2.15, tf_keras, Keras 3",
            cause=(
                "The weights of the layer are stored in another place than this release expects. "
                "TF 2.12, TF 2.13 and Keras 3 use different places in `.keras` and `.weights.h5` "
                "files. It also happens if the weights are of another model."
            ),
            check=Step(
                text="Show the stored variables of each layer:",
                command="policytool inspect model.keras --variables",
            ),
            fix=(
                Step(
                    text="Convert the model for the release that fails:",
                    command="policytool migrate model.keras --target tf2.12",
                ),
            ),
        ),
        Entry(
            id="axes-mismatch",
            title="ValueError: Layer count mismatch when loading weights from file",
            patterns=(
                likely(r"Layer count mismatch when loading weights from file"),
                likely(
                    r"trying to load a weight file containing \d{1,9} layers? into a model with"
                ),
                likely(
                    r"axes don't match array", re.compile(r"load_weights|hdf5_format|legacy_h5")
                ),
                likely(r"Weight count mismatch for layer #\d"),
            ),
            releases="all releases, with HDF5",
            cause=(
                "The file has weights for other layers than the model. A Sequential or subclassed "
                "model without an input shape has no variables until it is called, so the model "
                "has 0 layers with weights."
            ),
            check=Step(
                text="Show the layers and variables in the file:",
                command="policytool inspect model.h5 --variables",
            ),
            fix=(
                Step(
                    text=(
                        "Build the model before its weights are loaded: pass an input shape, or "
                        "call it on one batch and then call `load_weights`."
                    )
                ),
            ),
        ),
    ),
)
