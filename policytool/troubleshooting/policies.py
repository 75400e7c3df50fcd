"""Messages about dtype policies and their format in files."""

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
)

_AUDIT: Final = Step(
    text="Find the layers whose policy format Keras 3 does not support:",
    command="policytool audit model.h5 --target keras3",
)
_CONVERT: Final = Step(
    text="Convert the model for the newest Keras:",
    command="policytool migrate model.h5 --target keras3",
)
_OTHER_RELEASE: Final = Step(
    text=(
        "For another release, use its name as --target. `policytool migrate --list-targets` lists "
        "the names."
    )
)
_POLICY_DICTS: Final = (
    issue("leondgarse/Keras_insightface", 132),
    issue("HamadYA/GhostFaceNets", 52),
)
_QUANTIZED: Final = Step(
    text="Show the quantized policies, and the releases that load the model:",
    command="policytool inspect model.keras --releases all",
)

POLICIES: Final = Family(
    title="Dtype policies",
    entries=(
        Entry(
            id="quantization-mode",
            title="AttributeError: 'str' object has no attribute 'quantization_mode'",
            patterns=(exact(r"'str' object has no attribute 'quantization_mode'"),),
            releases="Keras 3.4 and later",
            cause=(
                "The model stores a dtype policy in a format that this release of Keras does not "
                "support, usually the `Policy` or `PolicyV1` dict of Keras 2. Keras 3 then uses "
                "the class name of the policy, a string, instead of a policy."
            ),
            check=_AUDIT,
            fix=(_CONVERT, _OTHER_RELEASE),
            sources=_POLICY_DICTS,
        ),
        Entry(
            id="convert-input",
            title="AttributeError: 'str' object has no attribute 'convert_input'",
            patterns=(exact(r"'str' object has no attribute 'convert_input'"),),
            releases="Keras 3.2 and 3.3",
            cause=(
                "The model stores the `Policy` or `PolicyV1` dict of Keras 2, which these releases "
                "of Keras 3 read as a string."
            ),
            check=Step(text=_AUDIT.text, command="policytool audit model.h5 --target keras3.3"),
            fix=(
                Step(
                    text="Convert the model:",
                    command="policytool migrate model.h5 --target keras3.3",
                ),
                _OTHER_RELEASE,
            ),
            sources=_POLICY_DICTS,
        ),
        Entry(
            id="policy-class",
            title="TypeError: Could not locate class 'Policy'",
            patterns=(
                exact(r"Could not locate class 'Policy(?:V1)?'"),
                exact(r"Cannot convert 'Policy(?:V1)?' to a mixed precision"),
            ),
            releases="Keras 3.0 to 3.3",
            cause=(
                "The model stores the `Policy` or `PolicyV1` dict of Keras 2. Keras 3 has no class "
                "of this name in its files."
            ),
            check=_AUDIT,
            fix=(
                Step(
                    text="Convert the model for Keras 3.0 to 3.3:",
                    command="policytool migrate model.h5 --target keras3.0",
                ),
                _OTHER_RELEASE,
            ),
            sources=_POLICY_DICTS,
        ),
        Entry(
            id="dtype-policy-v1",
            title="ValueError: Unknown dtype policy: PolicyV1",
            patterns=(
                exact(r"Unknown (?:dtype )?policy: PolicyV1"),
                likely(r"Unknown dtype policy: "),
            ),
            releases="TF 2.1 to 2.3",
            cause=(
                "TF 2.4 to 2.8 wrote the model with a policy of the experimental API. These "
                "releases store it as `PolicyV1`, which earlier releases do not support."
            ),
            check=Step(
                text="Find the layers with such a policy:",
                command="policytool audit model.h5 --target tf2.3",
            ),
            fix=(
                Step(
                    text="Write the policies in the format of TF 2.3:",
                    command="policytool migrate model.h5 --target tf2.3",
                ),
                _OTHER_RELEASE,
            ),
        ),
        Entry(
            id="unhashable-policy",
            title="TypeError: unhashable type: 'dict'",
            patterns=(
                likely(
                    r"unhashable type: 'dict'",
                    re.compile(r"base_layer\.py|as_dtype|dtypes\.py|_set_dtype|deserialize_layer"),
                ),
            ),
            releases="TF 2.0 and earlier",
            cause=(
                "TF 2.1 or later wrote the model, and stored a policy as a dict. TF 2.0 and "
                "earlier expect the name of a dtype."
            ),
            check=Step(
                text="Find the cause in the layers of the model:",
                command="policytool audit model.h5 --target tf2.0",
            ),
            fix=(
                Step(
                    text="Write the model in float32, because TF 2.0 stores no mixed policies:",
                    command=(
                        "policytool migrate model.h5 --to float32 --include-exceptions "
                        "--target tf2.0"
                    ),
                ),
                Step(text="Or load the model with TF 2.1 or later."),
            ),
        ),
        Entry(
            id="dtype-policy-map",
            title="TypeError: Could not locate class 'DTypePolicyMap'",
            patterns=(
                exact(r"Could not locate class 'DTypePolicyMap'"),
                exact(r"'str' object has no attribute 'variable_dtype'"),
            ),
            releases="Keras 3.0 to 3.4",
            cause=(
                "The model contains a `DTypePolicyMap`, a policy for each sublayer. Keras 3.5 "
                "introduced it."
            ),
            check=Step(
                text="Show the policy of each layer:", command="policytool inspect model.keras"
            ),
            fix=(
                Step(
                    text="Replace the map by the policies that it assigns:",
                    command="policytool migrate model.keras --target keras3.3",
                ),
                Step(text="Or load the model with Keras 3.5 or later."),
            ),
        ),
        Entry(
            id="quantized-policy",
            title="TypeError: Could not locate class 'QuantizedDTypePolicy'",
            patterns=(
                exact(r"Could not locate class 'Quantized(?:Float8)?DTypePolicy'"),
                exact(r"Cannot convert '(?:int8|int4|float8)_from_\w{1,40}' to a mixed precision"),
                exact(r"QuantizedDTypePolicy'?>? could not be deserialized properly"),
                exact(r"DTypePolicy\.__new__\(\) missing 1 required positional argument: 'name'"),
            ),
            releases="Keras 3.0 to 3.3",
            cause=(
                "The model was quantized by a later release of Keras. Keras 3.0 to 3.2 have no "
                "quantized policies, and Keras 3.3 uses another format than Keras 3.4 and later."
            ),
            check=_QUANTIZED,
            fix=(
                Step(
                    text="Write int8 and float8 policies in the format of Keras 3.3:",
                    command="policytool migrate model.keras --target keras3.3",
                ),
                Step(
                    text=(
                        "For Keras 3.0 to 3.2, convert a copy of the model that was saved before "
                        "`quantize()`, or use a later release."
                    )
                ),
            ),
        ),
        Entry(
            id="quantization-mode-name",
            title="ValueError: Invalid quantization mode. Expected one of ('int8', 'float8')",
            patterns=(exact(r"Invalid quantization mode\. Expected one of"),),
            releases="Keras 3.4 and later",
            cause=(
                "The model is quantized in a mode that this release does not support: int4 needs "
                "Keras 3.11, and GPTQ and AWQ need later releases."
            ),
            check=_QUANTIZED,
            fix=(
                Step(
                    text=(
                        "Load the model with a release that supports the mode, or convert a copy "
                        "that was saved before `quantize()`."
                    )
                ),
            ),
        ),
        Entry(
            id="removed-policy-name",
            title=(
                "ValueError: Policies ending in '_float32_vars' have been removed from TensorFlow"
            ),
            patterns=(
                exact(r"Policies ending in '_float32_vars' have been removed"),
                exact(r"Cannot convert (?:value )?'?\w{0,20}_with_float32_vars"),
                exact(r"Cannot convert (?:value )?'?infer\w{0,30}'? to a mixed precision"),
            ),
            releases="TF 2.1 and later, Keras 3",
            cause=(
                "The policy name is from TF 2.0 or earlier. Later releases call it "
                "`mixed_float16` or `mixed_bfloat16`, and removed the `infer` policies."
            ),
            check=Step(
                text="Show what replaces the name:",
                command="policytool policies float16_with_float32_vars",
            ),
            fix=(
                Step(text="In Python code, use `mixed_float16` or `mixed_bfloat16`."),
                Step(
                    text="In a saved model, replace the name:",
                    command="policytool migrate model.h5",
                ),
            ),
        ),
        Entry(
            id="unknown-policy-name",
            title="ValueError: Cannot convert '...' to a mixed precision DTypePolicy",
            patterns=(
                likely(r"Cannot convert (?:value )?.{1,80}? to a mixed precision \w{0,40}Policy"),
                general(r"Cannot interpret `dtype` argument\. Expected a string"),
                general(r"\bUnknown (?:dtype )?policy\b", KERAS),
            ),
            releases="TF 2.1 and later, Keras 3",
            cause=(
                "The text is not the name of a policy or dtype, or this release does not know it."
            ),
            check=Step(
                text="List all policies and the releases that support them:",
                command="policytool policies",
            ),
            fix=(
                Step(text="Correct the name in Python code."),
                Step(
                    text="In a saved model, set another policy:",
                    command="policytool migrate model.h5 --to mixed_float16 --include-exceptions",
                ),
            ),
        ),
        Entry(
            id="experimental-api",
            title="AttributeError: module '...mixed_precision' has no attribute 'experimental'",
            patterns=(
                exact(r"mixed_precision' has no attribute 'experimental'"),
                exact(r"No module named 'tensorflow\S{0,60}\.mixed_precision\.experimental'"),
            ),
            releases="TF 2.9 and later, Keras 3",
            cause=(
                "TF 2.9 removed `tf.keras.mixed_precision.experimental`. The cause is in Python "
                "code, not in a saved model."
            ),
            check=Step(
                text="Check whether a saved model also uses a policy of this API:",
                command="policytool audit model.h5 --select PT101",
            ),
            fix=(
                Step(
                    text=(
                        "Replace `mixed_precision.experimental.set_policy(...)` with "
                        "`mixed_precision.set_global_policy(...)`, and "
                        "`experimental.LossScaleOptimizer` with "
                        "`mixed_precision.LossScaleOptimizer`."
                    )
                ),
                Step(
                    text="Replace the policies of a saved model:",
                    command="policytool migrate model.h5",
                ),
            ),
            sources=(
                issue("slideflow/slideflow", 167),
                issue("google/automl", 1153),
                issue("keras-team/autokeras", 1675),
            ),
        ),
        Entry(
            id="policy-loss-scale",
            title="AttributeError: 'Policy' object has no attribute 'loss_scale'",
            patterns=(
                exact(r"'(?:DType)?Policy' object has no attribute '_?loss_scale'"),
                exact(r"Policy\S{0,30} got an unexpected keyword argument 'loss_scale'"),
            ),
            releases="TF 2.4 and later, Keras 3",
            cause=(
                "Policies had a loss scale in the experimental API only. Since TF 2.4, only the "
                "optimizer scales losses."
            ),
            check=Step(
                text="Show the loss scales in a saved model:",
                command="policytool audit model.h5 --select PT201,PT202,PT203",
            ),
            fix=(
                Step(text="In Python code, wrap the optimizer in a `LossScaleOptimizer`."),
                Step(
                    text="In a saved model, move the loss scale to the optimizer:",
                    command="policytool migrate model.h5 --loss-scale keep",
                ),
            ),
        ),
    ),
)
