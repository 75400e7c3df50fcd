"""JSON values as the text of a report."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    from policytool.reports._layout import View


def written(values: Mapping[str, Any], view: View) -> str:
    """Return JSON text, indented; where the stream lacks characters, they are escaped as JSON does it."""
    text = json.dumps(values, indent=2, ensure_ascii=not view.unicode, allow_nan=False)
    if not text.isascii() and any("\ud800" <= character <= "\udfff" for character in text):  # lone surrogates, which UTF-8 has no bytes for
        text = json.dumps(values, indent=2, allow_nan=False)
    return text + "\n"
