"""Architecture JSON, the output of ``to_json``."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

import policytool
from tests.conftest import MIXED_JSON
from tests.contracts.format_contract import FormatContract
from tests.helpers.paths import FIXTURES
from tests.helpers.small_models import sequential

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
def test_what_editors_put_before_json_is_no_matter(before: bytes, tmp_path: Path) -> None:
    """A byte order mark and blank lines before the JSON are ignored."""
    (tmp_path / "a.json").write_bytes(before + json.dumps(sequential()).encode())
    assert [layer.path for layer in policytool.inspect(tmp_path / "a.json").layers] == [
        "mlp",
        "mlp/dense_a",
    ]


def test_json_stores_no_variables() -> None:
    """An architecture in JSON has layers but no variables."""
    summary = policytool.inspect(MIXED_JSON).summary
    assert summary.layers
    assert (summary.parameters, summary.bytes) == (0, 0)
