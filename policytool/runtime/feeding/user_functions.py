"""
Functions that the user names on the command line as ``MODULE:FUNCTION``: the user's own code, and
the batches that such a function returns or yields (``--inputs MODULE:FUNCTION``). The same
checks as for files apply to them.
"""

from __future__ import annotations

import contextlib
import importlib
import itertools
import os
import traceback
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ..library import Refused, sentence
from .given_arrays import FLOAT32_DTYPES, Source

if TYPE_CHECKING:
    from typing import Any, Callable, Iterator, Mapping, Sequence

    from .slots import Slot


CODE = "user-function"


def load_function(option: str, name: str, directory: str) -> Callable[..., Any]:
    """
    Return the function that an option names; its module is imported in the user's directory.

    :raises Refused: if its module cannot be imported or has no such function.
    """
    module_name, _, attribute = name.partition(":")
    importlib.invalidate_caches()  # the process may have started before the module was written
    try:
        with working_in(directory):
            module = importlib.import_module(module_name)
    except MemoryError:
        raise
    except (Exception, SystemExit) as error:
        text = "{} {}: the module {} cannot be imported: {}"
        raise Refused(
            CODE, text.format(option, name, module_name, describe_error(error))
        ) from error
    function = getattr(module, attribute, None)
    if not callable(function):
        text = "{} {}: the module {} has no function {}"
        raise Refused(CODE, text.format(option, name, module_name, attribute))
    return function  # type: ignore[no-any-return]


@contextlib.contextmanager
def working_in(directory: str) -> Iterator[None]:
    """
    Change the working directory in the context, because the user's code opens files relative to the
    user's directory.
    """
    before = os.getcwd()
    os.chdir(directory)
    try:
        yield
    finally:
        os.chdir(before)


def describe_error(error: BaseException) -> str:
    """Return the exception of the user's code, and the line of code that raised it."""
    frames = traceback.extract_tb(error.__traceback__)
    user_frames = [frame for frame in frames if not frame.filename.startswith(("<", _HERE))]
    if not user_frames or isinstance(error, (ImportError, SyntaxError)):
        return sentence(error)
    place = "{}, line {}".format(os.path.basename(user_frames[-1].filename), user_frames[-1].lineno)
    return "{} ({})".format(sentence(error), place)


_HERE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


OPTION = "--inputs"
_LABELLED = 2
"""The number of elements of training data: inputs and labels."""


class Batch(NamedTuple):
    """One batch from the user's function."""

    source: Source
    arrays: Mapping[str, Any]
    """The arrays by the name of the input."""

    is_alone: bool
    """Whether the function returned one array or one dict instead of batches."""


def read_batches(options: Mapping[str, Any], slots: Sequence[Slot]) -> Iterator[Batch]:
    """
    Yield the batches of ``options["function"]``: ``options["batches"]`` of them, or all.

    The function runs in ``options["directory"]``, the user's directory. ``options["most"]`` has the
    limits for all batches together: their number, their bytes, and the messages for exceeding them.

    :raises Refused: if the function fails, returns something else, or returns more than that.
    """
    name = options["function"]
    most, bounds = options["batches"], options["most"]
    size = number = 0
    for number, batch in enumerate(_batches_of(name, options["directory"], slots), 1):
        if number > bounds["batches"] and most is None:
            raise _refused(name, "returned {}", bounds["beyond_batches"])
        size += sum(array.nbytes for array in batch.arrays.values())
        if size > bounds["bytes"]:
            raise _refused(name, "returned {}", bounds["beyond_bytes"])
        yield batch
        if number == most:
            return
    if not number:
        raise _refused(name, "returned no batches")


def _batches_of(name: str, directory: str, slots: Sequence[Slot]) -> Iterator[Batch]:
    """
    Call the user's function in the user's directory, and yield the batches that it yields, or the
    single batch that it returns.

    :raises Refused: if the function fails or returns anything else.
    """
    function = load_function(OPTION, name, directory)

    def run_in_directory(code: Callable[[], Any]) -> Any:
        with working_in(directory):
            return _run_user_code(name, code)

    result = run_in_directory(function)
    if isinstance(result, dict) or hasattr(result, "__array__"):
        source = Source(name, CODE, name)
        yield Batch(source, _by_name(result, slots, source), is_alone=True)
        return
    if not hasattr(result, "__iter__"):
        raise _refused(name, "returned {}, not batches of arrays", _kind(result))
    batches = run_in_directory(lambda: iter(result))
    for number in itertools.count(1):
        value = run_in_directory(lambda: next(batches, _END))
        if value is _END:
            return
        source = Source("batch {} of {}".format(number, name), CODE, "batch {}".format(number))
        yield Batch(source, _by_name(value, slots, source), is_alone=False)


_END = object()


def _run_user_code(name: str, function: Callable[[], Any]) -> Any:
    """
    Return the result of the user's code.

    :raises Refused: for any exception in it, SystemExit included, because this process must
        continue.
    """
    try:
        return function()
    except MemoryError:
        raise
    except (Exception, SystemExit) as error:
        raise _refused(name, "raised {}", describe_error(error)) from error


def _by_name(value: Any, slots: Sequence[Slot], source: Source) -> dict[str, Any]:
    """Return the arrays of one batch: a dict of them, several in the order of inputs, or one."""
    names = [slot.name for slot in slots]
    if isinstance(value, dict):
        return {str(name): _array(str(name), array, source) for name, array in value.items()}
    value_list = list(value) if isinstance(value, (list, tuple)) else [value]
    if len(value_list) != len(names):
        count = "one array" if len(value_list) == 1 else "{} values".format(len(value_list))
        is_labelled = len(value_list) == _LABELLED and len(names) == 1
        hint = "; return the inputs only, without labels" if is_labelled else ""
        raise source.refused(
            "{} contains {}, but the model expects {}{}",
            source.name,
            count,
            "{} inputs: {}".format(len(names), ", ".join(names)) if len(names) > 1 else names[0],
            hint,
        )
    return {name: _array(name, array, source) for name, array in zip(names, value_list)}


def _array(name: str, value: Any, source: Source) -> Any:
    """Return a NumPy array for any value that converts to one, such as a tensor."""
    if not hasattr(value, "__array__") or isinstance(value, type):
        raise source.refused(
            "{} has {} for input {}, which is not an array", source.name, _kind(value), name
        )
    try:
        array = np.asarray(value)
    except Exception as error:
        raise source.refused(
            "{} has {} for input {}, which cannot be converted to an array: {}",
            source.name,
            _kind(value),
            name,
            describe_error(error),
        ) from error
    return array.astype("float32") if array.dtype.name in FLOAT32_DTYPES else array


def _kind(value: Any) -> str:
    return "None" if value is None else "a value of type {}".format(type(value).__name__)


def _refused(name: str, text: str, *values: Any) -> Any:
    return Source(name, CODE, name).refused("{} {} {}", OPTION, name, text.format(*values))
