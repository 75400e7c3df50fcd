"""
The document of an Orbax checkpoint, from the JSON of its newest step.

``model_config/_strings.json`` has the config, and ``pytree/_METADATA`` the names of variables. The
shape in it is that of the part that one device writes, so that it is the shape of the variable only
if ``pytree/_sharding`` says that one device wrote it. No JSON has the dtypes.
"""

from __future__ import annotations

import base64
import binascii
import re
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from policytool.formats import orbax
from policytool.formats.base import is_serialised, parse_json
from policytool.formats.document import (
    UNKNOWN_DTYPES,
    Document,
    Layout,
    Observation,
    Tensor,
)
from policytool.formats.orbax import values
from policytool.support import limits, steps
from policytool.support.errors import short
from policytool.support.files import opening
from policytool.support.files.remote_path import RemotePath
from policytool.support.text import jsontext

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from policytool.formats.base import Probe
    from policytool.formats.document import Values
    from policytool.formats.orbax.values import ArrayDescription
    from policytool.support.files.remote_path import AnyPath
    from policytool.support.text.jsontext import Json

UNKNOWN: Final = "unknown"
"""The dtype of variables if TensorStore is not installed."""

STEP: Final = "orbax-step"
"""The code of the observation about a step, which Keras does not load."""

_WEIGHTS: Final = frozenset({"trainable_variables", "non_trainable_variables"})
_STATE: Final = "optimizer_variables"
_COLLECTIONS: Final = _WEIGHTS | {_STATE, "metrics_variables"}
"""The keys of ``Model.get_state_tree()``."""

_LISTED: Final = 100
"""The maximum number of steps in a message."""


@dataclass(frozen=True, kw_only=True)
class Step:
    """The step of a checkpoint that is read."""

    probe: Probe
    folder: str
    """The path relative to the directory that was specified, with a slash at its end, or empty."""

    @cached_property
    def path(self) -> AnyPath:
        """The path of the step."""
        return self.probe.path / self.folder.rstrip("/") if self.folder else self.probe.path

    @cached_property
    def names(self) -> frozenset[str]:
        """The names in the step."""
        return opening.names(self.path)

    @cached_property
    def tree(self) -> str:
        """
        The directory with the variables, relative to the directory that was specified.

        :raises ModelFileError: if the step is not complete.
        """
        for name in orbax.TREES:
            if name in self.names:
                return f"{self.folder}{name}/"
        what = f"step {self.folder.rstrip('/')}" if self.folder else "the step"
        unfinished = any(orbax.UNFINISHED in name for name in self.names)
        raise self.probe.failure(
            "orbax-incomplete",
            f"is an incomplete Orbax checkpoint: {what}, which Keras would load, "
            + ("was not finished" if unfinished else "contains no variables")
            + "; specify the directory of another step, or remove this one",
        )

    def json(self, name: str, observations: list[Observation]) -> dict[str, Json]:
        """
        Return the JSON object in a file, whose path is relative to the directory specified.

        :raises ModelFileError: if the file is not a JSON object within the limits, or if it is a
            link to a path outside the directory.
        """
        if self.probe.leads_out(self.probe.path / name):
            raise self.probe.failure(
                "escaping-link",
                f"contains {name}, a link to a path outside the checkpoint that was not followed; "
                "replace the link with the file",
            )
        try:
            text = self.probe.content(limits.JSON_BYTES, "json-limit", f"has a {name} of", name)
        except FileNotFoundError as error:
            raise self.probe.failure(
                "orbax-incomplete",
                f"is an incomplete Orbax checkpoint: it lacks {name}; copy the checkpoint again, "
                "or specify the directory of another step",
            ) from error
        value = parse_json(self.probe, text, name, observations)
        if not isinstance(value, dict):
            raise self.probe.failure(
                "orbax-metadata", f"has a {name} that is not a JSON object, as Orbax writes it"
            )
        return value


def read(probe: Probe) -> Document:
    """Return the document of the newest step, or of the step that was specified."""
    observations: list[Observation] = []
    step = newest_step(probe, observations)
    metadata = step.json(f"{step.tree}{orbax.TREE_METADATA}", observations)
    config = _config(step, observations)
    entries = [
        entry
        for entry in _entries(step, metadata)
        if entry.collection in {*_WEIGHTS, _STATE} and not (config is not None and entry.is_seed)
    ]
    shardings = _shardings(step, observations)
    observations += _about_devices(shardings)
    arrays = _arrays(step, metadata, [entry.name for entry in entries], observations)
    tensors, state = (
        tuple(
            entry.tensor(probe, shardings, arrays) for entry in entries if entry.collection in names
        )
        for names in (_WEIGHTS, {_STATE})
    )
    if config is None:
        observations.append(
            Observation(
                code=orbax.WITHOUT_CONFIG, message="the Orbax checkpoint contains only weights"
            )
        )
    return Document(
        path=probe.shown,
        format="weights" if config is None else "orbax",
        parts={} if config is None else {orbax.CONFIG: config},
        config_part=None if config is None else orbax.CONFIG,
        config_file=f"{step.folder}{orbax.CONFIG}/{orbax.STRINGS}",
        layout=Layout.SCOPES,
        tensors=tensors,
        state=state,
        observations=tuple(observations),
    )


def newest_step(probe: Probe, observations: list[Observation]) -> Step:
    """
    Return the step with the largest number, which Keras loads, or the directory if it is a step.

    :raises ModelFileError: if the directory contains no finished step.
    """
    if orbax.is_step(probe.path, probe.names):
        observations.append(
            Observation(
                code=STEP,
                message="it is one step of a checkpoint; Keras loads only the directory above it",
            )
        )
        return Step(probe=probe, folder="")
    numbers = orbax.step_numbers(probe.names)
    steps.spend(len(numbers), walk="steps of a checkpoint")
    found = [number for number in numbers if opening.is_directory(probe.path / str(number))]
    unfinished = orbax.unfinished(probe.names)
    if not found:
        raise probe.failure(
            "orbax-incomplete",
            f"is an Orbax checkpoint without a finished step; it contains {_listed(unfinished)}, "
            "which Keras ignores",
        )
    observations += _about_steps(found, unfinished)
    return Step(probe=probe, folder=f"{found[0]}/")


def _about_steps(numbers: Sequence[int], unfinished: Sequence[str]) -> Iterator[Observation]:
    """Yield observations about other steps, and about steps that were not finished."""
    if len(numbers) > 1:
        listed = _listed([str(number) for number in reversed(numbers)])
        yield Observation(
            code="orbax-steps",
            message=f"it contains the steps {listed}; this report is about step {numbers[0]}, "
            "which Keras loads",
        )
    if unfinished:
        yield Observation(
            code="orbax-unfinished",
            message=f"it contains {_listed(unfinished)}, which {_WAS[len(unfinished) > 1]} not "
            "finished; Keras ignores unfinished steps",
        )


_WAS: Final = {False: "was", True: "were"}


def _listed(names: Sequence[str]) -> str:
    """Return names as a part of a sentence."""
    if len(names) > _LISTED:
        return f"{', '.join(names[:_LISTED])} and {len(names) - _LISTED} more"
    return " and ".join(filter(None, (", ".join(names[:-1]), names[-1])))


class _Entry(Struct, frozen=True, kw_only=True):
    """A variable in the metadata of a step."""

    keys: tuple[str, ...]
    part_shape: tuple[int, ...] | None
    """The shape of the part that a device writes; None if the metadata lacks it."""

    @property
    def collection(self) -> str:
        """The key of the state tree."""
        return self.keys[0]

    @property
    def is_seed(self) -> bool:
        """
        Whether it is the state of a random generator. Its name does not contain that of its layer,
        but a number that depends on everything that the program created before.
        """
        return self.keys[-1] == orbax.SEED

    @property
    def name(self) -> str:
        """The name in the store."""
        return ".".join(self.keys)

    def tensor(
        self,
        probe: Probe,
        shardings: Mapping[str, dict[str, Json]],
        arrays: Mapping[str, ArrayDescription],
    ) -> Tensor:
        """
        Return the tensor as TensorStore describes it, or with its shape if a single device wrote
        it.
        """
        array = arrays.get(self.name)
        is_whole = shardings.get(self.name, {}).get("sharding_type") == "SingleDeviceSharding"
        return Tensor(
            path=probe.tensor_path("/".join(self.keys[1:]), "json-limit"),
            shape=array.shape if array else self.part_shape if is_whole else None,
            dtype=array.dtype if array else UNKNOWN,
            key=self.name,
        )


def _arrays(
    step: Step, metadata: dict[str, Json], names: Sequence[str], observations: list[Observation]
) -> dict[str, ArrayDescription]:
    """
    Return the descriptions of arrays from TensorStore; without it, add an observation.

    :raises ModelFileError: if TensorStore fails to open an array.
    """
    location = _location(step, metadata)
    if not values.is_readable(step.probe):
        reason = values.REMOTE if isinstance(step.path, RemotePath) else values.MISSING
        message = f"the dtypes of its variables are unknown, because {reason}"
        observations.append(Observation(code=UNKNOWN_DTYPES, message=message))
        return {}
    values.stored_bytes(step.probe, location.folder)
    with ExitStack() as stack:
        try:
            return values.ArrayReader(location, stack).descriptions(names)
        except values.StoreError as error:
            raise step.probe.failure(
                "orbax-damaged",
                f"is a damaged Orbax checkpoint: {error}; copy or download it again",
            ) from error


def _location(step: Step, metadata: dict[str, Json]) -> values.Location:
    """Return where the arrays of a step are."""
    return values.Location(
        folder=Path(str(step.probe.path), step.tree),
        is_ocdbt=metadata.get("use_ocdbt") is not False,
        is_zarr3=metadata.get("use_zarr3") is True,
    )


def open_values(probe: Probe, document: Document, stack: ExitStack) -> Values:
    """
    Open the values of the step that the document describes.

    :raises ModelFileError: if its metadata cannot be read.
    """
    step = newest_step(probe, [])
    metadata = step.json(f"{step.tree}{orbax.TREE_METADATA}", [])
    return values.OrbaxValues(probe, _location(step, metadata), document, stack)


def _entries(step: Step, metadata: dict[str, Json]) -> Iterator[_Entry]:
    """
    Yield the variables of a step, in the order of the metadata.

    :raises ModelFileError: if the metadata are invalid, or not those of a Keras model.
    """
    probe, name = step.probe, f"{step.tree}{orbax.TREE_METADATA}"
    listed = metadata.get("tree_metadata")
    items = list(listed.values()) if isinstance(listed, dict) else [None]
    probe.check_limit(limits.CHECKPOINT_ENTRIES, len(items), "json-limit", f"has a {name} with")
    keys_met: set[tuple[str, ...]] = set()
    for value in items:
        keys, is_stored = _keys(value)
        if not keys or keys in keys_met:
            raise probe.failure(
                "orbax-metadata",
                f"has a {name} that is not a tree of variables with different names, as Orbax "
                "writes it",
            )
        if keys[0] not in _COLLECTIONS:
            raise probe.failure(
                "orbax-not-keras",
                f"is an Orbax checkpoint of another program: its tree contains {short(keys[0])!r}; "
                "expected a checkpoint of keras.callbacks.OrbaxCheckpoint",
            )
        keys_met.add(keys)
        if is_stored and len(keys) > 1:
            yield _Entry(keys=keys, part_shape=_shape(probe, value))


def _keys(entry: Json) -> tuple[tuple[str, ...], bool]:
    """
    Return the keys of an entry, and whether it has values: an empty dict has none. Return no keys
    for an invalid entry.
    """
    listed = entry.get("key_metadata") if isinstance(entry, dict) else None
    described = entry.get("value_metadata") if isinstance(entry, dict) else None
    if not isinstance(listed, list) or not isinstance(described, dict):
        return (), False
    keys = [
        key
        for item in listed
        if isinstance(item, dict) and isinstance(key := item.get("key"), str) and _is_name(key)
    ]
    if len(keys) != len(listed):
        return (), False
    return tuple(keys), described.get("skip_deserialize") is not True


def _is_name(key: str) -> bool:
    """Return whether a key is not empty, and can be written in UTF-8, as TensorStore needs it."""
    return bool(key) and _SURROGATE.search(key) is None


_SURROGATE: Final = re.compile("[\ud800-\udfff]")
"""A character that JSON can contain and UTF-8 cannot."""


def _shape(probe: Probe, entry: Json) -> tuple[int, ...] | None:
    described = entry.get("value_metadata") if isinstance(entry, dict) else None
    shape = described.get("write_shape") if isinstance(described, dict) else None
    if not isinstance(shape, list):
        return None
    probe.check_limit(limits.H5_RANK, len(shape), "json-limit", "has a variable with")
    sizes = [
        size for size in shape if isinstance(size, int) and not isinstance(size, bool) and size >= 0
    ]
    return tuple(sizes) if len(sizes) == len(shape) else None


def _shardings(step: Step, observations: list[Observation]) -> dict[str, dict[str, Json]]:
    """
    Return the sharding of each variable by its name in the store; empty if the step has none, as
    with a backend that is not JAX.
    """
    name = f"{step.tree}{orbax.SHARDING}"
    if orbax.SHARDING not in opening.names(step.probe.path / step.tree.rstrip("/")):
        return {}
    shardings: dict[str, dict[str, Json]] = {}
    parsed: dict[str, Json] = {}
    for key, text in step.json(name, observations).items():
        try:
            if not isinstance(text, str):
                raise TypeError
            if text not in parsed:
                parsed[text] = jsontext.parse(text)[0]
            variable = base64.b64decode(key, validate=True).decode()
        except (binascii.Error, ValueError, TypeError) as error:
            raise step.probe.failure(
                "orbax-metadata", f"has a {name} that does not name the devices of variables"
            ) from error
        sharding = parsed[text]
        shardings[variable] = sharding if isinstance(sharding, dict) else {}
    return shardings


def _about_devices(shardings: Mapping[str, dict[str, Json]]) -> Iterator[Observation]:
    """Yield an observation about a checkpoint of several devices, which restricts loading."""
    named = [
        sharding
        for sharding in shardings.values()
        if sharding.get("sharding_type") == "NamedSharding"
    ]
    count = max((_device_count(sharding) for sharding in named), default=1)
    if count > 1:
        split = sum(any(_axes(sharding)) for sharding in named)
        yield Observation(
            code="orbax-devices",
            message=f"it was written on {count} devices, which {_split(split)}; without a "
            f"keras.distribution, Keras loads it only if JAX has {count} devices",
        )


def _split(count: int) -> str:
    if not count:
        return "have complete copies of all variables"
    return f"share {count} variable{'s' * (count > 1)}"


def _axes(sharding: dict[str, Json]) -> list[Json]:
    """Return the axes of devices along which a variable is split."""
    spec = sharding.get("partition_spec")
    return spec if isinstance(spec, list) else []


def _device_count(sharding: dict[str, Json]) -> int:
    shape = sharding.get("shape")
    sizes = [size for size in shape if isinstance(size, int)] if isinstance(shape, list) else []
    count = 1
    for size in sizes:
        count = min(count * max(size, 1), _MOST_DEVICES)
    return count


_MOST_DEVICES: Final = 10**6


def _config(step: Step, observations: list[Observation]) -> dict[str, Json] | None:
    """
    Return the config of the model; None if the checkpoint contains only weights.

    :raises ModelFileError: if it is not a serialised Keras object.
    """
    if orbax.CONFIG not in step.names:
        return None
    name = f"{step.folder}{orbax.CONFIG}/{orbax.STRINGS}"
    text = step.json(name, observations).get("config")
    config = parse_json(step.probe, text, name, observations) if isinstance(text, str) else None
    if not is_serialised(config):
        raise step.probe.failure(
            "config-not-keras",
            f"has a {name} without the config of a Keras model: class_name and config",
        )
    return config
