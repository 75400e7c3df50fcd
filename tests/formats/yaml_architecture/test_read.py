"""Architecture YAML, the output of ``to_yaml``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import policytool
from policytool.formats import Probe, format_detection
from policytool.formats.yaml_architecture import recognise
from policytool.support.errors import ModelFileError
from tests.conftest import MIXED_YAML, run
from tests.contracts.format_contract import FormatContract
from tests.helpers.paths import FIXTURES

if TYPE_CHECKING:
    from pathlib import Path

MODEL = (
    "class_name: Sequential\nconfig:\n  name: mlp\n  layers:\n  - class_name: Dense\n    config: "
    "{name: dense_a, trainable: true, dtype: float32, units: 2}\n"
)


class TestYaml(FormatContract):
    package = "yaml_architecture"
    document_format = ("yaml",)
    samples = (
        MIXED_YAML,
        FIXTURES / "tf2.2/wrappers.yaml",
        FIXTURES / "keras2.2.4/shared_layer.yaml",
        FIXTURES / "tf1.15/global_mixed_float16.yaml",
    )


@pytest.mark.parametrize(
    "text",
    [
        MODEL,
        f"\ufeff{MODEL}",
        f"%YAML 1.1\n---\n# by hand\n\n{MODEL}",
        f"backend: tensorflow\nkeras_version: 2.2.4\n{MODEL}",
        MODEL.replace("class_name: S", '"class_name": S'),
        MODEL.replace("\n", "\r\n"),
    ],
    ids=["plain", "byte order mark", "prologue", "keys before", "quoted", "line ends"],
)
def test_every_way_to_begin_is_recognised(text: str, tmp_path: Path) -> None:
    """Including those of other YAML writers."""
    (tmp_path / "a.yaml").write_bytes(text.encode())
    assert [layer.path for layer in policytool.inspect(tmp_path / "a.yaml").layers] == [
        "mlp",
        "mlp/dense_a",
    ]


@pytest.mark.parametrize(
    "text",
    [
        "config:\n  a: 1\n",
        "backend: tensorflow\nname: x\n",
        "hello: world\n",
        "- class_name: x\n",
        "class_names: [a]\n",
        "# class_name: x\n",
        "class_name\n",
    ],
)
def test_other_text_files_are_not_claimed(text: str, tmp_path: Path) -> None:
    """A settings file next to a model is not recognized as an architecture."""
    (tmp_path / "a.yaml").write_text(text, encoding="utf-8")
    assert not recognise(Probe(tmp_path / "a.yaml", "a.yaml"))


@pytest.mark.parametrize(
    ("code", "text"),
    [
        ("yaml-not-keras", "class_name: Dense\n"),
        ("yaml-not-keras", "class_name: [Dense]\nconfig: {}\n"),
        ("invalid-yaml", "class_name: Dense\nconfig: {\n"),
        ("yaml-tag", "class_name: Dense\nconfig: !!python/name:os.system ''\n"),
        ("config-not-keras", "class_name: Dense\nconfig: 3\n"),
    ],
)
def test_malformed_file_raises_a_one_line_error_with_a_code(
    code: str, text: str, tmp_path: Path
) -> None:
    path = tmp_path / "a.yaml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(ModelFileError) as caught:
        policytool.inspect(path)
    assert caught.value.code == code
    assert "\n" not in caught.value.message
    assert run("inspect", path).code == 3


def test_bytes_that_are_not_utf8_are_rejected(tmp_path: Path) -> None:
    """Bytes outside UTF-8 are an error with the offset of the first."""
    (tmp_path / "a.yaml").write_bytes(MODEL.encode() + b"x: \xff\n")
    with pytest.raises(ModelFileError, match="UTF-8"):
        policytool.inspect(tmp_path / "a.yaml")


def test_repeated_keys_and_python_objects_are_observed(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(
        MODEL.replace("dtype: float32", "dtype: float16, dtype: float64"), encoding="utf-8"
    )
    model = policytool.inspect(tmp_path / "a.yaml")
    assert model.layers[1].policy == "float64"
    assert [item.code for item in model.observations if item.code == "duplicate-key"]
    wrapped = format_detection.document(FIXTURES / "tf2.2/wrappers.yaml", "wrappers.yaml")
    assert [item.code for item in wrapped.observations] == ["python-objects"]


def test_settings_files_in_a_directory_are_passed_over(tmp_path: Path) -> None:
    """Settings files in a directory are skipped, because the user did not name them."""
    (tmp_path / "settings.yaml").write_text("class_name: Dense\nunits: 3\n", encoding="utf-8")
    (tmp_path / "model.yaml").write_text(MODEL, encoding="utf-8")
    assert run("inspect", tmp_path).code == 0
