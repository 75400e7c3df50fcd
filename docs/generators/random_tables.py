"""What came of random models that were converted to the other library and back, as tables."""

from __future__ import annotations

import json
import textwrap
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from policytool.reports.markdown import prose, row

if TYPE_CHECKING:
    from collections.abc import Iterator

RECORD: Final = Path(__file__).parent.parent.parent / "fixtures" / "random_models.json"
_LIBRARIES: Final = {"keras": "Keras 3.15", "tf_keras": "tf_keras 2.21"}
_UNBUILT: Final = "reference failed"
_COLUMNS: Final = {
    "DIFFERS": "different predictions",
    "DOES NOT LOAD": "fail to load",
    "DOES NOT LOAD (compiled)": "fail to load with compile=True",
    "DTYPES": "different dtypes",
    "STATE": "optimizer state lost",
    "CRASH": "crashes",
    "ROUND TRIP": "different after converting back",
    "NO WAY BACK": "cannot be converted back",
}
_LONGEST: Final = 160
_RECORDED: Final = 200  # characters of a reason that the record keeps

Entry = dict[str, Any]


def random_models() -> Iterator[str]:
    """Yield the tables of the record."""
    record: dict[str, Entry] = json.loads(RECORD.read_text(encoding="utf-8"))
    names = ("from", "to", "seeds", "built", "correct", "unsupported", *_COLUMNS.values())
    yield row(names)
    yield row("---" for _ in names)
    for library, found in record.items():
        yield _counts(library, found)
    yield ""
    yield row(("from", "reason", "models", "example"))
    yield row("---" for _ in range(4))
    for library, found in record.items():
        yield from _refusals(library, found)


def _counts(library: str, found: Entry) -> str:
    words = Counter(_word(one) for one in found["others"])
    built = found["models"] - words[_UNBUILT]
    other = next(name for name in _LIBRARIES if name != library)
    right = built - sum(words.values()) + words[_UNBUILT] + words["near"]
    return row(
        (
            _LIBRARIES[library],
            _LIBRARIES[other],
            f"{found['first']} to {found['first'] + found['models'] - 1}",
            str(built),
            f"{right} ({100 * right / built:.1f}%)",
            str(words["refused"]),
            *(str(words[word]) for word in _COLUMNS),
        )
    )


def _refusals(library: str, found: Entry) -> Iterator[str]:
    refused = [one for one in found["others"] if _word(one) == "refused"]
    counts = Counter(one["word"].partition(": ")[2] for one in refused)
    for code, count in counts.most_common():
        example = next(one for one in refused if one["word"].endswith(f": {code}"))
        reason = example["reason"].rpartition(f"{example['reason'].partition(': ')[0]}: ")[2]
        if len(example["reason"]) == _RECORDED:
            reason = f"{reason.rpartition(' ')[0]}..."
        yield row((_LIBRARIES[library], f"`{code}`", str(count), prose(_short(reason))))


def _short(reason: str) -> str:
    """Return the problem without the suggestion, ending at a word."""
    return textwrap.shorten(reason.partition("; ")[0], _LONGEST, placeholder="...")


def _word(one: Entry) -> str:
    return str(one["word"]).partition(": ")[0]
