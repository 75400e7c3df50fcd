"""
The page of published attacks: what their files did to the releases that were asked, and what
policytool says of them.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

from policytool.commands import audit as auditing
from policytool.formats.discovery import Input
from policytool.numerics import check_sides
from policytool.numerics.hand_over import HandOver
from policytool.releases.releases import KERAS3, newest
from policytool.reports import topics
from policytool.rules import BY_ID, AuditOptions
from policytool.support.errors import ModelFileError

ROOT: Final = Path(__file__).parent.parent.parent
NEWEST: Final = newest(KERAS3).id
FIRED: Final = "fired"
UNSAFE: Final = "unsafe"
_LONGEST: Final = 90

ADVISORIES: Final = {
    "CVE-2024-3660": ("Keras before 2.13", "https://kb.cert.org/vuls/id/253266"),
    "CVE-2025-1550": ("3.0 to 3.8", "https://nvd.nist.gov/vuln/detail/CVE-2025-1550"),
    "CVE-2025-8747": (
        "3.0 to 3.10",
        "https://github.com/keras-team/keras/security/advisories/GHSA-c9rc-mg46-23w3",
    ),
    "CVE-2025-9905": (
        "3.0 to 3.11.2",
        "https://github.com/keras-team/keras/security/advisories/GHSA-36rr-ww3j-vrjv",
    ),
    "CVE-2025-9906": ("before 3.11.0", "https://github.com/advisories/GHSA-36fq-jgmw-4r9c"),
    "CVE-2025-12058": (
        "before 3.12.0",
        "https://github.com/keras-team/keras/security/advisories/GHSA-qg93-c7p6-gg7f",
    ),
    "CVE-2025-12060": ("before 3.12.0", "https://nvd.nist.gov/vuln/detail/CVE-2025-12060"),
    "CVE-2025-12638": ("3.11.3", "https://nvd.nist.gov/vuln/detail/CVE-2025-12638"),
    "CVE-2025-49655": ("3.11.0 to 3.11.2", "https://nvd.nist.gov/vuln/detail/CVE-2025-49655"),
    "CVE-2026-0897": ("3.0.0 to 3.12.0, 3.13.0", "https://nvd.nist.gov/vuln/detail/CVE-2026-0897"),
    "CVE-2026-1462": ("before 3.13.2", "https://github.com/advisories/GHSA-4f3f-g24h-fr8m"),
    "CVE-2026-1669": ("3.0.0 to 3.13.1", "https://github.com/advisories/GHSA-3m4q-jmj6-r34q"),
    "CVE-2026-12479": ("3.14.0", "https://nvd.nist.gov/vuln/detail/CVE-2026-12479"),
    "CVE-2026-12481": ("3.14.0", "https://nvd.nist.gov/vuln/detail/CVE-2026-12481"),
    "GHSA-pwq7-2gvj-vg9v": ("before 3.11.0", "https://github.com/advisories/GHSA-pwq7-2gvj-vg9v"),
}
"""Advisory to the releases of Keras that it says are affected, and where it says so."""

USES: Final = {
    "load": "`load_model`",
    "unsafe": "`load_model(safe_mode=False)`",
    "deserialize": "`layers.deserialize`",
    "from_config": "`Lambda.from_config`",
    "shape": "`compute_output_shape`",
    "resave": "`load_model`, then `save`",
    "get_file": "`get_file` with the same arguments",
    "saved_model": "`tf.saved_model.load`",
    "call": "`load_model`, then a model call",
    "signature": "`tf.saved_model.load`, then a signature call",
}
"""How a file was used, by the word in the record."""

OUTCOMES: Final = {"refused": "failed", "fired": "happened"}
"""What a release did with a file, by the word in the record."""

_INTRODUCTION: Final = """\
# Published attacks

`make docs` generates this page from `fixtures/attacks.json` and from the current results of `audit`
and `check`. `fixtures/attacks.py --measure` creates the files and records their effects in each
release. Each file attempts one harmful action: it creates a file, removes a directory, reads
another file into the model or its outputs, or requests too much memory. Each file was loaded in an
empty directory, in a process with limited memory and time. If the action did not happen, the
release either detected the attack or could not read the file. The table of advisories ignores
actions that happened only with `safe_mode=False`.

Most files without an advisory use TensorFlow functions and ops as designed. According to the
[TensorFlow security policy](https://github.com/tensorflow/tensorflow/blob/master/SECURITY.md),
models are programs. Some of these files fail to load, but only after the action has been performed.

No policytool command triggers these actions. `tests/test_attacks.py` verifies this by running all
commands on all files under `strace`. `check`, `--verify` and `--retrace` reject the files before
TensorFlow starts, unless `--trust` is set.
"""


def attacks_page() -> str:
    """Return the page as Markdown."""
    record = json.loads((ROOT / "fixtures" / "attacks.json").read_text(encoding="utf-8"))
    lines = [
        _INTRODUCTION,
        "## Advisories",
        "",
        "| advisory | affected releases (stated) | rule | affected releases (tested) |",
        "| --- | --- | --- | --- |",
    ]
    lines += [_advisory_row(name, record) for name in ADVISORIES]
    lines += ["", "## Files", "", "These files are in `fixtures/attacks/models`.", ""]
    newest = f"Keras {record['releases'][NEWEST]['keras']}"
    lines += [
        f"| file | advisory | action | triggered by | happened in | {newest} | `audit` | `check` |",
        "| --- |" + " --- |" * 7,
    ]
    for name, attack in record["attacks"].items():
        lines += _file_rows(name, attack)
    notes = [(name, attack["note"]) for name, attack in record["attacks"].items() if attack["note"]]
    lines += [
        "",
        "## Files without effect",
        "",
        "None of the tested releases performed the actions that these files attempt:",
        "",
        *(f"- `{name}`: {note}." for name, note in notes),
    ]
    lines += [
        "",
        "## Tested releases",
        "",
        "| | TensorFlow | Keras | h5py | Python |",
        "| --- | --- | --- | --- | --- |",
    ]
    lines += [
        f"| {name} | {' | '.join(_versions(told))} |" for name, told in record["releases"].items()
    ]
    return "\n".join(lines) + "\n"


def _versions(told: dict[str, str]) -> list[str]:
    return [told[key] for key in ("tensorflow", "keras", "h5py", "python")]


def _advisory_row(name: str, record: dict[str, Any]) -> str:
    affected, source = ADVISORIES[name]
    harmed = {
        release
        for attack in record["attacks"].values()
        if name in attack["ids"]
        for use, groups in attack["outcomes"].items()
        if use != UNSAFE
        for release in groups.get(FIRED, "").split()
    }
    rule = next(rule for rule in BY_ID.values() if name in rule.references)
    said = " ".join(release for release in record["releases"] if release in harmed) or "none"
    page = f"../reference/rules.md#{rule.id.lower()}-{rule.name}"
    return f"| [{name}]({source}) | {affected} | [{rule.id}]({page}) | {said} |"


def _file_rows(name: str, attack: dict[str, Any]) -> list[str]:
    path = ROOT / "fixtures" / "attacks" / "models" / name
    rules = " ".join(
        dict.fromkeys(
            found.rule
            for found in auditing.audit_input(Input(path=path, exact=True), AuditOptions()).findings
            if found.rule.startswith("PT6")
        )
    )
    about = (f"`{name}`", ", ".join(attack["ids"]) or "none", attack["would"])
    rows = []
    for use, groups in attack["outcomes"].items() or [("", {})]:
        cells = (
            *about,
            USES.get(use, ""),
            groups.get(FIRED, "none"),
            _said(groups),
            rules,
            _check(path),
        )
        rows.append("| " + " | ".join(cells) + " |")
    return rows


def _said(groups: dict[str, str]) -> str:
    """Return what the newest release said, in short."""
    outcome = next((key for key, releases in groups.items() if NEWEST in releases.split()), "")
    verdict, _, cause = outcome.replace("`", "").partition(": ")
    word = OUTCOMES.get(verdict, verdict)
    text = f"{word}: {cause.rpartition(' <- ')[2]}" if cause else word
    return topics.markdown(text if len(text) <= _LONGEST else f"{text[:_LONGEST].rstrip()}...")


def _check(path: Path) -> str:
    try:
        with HandOver() as hand_over:
            check_sides.read_source(Input(path=path, exact=True), hand_over)
    except ModelFileError as error:
        return f"rejected: `{error.code}`"
    return "**accepted**"
