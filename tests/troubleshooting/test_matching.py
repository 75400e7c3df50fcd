"""Real tracebacks find their entry first; other texts find nothing."""

from __future__ import annotations

import json
import re
import time
from pathlib import Path
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policytool.releases.releases import descriptions
from policytool.support.errors import UsageError
from policytool.support.limits import override
from policytool.troubleshooting.entries import (
    EARLIER,
    MOST,
    OUTSIDE,
    Specificity,
    entries,
    explain_text,
    plain_lines,
)
from tests.helpers.cases import for_each
from tests.helpers.marks import ALONE, THOROUGH
from tests.helpers.paths import FIXTURES

RECORD: Final[dict[str, dict[str, Any]]] = json.loads(
    (FIXTURES / "error_messages.json").read_text(encoding="utf-8")
)
"""Tracebacks of real releases, with the entry of their cause (``fixtures/error_messages.py``)."""

SOURCES: Final[dict[str, dict[str, Any]]] = json.loads(
    (FIXTURES / "message_templates.json").read_text(encoding="utf-8")
)
TEMPLATES: Final = {text: row["entry"] for text, row in SOURCES.items() if row["entry"]}
"""Messages of the loading code, with their entries (``fixtures/message_templates.py``)."""

PUBLIC: Final[list[dict[str, str]]] = json.loads(
    Path(__file__).with_name("public_messages.json").read_text(encoding="utf-8")
)
ENTRIES: Final = tuple(entries())
HELD_OUT: Final = [name for name, one in RECORD.items() if one["held_out"]]
SHORT: Final = "AttributeError: 'str' object has no attribute 'quantization_mode'"


def best(text: str) -> str | None:
    """Return the id of the best entry."""
    matches = explain_text(text).matches
    return matches[0].entry.id if matches else None


@THOROUGH
@for_each("name", RECORD)
def test_recorded_traceback_matches_its_entry_first(name: str) -> None:
    """The line that matched is in the text."""
    text = RECORD[name]["traceback"]
    first = explain_text(text).matches[0]
    assert first.entry.id == RECORD[name]["cause"]
    assert plain_lines(text)[first.line - 1].strip() == first.text


def test_the_record_covers_releases_and_causes() -> None:
    """Tracebacks of many releases, some recorded after the patterns were written."""
    assert len(RECORD) >= 40
    assert len(HELD_OUT) >= 8
    assert len({item["release"] for item in RECORD.values()}) >= 12
    assert {item["cause"] for item in RECORD.values()} <= {entry.id for entry in ENTRIES}
    assert (FIXTURES / "error_messages.json").stat().st_size < 300_000
    assert not [name for name, one in RECORD.items() if "/root/" in one["traceback"]]


@THOROUGH
@for_each("name", HELD_OUT)
@for_each(
    "prefix",
    [
        "2026-11-23 12:00:00,123 ERROR root: ",
        "[worker-1] ",
        "E   ",
        "> ",
        "\x1b[31m",
        "#12 3.456 ",
        "  | ",
    ],
)
def test_prefixes_and_colors_of_log_lines_do_not_matter(name: str, prefix: str) -> None:
    """Such a text has the same best entry as the plain traceback."""
    lines = RECORD[name]["traceback"].splitlines()
    assert best("\n".join(f"{prefix}{line}" for line in lines)) == RECORD[name]["cause"]


@THOROUGH
@for_each("name", HELD_OUT)
def test_windows_paths_and_line_ends_do_not_matter(name: str) -> None:
    """A traceback from Windows."""
    text = RECORD[name]["traceback"].replace("/home/user/venv/lib/", "C:\\Users\\me\\venv\\Lib\\")
    assert best(text.replace("\n", "\r\n")) == RECORD[name]["cause"]


@THOROUGH
@for_each("entry", ENTRIES, ids=lambda entry: entry.id)
def test_a_message_broken_by_a_terminal_is_found(entry: Any) -> None:
    """The title of an entry, broken in the middle of words, finds what the whole title finds."""
    title = f"keras: {entry.title}"
    whole = explain_text(title).matches
    broken = "\n".join(title[start : start + 40] for start in range(0, len(title), 40))
    actual = {match.entry.id for match in explain_text(broken).matches}
    assert {match.entry.id for match in whole[:1]} <= actual


@for_each(
    "text",
    [
        'Traceback (most recent call last):\n  File "a.py", line 1, in f\n    a[0]\nKeyError: 0',
        "TypeError: unhashable type: 'dict'",
        "TypeError: __init__() got an unexpected keyword argument 'name'",
        "AttributeError: 'str' object has no attribute 'decode'",
        "AttributeError: 'NoneType' object has no attribute 'shape'",
        "json.decoder.JSONDecodeError: Expecting value: line 1 column 1 (char 0)",
        "IndexError: list index out of range",
        "ModuleNotFoundError: No module named 'requests'",
        "zipfile.BadZipFile: File is not a zip file",
        "KeyError: 'name'",
        "KeyError: 'layers'",
        "MemoryError",
        "I tensorflow/core/platform/cpu_feature_guard.cc:210] This TensorFlow binary is optimized",
        "WARNING:tensorflow:From x.py:3: The name tf.losses is deprecated.",
        "W xla/cuda/cuda_driver.cc:269] failed call to cuInit: CUDA_ERROR_NO_DEVICE",
        "tensorflow.framework.errors_impl.ResourceExhaustedError: OOM when allocating tensor",
        'ValueError: Input 0 of layer "dense" is incompatible with the layer: expected axis -1',
        "Epoch 1/10\n1563/1563 - 5s 3ms/step - accuracy: 0.41 - loss: 1.61",
        "Keras is a deep learning API. A policy decides in which dtype a layer computes.",
        "The model was saved, loaded and evaluated without any error on three releases.",
        "policytool",
        "0",
        "How to load images from a directory in keras",
        "how to open an h5 file with h5py and list datasets",
        "predictions are always the same class in keras",
        "training accuracy good but test accuracy bad in keras",
        "predict returns different results than evaluate",
        "how do I convert numpy array from float64 to float32",
        "how to convert a pytorch model to onnx",
        "sklearn model saved with joblib does not load in newer version",
        "which tensorflow version is compatible with cuda 12.1",
        "my kaggle notebook runs out of memory when I load the dataset",
        "does tensorflow 2 support python 3.11?",
        "how to use custom loss function in keras",
        "Saved model and weights at epoch 10, val_accuracy improved from 0.90 to 0.92",
        "I can't open the tensorboard page in colab",
        "how to load a csv file into keras model for training",
        "How do I load a model on the GPU in keras",
        "Is there a way to freeze layers of a loaded keras model",
    ],
)
def test_unrelated_texts_match_nothing(text: str) -> None:
    """Python errors, logs of TensorFlow, and prose."""
    assert not explain_text(text).matches


def test_a_traceback_without_its_last_line_is_found_by_its_last_source_line() -> None:
    """The source line that raises the exception tells the message; other source lines do not."""
    frame = '  File "/x/keras/saving/hdf5_format.py", line 175, in load_model_from_hdf5\n'
    source = "    raise ValueError('No model found in config file.')"
    assert best(f"{frame}{source}\n\n") == "weights-only"
    assert best(f"{frame}{source}\n\nPlease help, thanks") == "weights-only"
    assert best(f"{frame}{source}\nMemoryError") != "weights-only"
    assert best(f"{frame}{source.replace('raise', 'print')}") != "weights-only"


@THOROUGH
@for_each("row", PUBLIC, ids=lambda row: row["text"][:60])
def test_public_message_matches_its_entry_first(row: dict[str, str]) -> None:
    """Messages of public threads, with the entry that a person chose; empty for unrelated ones."""
    assert (best(row["text"]) or "") == row["entry"]


@THOROUGH
@for_each("row", [row for row in PUBLIC if "command" in row], ids=lambda row: row["text"][:60])
def test_public_message_prints_the_command_that_helps(row: dict[str, str]) -> None:
    """One command of the best entry contains the words that a person chose."""
    entry = explain_text(row["text"]).matches[0].entry
    commands = [step.command for step in (entry.check, *entry.fix)]
    words = row["command"].split()
    assert any(all(word in command for word in words) for command in commands), commands


@THOROUGH
@for_each("template", TEMPLATES)
def test_message_of_the_sources_matches_its_entry(template: str) -> None:
    """A message that the loading code of a release raises, with some values."""
    texts = (
        f"{template.replace('{}', value)}\n(keras/load_model)"
        for value in ("1", "Dense", "(1, 2)", "'Dense'", "class")
    )
    assert TEMPLATES[template] in [best(text) for text in texts]


def test_every_message_of_the_sources_is_reviewed() -> None:
    """A new release may have new messages, which an entry describes or a review excludes."""
    assert [text for text, row in SOURCES.items() if row["entry"] is None] == []


LOGS: Final = {
    "absl": "W1128 10:00:00.000000 140012 save.py:120] {}",
    "Python logging": "2026-11-28 10:00:00,123 - app - ERROR - {}",
    "docker compose": "web_1  | {}",
    "Kubernetes": "2026-11-28T10:00:00.123456789Z stderr F {}",
    "CI": "2026-11-28T10:00:00.1234567Z {}",
    "box": "\u2502 {}                              \u2502",
    "quotes": "{}",
}


@for_each("name", LOGS)
def test_logs_boxes_and_typographic_quotes_do_not_matter(name: str) -> None:
    """A message that a log breaks into two lines, and its model."""
    lines = [
        "\u256d\u2500\u2500\u2500\u2500 Traceback (most recent call last) \u2500\u2500\u2500\u256e",
        '  File "/x/site-packages/tf_keras/src/engine/x.py", line 3, in load',
        "    model = load_model('runs/best one.h5')",
        "ValueError: Unrecognized keyword arguments:",
        "['batch_shape']",
    ]
    if name == "quotes":
        lines = [line.replace("'", "\u2019").replace('"', "\u201d") for line in lines]
    (match,) = explain_text("\n".join(LOGS[name].format(line) for line in lines)).matches
    assert match.entry.id == "batch-shape"
    assert match.entry.fix[0].command == "policytool migrate 'runs/best one.h5' --target tf_keras"


@for_each(
    ("frame", "target"),
    [
        ("tf_keras/src/engine/base_layer.py", "tf_keras"),
        ("keras/src/engine/base_layer.py", "tf2.15"),
        ("keras/src/models/functional.py", "keras3"),
        ("tensorflow/python/keras/engine/saving.py", "tf2.3"),
        ("tensorflow_core/python/keras/saving/save.py", "tf2.1"),
        ("site-packages/keras/saving/hdf5_format.py", "tf2.9"),
        ("site-packages/keras/saving/serialization_lib.py", "tf2.12"),
        ("/v/tf2.4/lib/python3.8/site-packages/tensorflow/python/keras/x.py", "tf2.4"),
        (r"C:\envs\gpu_tf-2.10\Lib\site-packages\keras\engine\x.py", "tf2.10"),
        ("/v/tensorflow_2.8.4/lib/python3.9/site-packages/keras/engine/x.py", "tf2.8"),
        ("/v/keras3.7/lib/python3.11/site-packages/keras/src/saving/x.py", "keras3.7"),
        ("/v/tf_keras2.18/lib/python3.11/site-packages/tf_keras/src/x.py", "tf_keras2.18"),
        ("/v/tf2.15/lib/python3.11/site-packages/keras/src/models/x.py", "keras3"),
        ("/v/tf2.15/lib/python3.11/site-packages/tf_keras/src/x.py", "tf_keras"),
        ("/v/tf2.19/lib/python3.11/site-packages/keras/src/saving/x.py", "keras3.3"),
        ("x.py", "keras3.3"),
    ],
)
def test_the_release_of_a_traceback_is_the_target(frame: str, target: str) -> None:
    """The example of the entry remains if the frames do not show a release."""
    text = f'  File "{frame}", line 3, in f\nValueError: Unrecognized keyword arguments: x'
    (match,) = explain_text(text).matches
    assert match.entry.fix[0].command.endswith(f"--target {target}")


@for_each(
    ("text", "command"),
    [
        ("`to_quantize` can only be a tf.keras Sequential", "migrate model.h5 --target keras3"),
        ("save(path + '/m.h5')\nValueError: Unknown layer: A", "migrate model.h5 --target keras3"),
        ("load_model('model.keras')\nUnknown layer: A", "migrate model.keras --target keras3"),
        ("tensorflow/python/keras/x.py\nUnknown layer: A", "migrate model.h5 --target tf2.3"),
        ("saved_model/load.py\nUnknown layer: A", "migrate exported/ --target keras3"),
        ("keras/src/saving/saving_lib.py\nUnknown layer: A", "migrate model.keras --target keras3"),
        ("open('config/run.json')\nUnknown layer: A", "migrate model.h5 --target keras3"),
        ("model_from_json('net.json')\nUnknown layer: A", "migrate net.json --target keras3"),
        ("I'm at 'net.keras'\nUnknown layer: A", "migrate net.keras --target keras3"),
        ("load_model(r'net.keras')\nUnknown layer: A", "migrate net.keras --target keras3"),
        (
            "filepath=a/net.keras. Please ensure the file is an accessible `.keras` zip file",
            "migrate a/net.keras --target keras3",
        ),
    ],
)
def test_commands_name_the_model_and_the_release_of_the_text(text: str, command: str) -> None:
    """Modules, parts of paths and settings are not models; frames show the format of the model."""
    assert explain_text(text).matches[0].entry.fix[1].command == f"policytool {command}"


@for_each(
    ("call", "target"),
    [
        ("182, in load_model\n    return hdf5_format.load_model_from_hdf5(", "tf2.3"),
        ("206, in load_model\n    return hdf5_format.load_model_from_hdf5(", "tf2.4"),
        ("212, in load_model\n    return saved_model_load.load(", "tf2.4"),
        ("201, in load_model\n    return hdf5_format.load_model_from_hdf5(", "tf2.5"),
        ("206, in load_model\n    return saved_model_load.load(", "tf2.5"),
    ],
)
def test_the_line_of_load_model_shows_the_release(call: str, target: str) -> None:
    """TF 2.4 and 2.5 have the modules of TF 2.3."""
    frame = f'  File "/v/site-packages/tensorflow/python/keras/saving/save.py", line {call}'
    assert explain_text(f"{frame}\nValueError: Unknown layer: A").release == target


def test_environments_have_names_of_targets() -> None:
    """Every release that the name of an environment can show is a target."""
    shown = set[str]()
    for library, modules, majors in (
        ("tf", "tensorflow", "2"),
        ("keras", "keras/src", "3"),
        ("tf_keras", "tf_keras", "2"),
    ):
        for minor in range(30):
            path = f"/v/{library}{majors}.{minor}/lib/python3.11/site-packages/{modules}/x.py"
            if release := explain_text(path).release:
                shown.add(release)
    known = {name for name, _ in descriptions()} - {"tf1.15"}
    assert {name for name in known if "." in name} == shown


def test_recorded_traceback_shows_no_release_of_another_library() -> None:
    """Modules show TF, tf_keras or Keras 3, and for most releases not more."""
    shown = {name: explain_text(row["traceback"]).release for name, row in RECORD.items()}
    wrong = {
        name: release
        for name, release in shown.items()
        if release and re.split(r"\d", release)[0] != re.split(r"\d", RECORD[name]["release"])[0]
    }
    assert wrong == {}
    assert sum(map(bool, shown.values())) >= 100


REJECTS: Final = (
    '  File "/v/keras/src/models/functional.py", line 9, in from_config\n'
    "TypeError: {}.__init__() got an unexpected keyword argument 'trainable'"
)
LAYER_FRAME: Final = '  File "/v/tensorflow/python/keras/engine/base_layer.py", line 2268, in '
POLICY_NAME: Final = "TypeError: Cannot convert value 'mixed_float16' to a TensorFlow DType."


@for_each(
    ("text", "expected"),
    [
        (
            "ValueError: LossScaleOptimizer does not support wrapping optimizers with a clipvalue.",
            ["loss-scale-clipping"],
        ),
        ("LossScaleOptimizer does not support `clipnorm`.", ["loss-scale-usage"]),
        (f"{LAYER_FRAME}_set_dtype_policy\n{POLICY_NAME}", ["policy-name-in-config"]),
        (f"{LAYER_FRAME}cast\n{POLICY_NAME}", ["policy-as-dtype"]),
        ("AttributeError: '_UserObject' object has no attribute 'add_slot'", ["add-slot"]),
        ("AttributeError: '_UserObject' object has no attribute 'fit'", ["user-object"]),
        (REJECTS.format("SpatialDropout1D"), ["newer-argument"]),
        (REJECTS.format("MyDropout"), ["config-arguments"]),
        ("keras.src/x.py\nValueError: Invalid dtype: str192", []),
    ],
)
def test_similar_messages_have_different_causes(text: str, expected: list[str]) -> None:
    """A message with a narrower cause does not match the entry of the others."""
    assert [match.entry.id for match in explain_text(text).matches] == expected


@for_each(
    ("text", "step"),
    [
        ("Keyword argument not understood: x", "for this release, for example TF 2.9:"),
        ("Unrecognized keyword arguments: x", "for this release, for example Keras 3.3:"),
        ("keras/src/models/x.py\nUnrecognized keyword arguments: x", "for this release:"),
        ("keras/src/engine/x.py\nNo module named 'keras.src.models'", "for TF 2.15:"),
    ],
)
def test_a_step_names_one_release(text: str, step: str) -> None:
    """The example in the sentence is the target of the command, or is left out."""
    assert explain_text(text).matches[0].entry.fix[0].text == f"Convert the model {step}"


def test_a_command_for_keras_2_keeps_its_target_in_a_traceback_of_keras_3() -> None:
    text = "keras/src/models/x.py\nits parent module keras.src.engine.functional cannot be imported"
    commands = [step.command for step in explain_text(text).matches[0].entry.fix]
    assert [command.split()[-1] for command in commands] == ["keras3", "tf2.15"]


MISSING: Final = "Layer 'd' expected 2 variables, but received 0 variables during loading."


@for_each(
    ("frame", "names", "target"),
    [
        ("site-packages/keras/engine/base_layer.py", "['d/kernel:0', 'd/bias:0']", "tf2.12"),
        ("keras/src/engine/base_layer.py", "['d/kernel:0', 'd/bias:0']", "tf2.15"),
        ("tf_keras/src/engine/base_layer.py", "['d/kernel:0', 'd/bias:0']", "tf_keras"),
        ("keras/src/saving/saving_lib.py", "['kernel', 'bias']", "keras3"),
        ("x.py", "['d/kernel:0', 'd/bias:0']", "tf2.15"),
        ("x.py", "['kernel', 'bias']", "keras3"),
    ],
)
def test_names_of_missing_variables_show_the_release(frame: str, names: str, target: str) -> None:
    """The command writes HDF5, in which all these releases find the variables."""
    text = f'  File "{frame}", line 3, in f\nValueError: {MISSING} Expected: {names}'
    (match,) = explain_text(text).matches
    command = f"policytool migrate model.keras --target {target} -o converted.h5"
    assert match.entry.fix[0].command == command


def test_confidence_is_specificity_times_place() -> None:
    """The confidence is the product that the docstring of the module describes."""
    frame = 'Traceback (most recent call last):\n  File "a.py", line 1, in <module>\n    a()\n'
    during = "\nDuring handling of the above exception, another exception occurred:\n\n"
    exact = Specificity.EXACT.value
    for text, place in (
        (SHORT, 1),
        (f"{frame}{SHORT}", 1),
        (f"{frame}{SHORT}\n{during}{frame}ValueError: other", EARLIER),
        (f"WARNING {SHORT.partition(': ')[2]}\n\n{frame}ValueError: other", OUTSIDE),
    ):
        (match,) = explain_text(text).matches
        assert match.confidence == round(exact * place, 2)


def test_better_entry_hides_other_entries_of_the_line() -> None:
    """A specific message does not need a general explanation."""
    result = explain_text("ValueError: Unknown layer: Functional").matches
    assert [match.entry.id for match in result] == ["unknown-layer-functional"]


def test_the_last_exception_wins() -> None:
    """The message of the exception that ended the program comes first of two specific messages."""
    other = "ValueError: Unknown layer: Functional"
    during = "\nDuring handling of the above exception, another exception occurred:\n\n"
    assert best(f"{SHORT}\n{during}{other}") == "unknown-layer-functional"
    assert best(f"{other}\n{during}{SHORT}") == "policy-format"


def test_specific_message_has_priority_over_a_general_one() -> None:
    """The order of both messages has no effect."""
    general = "TypeError: Could not interpret initializer or Unable to deserialize the keras object"
    during = "\nThe above exception was the direct cause of the following exception:\n\n"
    assert best(general) == "custom-class"
    assert best(f"{SHORT}\n{during}{general}") == "policy-format"


def test_a_traceback_in_one_line_of_a_log_is_read() -> None:
    """Log collectors escape line breaks."""
    name = HELD_OUT[0]
    text = RECORD[name]["traceback"].replace("\n", "\\n")
    assert best(text) == RECORD[name]["cause"]


@for_each(
    ("text", "expected"),
    [
        (
            '{"error": "File \\"x.py\\", line 2\\n  a()\\nValueError: Unknown layer: Functional"}',
            "unknown-layer-functional",
        ),
        ("OSError: C:\\new\\nets\\m.h5 (file signature not found)", "file-signature"),
        ("&#39;str&#39; object has no attribute &quot;quantization_mode&#x27;", "policy-format"),
        ("用户报错ValueError: Unknown layer: Functional怎么办", "unknown-layer-functional"),
        ("ValueError: Unknown layer: A&lt;B&unknown;&#9999999;", "custom-class"),
    ],
)
def test_escapes_of_logs_pages_and_scripts_are_read(text: str, expected: str) -> None:
    """Text from JSON, HTML, and sentences without spaces."""
    assert best(text) == expected


@for_each(
    ("text", "expected"),
    [
        ("valueerror: unknown layer: functional", "unknown-layer-functional"),
        ("i get provided weight data has no target variable: conv1/kernel", "tfjs-weights"),
        ("TYPEERROR: 'STR' OBJECT HAS NO ATTRIBUTE 'QUANTIZATION_MODE'", "policy-format"),
        ("ValueError: operands could not be broadcast together with shapes (3,2) (2,3)", None),
        ("TensorFlow failed: 'Conv2d' object has no attribute 'conv'", None),
    ],
)
def test_case_matters_only_in_texts_with_names_of_classes(text: str, expected: str | None) -> None:
    """A message that was retyped in lower case is found; a copied message has its case."""
    assert best(text) == expected


def test_a_traceback_without_line_breaks_is_read() -> None:
    """Forms and chats join lines; then the frames do not hide the exception."""
    text = (
        'Traceback (most recent call last): File "/x/app.py", line 75, in f model = '
        'load_model(path) File "/x/site-packages/keras/models.py", line 142, in load_model '
        "ValueError: Unknown layer: Functional"
    )
    assert best(text) == "unknown-layer-functional"


def test_source_lines_around_the_one_that_failed_are_no_messages() -> None:
    """A traceback in a notebook shows other lines, which may raise other exceptions."""
    frame = "/x/keras/models.py in load_model(filepath)\n"
    around = "    231             raise ValueError('No model found in config.file.')\n"
    failed = "--> 233         model = model_from_config(model_config)\n\nKeyError: 'config'"
    assert best(f"{frame}{around}{failed}") == "other-load-error"
    raised = (
        "--> 231             raise ValueError(\n    232             'No model found in config')"
    )
    assert best(f"{frame}{raised}") == "weights-only"


def test_a_traceback_without_its_exception_is_read() -> None:
    """Of a text that contains nothing but frames, the functions say what failed."""
    frames = (
        '  File "/x/site-packages/tensorflow/python/keras/engine/functional.py", line 667, in '
        "{}\n    a, b, c = reconstruct_from_config(config)\n"
    )
    assert best(frames.format("from_config")) == "other-load-error"
    assert best(frames.format("call")) is None


@for_each(
    ("text", "expected"),
    [
        ("AttributeError: str object has no attribute quantization_mode", "policy-format"),
        ("AttributeError: module keras has no attribute mixed_precision", "keras-2-api"),
        ('AttributeError: "str" object has no attribute "quantization_mode"', "policy-format"),
        ("The filepath provided must end in .keras (Keras model format).", "weights-suffix"),
        ("The filepath provided must end in '.keras' (Keras model format).", "weights-suffix"),
        ("module os has no attribute mixed_precisions", None),
    ],
)
def test_quotes_of_messages_do_not_matter(text: str, expected: str | None) -> None:
    """Users retype messages without quotes or with others, and pages drop those of Markdown."""
    assert best(text) == expected


@for_each(
    ("text", "expected"),
    [
        ("How to load .h5 in keras 3", "which-release"),
        ("Can a .keras file be opened with tensorflow 2.12?", "which-release"),
        ("what version of keras created this h5 file", "which-release"),
        ("saved with TF 2.x, can't open in Keras 3", "other-load-error"),
        ("my model trained in Colab does not load in my local python 3.9", "other-load-error"),
        ("I upgraded tensorflow and now my saved model is broken", "other-load-error"),
        ("keras \u6a21\u578b\u52a0\u8f7d\u5931\u8d25", "other-load-error"),
        ("no puedo cargar mi modelo h5 en keras", "other-load-error"),
        ("Ich kann mein keras Modell nicht laden", "other-load-error"),
        ("how can i load a saved_model.pb in keras 3", "savedmodel-in-keras-3"),
        ("My custom layer is not recognized when I load the model in keras", "custom-class"),
        ("how to convert .pb to .h5 keras", "other-format"),
        ("convert mixed_float16 model to float32", "change-policy"),
        ("Why is my saved mixed precision model still float32?", "change-policy"),
        ("accuracy drops after load_model", "different-predictions"),
        ("tflite model gives different results than keras model", "different-predictions"),
        ("loss is NaN with mixed precision", "nan"),
        ("ModelCheckpoint does not save my model", "checkpoint-callback"),
    ],
)
def test_sentences_of_users_are_answered(text: str, expected: str) -> None:
    """A question or a description names the symptom, and no message."""
    assert best(text) == expected


def test_empty_text_is_invalid_usage() -> None:
    """White space and colors are not a message."""
    for text in ("", " \n\t", "\x1b[0m"):
        with pytest.raises(UsageError, match="empty"):
            explain_text(text)


def test_text_above_the_size_limit_is_invalid_usage() -> None:
    """The error names the limit, which the user can raise."""
    with override({"message-bytes": 100}), pytest.raises(UsageError, match="message-bytes"):
        explain_text("x" * 101)


FRAGMENTS: Final = st.sampled_from(
    [
        *(entry.title for entry in ENTRIES),
        "Traceback (most recent call last):\n",
        '  File "x.py", line 3, in f\n',
        "\n",
        "\r",
        "\x1b[",
        "\x1b]0;",
        "    ~~~^^^\n",
        "'" * 50,
        "{" * 50,
        "Error: ",
        "keras/",
        "\u202e",
        "\ud800",
        "\\n",
    ]
)


@given(st.lists(st.one_of(FRAGMENTS, st.text(max_size=40)), max_size=30).map("".join))
def test_any_text_is_explained_or_refused(text: str) -> None:
    """Matches are few, ordered, and refer to lines of the text."""
    try:
        matches = explain_text(text).matches
    except UsageError:
        return
    assert len(matches) <= MOST
    confidences = [match.confidence for match in matches]
    assert confidences == sorted(confidences, reverse=True)
    assert all(0 < match.confidence <= 1 and match.line >= 1 for match in matches)
    assert len({match.entry.id for match in matches}) == len(matches)


HOSTILE: Final = {
    "quotes": "'",
    "words": "a",
    "spaces": " ",
    "lines": "x\n",
    "types": "a.A",
    "beginnings": "Unrecognized keyword arguments passed to ",
    "endpoints": "endpoint '",
    "operations": "Op has type float16 that does not match type ",
    "layers": "Layer 'x expected 1 variables, ",
    "kernels": "Could not find device for node ",
    "names": "Policy _Policy",
    "converted": "Cannot convert value ",
    "escapes": "\x1b[1",
    "titles": "\x1b]",
    "frames": 'File "',
    "exceptions": "ValueError: x\n",
    "classes": "Cannot call custom layer ",
    "letters": "loss: ",
    "raises": 'File "a", line 1, in f\n    raise a\n\n',
    "entities": "&#39;",
    "scripts": "\u4e2da",
}


@THOROUGH
@ALONE
@pytest.mark.parametrize("name", HOSTILE)
def test_time_grows_with_the_length_of_the_text(name: str) -> None:
    """Four times as much text takes less than eight times as long."""
    piece = HOSTILE[name]

    def seconds(length: int) -> float:
        text = "x" + (piece * (length // len(piece) + 1))[:length]
        start = time.process_time()
        explain_text(text)
        return time.process_time() - start

    seconds(1_000)
    small, large = seconds(50_000), seconds(200_000)
    assert large < 8 * max(small, 0.1)
    assert large < 8
