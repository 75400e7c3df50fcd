"""Rules about names of code and of ops, for the lists of them that others have published."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from policytool.formats import format_detection
from policytool.model import hazards, reading, untrusted_code
from policytool.releases import data
from policytool.releases import symbols as _table
from tests.contracts.findings_contract import rule_findings
from tests.helpers.marks import THOROUGH
from tests.rules.faults.safety import activation, op_layer

if TYPE_CHECKING:
    from pathlib import Path

GADGETS = (
    *(
        "subprocess:Popen",
        "builtins:exec",
        "importlib:import_module",
        "runpy:run_path",
        "ctypes:CDLL",
        "pickle:loads",
        "joblib:load",
    ),
    *(
        "keras.utils:get_file",
        "keras:utils.get_file",
        "keras.src.utils.file_utils:get_file",
        "tensorflow.keras.utils:get_file",
    ),
    *(
        "keras.config:enable_unsafe_deserialization",
        "keras.saving:load_model",
        "keras.src.saving.saving_lib:anything",
        "keras.src.utils.python_utils:func_load",
    ),
    *(
        "tensorflow.python.ops.gen_io_ops:read_file",
        "tensorflow.io:write_file",
        "tensorflow:py_function",
        "tensorflow:load_library",
    ),
    "tensorflow.raw_ops:WriteFile",
    *(
        "keras.src.backend.common.global_state:set_global_attribute",
        "keras.config:set_floatx",
        "keras.src.utils.file_utils:urlretrieve",
    ),
    *(
        "keras.visualization:plot_image_gallery",
        "keras.utils:plot_model",
        "keras.datasets.mnist:load_data",
        "keras:visualization.plot_image_gallery",
    ),
    "tensorflow.python.keras.engine.sequential:Sequential",
)
HARMLESS = (
    *(
        "builtins:relu",
        "builtins:my_function",
        "builtins:type",
        "keras.activations:relu",
        "keras.src.layers.core.dense:Dense",
    ),
    *(
        "tensorflow.python.keras.activations:relu",
        "keras.src.distribution.distribution_lib:LayoutMap",
        "keras.ops:softmax",
    ),
    *(
        "keras.utils:normalize",
        ":relu",
        "tensorflow.nn:relu",
        "tensorflow.raw_ops:MatMul",
        "tensorflow.io:decode_jpeg",
    ),
    *(
        "tensorflow.python.ops.nn_ops:softmax_v2",
        "mypackage.layers:Scale",
        "keras_hub.src.models.backbone:Backbone",
        "test.layers:Scale",
    ),
)
REACHING = (
    *(
        "io.read_file",
        "io.gfile.remove",
        "compat.v1.io.write_file",
        "numpy_function",
        "raw_ops.PyFunc",
        "load_op_library",
        "keras.utils.get_file",
    ),
    "saved_model.load",
)
COMPUTING = ("io.decode_jpeg", "raw_ops.MatMul", "nn.softmax", "math.add", "image.resize")


def told(path: Path) -> list[str]:
    """Return what is refused where a library would have to load the file."""
    return [
        reason.what
        for reason in untrusted_code.reasons_not_to_run(
            reading.load_model(format_detection.document(path, "model"))
        )
        if not reason.is_custom
    ]


@THOROUGH
@pytest.mark.parametrize("named", GADGETS)
def test_gadgets_of_published_attacks_are_findings(named: str, tmp_path: Path) -> None:
    """Keras 3.0, 3.3 and 3.6 look up most of these names, and 3.12 and 3.15 reject them."""
    module, name = named.split(":")
    for kind in ("function", "class"):
        made = activation(module, name, kind=kind)(tmp_path)
        (finding,) = rule_findings("PT602", made)
        assert (
            finding.message
            == f"mlp/dense_a refers to {module}.{name}, which does not belong in a model"
        )
        assert told(made) == [finding.message]
        assert not rule_findings("PT603", made)


@pytest.mark.parametrize("named", HARMLESS)
def test_other_code_is_not(named: str, tmp_path: Path) -> None:
    """
    Packages of one's own are a note, what Keras writes itself is nothing, and other functions
    of Keras' are a warning.
    """
    made = activation(*named.split(":"))(tmp_path)
    assert not rule_findings("PT602", made)
    assert [finding.message for finding in rule_findings("PT612", made)] == told(made)


def test_names_that_keras_rejects_are_known() -> None:
    """The list is that of Keras, for any of its modules."""
    assert len(data.read("hazards")["refused"]) > 20
    for full in data.read("hazards")["refused"]:
        module, _, name = full.rpartition(".")
        assert _table.is_harmful(module, name)
        assert _table.is_harmful("tf_keras.src.somewhere", name)


@pytest.mark.parametrize("function", [*REACHING, *COMPUTING])
def test_functions_of_tensorflow(function: str, tmp_path: Path) -> None:
    """Keras 2 wraps them as layers by their public names."""
    made = op_layer(function)(tmp_path)
    assert bool(rule_findings("PT602", made)) == (function in REACHING)


def test_ops_that_the_tensorflow_scanner_reports_are_known() -> None:
    """The list of policytool contains the list of that scanner."""
    assert all(hazards.op(name) is not None for name in data.read("hazards")["scanned"])
