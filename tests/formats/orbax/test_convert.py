"""Conversion of Orbax checkpoints with ``migrate --target``, and comparison with the result."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

import policytool
from policytool.commands.migrate import Status
from policytool.formats import format_detection
from policytool.formats.orbax import values
from policytool.support.errors import ModelFileError
from tests.conftest import run
from tests.formats.orbax.test_read import ORBAX, needs_tensorstore
from tests.helpers.marks import THOROUGH
from tests.helpers.sampling import sampled

if TYPE_CHECKING:
    from collections.abc import Mapping

CONVERTED: Final = ("whole", "devices4", "quantized", "scalars")

pytestmark = needs_tensorstore


def stored_bytes(path: Path) -> Mapping[tuple[object, ...], int]:
    """Return the number of variables of each shape, dtype and content."""
    document = format_detection.document(path, path.name)
    counts: dict[tuple[object, ...], int] = {}
    with format_detection.open_values(path, document) as stored:
        assert stored is not None
        for tensor in (*(document.tensors or ()), *document.state):
            data = b"".join(block.tobytes() for block in stored.blocks(tensor))
            key = (tensor.shape, tensor.dtype, data)
            counts[key] = counts.get(key, 0) + 1
    return counts


@THOROUGH
@pytest.mark.parametrize("case", sampled("converted checkpoints", CONVERTED, share=2))
def test_values_are_unchanged(case: str, tmp_path: Path) -> None:
    """All variables are byte-identical, also those of the optimizer, and `diff` says so."""
    output = tmp_path / "model.keras"
    done = policytool.migrate(ORBAX / case, target="keras3", output=output, verify=False)
    assert done.status is Status.WRITTEN, done.plan.refusals
    before, after = stored_bytes(ORBAX / case), stored_bytes(output)
    assert before == after or case == "scalars"  # a number of Python becomes float32
    ended = run("diff", ORBAX / case, output)
    assert ended.code == 0, ended.out


@THOROUGH
@pytest.mark.parametrize("case", ["weights_only", "weights3.13"])
def test_weights_join_an_architecture(case: str, tmp_path: Path) -> None:
    """The states of random generators have no layer in their names, and are left out."""
    strings = (ORBAX / "whole" / "1" / "model_config" / "_strings.json").read_bytes()
    architecture = tmp_path / "model.json"
    architecture.write_text(json.loads(strings)["config"], encoding="utf-8")
    ended = run("migrate", architecture, "--weights", ORBAX / case, "--target", "keras3")
    assert ended.code == 0, ended.err
    output = tmp_path / "model.keras3.keras"
    assert len(format_detection.document(output, "m").tensors or ()) == 8


@THOROUGH
def test_audit_prints_the_conversion(tmp_path: Path) -> None:
    """Keras silently does not restore a Sequential model, and the printed command helps."""
    path = Path(shutil.copytree(ORBAX / "whole", tmp_path / "whole"))
    ended = run("audit", path, "--target", "keras3")
    assert ended.code == 1
    assert "are silently not restored" in ended.out
    assert "policytool migrate" in ended.out
    assert run("migrate", path, "--target", "keras3", "--no-verify").code == 0
    assert run("audit", tmp_path / "whole.keras3.keras", "--target", "keras3").code == 0


@THOROUGH
def test_policies_change_with_counted_casts(tmp_path: Path) -> None:
    """A conversion can also change policies."""
    output = tmp_path / "model.keras"
    ended = run(
        *("migrate", ORBAX / "scalars", "--target", "keras3", "--to", "float16", "-o", output),
        "--no-verify",
    )
    assert ended.code == 0, ended.err
    assert "from float32 to float16" in ended.out


def test_checkpoints_are_not_edited() -> None:
    """Without a target, the error names the options that convert."""
    ended = run("migrate", ORBAX / "whole", "--to", "float16")
    assert ended.code == 3
    assert "which migrate only converts. Add --target keras3" in ended.err


def test_conversion_needs_tensorstore(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Without the extra, the error names it."""
    monkeypatch.setattr(values, "find_spec", lambda _: None)
    with pytest.raises(ModelFileError, match=r"policytool\[orbax\]"):
        policytool.migrate(ORBAX / "whole", target="keras3", output=tmp_path / "model.keras")
