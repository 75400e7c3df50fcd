"""Messages about layers and their arguments, which differ between releases."""

from __future__ import annotations

import re
from typing import Final

from policytool.troubleshooting.entry import (
    KERAS,
    Entry,
    Family,
    Step,
    exact,
    general,
    issue,
    likely,
    one_of,
)

_BUILT_IN: Final = one_of(
    (
        *("Dense", "EinsumDense", "Embedding", "Activation", "Dropout", "Flatten", "Reshape"),
        *("LSTM", "GRU", "SimpleRNN", "LSTMCell", "GRUCell", "SimpleRNNCell", "StackedRNNCells"),
        *("Bidirectional", "TimeDistributed", r"Conv\w{1,20}", r"\w{0,30}Conv[123]D", "RNN"),
        *("BatchNormalization", "LayerNormalization", "Normalization", "InputLayer"),
        *("MultiHeadAttention", "Attention", r"\w{0,20}Pooling[123]D", "Add", "Concatenate"),
        *("Sequential", "Model", "ReLU", "LeakyReLU", "PReLU", "ELU", "Softmax", "Rescaling"),
    )
)
"""Classes of Keras itself, as a regular expression."""

_NESTED: Final = one_of(
    (
        *("Dense", "EinsumDense", "Embedding", "LSTM", "GRU", "SimpleRNN", "LSTMCell", "GRUCell"),
        *("SimpleRNNCell", "StackedRNNCells", r"Conv\w{1,20}", r"\w{0,30}Conv[123]D", "Sequential"),
        *("Model", "Flatten", "Dropout", "BatchNormalization", "LeakyReLU", "ReLU", "PReLU"),
        *("Softmax", "ELU", r"\w{0,20}Pooling[123]D", "Activation", "Reshape"),
    )
)
_AUDIT_KERAS_3: Final = Step(
    text="Show which layers and arguments fail in Keras 3:",
    command="policytool audit model.h5 --target keras3",
)
_TO_KERAS_3: Final = Step(
    text="Convert the model for the newest Keras:",
    command="policytool migrate model.h5 --target keras3",
)
_RELEASE: Final = Step(
    text=(
        "Use the release that fails as --target. `policytool migrate --list-targets` lists the "
        "names."
    )
)
_TO_TF_KERAS: Final = Step(
    text="Convert the model for tf_keras:",
    command="policytool migrate model.h5 --target tf_keras",
)

LAYERS: Final = Family(
    title="Layers and their arguments",
    entries=(
        Entry(
            id="batch-shape",
            title="ValueError: Unrecognized keyword arguments: ['batch_shape']",
            patterns=(
                exact(r"nrecognized keyword arguments:.{0,40}'batch_shape'"),
                exact(r"unexpected keyword argument '?batch_shape"),
            ),
            releases="TF 1.15 to 2.15, tf_keras, TensorFlow.js and TFLite converters",
            cause=(
                "Keras 3 wrote the model, and a release of Keras 2 loads it. Keras 3 has renamed "
                "`batch_input_shape` to `batch_shape`, and also stores dtypes, arguments and the "
                "connections of layers in another form, so renaming one key is not enough."
            ),
            check=Step(
                text="Show every key that fails:",
                command="policytool audit model.h5 --target tf_keras",
            ),
            fix=(_TO_TF_KERAS, _RELEASE),
            sources=(
                issue("tensorflow/tensorflow", 66381),
                issue("tensorflow/tensorflow", 64685),
                issue("tensorflow/tfjs", 8328),
            ),
        ),
        Entry(
            id="optional-input",
            title="ValueError: Unrecognized keyword arguments: ['optional']",
            patterns=(exact(r"nrecognized keyword arguments:.{0,30}\[ ?'optional' ?\]"),),
            releases="TF 2.1 to 2.15",
            cause=(
                "tf_keras 2.17 or later wrote the model, with the argument `optional` of "
                "InputLayer. TF 2.15 and earlier do not support it."
            ),
            check=Step(
                text="Show every key that fails:",
                command="policytool audit model.h5 --target tf2.15",
            ),
            fix=(
                Step(
                    text="Omit the argument:",
                    command="policytool migrate model.h5 --target tf2.15",
                ),
                _RELEASE,
            ),
        ),
        Entry(
            id="quantization-config",
            title=(
                "ValueError: Unrecognized keyword arguments passed to Dense: "
                "{'quantization_config': None}"
            ),
            patterns=(
                exact(r"nrecognized keyword arguments passed to .{1,60}\{'quantization_config'"),
            ),
            releases="Keras 3.0 to 3.12",
            cause=(
                "A later release of Keras 3 wrote the model, with the argument "
                "`quantization_config` in every Dense, EinsumDense and Embedding layer."
            ),
            check=Step(
                text="Show every key that fails:",
                command="policytool audit model.keras --target keras3.6",
            ),
            fix=(
                Step(
                    text="Omit the argument, if the model is not quantized:",
                    command="policytool migrate model.keras --target keras3.6",
                ),
                _RELEASE,
            ),
        ),
        Entry(
            id="keras-3-module",
            title="TypeError: ... parent module keras.src.models.functional cannot be imported",
            patterns=(
                exact(
                    r"its parent module (?:tf_)?keras\.src\.(?:models|layers|ops|dtype_policies)"
                    r"[\w.]{0,80} cannot be imported"
                ),
                exact(r"No module named 'keras\.src\.models"),
            ),
            releases="TF 2.12 to 2.15, tf_keras",
            cause="Keras 3 wrote the `.keras` file, and a release of Keras 2 loads it.",
            check=Step(
                text="Show every incompatibility:",
                command="policytool audit model.keras --target tf_keras",
            ),
            fix=(
                Step(
                    text="Convert the model for tf_keras:",
                    command="policytool migrate model.keras --target tf_keras",
                ),
                _RELEASE,
            ),
            sources=(
                issue("tensorflow/tensorflow", 70866),
                issue("zsylvester/segmenteverygrain", 21),
            ),
        ),
        Entry(
            id="keras-2-module",
            title="TypeError: ... parent module keras.src.engine.functional cannot be imported",
            patterns=(
                exact(
                    r"its parent module (?:tf_)?keras\.(?:src\.)?engine[\w.]{0,80} cannot be "
                    r"imported"
                ),
                exact(r"its parent module tf_keras\.[\w.]{1,80} cannot be imported"),
                exact(r"No module named 'keras\.(?:src\.)?engine"),
                exact(r"tf_keras\.src\.engine[\w.]{0,80}'?>? could not be deserialized properly"),
            ),
            releases="TF 2.12 to 2.15, tf_keras, Keras 3",
            cause=(
                "The `.keras` file names the module of its classes, and every release of Keras 2 "
                "has another one: `keras.engine` in TF 2.12, `keras.src.engine` in TF 2.13 to "
                "2.15, and `tf_keras.src.engine` in tf_keras. Keras 3 has none of them."
            ),
            check=Step(
                text="Show the releases that load the file:",
                command="policytool inspect model.keras --releases all",
            ),
            fix=(
                Step(
                    text="Convert the model for the newest Keras:",
                    command="policytool migrate model.keras --target keras3",
                ),
                Step(
                    text="Or convert it for a release of Keras 2:",
                    command="policytool migrate model.keras --target tf2.15",
                ),
            ),
            sources=(issue("keras-team/keras", 19089), issue("keras-team/keras", 21663)),
        ),
        Entry(
            id="functional-class",
            title="TypeError: Could not locate class 'Functional'",
            patterns=(exact(r"Could not locate class 'Functional'"),),
            releases="Keras 3",
            cause=(
                "A release of Keras 2 wrote the `.keras` or JSON file, and stored the class "
                "without a module that Keras 3 has."
            ),
            check=Step(
                text="Show every incompatibility:",
                command="policytool audit model.keras --target keras3",
            ),
            fix=(
                Step(
                    text="Convert the model for the newest Keras:",
                    command="policytool migrate model.keras --target keras3",
                ),
            ),
            sources=(issue("keras-team/keras", 19330), issue("keras-team/keras", 21663)),
        ),
        Entry(
            id="unknown-layer-functional",
            title="ValueError: Unknown layer: Functional",
            patterns=(exact(r"Unknown layer: '?Functional\b"),),
            releases="TF 2.2 and earlier, standalone Keras 2",
            cause=(
                "TF 2.3 or later wrote the model. It stores functional models under the class "
                "name `Functional`, which earlier releases call `Model`."
            ),
            check=Step(
                text="Show the releases that load the model:",
                command="policytool inspect model.h5 --releases all",
            ),
            fix=(
                Step(
                    text="Convert the model for the earlier release:",
                    command="policytool migrate model.h5 --target tf2.1",
                ),
                _RELEASE,
            ),
        ),
        Entry(
            id="unknown-layer-cast",
            title="ValueError: Unknown layer: 'Cast'",
            patterns=(exact(r"Unknown layer: '?Cast\b"),),
            releases="all releases",
            cause=(
                "Keras 3.5 to 3.8 wrote the model as HDF5, with a mixed policy. It contains casts "
                "as operations, which no release loads from HDF5, including the one that wrote it."
            ),
            check=_AUDIT_KERAS_3,
            fix=(
                Step(
                    text="Remove the casts, which the layers do themselves:",
                    command="policytool migrate model.h5 --target keras3",
                ),
            ),
        ),
        Entry(
            id="op-layer",
            title="ValueError: Unknown layer: 'TFOpLambda'",
            patterns=(
                exact(
                    r"Unknown layer: '?(?:TFOpLambda|SlicingOpLambda|TensorFlowOpLayer|ClassMethod|"
                    r"InstanceMethod|InstanceProperty)\b"
                ),
                exact(r"Could not locate class '(?:TFOpLambda|SlicingOpLambda|TensorFlowOpLayer)'"),
            ),
            releases="TF 2.3 and earlier, Keras 3",
            cause=(
                "The model applies TensorFlow functions, such as `x + 1` or `tf.nn.softmax`, to "
                "the outputs of layers. TF 2.4 to 2.15 store them as `TFOpLambda` layers, which "
                "other releases do not have."
            ),
            check=_AUDIT_KERAS_3,
            fix=(
                Step(
                    text="Replace the functions by layers of the target release:",
                    command="policytool migrate model.h5 --target keras3",
                ),
                _RELEASE,
            ),
        ),
        Entry(
            id="serialized-cast",
            title="ValueError: Inconsistent values for attr 'SrcT' DT_FLOAT vs. DT_HALF",
            patterns=(exact(r"Inconsistent values for attr 'SrcT' DT_\w{1,20} vs\. DT_\w{1,20}"),),
            releases="TF 2.0 to 2.15, tf_keras",
            cause=(
                "TF 2.0 wrote a model with a mixed policy and TensorFlow functions between layers. "
                "It lost the policy, but the stored casts still expect float16. No release loads "
                "such a file."
            ),
            check=Step(
                text="Show the release that wrote the model:", command="policytool inspect model.h5"
            ),
            fix=(
                Step(
                    text="Set the mixed policy again, for TF 2.5 and later:",
                    command="policytool migrate model.h5 --to mixed_float16",
                ),
                Step(text="Or build the model in Python, and load its weights."),
            ),
        ),
        Entry(
            id="groups-argument",
            title=(
                "ValueError: Unrecognized keyword arguments passed to DepthwiseConv2D: "
                "{'groups': 1}"
            ),
            patterns=(
                exact(
                    r"nrecognized keyword arguments passed to \w{0,20}Conv\w{1,30}: "
                    r".{0,200}?'groups'"
                ),
            ),
            releases="Keras 3",
            cause=(
                "Keras 2 stores `groups` for convolutions that do not have this argument in "
                "Keras 3. Models of Teachable Machine and MobileNet often contain it."
            ),
            check=_AUDIT_KERAS_3,
            fix=(_TO_KERAS_3,),
            sources=(issue("keras-team/keras", 19441), issue("keras-team/keras", 19151)),
        ),
        Entry(
            id="time-major",
            title=(
                "ValueError: Unrecognized keyword arguments passed to LSTM: {'time_major': False}"
            ),
            patterns=(exact(r"nrecognized keyword arguments passed to .{1,200}?'time_major'"),),
            releases="Keras 3",
            cause=(
                "Keras 2 wrote an RNN layer with the argument `time_major`, which Keras 3 removed."
            ),
            check=_AUDIT_KERAS_3,
            fix=(_TO_KERAS_3,),
        ),
        Entry(
            id="input-length",
            title=(
                "ValueError: Unrecognized keyword arguments passed to Embedding: "
                "{'input_length': None}"
            ),
            patterns=(exact(r"nrecognized keyword arguments passed to .{1,200}?'input_length'"),),
            releases="Keras 3.0",
            cause=(
                "Keras 2 wrote an Embedding layer with the argument `input_length`, which Keras "
                "3.0 does not support. Later releases ignore it."
            ),
            check=Step(
                text="Show every incompatibility:",
                command="policytool audit model.h5 --target keras3.0",
            ),
            fix=(
                Step(
                    text="Omit the argument:",
                    command="policytool migrate model.h5 --target keras3.0",
                ),
                Step(text="Or load the model with Keras 3.3 or later."),
            ),
        ),
        Entry(
            id="attention-shapes",
            title="TypeError: ... MultiHeadAttention: {'query_shape': ..., 'key_shape': ...}",
            patterns=(
                exact(r"nrecognized keyword arguments passed to .{1,200}?'query_shape'"),
                exact(r"Keyword argument not understood:'?,? '(?:query|key|value)_shape'"),
                likely(r"KeyError: '(?:query|key|value)_shape'"),
            ),
            releases="TF 2.4 to 2.15, Keras 3",
            cause=(
                "Releases since TF 2.5 store the input shapes of MultiHeadAttention. TF 2.4 and "
                "Keras 3 do not support these keys, and TF 2.5 and later require them."
            ),
            check=_AUDIT_KERAS_3,
            fix=(_TO_KERAS_3, _RELEASE),
        ),
        Entry(
            id="newer-argument",
            title="TypeError: Error when deserializing class '...': Unrecognized keyword arguments",
            patterns=(
                general(r"nrecognized keyword argument(?:s|\(s\))?(?: passed to|:)"),
                likely(r"Keyword argument not understood:"),
                likely(
                    r"__init__\(\) got an unexpected keyword argument '\w{1,60}'",
                    re.compile(r"from_config|deserialize|load_model|model_from_json"),
                ),
                likely(
                    rf"nrecognized keyword argument(?:s|\(s\))? passed to {_BUILT_IN}:",
                ),
                general(r"Argument\(s\) not recognized: "),
            ),
            releases="all releases",
            cause=(
                "Another release wrote the model, and stored an argument that this release does "
                "not support. Most such arguments have their default value and can be omitted."
            ),
            check=Step(
                text="Show every such argument, for the release that fails:",
                command="policytool audit model.h5 --target keras3.3",
            ),
            fix=(
                Step(
                    text="Convert the model for this release, for example Keras 3.3:",
                    command="policytool migrate model.h5 --target keras3.3",
                ),
                _RELEASE,
            ),
        ),
        Entry(
            id="nested-class",
            title="TypeError: Could not locate class 'LSTM'",
            patterns=(exact(rf"Could not locate class '{_NESTED}'"),),
            releases="Keras 3",
            cause=(
                "TF 2.12 or earlier wrote the model. It stores the layers inside Bidirectional, "
                "TimeDistributed, RNN and custom layers without their module, which Keras 3 needs."
            ),
            check=_AUDIT_KERAS_3,
            fix=(_TO_KERAS_3,),
            sources=(issue("keras-team/keras", 19898),),
        ),
        Entry(
            id="initializer-identifier",
            title="ValueError: Could not interpret initializer identifier: {...}",
            patterns=(
                exact(
                    r"Could not interpret initializer identifier: \{.{0,300}?"
                    r"'class_name': 'Orthogonal'"
                ),
                likely(r"Could not interpret initializer identifier"),
            ),
            releases="Keras 3.0 to 3.3",
            cause=(
                "The model stores an initializer under a name that this release does not have. "
                "Most often it is `Orthogonal` in an RNN layer, which Keras 3.0 to 3.3 call "
                "`OrthogonalInitializer`."
            ),
            check=Step(
                text="Show every incompatibility:",
                command="policytool audit model.h5 --target keras3.3",
            ),
            fix=(
                Step(
                    text="Convert the model, which renames the initializer:",
                    command="policytool migrate model.h5 --target keras3.3",
                ),
                _RELEASE,
            ),
        ),
        Entry(
            id="unknown-layer",
            title="ValueError: Unknown layer: MultiHeadAttention",
            patterns=(
                likely(
                    r"Unknown layer: '?(?:MultiHeadAttention|GroupNormalization|TextVectorization|"
                    r"StringLookup|IntegerLookup|Normalization|Rescaling|EinsumDense|"
                    r"LayerNormalization|UnitNormalization|RMSNormalization)\b"
                ),
                exact(
                    r"Unknown (?:initializer|regularizer|constraint): '?\w{1,60}",
                    KERAS,
                ),
                exact(r"Unknown activation(?: function)?: ?'?\w{1,60}", KERAS),
                likely(
                    r"Could not interpret \w{1,20}(?: function)? identifier: \{.{0,300}?"
                    r"'class_name'"
                ),
            ),
            releases="all releases",
            cause=(
                "The class exists in the release that wrote the model, but not in this release, or "
                "has another name or place in it."
            ),
            check=Step(
                text="Show the releases that load the model:",
                command="policytool inspect model.h5 --releases all",
            ),
            fix=(
                Step(text="Load the model with a release in this list."),
                Step(
                    text="Or convert it, for example for the newest Keras:",
                    command="policytool migrate model.h5 --target keras3",
                ),
            ),
        ),
        Entry(
            id="custom-class",
            title=(
                "ValueError: Unknown layer: MyLayer. Please ensure this object is passed "
                "to `custom_objects`"
            ),
            patterns=(
                likely(r"Unknown (?:layer|metric|metric function|loss|loss function|object): '?\w"),
                likely(r"Could not locate (?:class|function) '[\w>]{1,120}'"),
                general(r"Please ensure (?:this|you are using|that this).{0,120}custom_object"),
                general(r"could not be deserialized properly\. Please ensure that components"),
                general(r"Could not interpret \w{1,20}(?: function)? identifier"),
                general(r"Unable to deserialize", KERAS),
            ),
            releases="all releases",
            cause=(
                "The model uses a class or function that this release does not have: your own, or "
                "one of another library or release. Its code is not in the file."
            ),
            check=Step(
                text="List the custom classes of the model:",
                command="policytool audit model.h5 --select PT603",
            ),
            fix=(
                Step(
                    text=(
                        "Import or define the class, and pass it as `custom_objects={'MyLayer': "
                        "MyLayer}` to `load_model`."
                    )
                ),
                Step(
                    text="If it is a class of Keras, convert the model for this release:",
                    command="policytool migrate model.h5 --target keras3",
                ),
            ),
        ),
        Entry(
            id="lambda-unsafe",
            title="ValueError: Requested the deserialization of a `Lambda` layer",
            patterns=(
                exact(r"Requested the deserialization of a `?Lambda`? layer"),
                exact(r"Lambda`? layer.{0,80}disallowed by default"),
            ),
            releases="TF 2.13 to 2.15, tf_keras, Keras 3",
            cause=(
                "The model contains a Lambda layer with Python bytecode. Loading it runs this "
                "code, so it is disabled by default."
            ),
            check=Step(
                text="Show the code and names that the model would run, without running them:",
                command="policytool audit model.keras --select PT6",
            ),
            fix=(
                Step(
                    text=(
                        "If you trust the author, pass `safe_mode=False` to `load_model`. "
                        "Otherwise, replace the Lambda by layers in the source."
                    )
                ),
            ),
            sources=(issue("keras-team/keras", 18284), issue("keras-team/tf-keras", 44)),
        ),
        Entry(
            id="lambda-bytecode",
            title="ValueError: bad marshal data (unknown type code)",
            patterns=(
                exact(r"bad marshal data \(unknown type code\)", KERAS),
                exact(r"EOF read where object expected", KERAS),
                exact(r"code\(\) (?:takes|argument|expected) .{0,80}", re.compile(r"func_load")),
            ),
            releases="all releases of Keras 2",
            cause=(
                "The model contains a Lambda layer with the bytecode of another Python version. "
                "Bytecode is only valid in the version that wrote it."
            ),
            check=Step(
                text="Find the Lambda layers:", command="policytool audit model.h5 --select PT601"
            ),
            fix=(
                Step(
                    text=(
                        "Load the model with the Python version that wrote it. Then replace the "
                        "Lambda by layers in the source, and save the model again."
                    )
                ),
            ),
        ),
        Entry(
            id="as-list",
            title="AttributeError: 'str' object has no attribute 'as_list'",
            patterns=(exact(r"'str' object has no attribute 'as_list'", KERAS),),
            releases="TF 2.4 to 2.15, tf_keras",
            cause=(
                "The model has the connections of layers in the format of Keras 3, and a release "
                "of Keras 2 loads it. This is what remains after `batch_shape` was renamed by hand."
            ),
            check=Step(
                text="Show every incompatibility:",
                command="policytool audit model.h5 --target tf_keras",
            ),
            fix=(
                Step(
                    text="Convert the original file, without edits by hand:",
                    command="policytool migrate model.h5 --target tf_keras",
                ),
                _RELEASE,
            ),
        ),
        Entry(
            id="nested-model-graph",
            title=(
                "ValueError: Invalid Functional model configuration. The graph ... has "
                "loops or disconnected nodes"
            ),
            patterns=(
                exact(r"The graph of the Functional model either has loops or disconnected nodes"),
                likely(r"Layer node index out of bounds", KERAS),
                likely(
                    r"list index out of range",
                    re.compile(r"keras[/\\]src[/\\]models[/\\]functional\.py"),
                ),
            ),
            releases="Keras 3",
            cause=(
                "Keras 2 wrote a model that contains other models or shared layers. Keras 3 counts "
                "the calls of such layers differently, so it does not find the connections."
            ),
            check=_AUDIT_KERAS_3,
            fix=(_TO_KERAS_3,),
            sources=(issue("keras-team/keras", 19509), issue("keras-team/keras", 19669)),
        ),
        Entry(
            id="subclassed-config",
            title=(
                "NotImplementedError: When subclassing the `Model` class, you should "
                "implement a `call` method"
            ),
            patterns=(
                exact(r"When subclassing the `?'?Model`?'? class, you should implement a"),
                likely(
                    r"KeyError: 'layers'",
                    re.compile(r"(?:functional|network|training|sequential)\.py"),
                ),
                exact(r"Layer \w{1,80} should implement `?def compute_output_shape"),
                exact(r"'list' object has no attribute 'items'", re.compile(r"keras[/\\]")),
            ),
            releases="all releases",
            cause=(
                "The config describes a subclassed model, or a model in a format of Keras 1 and "
                "2.0. The layers of a subclassed model exist only in its Python code."
            ),
            check=Step(text="Show what is stored:", command="policytool inspect model.h5"),
            fix=(
                Step(
                    text=(
                        "Create the model with its Python class, call it once, and load the "
                        "weights with `load_weights`."
                    )
                ),
            ),
        ),
    ),
)
