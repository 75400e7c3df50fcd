"""For each entry, a model with its cause, for the commands that the entry suggests."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, kw_only=True, slots=True)
class Example:
    """
    The fixtures, or files in this directory, that the file names in the commands stand for.
    """

    files: Mapping[str, str]
    fix_files: Mapping[str, str] = field(default_factory=dict)
    """Files for the fixes, if they are about another case of the cause."""

    shown: str = ""
    """What the check shows; empty for a check of ``audit``, which reports a finding."""


def h5(fixture: str, shown: str = "") -> Example:
    """Return an example with one HDF5 file."""
    return Example(files={"model.h5": fixture}, shown=shown)


def archive(fixture: str, shown: str = "") -> Example:
    """Return an example with one file named ``model.keras``."""
    return Example(files={"model.keras": fixture}, shown=shown)


def exported(fixture: str, shown: str = "") -> Example:
    """Return an example with one SavedModel."""
    return Example(files={"exported": fixture}, shown=shown)


EXAMPLES: Final = {
    "policy-format": h5("tf2.4/global_mixed_float16.h5"),
    "dtype-policy-v1": h5("tf2.4/exp_mf16_fixed128.h5"),
    "unhashable-policy": h5("tf2.1/global_mixed_float16.h5"),
    "dtype-policy-map": archive("keras3.6/policy_map.keras", "mixed_bfloat16"),
    "quantized-policy": archive("keras3.6/int8.keras", "int8_from_float32"),
    "quantization-mode-name": archive("keras3.15/int4_policy.keras", "int4_from_float32"),
    "removed-policy-name": h5("tf2.0/exp_per_layer.yaml", "replacement: mixed_float16"),
    "unknown-policy-name": h5("tf2.15/default_float32.h5", "mixed_bfloat16"),
    "experimental-api": h5("tf2.4/exp_mf16_fixed128.h5"),
    "policy-loss-scale": h5("tf2.4/exp_mf16_fixed128.h5"),
    "batch-shape": h5("keras3.15/default_float32.h5"),
    "keras-3-module": archive("keras3.15/default_float32.keras"),
    "keras-2-module": archive("tf2.12/default_float32.keras", "TF 2.12"),
    "keras-2-class": h5("tf2.4/wrappers.h5"),
    "unknown-layer-functional": h5("tf2.4/default_float32.h5", "TF 2.3"),
    "unknown-layer-cast": h5("keras3.6/adam_autowrap_mf16.h5"),
    "op-layer": h5("tf2.15/tf_op_layers.h5"),
    "op-layer-number": h5("op_number.json", "combines a number"),
    "serialized-cast": h5("tf2.0/tf_op_layers.h5", "TF 2.0 and older"),
    "keras-2-argument": h5("groups.json"),
    "attention-shapes": h5("tf2.15/mha.h5"),
    "newer-argument": h5("keras3.15/string_lookup.h5"),
    "never-built": archive("keras3.15/wrappers.keras", "Keras 3.15"),
    "initializer-identifier": h5("tf2.15/bidirectional_mixed.h5"),
    "unknown-layer": h5("tf2.15/mha.h5", "TF 2.15"),
    "custom-class": Example(
        files={"model.h5": "tf2.15/custom_unregistered.h5"},
        fix_files={"model.h5": "tf2.15/mha.h5"},
    ),
    "lambda-unsafe": archive("tf2.15/lambda.keras"),
    "lambda-bytecode": h5("tf2.15/lambda.h5"),
    "as-list": h5("keras3.15/default_float32.h5"),
    "nested-model-graph": h5("tf2.15/shared_layer.h5"),
    "subclassed-config": h5("keras3.15/subclassed.h5", "Keras 3"),
    "savedmodel-in-keras-3": exported("tf2.15/default_float32", "TF 2.15"),
    "add-slot": exported("tf2.15/adam_autowrap_mf16", "TF 2.15"),
    "user-object": exported("tf2.15/global_mixed_float16", "serving_default"),
    "missing-op": exported("tf2.12/default_float32", "TF 2.12"),
    "savedmodel-metadata": exported("tf2.9/default_float32", "TF 2.9"),
    "concrete-function": exported("tf2.15/global_mixed_float16", "signature"),
    "revived-layer": exported("tf_keras2.21/mha_mixed"),
    "yaml-removed": Example(files={"model.yaml": "tf2.1/default_float32.yaml"}, shown="Dense"),
    "objects-not-loaded": archive("keras3.15/shared_layer.keras", "Keras 3.0 to 3.15"),
    "missing-variables": archive("tf2.15/sequential.keras", "dense_a"),
    "axes-mismatch": h5("tf2.15/sequential_unbuilt_input.h5", "dense_a"),
    "file-signature": Example(
        files={"model.h5": "pointer", "model.keras": "keras3.15/default_float32.keras"},
        shown="git-lfs pointer",
    ),
    "truncated-file": h5("truncated", "truncated"),
    "pretrained-weights": h5("tf2.15/default_float32.h5", "dense"),
    "transformers-weights": h5("tf2.15/default_float32.h5", "dense"),
    "directory-as-file": exported("tf2.1/default_float32", "SavedModel"),
    "keras-file-not-zip": archive("tf2.1/adam_autowrap_mf16.h5", "HDF5"),
    "hub-module": exported("tf2.15/default_float32", "SavedModel"),
    "savedmodel-not-found": archive("tf2.15/default_float32.keras", ".keras"),
    "weights-only": Example(
        files={"model.h5": "keras3.15/sharded_00000.weights.h5"},
        fix_files={"architecture.json": "keras3.15/default_float32.json"},
        shown="weights",
    ),
    "h5py-decode": h5("tf2.3/global_mixed_float16.h5", "TF 2.3"),
    "bfloat16-in-hdf5": h5("tf2.15/per_layer.h5"),
    "header-too-large": h5("tf2.15/default_float32.h5", "Dense"),
    "unknown-optimizer": h5("tf2.15/adam_autowrap_mf16.h5"),
    "loss-scale-optimizer": h5("tf2.0/adam_autowrap_mf16.h5", "Keras 3"),
    "loss-scale-multiplier": h5("tf2.3/exp_mf16_dynamic_custom.h5", "loss scale"),
    "optimizer-argument": h5("tf2.15/adam_autowrap_mf16.h5"),
    "metric-name": h5("tf2.15/default_float32_compiled.h5"),
    "loss-scale-attributes": h5("tf2.15/adam_autowrap_mf16.h5", "loss scale dynamic"),
    "optimizer-state": h5("tf2.12/adam_autowrap_mf16.h5"),
    "nan": h5("keras2.3.1/floatx_float16.h5"),
    "mixed-dtypes": h5("tf2.15/rnn_mixed.h5", "mixed_float16"),
    "no-kernel": h5("max_pooling.json"),
    "sequential-config": h5("keras2.1.6/sequential.json", "Keras 2"),
    "input-rank": h5("tf2.15/shared_layer.h5"),
    "lambda-names": h5("tf2.15/lambda.h5"),
    "lambda-shape": h5("tf2.15/lambda.h5"),
    "unsafe-file": archive("tf2.15/lambda.keras"),
    "tfjs-input": h5("keras3.15/default_float32.h5"),
    "tfjs-layer": h5("keras3.15/default_float32.h5"),
    "tfjs-weights": h5("keras3.15/default_float32.h5"),
    "keras-2-converter": archive("keras3.15/default_float32.keras", "Keras 3.15"),
    "keras-tensor": h5("tf2.15/tf_op_layers.h5"),
    "keras-2-api": Example(files={}, shown="keras3.15"),
    "tf-keras-missing": h5("tf2.15/default_float32.h5", "tf_keras"),
    "pickled-model": Example(
        files={}, fix_files={"model.h5": "tf2.15/default_float32.h5"}, shown="keras3.15"
    ),
    "already-quantized": archive("keras3.6/int8.keras", "int8_from_float32"),
    "quantization-config": archive("keras3.15/default_float32.keras", "float32"),
    "weight-shape": h5("tf2.15/default_float32.h5", "dense"),
    "weights-layout": h5("keras3.15/default_float32.h5", "dense"),
    "weights-suffix": h5("tf2.15/default_float32.h5", "HDF5"),
    "load-weights-argument": h5("tf2.15/default_float32.h5", "dense"),
    "unbuilt-model": h5("tf2.15/default_float32.h5", "dense"),
    "checkpoint-lookup-table": exported("tf2.3/string_lookup", "TF 2.5 and older store lookup"),
    "checkpoint-values": exported("tf2.15/default_float32", "dense"),
    "traced-dtype": exported("tf2.15/global_mixed_float16", "signature"),
    "no-keras-metadata": exported("tf2.15/default_float32", "TF 2.15"),
    "tfjs-bytes": Example(
        files={"model.json": "tfjs4.22/default_float32/model.json"}, shown="dense"
    ),
    "h5py-missing": h5("tf2.15/default_float32.h5", "Dense"),
    "missing-checkpoint": exported("tf2.15/default_float32", "SavedModel"),
    "checkpoint-dtype": exported("tf2.15/default_float32", "float32"),
    "damaged-checkpoint": exported("tf2.15/default_float32", "SavedModel"),
    "policy-name-in-config": h5("policy_name.json"),
    "policy-as-dtype": Example(files={}, shown="mixed_bfloat16"),
    "policy-argument": Example(
        files={}, fix_files={"model.h5": "tf2.15/default_float32.h5"}, shown="mixed_bfloat16"
    ),
    "quantization-float16": archive("keras3.15/default_float32.keras", "float32"),
    "compute-capability": h5("tf2.15/rnn_mixed.h5", "mixed_float16"),
    "converter-float16": h5("tf2.15/global_mixed_float16.h5", "mixed_float16"),
    "preset-config": exported("tf2.15/default_float32", "SavedModel"),
    "loss-scale-h5": h5("tf2.15/default_float32.h5", "Dense"),
    "loss-scale-clipping": h5("tf2.15/adam_autowrap_mf16.h5", "loss scale dynamic"),
    "loss-scale-usage": h5("tf2.15/adam_autowrap_mf16.h5", "loss scale dynamic"),
    "legacy-optimizer": h5("tf2.15/adam_autowrap_mf16.h5", "TF 2.15"),
    "optimizer-keyword": h5("tf2.15/lso_fixed128.h5", "optimizer"),
    "optimizer-pop": h5("keras2.1.6/sequential.json", "Keras 2"),
    "no-training": h5("tf2.15/default_float32.h5", "Dense"),
    "tfjs-config": Example(
        files={
            "model.json": "tfjs4.22/default_float32/model.json",
            "group1-shard1of1.bin": "tfjs4.22/default_float32/group1-shard1of1.bin",
        },
        fix_files={"model.h5": "keras3.15/default_float32.h5"},
        shown="TensorFlow.js",
    ),
    "tfjs-topology": h5("keras3.15/sharded_00000.weights.h5", "weights"),
    "training-config": h5("tf2.15/default_float32_compiled.h5", "TF 2.15"),
    "not-serializable": archive("keras3.15/default_float32.keras", "dense"),
    "quantized-layer": archive("keras3.6/int8.keras", "int8_from_float32"),
    "other-library-layer": Example(files={}, shown="keras3.15"),
    "different-installations": Example(files={}, shown="keras3.15"),
    "tfjs-shapes": h5("keras3.15/default_float32.h5"),
    "signature-name": exported("tf2.15/global_mixed_float16", "serving_default"),
    "signature-function": exported("tf2.15/global_mixed_float16", "serving_default"),
    "savedmodel-tags": exported("tf2.15/global_mixed_float16", "serving_default"),
    "duplicate-names": h5("tf2.15/default_float32.h5", "dense"),
    "locked-file": h5("tf2.15/default_float32.h5", "HDF5"),
    "config-arguments": h5("tf2.15/custom_unregistered.h5"),
    "tfjs-request": Example(
        files={"model.json": "tfjs4.22/default_float32/model.json"}, shown="dense"
    ),
    "json-text": Example(files={"model.json": "keras2.1.6/sequential.json"}, shown="Keras 2"),
    "array-in-config": h5("tf2.15/default_float32.h5", "Dense"),
    "other-importer": h5("tf2.15/default_float32.h5", "TF 2.15"),
    "newer-packages": h5("tf2.15/default_float32.h5", "TF 2.15"),
    "lookup-table": h5("keras3.15/string_lookup.h5", "StringLookup"),
    "constant-state": h5("tf2.15/rnn_mixed.h5", "RNN"),
    "export-backend": archive("keras3.15/default_float32.keras", "Keras 3.15"),
    "untracked-resource": exported("tf2.15/default_float32", "SavedModel"),
    "untraced-functions": exported("tf2.15/default_float32", "dense"),
    "damaged-file": archive("keras3.15/default_float32.keras", "dense"),
    "path-encoding": h5("tf2.15/default_float32.h5", "HDF5"),
    "temporary-weights": archive("keras3.15/default_float32.keras", "dense"),
    "optimizer-variables": h5("tf2.15/adam_autowrap_mf16.h5", "TF 2.15"),
    "cudnn-layer": h5("tf2.15/rnn_mixed.h5", "RNN"),
    "other-session": h5("tf2.15/default_float32.h5", "TF 2.15"),
    "integer-layer": h5("tf2.15/default_float32.h5", "float32"),
    "keras-1-arguments": h5("keras1.json"),
    "missing-package": h5("tf2.15/default_float32.h5", "TF 2.15"),
    "tflite-version": h5("keras3.15/default_float32.h5", "Keras 3.15"),
    "unsupported-ops": Example(
        files={"model.h5": "tf2.15/default_float32.h5"},
        fix_files={"model.h5": "tf2.15/global_mixed_float16.h5"},
        shown="LiteRT",
    ),
    "input-shape": h5("tf2.15/default_float32.h5", "(?, 6)"),
    "graph-op": exported("tf2.15/default_float32", "TF 2.15"),
    "export-directory": exported("tf2.15/default_float32", "SavedModel"),
    "tfmot-layer": h5("tf2.15/default_float32.h5", "dense"),
    "input-dtype": h5("tf2.15/input_dtypes.h5", "InputLayer"),
    "file-system": archive("keras3.15/default_float32.keras", "dense"),
    "tracked-list": archive("keras3.15/default_float32.keras", "dense"),
    "same-class-name": exported("tf2.15/default_float32", "SavedModel"),
    "checkpoint-callback": archive("keras3.15/default_float32.keras", "dense"),
    "hdf5-legacy": h5("tf2.15/default_float32.h5", "TF 2.15"),
    "registered-twice": h5("tf2.15/custom_unregistered.h5"),
    "strategy-scope": h5("tf2.15/default_float32.h5", "TF 2.15"),
    "orbax-checkpoint": exported("orbax/devices4", "outer/first"),
    "bfloat16-in-numpy": archive("keras3.15/global_bfloat16.keras", "bfloat16"),
    "stateful-batch": h5("tf2.15/bidirectional_mixed.h5", "Bidirectional"),
    "lora": archive("keras3.15/int8.keras", "int8_from_float32"),
    "other-load-error": h5("tf2.15/mha.h5", "TF 2.15"),
    "other-save-error": archive("keras3.15/default_float32.keras", "dense"),
    "floatx": h5("tf2.15/default_float32.h5", "mixed_bfloat16"),
    "serving-request": exported("tf2.15/global_mixed_float16", "serving_default"),
    "tfjs-dtype": exported("tf2.15/default_float32", "dense"),
    "graph-dtype": exported("tf2.15/default_float32", "TF 2.15"),
    "graph-name": exported("tf2.15/global_mixed_float16", "serving_default"),
    "path-object": h5("tf2.15/default_float32.h5", "HDF5"),
    "model-path": h5("tf2.15/default_float32.h5", "HDF5"),
    "which-release": h5("tf2.15/default_float32.h5", "TF 2.15"),
    "other-format": Example(
        files={"model.h5": "tf2.15/default_float32.h5"},
        fix_files={"model.keras": "keras3.15/default_float32.keras"},
        shown="HDF5",
    ),
    "different-predictions": h5("tf2.15/default_float32.h5", "dense"),
    "change-policy": h5("tf2.15/global_mixed_float16.h5", "mixed_float16"),
}
"""By the id of the entry."""
