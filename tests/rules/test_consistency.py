"""Rules about the parts of a file, compared with the results of releases."""

from __future__ import annotations

import json
import zipfile
from typing import TYPE_CHECKING

from tests.contracts.findings_contract import rule_findings
from tests.helpers.marks import THOROUGH
from tests.helpers.paths import FIXTURES
from tests.helpers.sampling import sampled

if TYPE_CHECKING:
    from pathlib import Path


def _names_bfloat16(path: Path) -> bool:
    """Return whether the config in an archive or an HDF5 file has the word."""
    if zipfile.is_zipfile(path):
        with zipfile.ZipFile(path) as archive:
            return b"bfloat16" in archive.read("config.json")
    return b"bfloat16" in path.read_bytes()  # attributes are not compressed


@THOROUGH
def test_findings_on_bfloat16_agree_with_the_releases() -> None:
    """
    Each release failed to load the fixtures with bfloat16, and loads the files that ``migrate``
    writes.
    """
    loads, migrated = (
        json.loads((FIXTURES / name).read_text(encoding="utf-8"))["loads"]
        for name in ("loads.json", "loads_migrated.json")
    )
    named: dict[bool, list[str]] = {True: [], False: []}
    for name in loads:
        if name.endswith((".h5", ".keras")):
            named[_names_bfloat16(FIXTURES / name)].append(name)
    files = [name for name in named[True] if rule_findings("PT403", FIXTURES / name)]
    assert len(files) == 15
    for name in sampled("files without bfloat16", named[False], share=20):
        assert not rule_findings("PT403", FIXTURES / name), name
    assert [name for name in files if loads[name].get("ok")] == []
    assert [name for name in files if not migrated[name].get("ok")] == []
