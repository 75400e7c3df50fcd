"""
The published attacks on loaders: their files are what was recorded, do no harm here, and are named.

``fixtures/attacks.py`` writes them and lets releases of Keras load them;
``docs/evidence/attacks.md`` shows what came of it.
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

import h5py
import pytest

from policytool.commands import audit as auditing
from policytool.formats.discovery import Input
from policytool.rules import BY_ID, AuditOptions
from policytool.rules.base import Severity
from tests.conftest import MIXED_JSON, run
from tests.helpers.attacks import (
    BESIDE,
    CANARIES,
    MARKER,
    MAX_MEMORY,
    MAX_SECONDS,
    MODELS,
    RECORD,
    TEMPORARY,
    Traced,
    traced,
)
from tests.helpers.cases import for_each
from tests.helpers.marks import ALONE, SLOW, THOROUGH
from tests.helpers.paths import FIXTURES, ROOT
from tests.helpers.scripts import run_captured

ATTACKS: Final[dict[str, dict[str, Any]]] = RECORD["attacks"]

PUBLISHED: Final = {
    *(
        "CVE-2024-3660",
        "CVE-2025-1550",
        "CVE-2025-8747",
        "CVE-2025-9905",
        "CVE-2025-9906",
        "CVE-2025-49655",
        "CVE-2025-12058",
        "CVE-2025-12060",
    ),
    *(
        "CVE-2025-12638",
        "CVE-2026-0897",
        "CVE-2026-1462",
        "CVE-2026-1669",
        "CVE-2026-12479",
        "CVE-2026-12481",
        "GHSA-pwq7-2gvj-vg9v",
    ),
}
FIRED: Final = "fired"
PROMISED: Final = {0, 1, 3, 4}
MAX_BYTES: Final = 400_000

READING: Final[tuple[tuple[str, ...], ...]] = (
    ("inspect", "{}"),
    ("audit", "{}", "--weights", "--target", "keras3", "--format", "sarif"),
    ("diff", "{}", "{}", "--all"),
    ("migrate", "{}", "--to", "mixed_bfloat16", "-o", "out/{}"),
    ("migrate", "{}", "--to", "float64", "-o", "wide/{}"),
    ("migrate", "{}", "--target", "keras3.15", "-o", "three/{}"),
    ("migrate", "{}", "--target", "tf2.15", "-o", "two/{}"),
)
"""What only reads, or writes where it is told; the name of the file for each pair of braces."""

RUNNING: Final[tuple[tuple[str, ...], ...]] = (
    ("check", "{}", "--to", "mixed_bfloat16"),
    ("migrate", "{}", "--to", "float64", "--verify", "-o", "verified/{}"),
    ("migrate", "{}", "--to", "float64", "--retrace", "-o", "retraced/{}"),
)
"""What would start TensorFlow, if the file were trusted."""

CAUSES: Final = {
    "class_method_json.h5": ("attack/call", "keras.models.model_from_json"),
    "class_method_write.h5": ("attack/call", "io.write_file"),
    "class_method_remove.h5": ("attack/call", "io.gfile.rmtree"),
    "function_write.h5": ("attack/call", "io.write_file"),
    "function_print.h5": ("attack/call", "tensorflow.print"),
    "function_bytecode.h5": ("attack/call", "mlir.experimental.write_bytecode"),
    "function_plugin.h5": ("attack/call", "experimental.register_filesystem_plugin"),
    "function_read.h5": ("attack/read", "io.read_file"),
    "op_read.h5": ("attack/tf_op_layer_read", "ReadFile"),
    "op_write.h5": ("attack/tf_op_layer_call", "WriteFile"),
    "op_debug.h5": ("attack/tf_op_layer_call", "DebugIdentity"),
    "dataset_from_graph": ("DatasetFromGraph",),
    "save_v2": ("SaveV2",),
    "save_v2_in_function": ("SaveV2",),
    "save": ("Save",),
    "save_in_function": ("Save",),
    "merge_checkpoints": ("MergeV2Checkpoints",),
    "merge_checkpoints_in_function": ("MergeV2Checkpoints",),
    "saver_default": ("SaveV2",),
    "escaping_asset": ("../../policytool-canary.txt",),
    "merged_graphs": ("WriteFile",),
    "print_to_file": ("PrintV2",),
    "pickled_weights.keras": ("model.weights.npz",),
    "pickled_weights_twice.keras": ("model.weights.npz",),
}
"""What the sentence about a file has in it."""

OUTPUTS: Final = ("out", "wide", "three", "two", "verified", "retraced")


def _calls(patterns: tuple[tuple[str, ...], ...]) -> list[tuple[str, ...]]:
    return [
        tuple(word.replace("{}", name) for word in pattern)
        for pattern in patterns
        for name in ATTACKS
    ]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a directory with the files of all attacks, and beside them what they would read."""
    folder = tmp_path_factory.mktemp("attacks") / "here"
    shutil.copytree(MODELS, folder)
    shutil.copytree(BESIDE, folder, dirs_exist_ok=True)
    for name in OUTPUTS:
        (folder / name / "lambda_tfjs").mkdir(parents=True)
    return folder


def test_the_files_are_those_that_were_recorded() -> None:
    """None was changed, lost or added by hand, and all together are small."""
    present = {
        path.relative_to(FIXTURES / "attacks").as_posix(): path.read_bytes()
        for path in (FIXTURES / "attacks").rglob("*")
        if path.is_file()
    }
    assert {name: hashlib.sha256(data).hexdigest() for name, data in present.items()} == RECORD[
        "files"
    ]
    assert sum(map(len, present.values())) < MAX_BYTES


@THOROUGH
@pytest.mark.skipif(
    sys.version_info[:2] != (3, 11), reason="the byte code in them is that of Python 3.11"
)
@pytest.mark.skipif(
    h5py.version.hdf5_version != RECORD["hdf5"],
    reason="another release of HDF5 lays its files out in another way",
)
def test_generator_writes_equal_files() -> None:
    done = run_captured([sys.executable, "fixtures/attacks.py", "--check"], cwd=ROOT, check=False)
    assert (done.returncode, done.stdout) == (0, "ok\n"), done.stderr


def test_every_published_attack_has_files() -> None:
    """No file belongs to an unpublished attack."""
    assert {name for attack in ATTACKS.values() for name in attack["ids"]} == PUBLISHED


@for_each("name", ATTACKS)
def test_each_attack_succeeds_in_a_release_or_has_a_note(name: str) -> None:
    outcomes = ATTACKS[name]["outcomes"].values()
    assert all(
        set(RECORD["releases"])
        == {release for names in groups.values() for release in names.split()}
        for groups in outcomes
    )
    assert any(FIRED in groups for groups in outcomes) != bool(ATTACKS[name]["note"])


@pytest.mark.parametrize("name", ATTACKS)
def test_audit_names_each(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """An error, of a rule that knows the advisory."""
    monkeypatch.chdir(MODELS)
    result = auditing.audit_input(Input(path=Path(name), exact=True), AuditOptions()).findings
    errors = {
        finding.rule
        for finding in result
        if finding.severity is Severity.ERROR and finding.rule.startswith("PT6")
    }
    assert errors
    assert set(ATTACKS[name]["ids"]) <= {
        reference for rule in errors for reference in BY_ID[rule].references
    }


@pytest.mark.parametrize("name", ATTACKS)
def test_check_starts_no_process_for_an_untrusted_file(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """``check`` rejects the file because of its content or its format, and starts no process."""

    def started(*_: object, **__: object) -> None:
        raise AssertionError("a process was started")

    monkeypatch.setattr(subprocess, "Popen", started)
    monkeypatch.chdir(MODELS)
    ended = run("check", name, "--to", "mixed_bfloat16")
    assert ended.code == 3
    assert ended.err.rstrip().endswith(
        "[not-runnable]" if name.startswith("lambda_tfjs") else "[runs-code]"
    ), ended.err


@pytest.mark.parametrize(("name", "words"), CAUSES.items())
def test_refusal_names_layer_and_symbol(
    name: str, words: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    One sentence says which layer calls which function, or which op of the graph does the harm, and
    how to allow it.
    """
    monkeypatch.setattr(subprocess, "Popen", None)
    monkeypatch.chdir(MODELS)
    ended = run("check", name, "--to", "mixed_bfloat16")
    assert (ended.code, ended.out, ended.err.count("\n")) == (3, "", 1)
    assert not [word for word in (name, *words, "--trust") if word not in ended.err], ended.err


@pytest.mark.parametrize(
    "name",
    [
        name
        for name in ATTACKS
        if name.endswith(".h5") and name.startswith(("external", "virtual", "shape"))
    ],
)
def test_weights_beside_an_architecture_are_looked_at_too(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A harmless architecture may be given weights that are not."""
    monkeypatch.setattr(subprocess, "Popen", None)
    ended = run("check", MIXED_JSON, "--weights", MODELS / name, "--to", "mixed_bfloat16")
    assert (ended.code, ended.err.rstrip().endswith("[runs-code]")) == (3, True), ended.err


@pytest.mark.parametrize("name", [name for name in ATTACKS if name.startswith("pickled_weights")])
@pytest.mark.parametrize("options", [("--to", "mixed_bfloat16"), ("--target", "keras3"), ()])
def test_migrate_copies_no_pickle(name: str, options: tuple[str, ...], tmp_path: Path) -> None:
    """Anyone who loads the copy would run the pickle."""
    ended = run("migrate", MODELS / name, *options, "-o", tmp_path / "out.keras")
    assert ended.code == 3
    assert "migrate does not copy such weights" in " ".join(ended.out.split())
    assert not list(tmp_path.iterdir())


def test_references_are_advisories() -> None:
    """Each once, and all of the published ones."""
    references = [reference for rule in BY_ID.values() for reference in rule.references]
    assert len(set(references)) == len(references)
    assert set(references) == PUBLISHED
    assert all(reference in rule.doc for rule in BY_ID.values() for reference in rule.references)


def _harmless(found: Traced, place: Path) -> None:
    """Hold what a process did against what it may do."""
    assert {ended.code for ended in found.ended} <= PROMISED
    assert not [
        ended
        for ended in found.ended
        if "Traceback" in ended.err or any(canary in ended.out + ended.err for canary in CANARIES)
    ]
    assert max(ended.seconds for ended in found.ended) < MAX_SECONDS
    assert found.memory < MAX_MEMORY
    assert not found.network
    assert not found.started
    given = {
        place / name.removeprefix("models/")
        for name in RECORD["files"]
        if name.startswith("models/")
    }
    allowed = {str(path) for path in (*given, *(path.parent for path in given), place.parent)}
    outputs = (
        *(str(place / name) for name in OUTPUTS),
        str(place.parent / TEMPORARY),
    )
    assert not [
        path
        for path in found.opened
        if path.rstrip("/.") not in allowed and not path.startswith(outputs)
    ]
    assert not [path for path in found.changed if not path.startswith(outputs)]
    assert not list(place.parent.rglob(MARKER))
    assert not list((place.parent / TEMPORARY).iterdir())


@ALONE
@SLOW
def test_reading_opens_only_the_file_of_the_user(place: Path) -> None:
    """
    The kernel reports no other file, no network, no process, and less than a gigabyte, for all
    files and commands in one process.
    """
    _harmless(traced(_calls(READING), place), place)


@ALONE
@SLOW
def test_commands_that_run_a_model_reject_untrusted_files(place: Path) -> None:
    """``check``, ``--verify`` and ``--retrace`` end before TensorFlow would start."""
    result = traced(_calls(RUNNING), place)
    _harmless(result, place)
    assert all(ended.code == 3 for ended in result.ended if ended.arguments[0] == "check")
    assert all(
        ended.code == 3 or ": unchanged; " in ended.out
        for ended in result.ended
        if "--verify" in ended.arguments
    )
    assert not [path for path in (place / "verified").rglob("*") if path.is_file()]


@ALONE
def test_trace_detects_forbidden_actions(place: Path) -> None:
    """
    The trace detects a process that opens a canary, creates a marker, connects and starts another
    process.
    """
    driver = """
import json, socket, subprocess, sys
open("policytool-canary.txt").close()
open("other", "w").close()
socket.socket().close()
subprocess.run(["true"])
json.dump({"ended": [], "memory": 0}, open(sys.argv[2], "w"))
"""
    result = traced([], place, driver=driver)
    assert {str(place / "policytool-canary.txt"), str(place / "other")} <= set(result.opened)
    assert result.network
    assert result.started
    (place / "other").unlink()
