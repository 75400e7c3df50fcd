"""The page about verdicts on random models, and about releases between the measured ones."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from policytool.releases.releases import LOADERS, RELEASES, release_name
from policytool.reports.markdown import prose, row

if TYPE_CHECKING:
    from collections.abc import Iterator

_FIXTURES: Final = Path(__file__).parent.parent.parent / "fixtures"
MODELS: Final = _FIXTURES / "verdict_models.json"
SOURCES: Final = _FIXTURES / "release_sources.json"
_ORDER: Final = {release.id: number for number, release in enumerate(RELEASES)}
_COUNTS: Final = ("agree", "says loads, fails", "says fails, loads", "unknown")
_SHOWN: Final = 6
_LONGEST: Final = 260

_TITLE: Final = """# Verdicts on random models

`make docs` generates this page from `fixtures/verdict_models.json` and
`fixtures/release_sources.json`.

`fixtures/verdict_models.py` has releases write random models: layers with arguments that were not
measured, one to five operations of Keras 3 with various arguments, nested models, quantized models
(int8, int4, float8, GPTQ, AWQ) with and without LoRA, and trained models. Since the seed 1128001,
there are also networks of convolutions, of attention, of recurrent layers and of features with
vocabularies, with one policy or one for each layer. Some `.keras` and HDF5 files get a
copy with a damaged variable or optimizer slot, and some SavedModels a damaged checkpoint: an entry
that is missing or has another shape or dtype, a data file that ends early, or a damaged index.
Files are loaded in several releases, without and with their training configuration. A claim is the
verdict of `inspect` on one file in one release. It agrees if the verdict is *loads* and the release
loads the file, or *fails* and the release fails. Wrong verdicts on these files were corrected, so
that the table is about the corrected verdicts. The files with the seeds 55001 to 55004 were
compared before the last corrections: of 1,847 claims about 680 files, 1,802 agreed, 35 were *loads*
for files that fail (most of them SavedModels with a damaged checkpoint), 5 were *fails* for files
that load, and 5 were unknown. The files with the seed 66001 were compared after these corrections:
of 292 claims about 132 files of Keras 2, 288 agreed and 4 were unknown. Of 1,141 claims about 282
files of Keras 3 with the seed 88001, 17 were *loads* for files that fail, and 2 unknown; these
were corrected. The files with the seeds 91001 and 91002 were compared after these corrections: of
1,691 claims about 419 files of Keras 3, 1,679 agreed, 7 were *loads* for files that fail, and 5
were unknown; of 914 claims about 253 files of Keras 2, 902 agreed, 2 were *loads* for files that
fail, 4 *fails* for files that load, and 6 were unknown. Of 21 claims about the 18
files with the seed 1128101, 18 agreed and 3 were unknown before corrections, and 1 was unknown
after them; all 92 claims about 64 files with the seeds 1128001 and 1137518 agreed. Of the claims
about 102 files with the seed 1128501, 4 were *loads* for files that fail, and 2 *fails* for files
that load; these were corrected. The nine files about which claims had been wrong until then were
written again from their seeds, by the generators of that time, and loaded and compared again; these
claims replace the old ones. `inspect` does not read the values of variables, so that it does not
detect damaged values.

Two further sets of files are not in the table. In 1,064 copies of models of Keras 3.0 and 3.15,
TF 2.15 and tf_keras 2.21, the module of the root, a layer, an initializer, a policy or an
activation was edited, the axis of a Normalization, or the type of an input: of 5,320 claims, 471
were *loads* for files that fail, 111 *fails* for files that load, and 130 unknown. After
corrections, 6 are *fails* for files that load: Keras 3.15 finds models in `keras.src.layers` after
it read an HDF5 file in the same process, and not before; 72 are unknown, because no known
release has the class of an initializer, regularizer or constraint. The other set has 980 models
that users save, such as models with inputs in dicts,
vocabularies, shared models, states and training configurations, written by TF 2.4 to 2.15, tf_keras
2.21 and Keras 3.0 to 3.15: of 6,683 claims, 7 were *loads* for files that fail, 3 *fails* for files
that load, and 67 unknown; after corrections, all agree or are about the bytecode of a Lambda or a
vocabulary.

Kinds of files that had not been tried are not in the table either. Of 4,050 claims about
SavedModels of TF 2.4 to tf_keras 2.21 with custom code, loaded without the classes in TF 2.3 to
tf_keras 2.21, 2 were *loads* for files that fail, 46 *fails* for files that load, and 2,191
unknown; after corrections, 2 are wrong: TF 2.3 needs the class of a custom metric with
`compile=False`. The 1,277 unknown ones are about models that were saved without traces, recurrent
layers, masks, and the code of a Lambda. Of 1,604 claims about models in models with vocabularies, 3
were *loads* for files that fail, and none is wrong after corrections. Of 784 claims about policies
of Keras 2 that were written into wrappers of Keras 3, 84 were *fails* for files that load, and 12
still are: cells in a list. All 1,518 claims of `load_model` about exports and modules of TensorFlow
agree, but in Keras 3, 12 of 60 calls of `TFSMLayer` that `inspect` advised failed, because of the
dtype of inputs and the keys of a dict. All 470 claims of `load_model` about files of weights agree.
Of 756 claims of `migrate --weights` about damaged weights, 73 were wrong compared with
`load_weights`, and 11 are after corrections.

A load that takes more than 20 s of processor time is recorded as one that never returns, and counts
as a failure.
"""

_FIRST: Final = """\
The claims of the newest campaigns when they were compared for the first time. Their files also have
layers with masks, cells, seeds, equations and feature columns, layers that models three deep share,
and custom layers. Since the seed 1144002, there are also models in models that were never called,
with several inputs and outputs in lists and dicts, with unusual names, with states, and with losses
and metrics in several forms, and models that another release saved again. Some files with the seed
1151001, and all later files, also have operators and functions between layers, objects as
arguments, inputs and calls of many forms, layers that are quantized one by one, exports, config
keys that are missing, added or renamed, and policies in another format.
"""

_BETWEEN: Final = """
## Releases between the measured releases

A release that was not measured has the verdict of its measured neighbors if these agree. Two
comparisons support this. The table above includes such releases (marked *) if they were
installed. For all of them, `fixtures/release_sources.py` compares the sources that decide how
models are written and read: the arguments of layers, their methods for configs and variables, and
all functions that save and load. Each definition equals that of both neighbors, of the earlier
one, of the later one, or of neither.
"""


def verdicts_page() -> str:
    """Return the page."""
    record = json.loads(MODELS.read_text(encoding="utf-8"))
    counts = f"{record['files']} files; {_claims(record)} claims; {len(record['endless'])}"
    drawn = f"The files since the seed 1128001 have {len(record['classes'])} classes of layers and "
    lines = [_TITLE, f"{counts} claims about loads that never return. {drawn}operations.", ""]
    for heading, key in (
        ("kind", "kinds"),
        ("format", "formats"),
        ("written by", "writers"),
        ("loaded in", "loaders"),
    ):
        lines += [*_table(heading, record[key]), ""]
    lines += ["## Before corrections", "", _FIRST, *_campaigns(record), ""]
    lines += ["## Contradictions", "", *_contradictions(record), "", "## Unknown", ""]
    lines += [row(("reason", "claims")), row("---" for _ in range(2))]
    reasons = sorted(record["unknown"].items(), key=lambda item: (-item[1], item[0]))
    lines += [row((prose(reason), str(count))) for reason, count in reasons]
    return "\n".join([*lines, _BETWEEN, *_sources(), ""])


def _claims(record: dict[str, Any]) -> int:
    return sum(counts[word] for counts in record["kinds"].values() for word in _COUNTS)


def _table(heading: str, rows: dict[str, dict[str, int]]) -> Iterator[str]:
    yield row((heading, "files", *_COUNTS))
    yield row("---" for _ in range(2 + len(_COUNTS)))
    for name in sorted(rows, key=lambda name: (_ORDER.get(name, -1), name)):
        words = release_name(name) if name in _ORDER else name
        is_between = heading == "loaded in" and name not in LOADERS
        counts = (str(rows[name][word]) for word in ("files", *_COUNTS))
        yield row((words + "*" * is_between, *counts))


def _campaigns(record: dict[str, Any]) -> Iterator[str]:
    yield row(("seeds", "files", *_COUNTS))
    yield row("---" for _ in range(2 + len(_COUNTS)))
    for counts in record["campaigns"]:
        yield row((counts["campaign"], *(str(counts[word]) for word in ("files", *_COUNTS))))


def _contradictions(record: dict[str, Any]) -> Iterator[str]:
    if not record["contradictions"]:
        yield "None."
    for text in record["contradictions"]:
        yield f"- `{text[:_LONGEST].replace('`', '')}`"


def _sources() -> Iterator[str]:
    columns = ("release", "neighbors", "both", "the earlier", "the later", "neither", "examples")
    yield row(columns)
    yield row("---" for _ in columns)
    for name, facts in json.loads(SOURCES.read_text(encoding="utf-8")).items():
        pair = ", ".join(release_name(facts[key]) for key in ("earlier_release", "later_release"))
        examples = ", ".join(f"`{name}`" for name in facts["names"][:_SHOWN])
        counts = (str(facts[key]) for key in ("both", "earlier", "later", "neither"))
        yield row((release_name(name), pair, *counts, examples))
