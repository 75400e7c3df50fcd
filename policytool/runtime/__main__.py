"""
``python .../runtime/__main__.py EVENTS [MEMORY]``: do the jobs that come on stdin, one JSON line
each, one after the other.

Each event goes to the file descriptor EVENTS as one JSON line: ``step`` while a job runs, then its
``result`` or its ``error``. The end of stdin ends the process at once, whatever it is doing:
whoever gave the jobs is gone. MEMORY is how many bytes the process may have.

``python .../runtime/__main__.py installed`` prints the release of each backend and of each Keras
that this interpreter can import, as one JSON object. A module is looked for and not imported, so
that the answer takes milliseconds. A release is null if the environment does not record it.
"""

from __future__ import annotations

import gc
import importlib
import importlib.util
import json
import os
import queue
import sys
import threading
import traceback
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import Any, Callable

PACKAGE = "policytool_runtime"
"""
What this directory's package is called here: policytool itself may not be importable under this
interpreter.
"""

JOBS = {
    "reexport": "reexport.run",
    "predict": "predict.run",
    "check": "check.run",
    "trial": "check.run_trial",
    "quantize": "check.run_quantization",
    "record": "recordings.run",
    "devices": "devices.run",
}
"""The function for each kind of job."""

COLLECTED = (100_000, 20, 100)
"""
How many new objects there are when Python looks for garbage. Libraries, models and graphs make
millions that stay: with Python's own 700, a twelfth of a check's processor time goes to the search.
"""

INSTALLED = "installed"
MODULES = {
    "tensorflow": (
        "tensorflow",
        "tensorflow-cpu",
        "tensorflow-gpu",
        "tensorflow-macos",
        "tensorflow-intel",
        "tf-nightly",
    ),
    "tf_keras": ("tf-keras", "tf_keras", "tf-keras-nightly"),
    "keras": ("keras", "keras-nightly"),
    "jax": ("jax",),
    "torch": ("torch",),
}
"""Each module, and the names of the distributions that contain it."""

NEEDED = ("numpy", "tensorflow")
"""Modules that each TensorFlow requires; an interpreter without them has no TensorFlow."""


def hide_directory() -> str:
    """
    Remove the directory of this module from the path, so that its modules do not shadow others;
    return it.
    """
    directory = os.path.dirname(os.path.abspath(__file__))
    sys.path[:] = [entry for entry in sys.path if os.path.abspath(entry or os.curdir) != directory]
    return directory


def import_package(directory: str) -> None:
    """Import a directory as a package."""
    spec = importlib.util.spec_from_file_location(
        PACKAGE, os.path.join(directory, "__init__.py"), submodule_search_locations=[directory]
    )
    if spec is None or spec.loader is None:
        raise ImportError(directory)
    sys.modules[PACKAGE] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(sys.modules[PACKAGE])


def release(names: tuple[str, ...]) -> str | None:
    """Return the release of the first installed distribution."""
    try:
        from importlib import metadata
    except ImportError:  # Python 3.7
        return None
    for name in names:
        try:
            return metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return None


def limit_memory(size: int) -> None:
    """
    Limit the memory of this process to ``size`` bytes. Memory that is only reserved does not count
    if the operating system can distinguish it.
    """
    import resource  # POSIX alone, as the parent is where it offers a limit

    kind = resource.RLIMIT_DATA if sys.platform == "linux" else resource.RLIMIT_AS
    resource.setrlimit(kind, (size, resource.getrlimit(kind)[1]))


def refusal(error: BaseException) -> dict[str, Any]:
    """
    Return the description of an error for an event: a :class:`Refused` with its code, any other
    error with its class and message. Lack of memory is a failure of the process, not of the model.
    """
    code = getattr(error, "code", None)
    is_shortage = importlib.import_module(PACKAGE + ".library").is_shortage(error)
    if isinstance(code, str) and not is_shortage:
        cause = (
            traceback.format_exception(type(error), error, error.__traceback__)
            if error.__cause__
            else []
        )
        return {"code": code, "message": str(error), "trace": "".join(cause)[-8000:]}
    name = type(error).__name__
    text = " ".join(str(error).split())[:300]
    return {
        "code": "memory" if is_shortage else "failed",
        "message": name + (": " + text if text else ""),
        "trace": traceback.format_exc()[-8000:],
    }


def listen() -> queue.Queue[dict[str, Any]]:
    """Return a queue of the jobs from stdin; the end of stdin ends the process."""
    jobs: queue.Queue[dict[str, Any]] = queue.Queue()

    def read() -> None:
        for line in sys.stdin:
            jobs.put(json.loads(line))
        os._exit(0)

    threading.Thread(target=read, daemon=True).start()
    return jobs


def missing_code(job: dict[str, Any]) -> str:
    """Return the code for an interpreter without :data:`NEEDED`: it has no backend of Keras 3."""
    sides = (job, job.get("reference") or {}, job.get("candidate") or {})
    is_keras3 = any(side.get("family") == "keras3" for side in sides)
    needs_tensorflow = job.get("backends") == ["tensorflow"] or not is_keras3
    return "no-tensorflow" if needs_tensorflow else "no-backend"


def run_job(job: dict[str, Any], tell: Callable[[dict[str, Any]], None]) -> dict[str, Any]:
    """Do one job and return its last event."""
    try:
        sys.path += [entry for entry in job["path"] if entry not in sys.path]
        module, _, function = JOBS[job["job"]].rpartition(".")
        run = getattr(importlib.import_module(PACKAGE + "." + module), function)
        return {"result": run(job, lambda step: tell({"step": step}))}
    except ModuleNotFoundError as error:
        missing = str(error.name).partition(".")[0]
        failure = refusal(error)
        return {"error": {**failure, "code": missing_code(job)} if missing in NEEDED else failure}
    except (
        Exception
    ) as error:  # the parent process makes a message of any error that a library raises
        return {"error": refusal(error)}


def main() -> None:
    """Print the installed releases, or run jobs until stdin ends."""
    directory = hide_directory()
    if sys.argv[1:] == [INSTALLED]:
        releases = {
            module: release(names)
            for module, names in MODULES.items()
            if importlib.util.find_spec(module) is not None
        }
        print(json.dumps(releases))  # noqa: T201  # the answer
        return
    descriptor, *limit = (int(argument) for argument in sys.argv[1:])
    if limit:
        limit_memory(limit[0])
    gc.set_threshold(*COLLECTED)
    import_package(directory)
    jobs = listen()
    with os.fdopen(descriptor, "w", encoding="utf-8") as stream:

        def tell(event: dict[str, Any]) -> None:
            stream.write(json.dumps(event) + "\n")
            stream.flush()

        while True:
            tell(run_job(jobs.get(), tell))


if __name__ == "__main__":
    main()
