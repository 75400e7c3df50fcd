"""``policytool.load``, with a Keras that records what it loads."""

from __future__ import annotations

import gc
import json
import sys
import zipfile
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Final

import pytest

import policytool
from policytool.commands import load as loading
from policytool.commands.load import InstalledKeras
from policytool.commands.migrate import migrate_loaded
from policytool.formats import format_detection
from policytool.releases.releases import KERAS2, KERAS3, newest
from policytool.support import limits, steps
from policytool.support.errors import MissingPackageError, ModelFileError, UsageError
from tests.helpers import changed_fixtures
from tests.helpers.paths import FIXTURES

if TYPE_CHECKING:
    from collections.abc import Callable

    from policytool.formats.document import Document

MODEL: Final = "a model"
NEWEST: Final = newest(KERAS3).id


@dataclass
class RecordingKeras:
    """A Keras that reads the policies of the files that it loads, and keeps its arguments."""

    registered: frozenset[str] = frozenset()
    fails: bool = False
    policies: list[str | None] = field(default_factory=list)
    classes: list[str | None] = field(default_factory=list)
    options: dict[str, Any] = field(default_factory=dict)
    path: str = ""
    is_archive: bool = False
    collects: bool = True

    def load_model(self, path: str, **options: object) -> str:
        """Read the file with policytool instead of Keras."""
        if self.fails:
            raise ValueError("Unknown layer")
        self.path, self.options, self.collects = path, options, gc.isenabled()
        self.is_archive = zipfile.is_zipfile(path)
        layers = policytool.inspect(path).layers
        self.policies = [layer.policy for layer in layers]
        self.classes = [layer.class_name for layer in layers]
        return MODEL

    def model_from_json(self, text: str, **options: object) -> str:
        """Keep the arguments."""
        self.path, self.options = text, options
        return MODEL

    def get_registered_object(self, name: str) -> str | None:
        """Return a registered class."""
        return name if name in self.registered else None

    def module(self) -> SimpleNamespace:
        """Return the module as :class:`InstalledKeras` contains it."""
        return SimpleNamespace(
            __name__="recording", models=self, utils=self, layers=None, backend=None
        )


@pytest.fixture
def use_keras(monkeypatch: pytest.MonkeyPatch) -> Callable[..., RecordingKeras]:
    """Return a function that makes a recording Keras the installed one."""

    def use(release: str = NEWEST, **arguments: Any) -> RecordingKeras:  # its fields
        keras = RecordingKeras(**arguments)
        installed = InstalledKeras(module=keras.module(), release=release)
        monkeypatch.setattr(loading, "installed_keras", lambda: installed)
        return keras

    return use


def test_file_that_keras_loads_is_not_converted(use_keras: Callable[..., RecordingKeras]) -> None:
    """Keras gets a private copy with the bytes of the file, which is removed afterwards."""
    keras = use_keras()
    path = FIXTURES / "keras3.15" / "global_mixed_float16.keras"
    assert policytool.load(path) == MODEL
    assert keras.path != str(path)
    assert keras.policies == [layer.policy for layer in policytool.inspect(path).layers]
    assert not Path(keras.path).exists()


@pytest.mark.parametrize(
    ("release", "is_archive"),
    [(NEWEST, False), ("keras3.6", False), ("keras3.4", True), ("keras3.3", True)],
)
def test_file_of_another_family_is_converted(
    release: str,
    is_archive: bool,  # noqa: FBT001
    use_keras: Callable[..., RecordingKeras],
) -> None:
    """
    Keras 3 gets a model with the policies of the HDF5 file of TF 2.15. If its measured release
    loads directories, it is one, which needs no checksum, without the suffix of an archive.
    """
    keras = use_keras(release)
    path = FIXTURES / "tf2.15" / "global_mixed_float16.h5"
    assert not policytool.inspect(path).releases[NEWEST].loads
    assert policytool.load(path) == MODEL
    assert keras.is_archive is is_archive
    assert keras.path.endswith(".keras") is is_archive
    assert keras.policies == [layer.policy for layer in policytool.inspect(path).layers]


def test_garbage_is_not_collected_while_a_file_is_converted_and_loaded(
    use_keras: Callable[..., RecordingKeras], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each collection looks at all objects of Keras."""
    keras = use_keras()
    enabled = []

    def migrate(*arguments: Any) -> Any:
        enabled.append(gc.isenabled())
        return migrate_loaded(*arguments)

    monkeypatch.setattr(loading, "migrate_loaded", migrate)
    policytool.load(FIXTURES / "tf2.15" / "global_mixed_float16.h5")
    assert enabled == [False]
    assert not keras.collects
    assert gc.isenabled()


def test_converted_file_is_not_read_again(
    use_keras: Callable[..., RecordingKeras], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The planned document is checked, which is the one that was written."""
    keras = use_keras()
    read, document = [], format_detection.document

    def reading(path: Path, display_path: str) -> Document:
        read.append(path.name)
        return document(path, display_path)

    monkeypatch.setattr(format_detection, "document", reading)
    policytool.load(FIXTURES / "tf2.15" / "global_mixed_float16.h5")
    assert read == ["global_mixed_float16.h5", Path(keras.path).name]  # the latter by this Keras


def test_archive_is_converted_for_tf_keras(use_keras: Callable[..., RecordingKeras]) -> None:
    """The other direction."""
    keras = use_keras(newest(KERAS2).id)
    assert policytool.load(FIXTURES / "keras3.15" / "global_mixed_float16.keras") == MODEL
    assert "mixed_float16" in keras.policies


def test_architecture_is_built_without_weights(use_keras: Callable[..., RecordingKeras]) -> None:
    """Keras 3 gets the converted JSON."""
    keras = use_keras()
    assert policytool.load(FIXTURES / "tf2.15" / "global_mixed_float16.json") == MODEL
    assert json.loads(keras.path)["class_name"] == "Functional"


def test_architecture_and_weights_become_a_model(
    use_keras: Callable[..., RecordingKeras],
) -> None:
    """Two paths are joined as by ``migrate --weights``."""
    source = FIXTURES / "tf2.15" / "global_mixed_float16.h5"
    keras = use_keras()
    pair = (source.with_suffix(".json"), source)
    assert policytool.load(pair) == MODEL
    assert Path(keras.path).name == "global_mixed_float16.keras3.15"


@pytest.mark.parametrize(
    ("name", "compiles"),
    [
        ("default_float32_compiled.keras", True),
        ("default_float32_compiled.h5", False),
        ("default_float32.keras", False),
    ],
)
def test_training_configuration_is_compiled_if_it_loads(
    name: str,
    compiles: bool,  # noqa: FBT001
    use_keras: Callable[..., RecordingKeras],
) -> None:
    """
    ``compile`` follows the verdict on the training configuration: Keras 3 does not find the loss
    ``mse`` in HDF5.
    """
    keras = use_keras()
    policytool.load(FIXTURES / "keras3.15" / name)
    assert keras.options["compile"] is compiles


def test_custom_class_must_be_defined(use_keras: Callable[..., RecordingKeras]) -> None:
    """Otherwise Keras would import the module that the file names."""
    path = FIXTURES / "keras3.15" / "custom_layer.keras"
    use_keras()
    with pytest.raises(ModelFileError, match="add it to custom_objects") as caught:
        policytool.load(path)
    assert caught.value.code == "runs-code"
    keras = use_keras()
    classes = {"Holder": set, "Pair": dict, "Scale": list}
    policytool.load(path, custom_objects=classes)
    assert keras.options["custom_objects"].items() > classes.items()
    assert "fixtures>Pair" in keras.options["custom_objects"]


def test_registered_class_needs_no_custom_objects(
    use_keras: Callable[..., RecordingKeras],
) -> None:
    """Classes that the program registered in Keras are defined."""
    path = FIXTURES / "keras3.15" / "custom_layer.keras"
    use_keras(registered=frozenset({"fixtures>Holder", "fixtures>Pair", "fixtures>Scale"}))
    assert policytool.load(path) == MODEL


def test_code_in_the_file_needs_trust(
    use_keras: Callable[..., RecordingKeras], tmp_path: Path
) -> None:
    """A Lambda runs only with ``trust``, which turns ``safe_mode`` off."""
    codes = json.loads((FIXTURES / "lambda_code.json").read_text(encoding="utf-8"))

    def change(config: Any) -> None:
        changed_fixtures.layer(config, "double")["function"]["config"]["code"] = codes["3.11"][
            "1.0 / x"
        ]

    path = changed_fixtures.keras_zip(tmp_path, "keras3.15/lambda.keras", change)
    keras = use_keras()
    with pytest.raises(ModelFileError, match="use trust=True only for files") as caught:
        policytool.load(path)
    assert caught.value.code == "runs-code"
    assert keras.path == ""
    assert policytool.load(path, trust=True) == MODEL
    assert keras.options["safe_mode"] is False


@pytest.mark.parametrize("path", ["keras3.15/lambda.keras", "tf2.3/lambda.h5"])
def test_lambda_that_scales_is_replaced(
    use_keras: Callable[..., RecordingKeras], path: str
) -> None:
    """Its code does not run."""
    keras = use_keras()
    assert policytool.load(FIXTURES / path) == MODEL
    assert "Rescaling" in keras.classes
    assert "Lambda" not in keras.classes


def test_lambda_calls_a_function_of_the_user(
    use_keras: Callable[..., RecordingKeras], tmp_path: Path
) -> None:
    """Its code runs only with ``trust``, and the function is passed to Keras."""
    codes = json.loads((FIXTURES / "lambda_code.json").read_text(encoding="utf-8"))

    def change(config: Any) -> None:
        function = changed_fixtures.layer(config, "double")["function"]
        function[0] = codes["3.8"]["1.0 / x"]

    path = changed_fixtures.h5(tmp_path, "tf2.3/lambda.h5", change)
    keras = use_keras()
    with pytest.raises(ModelFileError, match=r"needs double_function; .*--preview shows its code"):
        policytool.load(path)
    functions = {"double_function": abs}
    assert policytool.load(path, custom_objects=functions) == MODEL
    assert keras.options["custom_objects"] == functions
    assert keras.options["safe_mode"] is True
    assert policytool.load(path, custom_objects=functions, trust=True) == MODEL
    assert keras.options["custom_objects"] == functions
    assert policytool.load(path, trust=True) == MODEL
    assert keras.options["custom_objects"]["double_function"](4.0) == 0.25


def test_file_without_a_keras_model_is_not_loaded(
    use_keras: Callable[..., RecordingKeras],
) -> None:
    """An export contains only a graph."""
    use_keras()
    with pytest.raises(ModelFileError, match="SavedModel without Keras metadata"):
        policytool.load(FIXTURES / "keras3.15" / "default_float32.export")


def test_file_that_cannot_be_converted_names_the_reason(
    use_keras: Callable[..., RecordingKeras],
) -> None:
    """Keras 2 has no quantized policies."""
    use_keras(newest(KERAS2).id)
    expected = (
        f"policytool migrate --target {newest(KERAS2).id} cannot convert it: .*quantized policy"
    )
    with pytest.raises(ModelFileError, match=expected) as caught:
        policytool.load(FIXTURES / "keras3.15" / "int8_policy.keras")
    assert caught.value.code == "not-loadable"


def test_limit_is_named_without_an_option(
    use_keras: Callable[..., RecordingKeras], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The function has no argument for limits."""
    use_keras()
    monkeypatch.setattr(steps, "FILE_STEPS", limits.Limit("file-steps", 10, "steps", "a test"))
    with pytest.raises(ModelFileError, match=r"above the file-steps limit of 10$"):
        policytool.load(FIXTURES / "tf2.15" / "global_mixed_float16.h5")


def test_directory_with_one_model_stands_for_it(use_keras: Callable[..., RecordingKeras]) -> None:
    """A directory of TensorFlow.js contains model.json, after a file that is not a model."""
    keras = use_keras()
    folder = FIXTURES / "tfjs4.22" / "default_float32"
    assert policytool.load(folder) == MODEL
    in_folder, keras.policies = keras.policies, []
    assert policytool.load(folder / "model.json") == MODEL
    assert keras.policies == in_folder
    with pytest.raises(ModelFileError, match="specify one model in it, such as "):
        policytool.load(folder.parent)


def test_weights_of_another_model_name_the_layer(use_keras: Callable[..., RecordingKeras]) -> None:
    """A file with its own weights is a wrong argument."""
    use_keras()
    pair = (FIXTURES / "tf2.15/default_float32.json", FIXTURES / "keras3.15/lambda.keras")
    with pytest.raises(ModelFileError, match="Dense dense_1 has no stored variables"):
        policytool.load(pair)
    with pytest.raises(UsageError, match=r"^separate weights are only for architectures"):
        policytool.load((pair[1], pair[1]))


def test_error_of_keras_names_the_file(use_keras: Callable[..., RecordingKeras]) -> None:
    """The original exception is the cause."""
    use_keras(fails=True)
    with pytest.raises(ModelFileError, match="cannot load the model: Unknown layer") as caught:
        policytool.load(FIXTURES / "keras3.15" / "default_float32.keras")
    assert isinstance(caught.value.__cause__, ValueError)


@pytest.mark.parametrize(
    ("legacy", "installed", "version", "release"),
    [
        ("", ("keras", "tf_keras"), "3.15.1", "keras3.15"),
        ("1", ("keras", "tf_keras"), "2.21.0", "tf_keras2.21"),
        ("True", ("keras", "tf_keras"), "2.18.0", "tf_keras2.18"),
        ("1", ("keras",), "2.15.0", "tf2.15"),
        ("", ("tf_keras",), "2.21.0", "tf_keras2.21"),
        ("", ("keras",), "3.99.0", NEWEST),
    ],
)
def test_installed_keras(
    legacy: str,
    installed: tuple[str, ...],
    version: str,
    release: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """``TF_USE_LEGACY_KERAS`` prefers tf_keras; an unknown release is read as the newest known."""
    monkeypatch.setenv("TF_USE_LEGACY_KERAS", legacy)
    find = {name: object() for name in installed}.get
    monkeypatch.setattr("importlib.util.find_spec", find)
    for name in installed:
        module = SimpleNamespace(__name__=name, __version__=version)
        monkeypatch.setitem(sys.modules, name, module)
    assert loading.installed_keras().release == release


def test_missing_keras_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """The message has the command that installs it."""
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    with pytest.raises(MissingPackageError, match="pip install"):
        policytool.load(FIXTURES / "keras3.15" / "default_float32.keras")


def test_error_of_keras_has_the_reason_of_the_inner_object() -> None:
    """Keras puts outer objects and configs first, and hides the error of a Lambda."""
    outer = "Functional could not be deserialized\n\nconfig={}.\n\nException encountered: "
    assert loading._first_line(TypeError(f"{outer}No class\n\n{outer}Unknown layer Pool")) == (  # noqa: SLF001
        "Unknown layer Pool"
    )
    error = NotImplementedError(
        "Exception encountered when calling Lambda.call().\n\n\x1b[1mNo shape.\x1b[0m\n\nArguments"
    )
    error.__context__ = NotImplementedError("No shape.")
    error.__context__.__context__ = NameError("name 'size' is not defined")
    assert loading._first_line(error) == "No shape. (name 'size' is not defined)"  # noqa: SLF001
