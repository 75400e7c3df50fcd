"""
Models and arrays of the calling program, for the Python functions. They are saved in a private
directory, so that commands read and check them like any other file.
"""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from itertools import islice
from pathlib import Path
from types import NoneType
from typing import TYPE_CHECKING, Any, Final, TypeVar, get_args

from policytool.commands.arguments.declaration import ArrayValues, LiveModel
from policytool.commands.check_recordings import save_arrays
from policytool.formats.discovery import Input
from policytool.numerics.check_sides import parse_batches
from policytool.reports import layout
from policytool.support import limits
from policytool.support.errors import ModelFileError, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from policytool.commands.arguments.declaration import Arguments

    _Arrays = Mapping[str, NDArray[Any]]

Call = TypeVar("Call", bound="Arguments")

_PATH: Final = (str, os.PathLike)
_PACKAGES: Final = frozenset({"keras", "tf_keras", "tensorflow"})
_NOT_IN_NAMES: Final = re.compile(r"[^\w.-]")

_FLOAT32_DTYPES: Final = frozenset({"bfloat16", "float8_e4m3fn", "float8_e5m2"})
"""Dtypes that NumPy's files do not support, and whose values float32 can represent."""


class ProgramValues(ExitStack):
    """
    A context with private files of models and arrays. Directories are created when they are needed.
    """

    def __init__(self) -> None:
        super().__init__()
        self._folders = set[Path]()

    def saved(self, call: Call, positional: Mapping[str, object]) -> Call:
        """
        Return the arguments with an input for each model, and with a file for arrays.

        :param positional: the annotations of the positional arguments
        :raises UsageError: for a value of a type that an argument does not accept.
        :raises ModelFileError: if Keras cannot save a model.
        """
        changes: dict[str, object] = {}
        for name, annotation in positional.items():
            value, types = getattr(call, name), get_args(annotation) or (annotation,)
            if LiveModel in types and _is_live(value):
                changes[name] = self._model(value)
            elif not (value is None and NoneType in types):
                check_type(name, value, types)
        for declared in call.options():
            value = getattr(call, declared.name)
            if ArrayValues in declared.types and not isinstance(value, (*_PATH, type(None))):
                for key, arrays in _arrays(declared.name, value, call):
                    changes[key] = self._file(key, arrays)
        return call.with_values(**changes) if changes else call

    def command(self, name: str, call: Arguments, positional: Iterable[str]) -> str:
        """Return the shell command with the same arguments. Private files have no folder in it."""
        words = ["policytool", name]
        for value in (getattr(call, each) for each in positional):
            if value is not None:
                path = value.display_path if isinstance(value, Input) else os.fspath(value)
                words.append(layout.file(path))
        for declared in call.options():
            value = getattr(call, declared.name)
            is_private = isinstance(value, Path) and value.parent in self._folders
            words += declared.words(value.name if is_private else value)
        return layout.command(words)

    def _model(self, model: LiveModel) -> Input:
        name = f"{_NOT_IN_NAMES.sub('_', model.name)}.keras"
        path = self._folder() / name
        try:
            model.save(str(path))
        except Exception as error:  # the code of any layer can raise anything
            message = f"cannot be saved by Keras: {str(error).strip().partition(chr(10))[0]}"
            raise ModelFileError(name, "not-saved", message) from error
        return Input(path=path, exact=True, shown=name)

    def _file(self, name: str, arrays: Mapping[str, NDArray[Any]]) -> Path:
        path = self._folder() / f"{name}.npz"
        save_arrays(path, arrays)
        return path

    def _folder(self) -> Path:
        directory = tempfile.TemporaryDirectory(prefix="policytool-")
        self._folders.add(folder := Path(self.enter_context(directory)))
        return folder


def check_type(name: str, value: object, types: Sequence[object] = ()) -> None:
    """
    Check the type of a positional argument, which is not a model of Keras.

    :raises UsageError: if it is neither a path nor, for a text, a string.
    """
    is_text = types == (str,)
    if not isinstance(value, str if is_text else _PATH):
        or_model = " or a keras.Model" if LiveModel in types else ""
        expected = "a string" if is_text else f"a path{or_model}"
        raise UsageError(f"{name} is {_kind(value)}; expected {expected}")


def _is_live(value: object) -> bool:
    """Return whether a value is a model of a Keras, which is not imported for it."""
    return any(
        base.__name__ == "Model" and base.__module__.partition(".")[0] in _PACKAGES
        for base in type(value).__mro__
    )


def _arrays(name: str, value: object, call: Arguments) -> Iterator[tuple[str, _Arrays]]:
    """
    Yield the arrays of an argument with its name, and labels in batches of inputs if the call needs
    labels and has none.

    :raises UsageError: for a value that has no arrays, or more than the limits allow.
    """
    if hasattr(value, "__array__") or isinstance(value, list | tuple | Mapping):
        yield name, _named(name, value)
        return
    if not isinstance(value, Iterable) and not hasattr(value, "__getitem__"):
        raise UsageError(
            f"{name} is {_kind(value)}; expected a path, an array, a list or a dict of arrays, or "
            "batches of them"
        )
    arguments: Any = call  # those of RunArguments
    names = [name]
    if name == "inputs" and arguments.metric is not None and arguments.labels is None:
        names.append("labels")
    parts: list[list[_Arrays]] = [[] for _ in names]
    size = 0
    for number, batch in enumerate(_batches(name, value, arguments.batches), 1):
        # as in Keras, a tuple contains inputs, labels and weights, and a list several inputs
        values = batch if isinstance(batch, tuple) else (batch,)
        for part, of_batch in zip(parts, values, strict=False):
            part.append(_named(f"batch {number} of {name}", of_batch))
            size += sum(array.nbytes for array in part[-1].values())
        _check(limits.INPUT_BYTES, name, size)
    if not parts[0]:
        raise UsageError(f"{name} has no batches")
    yield from ((key, _joined(key, part)) for key, part in zip(names, parts, strict=True) if part)


def _batches(name: str, value: Any, batches: int | str | None) -> Iterator[object]:  # noqa: ANN401  # of any class
    """Yield the batches of the program: as many as the call asks for, or all up to a limit."""
    most, _ = parse_batches(batches)
    has_places = not hasattr(value, "__iter__") and hasattr(value, "__len__")  # Keras' PyDataset
    each = (value[place] for place in range(len(value))) if has_places else iter(value)
    for number, batch in enumerate(islice(each, most), 1):
        if most is None:
            _check(limits.INPUT_BATCHES, name, number)
        yield batch


def _check(limit: limits.Limit, name: str, count: int) -> None:
    if exceeded := limit.exceeded_message(count, counting=True):
        raise UsageError(f"{name} has {exceeded}, or set batches")


def _joined(name: str, parts: Sequence[_Arrays]) -> _Arrays:
    import numpy as np

    forms = {tuple((key, array.shape[1:]) for key, array in part.items()) for part in parts}
    if len(forms) > 1:
        raise UsageError(f"the batches of {name} differ in the names or the shapes of arrays")
    return {key: np.concatenate([part[key] for part in parts]) for key in parts[0]}


def _named(source: str, values: object) -> _Arrays:
    """Return arrays by name; those in a list have the names that ``numpy.savez`` gives them."""
    if isinstance(values, Mapping):
        return {str(name): _array(source, value) for name, value in values.items()}
    several = values if isinstance(values, list | tuple) else [values]
    return {f"arr_{place}": _array(source, value) for place, value in enumerate(several)}


def _array(source: str, value: object) -> NDArray[Any]:
    """Return an array in a dtype that NumPy's files support."""
    import numpy as np  # the import takes 70 ms

    if not hasattr(value, "__array__") or isinstance(value, type):
        raise UsageError(f"{source} contains {_kind(value)}, which is not an array")
    try:
        array = np.atleast_1d(np.asarray(value))
    except Exception as error:  # the code of any class can raise anything
        raise UsageError(
            f"{source} contains {_kind(value)}, which cannot be converted to an array: {error}"
        ) from error
    if array.dtype.name in _FLOAT32_DTYPES:
        return array.astype("float32")
    if array.dtype.hasobject:
        texts = [text.decode() if isinstance(text, bytes) else text for text in array.flat]
        if not all(isinstance(text, str) for text in texts):
            raise UsageError(f"{source} contains Python objects; expected numbers or strings")
        return np.array(texts, dtype="U").reshape(array.shape)
    return array


def _kind(value: object) -> str:
    return "None" if value is None else f"a value of type {type(value).__name__}"
