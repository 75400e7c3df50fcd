"""
The generated parts of the pages about conversions: the targets, the rewrites, what was measured of
fixtures, and what was measured of layers.
"""

from __future__ import annotations

import json
import re
import textwrap
from collections import Counter
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from backend_tables import backends
from random_tables import random_models

from policytool.migration.convert.rewrites import REWRITES
from policytool.releases import behaviour, exports
from policytool.releases.releases import EXPORTERS, KERAS2, KERAS3, LOADERS, descriptions, newest
from policytool.reports import topics
from policytool.reports.markdown import code, prose, row
from policytool.reports.words import generation_words

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from policytool.migration.convert.rewrites import Rewrite

ROOT: Final = Path(__file__).parent.parent.parent
_PAGES: Final = ROOT / "docs"
RECORD: Final = ROOT / "fixtures" / "conversions.json"
TRUTHS: Final = ROOT / "fixtures"
_POLICIES: Final = ("float32", "mixed_float16", "mixed_bfloat16")
_DIRECTIONS: Final = (True, False)
"""To Keras 3, to Keras 2."""

_DONE: Final = frozenset({"same", "near", "loads"})
_UNDECIDED: Final = "undecided"
_LONGEST: Final = 240
"""The number of characters of a library's message that a cell shows."""


def page_with_parts(name: str) -> str:
    """Return a page with new generated parts; the rest is written by hand."""
    page = _PAGES / name
    parts = _PARTS[name]
    text = page.read_text(encoding="utf-8")
    for label, part in parts.items():
        begin, end = f"<!-- {label}: written by make docs -->\n", f"<!-- end of {label} -->"
        if begin not in text or end not in text:
            raise ValueError(f"{page.name} has no place for {label}")
        head, _, rest = text.partition(begin)
        _, _, tail = rest.partition(end)
        lines = "".join(f"{line}\n" for line in part())
        text = f"{head}{begin}\n{lines}\n{end}{tail}"
    return text


def _targets() -> Iterator[str]:
    yield row(("`--target`", "meaning"))
    yield row(("---", "---"))
    names: dict[str, list[str]] = {}
    for name, words in descriptions():
        names.setdefault(words, []).append(name)
    for words, same in names.items():
        yield row((", ".join(map(code, same)), prose(words)))


def _exports() -> Iterator[str]:
    """Yield how many layers each exporter exports, by policy, and which fail in float32."""
    yield row(("policy", *EXPORTERS.values()))
    yield row(("---", *("---" for _ in EXPORTERS)))
    for policy in exports.policies(next(iter(EXPORTERS))):
        cells = [_export_cell(exports.policies(exporter)[policy]) for exporter in EXPORTERS]
        yield row((code(policy), *cells))
    yield ""
    for exporter, title in EXPORTERS.items():
        rows = exports.policies(exporter)["float32"]
        failing = sorted({case for one in rows if "fails" in one for case in one["cases"]})
        yield f"- {title}, in float32: {', '.join(map(code, failing))} fail."
    packages = ", ".join(f"{name} {version}" for name, version in exports.versions().items())
    yield ""
    yield f"Measured with {packages}."


def _export_cell(rows: Sequence[Mapping[str, Any]]) -> str:
    works = [one for one in rows if "fails" not in one]
    count = sum(len(one["cases"]) for one in works)
    weights = Counter(" and ".join(one["weights"]) for one in works for _ in one["cases"])
    words = ", ".join(code(name) for name, _ in weights.most_common() if name)
    total = sum(len(one["cases"]) for one in rows)
    return f"{count} of {total}" + (f"; weights {words}" if words else "")


def _rewrites() -> Iterator[str]:
    yield row(("rewrite", "description"))
    yield row(("---", "---"))
    for rewrite in REWRITES:
        yield row((rewrite.name, topics.markdown(_about(rewrite))))


def _about(rewrite: Rewrite) -> str:
    """Return what a rewrite does: the first paragraph of its docstring in one line."""
    return " ".join(rewrite.doc.partition("\n\n")[0].split())


def _conversions() -> Iterator[str]:
    """
    Yield the table of what came of each release's fixtures, by format and target, and below it why
    the others are refused.
    """
    if not RECORD.exists():
        yield "No conversions are recorded."
        return
    outcomes = _recorded()
    kinds = _kinds()
    targets = [target for target in LOADERS if any(target in found for found in outcomes.values())]
    yield row(("written by", "format", "files", *targets))
    yield row(["---"] * (len(targets) + 3))
    for place in dict.fromkeys((name.partition("/")[0], kinds[name]) for name in outcomes):
        files = [
            found
            for name, found in outcomes.items()
            if (name.partition("/")[0], kinds[name]) == place
        ]
        yield row(
            (
                *place,
                str(len(files)),
                *(
                    _cell([found[target] for found in files if target in found])
                    for target in targets
                ),
            )
        )
    yield ""
    yield row(("reason", "conversions", "example"))
    yield row(("---", "---", "---"))
    yield from _refusals(outcomes)


def _cell(texts: list[str]) -> str:
    """Return how many of a release's files were converted, refused and failed for a target."""
    if not texts:
        return ""
    counts = Counter(
        "converted" if text in _DONE else text.split()[0].rstrip(":") for text in texts
    )
    open_ones = f" ({counts[_UNDECIDED]} undecided)" if counts[_UNDECIDED] else ""
    return " / ".join(str(counts[word]) for word in ("converted", "refused", "failed")) + open_ones


def _refusals(outcomes: Mapping[str, Mapping[str, str]]) -> Iterator[str]:
    counts = Counter[str]()
    examples: dict[str, str] = {}
    for found in outcomes.values():
        for text in found.values():
            if text.startswith("refused "):
                reason, _, message = text.removeprefix("refused ").partition(": ")
                counts[reason] += 1
                examples.setdefault(reason, message)
    for reason, count in sorted(counts.items(), key=lambda item: (-item[1], item[0])):
        yield row((code(reason), str(count), topics.markdown(_short(examples[reason]))))


def _recorded() -> dict[str, dict[str, str]]:
    """Return each fixture's outcome by target."""
    files = json.loads(RECORD.read_text(encoding="utf-8"))["files"]
    return {
        name: {target: text for text, targets in found.items() for target in targets.split()}
        for name, found in files.items()
    }


def _kinds() -> dict[str, str]:
    """Return the format of each fixture."""
    found = {}
    for truth in TRUTHS.glob("*/truth.json"):
        for case in json.loads(truth.read_text(encoding="utf-8"))["cases"].values():
            found.update(
                {f"{truth.parent.name}/{file}": kind for kind, file in case["files"].items()}
            )
    return found


_PARTS: Final[Mapping[str, Mapping[str, Callable[[], Iterator[str]]]]] = {
    "how-to/migrate.md": {"targets": _targets},
    "evidence/exports.md": {"exports": _exports},
    "evidence/safe-rule.md": {"backends": backends},
    "evidence/conversion-steps.md": {"rewrites": _rewrites},
    "evidence/random-models.md": {"random models": random_models, "conversions": _conversions},
}
"""Page to the generated parts of it."""

PAGES: Final = {f"docs/{name}": partial(page_with_parts, name) for name in _PARTS}
"""File to the function that returns its text."""


def _newest() -> Iterator[str]:
    for family in (KERAS2, KERAS3):
        yield generation_words(newest(family).id)


def behaviour_page() -> str:
    """Return what was measured of every layer, converted in both directions, as Markdown."""
    ulp, eps = behaviour.ULP, behaviour.EPS
    lines = [
        "# Numerical differences of converted layers",
        "",
        (
            "`make docs` generates this page from `policytool/releases/data/layer_behaviour.json`. "
            "`fixtures/layer_behaviour.py` measured this data with"
        ),
        (
            f"{' and '.join(_newest())}. It builds each layer in one library with random weights, "
            "converts it in the same way as `migrate --target`, and runs it in the other"
        ),
        (
            "library on the same inputs. A case is a class with specific arguments. The results of "
            f"a case agree if they differ by at most {ulp} [ulp](../reference/glossary.md) of the "
            "largest"
        ),
        (
            f"output in float32, and by at most {eps} [eps](../reference/glossary.md) of the "
            "compute dtype in 16 bits."
        ),
        "",
        "## By class",
        "",
        (
            "The table shows the number of cases that agree, and their largest differences: in "
            "ulp for float32, and in eps for `mixed_float16` and `mixed_bfloat16`."
        ),
        "",
        row(
            (
                "class",
                *(
                    word
                    for way in ("to Keras 3", "to Keras 2")
                    for word in (way, "float32", "float16", "bfloat16")
                ),
            )
        ),
        row(["---"] * 9),
    ]
    sides = [behaviour.measurements()[behaviour.direction(to_keras3=way)] for way in _DIRECTIONS]
    lines += [
        row((name, *(cell for side in sides for cell in _class(side.get(name)))))
        for name in sorted(set().union(*sides))
    ]
    lines += _values()
    for way in _DIRECTIONS:
        lines += _apart(to_keras3=way)
    return "\n".join(lines) + "\n"


def _values() -> Iterator[str]:
    """Yield the section about values of arguments."""
    sides = [behaviour.measured_values()[behaviour.direction(to_keras3=way)] for way in _DIRECTIONS]
    activations = [", ".join(map(code, side["activations"])) for side in sides]
    yield from (
        "",
        "## Values of arguments",
        "",
        (
            "`fixtures/layer_values.py` measures the values of the arguments of each class, singly "
            "and in pairs, in models with several arguments; "
            "[`layer_values.json`](../../policytool/releases/data/layer_values.json) has them. The "
            "table shows how many values agree in float32. Numbers count as one value, and so do "
            "the activations that agree in Dense: to Keras 3 "
            f"{activations[0]}; to Keras 2 {activations[1]}."
        ),
        "",
        row(("class", "to Keras 3", "to Keras 2")),
        row(["---"] * 3),
    )
    for name in sorted(set().union(*(side["classes"] for side in sides))):
        counts = [sum(map(len, side["classes"].get(name, {}).values())) for side in sides]
        if any(counts):
            yield row((name, *(str(count or "") for count in counts)))


def _class(facts: dict[str, Any] | None) -> Iterator[str]:
    """Yield the cells of one direction."""
    if facts is None:
        yield from [""] * 4
        return
    agreeing = [case for case in facts["cases"].values() if behaviour.agrees(case)]
    yield f"{len(agreeing)} of {len(facts['cases'])}"
    for policy in _POLICIES:
        errors = [case[policy] for case in agreeing if isinstance(case.get(policy), int)]
        yield str(max(errors)) if errors else ""


def _apart(*, to_keras3: bool) -> Iterator[str]:
    """
    Yield the cases of a direction that do not agree, or are not converted, with what was said or
    measured.
    """
    number = 3 if to_keras3 else 2
    yield from ("", f"## Different or unsupported in conversions to Keras {number}", "")
    coarse = [
        name
        for facts in behaviour.measurements()[behaviour.direction(to_keras3=to_keras3)].values()
        for name, case in facts["cases"].items()
        if behaviour.agrees(case)
        and any(
            isinstance(case.get(policy), int) and case[policy] > behaviour.EPS
            for policy in _POLICIES[1:]
        )
    ]
    said = (
        "These cases agree in float32 but not in 16 bits, because the implementations of the two "
        f"libraries differ: {', '.join(map(code, coarse))}."
    )
    yield from (
        said if coarse else "All cases that agree in float32 also agree in 16 bits.",
        "",
        row(("case", "policy", "result")),
        row(["---"] * 3),
    )
    for facts in behaviour.measurements()[behaviour.direction(to_keras3=to_keras3)].values():
        told: dict[tuple[str, str], list[str]] = {}
        for name, case in facts["cases"].items():
            for what in _told(case):
                told.setdefault(what, []).append(name)
        for (under, text), names in told.items():
            yield row((", ".join(map(code, names)), under, topics.markdown(_short(text))))


def _told(case: dict[str, Any]) -> Iterator[tuple[str, str]]:
    if "refused" in case:
        yield "", f"not supported: {_without_path(case['refused'])}"
    elif "fails" in case:
        yield "", f"not supported, because the converted layer fails: {case['fails']}"
    for policy, allowed, unit in zip(
        _POLICIES, (behaviour.ULP, behaviour.EPS, behaviour.EPS), ("ulp", "eps", "eps"), strict=True
    ):
        found = case.get(policy)
        if isinstance(found, str):
            yield policy, f"the converted layer fails: {found}"
        elif isinstance(found, int) and found > allowed:
            yield policy, f"differs by {found} {unit}"


def _without_path(text: str) -> str:
    """Return the first reason without the layer that the measurement has."""
    return re.sub(r"^\w+/\w+ \(\w+\):? ", "", text.partition("\n")[0])


def _short(text: str) -> str:
    return textwrap.shorten(text, _LONGEST, placeholder="...")
