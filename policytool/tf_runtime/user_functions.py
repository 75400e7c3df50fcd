"""Functions that the user names on the command line as ``MODULE:FUNCTION``: the user's own code."""

from __future__ import annotations

import contextlib
import importlib
import os
import traceback
from typing import TYPE_CHECKING

from .library import Refused
from .sentences import sentence

if TYPE_CHECKING:
    from typing import Any, Callable, Iterator

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
        raise Refused(CODE, text.format(option, name, module_name, described(error))) from error
    function = getattr(module, attribute, None)
    if not callable(function):
        text = "{} {}: the module {} has no function {}"
        raise Refused(CODE, text.format(option, name, module_name, attribute))
    return function  # type: ignore[no-any-return]


@contextlib.contextmanager
def working_in(directory: str) -> Iterator[None]:
    """
    Make a directory the working one within the context: the user's code opens files relative to the
    user's own, and this process has another.
    """
    before = os.getcwd()
    os.chdir(directory)
    try:
        yield
    finally:
        os.chdir(before)


def described(error: BaseException) -> str:
    """Return what the user's code raised, and the line of code that raised it."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if not frame.filename.startswith(("<", _HERE))]
    if not own or isinstance(error, (ImportError, SyntaxError)):
        return sentence(error)
    place = "{}, line {}".format(os.path.basename(own[-1].filename), own[-1].lineno)
    return "{} ({})".format(sentence(error), place)


_HERE = os.path.dirname(os.path.abspath(__file__))
