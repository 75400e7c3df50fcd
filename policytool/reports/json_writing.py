"""JSON values as the text of a report."""

from __future__ import annotations

import json
import math
import re
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

    from policytool.reports.layout import View

_HIDDEN: Final = re.compile(
    "[\x7f-\x9f\xad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ud800-\udfff\ufeff\ufff9-\ufffb\ufffe\uffff]"
)
"""
What JSON need not escape and a terminal obeys, or shows as nothing; and lone surrogates, which
UTF-8 has no bytes for.
"""


def written(values: Mapping[str, Any], view: View) -> str:
    """
    Return JSON text, indented; where the stream lacks characters, they are escaped as JSON does it.
    """
    text = json.dumps(values, indent=2, ensure_ascii=not view.unicode, allow_nan=False)
    return _HIDDEN.sub(lambda found: f"\\u{ord(found[0]):04x}", text) + "\n"


# whatever a config, or a measurement, holds
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
