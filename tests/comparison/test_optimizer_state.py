"""The optimizer's variables of two files: which belong together, and which are not compared."""

from __future__ import annotations

import json
import zipfile
from typing import TYPE_CHECKING, Final

import h5py
import pytest

import policytool
from policytool.commands.migrate import Status
from tests.helpers.marks import THOROUGH
from tests.helpers.paths import FIXTURES

if TYPE_CHECKING:
    from pathlib import Path

STATES: Final = {
    f"{name.replace('.h5', '')}-{target}": (name, target)
    for name in zipfile.ZipFile(FIXTURES / "optimizers.zip").namelist()
    if name.endswith(".h5") and not name.endswith("nadam.h5")
    for target in ("keras3", "tf_keras")
}


@THOROUGH
@pytest.mark.parametrize("case", STATES)
def test_a_conversion_is_no_difference_of_the_optimizer(tmp_path: Path, case: str) -> None:
    """Each slot is compared with that of its weight, whatever number it has."""
    name, target = STATES[case]
    source, output = tmp_path / "old.h5", tmp_path / "new.keras"
    source.write_bytes(zipfile.ZipFile(FIXTURES / "optimizers.zip").read(name))
    assert policytool.migrate(source, target=target, output=output).status is Status.WRITTEN
    comparison = policytool.diff(source, output)
    assert comparison.optimizer is not None
    assert [(pair.paired, pair.differs) for pair in comparison.optimizer.variables if pair.a] == [
        ("slot", False)
    ] * len(comparison.optimizer.variables)
    assert len(comparison.optimizer.variables) >= 4
    assert not comparison.differs, comparison.optimizer.differences


def test_differing_slot_is_reported_with_its_weight(tmp_path: Path) -> None:
    """The test swaps the slots of two weights with equal shapes."""
    source, output = tmp_path / "old.h5", tmp_path / "new.keras"
    source.write_bytes(zipfile.ZipFile(FIXTURES / "optimizers.zip").read("keras2.2.4/sgd.h5"))
    policytool.migrate(source, target="keras3", output=output)
    with h5py.File(source, "a") as file:
        slots = [
            file[f"optimizer_weights/training/SGD/Variable{number}:0"] for number in ("", "_2")
        ]
        values = [slot[()] for slot in slots]
        slots[0][...], slots[1][...] = values[1], values[0]
    section = policytool.diff(source, output).optimizer
    assert section is not None
    assert [
        (pair.a.name, pair.b.name)
        for pair in section.variables
        if pair.differs and pair.a and pair.b
    ] == [
        ("training/SGD/Variable", "vars/2"),
        ("training/SGD/Variable_2", "vars/4"),
    ]


def test_decay_is_the_schedule_that_does_the_same(tmp_path: Path) -> None:
    """Keras 3 has no decay."""
    source, output = tmp_path / "old.h5", tmp_path / "new.keras"
    source.write_bytes(zipfile.ZipFile(FIXTURES / "optimizers.zip").read("keras2.2.4/adam.h5"))
    with h5py.File(source, "a") as file:
        config = json.loads(file.attrs["training_config"])
        config["optimizer_config"]["config"]["decay"] = 0.5
        file.attrs["training_config"] = json.dumps(config)
    policytool.migrate(source, target="keras3", output=output)
    assert not policytool.diff(source, output).differs
    assert policytool.diff(source, FIXTURES / "keras2.2.4/default_float32_compiled.h5").differs


def test_unknown_optimizer_variables_are_compared_by_name(tmp_path: Path) -> None:
    """HDF5 contains their names. Numbers in archives identify no variable if there are others."""
    plain = FIXTURES / "keras3.15/default_float32_compiled.keras"
    strange = _with_class(plain, tmp_path / "strange.keras", "Muon")
    result = policytool.diff(strange, strange).optimizer
    assert result is not None
    assert {pair.paired for pair in result.variables} == {"name"}
    mixed = policytool.diff(FIXTURES / "keras3.15/lso_dynamic.keras", strange)
    assert mixed.optimizer is not None
    assert mixed.optimizer.variables == ()
    assert "optimizer-state" in {note.code for note in mixed.notes}


def _with_class(source: Path, output: Path, class_name: str) -> Path:
    with zipfile.ZipFile(source) as old, zipfile.ZipFile(output, "w") as new:
        for member in old.namelist():
            content = old.read(member)
            if member == "config.json":
                config = json.loads(content)
                config["compile_config"]["optimizer"]["class_name"] = class_name
                content = json.dumps(config).encode()
            new.writestr(member, content)
    return output
