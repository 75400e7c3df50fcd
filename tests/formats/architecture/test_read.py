"""Architecture JSON, the output of ``to_json``."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

import policytool
from tests.conftest import MIXED_JSON
from tests.contracts.format_contract import FormatContract
from tests.helpers.paths import FIXTURES
from tests.helpers.small_models import dense, sequential

if TYPE_CHECKING:
    from pathlib import Path


class TestArchitecture(FormatContract):
    package = "architecture"
    document_format = ("json",)
    samples = (
        MIXED_JSON,
        FIXTURES / "keras3.15/default_float32.json",
        FIXTURES / "keras2.2.4/default_float32.json",
    )


@pytest.mark.parametrize(
    "before",
    [b"", b"\xef\xbb\xbf", b"\n\t ", b"\xef\xbb\xbf\r\n"],
    ids=["plain", "byte order mark", "space", "both"],
)
def test_byte_order_mark_and_blank_lines_before_json_are_ignored(
    before: bytes, tmp_path: Path
) -> None:
    (tmp_path / "a.json").write_bytes(before + json.dumps(sequential()).encode())
    assert [layer.path for layer in policytool.inspect(tmp_path / "a.json").layers] == [
        "mlp",
        "mlp/dense_a",
    ]


def test_json_stores_no_variables() -> None:
    summary = policytool.inspect(MIXED_JSON).summary
    assert summary.layers
    assert (summary.parameters, summary.bytes) == (0, 0)


@pytest.mark.parametrize(
    ("keys", "version", "backend"),
    [
        ({"keras_version": "2.1.6", "backend": "theano"}, "2.1.6", "theano"),
        ({"keras_version": 2, "backend": None}, None, None),
    ],
)
def test_the_writer_is_named_next_to_the_model(
    keys: dict[str, Any], version: str | None, backend: str | None, tmp_path: Path
) -> None:
    file = tmp_path / "model.json"
    file.write_text(json.dumps({**sequential(dense()), **keys}), encoding="utf-8")
    writer = policytool.inspect(file).writer
    assert (writer.keras, writer.backend) == (version, backend)
