"""The page about public model files, from the record of ``fixtures/public_files.py``."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

from policytool.releases.releases import LOADERS, release_name
from policytool.reports.markdown import row

RECORD: Final = Path(__file__).parent.parent.parent / "fixtures" / "public_files.json"

_TITLE: Final = """# Public model files

`make docs` generates this page from `fixtures/public_files.json`, which `fixtures/public_files.py`
writes. The record has the address, the license and the SHA-256 hash of model files in public
repositories on GitHub. The files are not part of this repository, and none of them was used in its
tests before. For each file and release, the page compares the verdict of `policytool inspect` with
the result of `load_model` (`compile=False`) without custom classes. Safe mode stays on, and a file
that stores Python bytecode is not loaded to the end: for these files, only a verdict of *unknown*
or *fails* is possible.

The last columns show the results of `migrate --target keras3` and `--target tf_keras`. *Same*: the
target loads the written file, and its predictions for random inputs differ by at most 1e-5 of the
largest output. *Same (weights)* needs the option `--allow weight-rewrite`. *Loads*: the file has no
weights, or no release can run the original. *Unchanged*: there is nothing to convert. *Custom
class*, *bytecode*: the target needs code that the file lacks, or that was not run. *Not converted*:
`migrate` reports a problem and writes nothing.
"""

_PAIRS: Final = """## Architectures with separate weights

`fixtures/public_pairs.py` joins an architecture and its weights with `migrate --weights` and
`--target keras3`. It loads the same files with `model_from_json` (or `model_from_yaml`) and
`load_weights` in the first of Keras 3.15, tf_keras 2.21, TF 2.15, TF 2.4 and TF 1.15 that loads
them, and compares the weights and the predictions for random inputs in Keras 3.15. *Same*: the
weights are byte-identical, and predictions differ by at most 1e-5 of the largest output. *Same
weights*: one of the models does not accept the random inputs. *Loads*: no release loads the
original, so only the result was loaded.
"""

_CHECKPOINTS: Final = """## Orbax checkpoints

No public repository was found that contains an Orbax checkpoint of Keras. Therefore
`fixtures/orbax_examples.py` trains models with the layers of examples of keras.io on random data,
with Keras 3.15.1 and `OrbaxCheckpoint`. It compares the variables and the predictions of the
trained model with those of the file that `migrate --target keras3` writes. The verdict is that of
`inspect` on `load_model` of the checkpoint itself.
"""

_KINDS: Final = {"loads": "loads", "incompatible": "fails", "unknown": "unknown"}


def public_page() -> str:
    """Return the page."""
    record = json.loads(RECORD.read_text(encoding="utf-8"))
    files, pairs, checkpoints = record["files"], record["pairs"], record.get("checkpoints", {})
    results = Counter(
        "not joined" if pair["problem"] else pair["result"] for pair in pairs.values()
    )
    lines = [
        *(_TITLE, *_counts(files.values()), "", *_table(files), "", _PAIRS),
        *(row(("result", "pairs")), row(("---", "---"))),
        *(row((result, str(count))) for result, count in results.most_common()),
        *("", *_pair_table(pairs)),
        *(("", _CHECKPOINTS, *_checkpoint_table(checkpoints)) if checkpoints else ()),
    ]
    return "\n".join([*lines, ""])


def _pairs(record: dict[str, Any]) -> dict[str, tuple[str, str]]:
    """Return the verdict and the result of each release."""
    verdicts, results = (
        {name: kind for kind, names in record.get(key, {}).items() for name in names.split()}
        for key in ("verdicts", "results")
    )
    return {name: (_KINDS[verdicts[name]], results[name]) for name in LOADERS if name in verdicts}


def _pair_table(pairs: dict[str, Any]) -> list[str]:
    names = ("architecture", "weights", "license", "SHA-256 of both", "original loads in", "result")
    return [row(names), row("---" for _ in names), *(_pair(*item) for item in pairs.items())]


def _pair(name: str, record: dict[str, Any]) -> str:
    owner, repository, path = name.split("/", 2)
    base = f"https://github.com/{owner}/{repository}/tree/{record['commit']}/"
    problem = record["problem"]
    release = record["release"]
    return row(
        (
            f"[{owner}/{repository}: `{path}`]({base}{quote(path)})",
            f"[`{record['weights']}`]({base}{quote(record['weights'])})",
            record["licence"] or "none stated",
            ", ".join(f"`{digest[:16]}`" for digest in record["sha256"]),
            release_name(release) if record["original"] == "ok" else record["original"],
            f"not joined: {problem}" if problem else record["result"],
        )
    )


def _checkpoint_table(checkpoints: dict[str, Any]) -> list[str]:
    names = ("example", "policies", "variables", "`load_model`", "converted")
    return [
        *(row(names), row("---" for _ in names)),
        *(
            row(
                (
                    f"{name} ({record['page']})",
                    ", ".join(record["policies"]),
                    str(record["variables"]),
                    _KINDS[record["loads"]],
                    record["result"],
                )
            )
            for name, record in checkpoints.items()
        ),
    ]


def _counts(records: Any) -> list[str]:  # noqa: ANN401  # JSON
    counts = Counter(pair for record in records for pair in _pairs(record).values())
    results = ("ok", "fails", "bytecode")
    names = ("verdict", "release loads the file", "release fails", "not run: bytecode")
    rows = [row((kind, *(str(counts[kind, name]) for name in results))) for kind in _KINDS.values()]
    return [row(names), row("---" for _ in names), *rows]


def _table(files: dict[str, Any]) -> list[str]:
    names = (
        "file",
        "license",
        "SHA-256",
        "format",
        "written by",
        "loads in",
        "wrong verdicts",
        "unknown",
        "Keras 3.15",
        "tf_keras 2.21",
    )
    return [row(names), row("---" for _ in names), *(_file(*item) for item in files.items())]


def _file(name: str, record: dict[str, Any]) -> str:
    owner, repository, path = name.split("/", 2)
    address = f"https://github.com/{owner}/{repository}/tree/{record['commit']}/{quote(path)}"
    pairs = _pairs(record)
    wrong = {("loads", "fails"), ("loads", "bytecode"), ("fails", "ok")}
    return row(
        (
            f"[{owner}/{repository}: `{path}`]({address})",
            record["licence"] or "none stated",
            f"`{record['sha256'][:16]}`",
            record["format"],
            record["written_by"] or "",
            _releases(key for key, (_, result) in pairs.items() if result == "ok"),
            _releases(key for key, pair in pairs.items() if pair in wrong),
            str(sum(verdict == "unknown" for verdict, _ in pairs.values()) or ""),
            *(_conversion(record["converted"][key]) for key in ("keras3.15", "tf_keras2.21")),
        )
    )


def _conversion(outcome: str) -> str:
    if outcome.startswith("refused"):
        return "not converted"
    return outcome.replace(" with --allow weight-rewrite", " (weights)")


def _releases(names: Any) -> str:  # noqa: ANN401  # an iterator of names
    return ", ".join(map(release_name, names))
