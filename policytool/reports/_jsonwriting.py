"""JSON values as the text of a report."""

from __future__ import annotations

import json
import math
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


def strict(value: Any) -> Any:  # noqa: ANN401  # whatever a config, or a measurement, holds
    """Return JSON values with the names of numbers that JSON lacks."""
    match value:
        case float() if math.isnan(value):
            return "NaN"
        case float() if math.isinf(value):
            return "Infinity" if value > 0 else "-Infinity"
        case list():
            return [strict(item) for item in value]
        case dict():
            return {key: strict(item) for key, item in value.items()}
    return value
