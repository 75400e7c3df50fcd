"""The page of mask propagation by release, from ``policytool/releases/data/layer_masks.json``."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

from policytool.releases import data
from policytool.releases.behaviour import POSITIVE
from policytool.releases.releases import get, releases_in

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

Row = dict[str, Any]

MOST_INPUTS: Final = 2
"""With three inputs the words are the same; the data has them."""

FUNCTION: Final = "(function)"
"""The ops and slices of a graph, which the introduction is about."""

LIBRARIES: Final = {"tf": "TF", "tf_keras": "tf_keras", "keras": "Keras"}

INTRODUCTION: Final = """# Mask propagation by release

`make docs` generates this page from `policytool/releases/data/layer_masks.json`.
`fixtures/layer_masks.py` recorded this data in {releases}.

A mask marks the steps of a sequence that are padding. Each layer was called in a functional model
with every subset of its inputs masked. The tables list the layers whose behavior with masks differs
between any two of these releases.

Keras 3 stores each mask in two places. While a model is built, a layer with a mask argument
receives a symbolic mask, which is stored in its node. While the model runs, masks are attached to
tensors. Up to Keras 3.9, every layer with a mask argument has a mask in its node. In Keras 3.10 and
later, the node has a mask only if the layer is called with a single argument: a tensor with the
dtype of the layer. All other layers use the attached masks. "Attached" marks behavior that applies
only to attached masks.

Ops and slices in a graph drop masks in every release. An op that returns its input unchanged, such
as a cast to the same dtype, preserves the attached mask.

| word | mask of the output |
| --- | --- |
| none | no mask |
| first, second | the mask of the first or second input |
| and, or | the existing masks, combined with AND or OR |
| ones | a mask that keeps every step |
| concat | the masks, concatenated along the step axis; a missing mask counts as ones |
| stack | the masks, concatenated along the batch axis; a missing mask counts as ones |
| any, all | the concatenated masks, reduced over the feature axis |
| make | a new mask, computed from the values |
| attention | a mask of the steps that each step may attend to |
| error | the library raises an error |

Some entries in the column *arguments* describe the call: `self` passes the same tensor to all
inputs, `same` passes one tensor twice, `deep mask` uses a mask with two step axes, `cast` uses
an input whose dtype differs from that of the layer, and `rank 2` and `rank 4` are input ranks.
"""


def masks_page() -> str:
    """Return what layers make of masks as Markdown."""
    facts = data.read("layer_masks")
    releases = " and ".join(_ranges(facts["releases"]).rsplit(", ", 1))
    lines = [INTRODUCTION.format(releases=releases), "## Layers that differ", ""]
    lines += ["| class | arguments | releases | masked inputs: mask of the output | also |"]
    lines += ["| --- | --- | --- | --- | --- |"]
    classes = {name: rows for name, rows in facts["classes"].items() if name != FUNCTION}
    differing = {name: _differing(rows) for name, rows in classes.items()}
    for name, rows in differing.items():
        lines += [_line(name, row) for row in rows if _inputs(row) <= MOST_INPUTS]
    alike = [name for name, rows in differing.items() if not rows]
    lines += ["", _rest(classes, alike), "", "## Fully masked rows of attention", ""]
    lines += [
        (
            "This table shows the result of an attention layer for a step that cannot attend to "
            "any step, because the query step or the entire value is masked: zeros, uniform "
            "weights, the weights of the unmasked scores, or an error."
        ),
        "",
        "| class | arguments | releases | query masked | value masked |",
        "| --- | --- | --- | --- | --- |",
    ]
    lines += [
        f"| {name} | {_named(row)} | {row['releases']} | {row['query']} | {row['value']} |"
        for name, rows in facts["fully_masked"].items()
        for row in _shown(rows)
    ]
    return "\n".join(lines) + "\n"


def _shown(rows: list[Row]) -> list[Row]:
    """Return rows without what the page leaves out, and those that are equal then as one."""
    found: dict[str, Row] = {}
    for row in rows:
        plain = {key: value for key, value in row.items() if key not in ("written", "releases")}
        if "error" in row:
            plain["error"] = dict.fromkeys(sorted(" ".join(row["error"]).split(" ")), "")
        held = found.setdefault(json.dumps(plain, sort_keys=True), {**plain, "releases": set()})
        held["releases"] |= releases_in(row["releases"])
    return [{**row, "releases": _ranges(row["releases"])} for row in found.values()]


def _ranges(names: Collection[str]) -> str:
    """Return measured releases in words, neighbours of one library joined."""
    measured = data.read("layer_masks")["releases"]
    parts: list[list[str]] = []
    for before, name in pairwise(["", *measured]):
        if name not in names:
            continue
        if before in names and get(before).library == get(name).library:
            parts[-1].append(name)
        else:
            parts.append([name])
    return ", ".join(
        f"{LIBRARIES[get(part[0]).library]} {' to '.join(dict.fromkeys(_ends(part)))}"
        for part in parts
    )


def _ends(part: list[str]) -> list[str]:
    """Return the versions of the first and the last of some releases."""
    return [get(part[0]).version, get(part[-1]).version]


def _differing(rows: list[Row]) -> list[Row]:
    """Return the rows that do not hold in every release that has the class."""
    everywhere = frozenset().union(*(releases_in(row["releases"]) for row in rows))
    return [row for row in _shown(rows) if row["releases"] != _ranges(everywhere)]


def _inputs(row: Row) -> int:
    return len(next(iter({**row["masks"], **row.get("error", {})})).partition(" ")[0])


def _line(name: str, row: Row) -> str:
    cells = (name, _named(row), row["releases"], "; ".join(_subsets(row)), _also(row))
    return f"| {' | '.join(cells)} |"


def _named(row: Row) -> str:
    said = [
        f"`{key}{value}`" if value == POSITIVE else f"`{key}={json.dumps(value)}`"
        for key, value in row.get("arguments", {}).items()
    ]
    return ", ".join([*said, *row.get("call", ())])


def _subsets(row: Row) -> Iterator[str]:
    """Yield each subset with at least one mask, and what comes out."""
    for subset, word in row["masks"].items():
        words = word if isinstance(word, list) else [word]
        if "1" in subset or set(words) != {"none"}:
            yield f"{subset}: {', '.join(words)}"
    for subsets in row.get("error", {}):
        yield f"{subsets}: error"


def _also(row: Row) -> str:
    """Return the values that depend on masks, and the inputs that lose theirs."""
    found = []
    if row.get("reads") or row.get("reads_masked_rows"):
        found.append("values depend on the masks")
    attached = row.get("run_time", {})
    if row.get("clears"):
        found.append("clears the masks of its inputs")
    elif attached.get("clears"):
        found.append("clears the attached masks of its inputs")
    if "masks" in attached:
        words = "; ".join(_subsets({"masks": attached["masks"]}))
        found.append(f"attached: {words}")
    if row.get("nan"):
        found.append("NaN in fully masked rows")
    return ", ".join(found)


def _rest(classes: dict[str, list[Row]], alike: list[str]) -> str:
    """Return the sentence on the layers that are the same in all releases that have them."""
    dropping = [
        name
        for name in alike
        if all(
            word in ("none", ["none"]) for row in classes[name] for word in row["masks"].values()
        )
    ]
    return (
        f"The other {len(alike)} classes behave the same in all releases that have them: "
        f"{len(dropping)} drop masks, and the others preserve or use them."
    )
