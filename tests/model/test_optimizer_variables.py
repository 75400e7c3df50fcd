"""
The weight of each slot variable in stored optimizers, in files of old releases.
``tests/compat/test_training_steps.py`` proves that training continues with them.
"""

from __future__ import annotations

import json
import zipfile
from typing import TYPE_CHECKING, Final

import h5py
import pytest

from policytool.formats import format_detection
from policytool.model import optimizer_config, reading
from policytool.model.optimizer_config import UnmappedError, trainable_tensors
from policytool.model.optimizer_variables import (
    SCHEDULE,
    OptimizerState,
    Style,
    StyledOptimizer,
    positions,
    read_optimizer,
    read_state,
)
from tests.helpers.paths import FIXTURES

if TYPE_CHECKING:
    from pathlib import Path

RECORD: Final = FIXTURES / "optimizers.zip"
WEIGHTS: Final = ("one/kernel", "one/bias", "other/kernel", "other/bias")
FILES: Final = tuple(name for name in zipfile.ZipFile(RECORD).namelist() if name.endswith(".h5"))


def extract(name: str, folder: Path) -> Path:
    """Extract a recorded file into a folder and return its path."""
    file = folder / "model.h5"
    file.write_bytes(zipfile.ZipFile(RECORD).read(name))
    return file


def read(file: Path) -> tuple[dict[tuple[str, str], str], OptimizerState]:
    """Return the names of all slots by weight and kind, and the complete state."""
    loaded = reading.load_model(format_detection.document(file, file.name))
    optimizer = read_optimizer(loaded, optimizer_config.optimizer_config(loaded.document))
    assert optimizer is not None
    trainable = trainable_tensors(loaded.document, loaded.placed)
    state = read_state(loaded, optimizer, trainable)
    assert state is not None
    names = dict(zip(trainable, WEIGHTS, strict=True))
    return {
        (names[weight], kind): tensor.path[-1] for (weight, kind), tensor in state.slots.items()
    }, state


@pytest.mark.parametrize("name", FILES)
def test_every_weight_has_a_slot_of_each_kind(tmp_path: Path, name: str) -> None:
    """Each weight has its own slot variable of each kind, which Keras 3 names after the weight."""
    slots, _ = read(extract(name, tmp_path))
    kinds = {kind for _, kind in slots}
    assert slots.keys() == {(weight, kind) for weight in WEIGHTS for kind in kinds}
    assert len(set(slots.values())) == len(slots)
    if name.startswith("keras3"):
        for (weight, kind), variable in slots.items():
            assert variable.endswith(f"{weight.replace('/', '_')}_{kind}"), (weight, variable)


@pytest.mark.parametrize(("kind", "first"), [("momentum", 0), ("velocity", 4)])
def test_standalone_keras_counts_all_slots_of_a_kind(tmp_path: Path, kind: str, first: int) -> None:
    """The file lists the tenth variable before the second."""
    slots, state = read(extract("keras2.2.4/adam_amsgrad.h5", tmp_path))
    actual = [slots[weight, kind] for weight in WEIGHTS]
    numbers = [f"Variable_{number}:0" if number else "Variable:0" for number in range(12)]
    assert actual == numbers[first : first + 4]
    assert [slots[weight, "velocity_hat"] for weight in WEIGHTS] == numbers[8:]
    assert state.iterations is not None


def test_standalone_keras_does_not_store_all_steps(tmp_path: Path) -> None:
    """It counts from 0 after loading."""
    _, state = read(extract("keras2.2.4/rmsprop.h5", tmp_path))
    assert state.iterations is None


def test_product_of_momentums_comes_after_the_slots_from_keras_3_10(tmp_path: Path) -> None:
    """Up to Keras 3.9 it comes before them."""
    _, state = read(extract("keras3.1/nadam.h5", tmp_path))
    assert state.schedule is not None
    assert state.schedule.path[-1] == "variable"
    nadam = StyledOptimizer(class_name="Nadam", config={}, style=Style.KERAS3)
    kinds = {
        release: [item.kind for item in positions(nadam, [(3,)], release)].index(SCHEDULE)
        for release in ("keras3.9", "keras3.10")
    }
    assert kinds == {"keras3.9": 2, "keras3.10": 4}


@pytest.mark.parametrize(
    ("class_name", "bare"),
    [("Adafactor", ["r", "c", "velocity"]), ("Nadam", ["momentum", "velocity", SCHEDULE])],
)
def test_wrapped_optimizer_has_only_the_variables_of_training(
    class_name: str, bare: list[str]
) -> None:
    """Keras 3 does not track the others in a wrapper."""
    optimizer = StyledOptimizer(class_name=class_name, config={}, style=Style.KERAS3)
    kept, wrapped = (
        [item.kind for item in positions(optimizer, [(3,)], "keras3.15", is_wrapped=is_wrapped)]
        for is_wrapped in (False, True)
    )
    assert kept[2:] == bare
    assert wrapped[2:] == [kind for kind in bare if kind not in {"r", "c", SCHEDULE}]


def test_slot_with_the_name_of_another_weight_is_rejected(tmp_path: Path) -> None:
    """Shapes cannot distinguish layers and Keras 3.3 and later write names."""
    file = extract("keras3.4/sgd.h5", tmp_path)
    with h5py.File(file, "a") as opened:
        group = opened["optimizer_weights"]
        names = [str(name) for name in group.attrs["weight_names"]]
        names[2], names[4] = names[4], names[2]
        group.attrs["weight_names"] = names
    with pytest.raises(UnmappedError, match="expected the momentum of"):
        read(file)


def test_an_archive_lacks_the_trainable_variables_of_lora(tmp_path: Path) -> None:
    """Keras adds the product of the factors to the kernel, and trains only the factors."""
    source = FIXTURES / "keras3.15/default_float32_compiled.keras"
    file = tmp_path / "model.keras"
    with zipfile.ZipFile(source) as members, zipfile.ZipFile(file, "w") as copy:
        for name in members.namelist():
            value = members.read(name)
            if name == "config.json":
                config = json.loads(value)
                layer = next(
                    each for each in config["config"]["layers"] if each["class_name"] == "Dense"
                )
                layer["config"]["lora_rank"] = 2
                value = json.dumps(config).encode()
            copy.writestr(name, value)
    loaded = reading.load_model(format_detection.document(file, file.name))
    with pytest.raises(UnmappedError, match="LoRA"):
        trainable_tensors(loaded.document, loaded.placed)
