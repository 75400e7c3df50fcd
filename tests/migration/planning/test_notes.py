"""Sentences of plans about code that another library will run."""

from __future__ import annotations

import pytest

from policytool.migration.planning.notes import custom_code_words


@pytest.mark.parametrize(
    ("names", "start"),
    [
        ({"Net", "Block"}, "Block, Net: when you load the model, pass"),
        ({"Net", "Lambda"}, "Net: when you load the model, pass"),
        ({"Lambda"}, "Lambda: needs safe_mode=False"),
    ],
)
def test_a_lambda_is_no_custom_class(names: set[str], start: str) -> None:
    """Keras ignores custom_objects for it."""
    words = custom_code_words(names, "Keras 3.15")
    assert words.startswith(start)
    assert ("safe_mode" in words) is ("Lambda" in names)
