"""``python .../runtime/__main__.py JOBS EVENTS``: do the jobs in the file JOBS, and write one JSON line an event to EVENTS."""

from __future__ import annotations

import importlib
import importlib.util
import json
import os
import sys
import traceback
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types import ModuleType
    from typing import Any, Callable

PACKAGE = "policytool_runtime"
"""What this directory's package is called here: policytool itself may not be importable under this interpreter."""

JOBS = {"retrace": "retracing", "compare": "comparing"}
"""Kind of job to the module that does it."""


def package() -> ModuleType:
    """Import this directory as a package of its own, and take it off the path: its modules shadow nobody's."""
    here = os.path.dirname(os.path.abspath(__file__))
    sys.path[:] = [entry for entry in sys.path if os.path.abspath(entry or os.curdir) != here]
    spec = importlib.util.spec_from_file_location(PACKAGE, os.path.join(here, "__init__.py"), submodule_search_locations=[here])
    if spec is None or spec.loader is None:
        raise ImportError(here)
    module = importlib.util.module_from_spec(spec)
    sys.modules[PACKAGE] = module
    spec.loader.exec_module(module)
    return module


def limit_memory(size: int) -> None:
    """Let this process have no more than so many bytes of its own; an address space that is only reserved does not count where the system can tell."""
    import resource  # POSIX alone; elsewhere the parent offers no limit

    kind = resource.RLIMIT_DATA if sys.platform == "linux" else resource.RLIMIT_AS
    resource.setrlimit(kind, (size, resource.getrlimit(kind)[1]))


def refusal(error: BaseException) -> dict[str, Any]:
    """Return an event's account of what went wrong: a refusal of ours has a code, everything else its class and its first lines."""
    code = getattr(error, "code", None)
    if isinstance(code, str):
        return {"code": code, "message": str(error), "trace": ""}
    name = type(error).__name__
    text = " ".join(str(error).split())[:1000]
    kind = "memory" if isinstance(error, MemoryError) or name == "ResourceExhaustedError" else "failed"
    return {"code": kind, "message": name + (": " + text if text else ""), "trace": traceback.format_exc()[-8000:]}


def run(jobs: list[dict[str, Any]], tell: Callable[[dict[str, Any]], None]) -> None:
    """Do each job in turn; one that fails leaves those after it."""
    package()
    for number, job in enumerate(jobs):
        tell({"begin": number})
        try:
            module = importlib.import_module(PACKAGE + "." + JOBS[job["job"]])
            result = module.run(job, lambda step, number=number: tell({"step": step, "of": number}))
        except Exception as error:  # whatever a library raises is told to the parent, which makes a sentence of it
            tell({"end": number, "error": refusal(error)})
        else:
            tell({"end": number, "result": result})


def main() -> None:
    """Read the jobs, and do them."""
    _, listed, events = sys.argv
    with open(listed, encoding="utf-8") as stream:
        asked = json.load(stream)
    if asked.get("memory_limit"):
        limit_memory(asked["memory_limit"])
    sys.path += asked.get("path", [])
    with open(events, "a", encoding="utf-8") as stream:

        def tell(event: dict[str, Any]) -> None:
            stream.write(json.dumps(event) + "\n")
            stream.flush()

        run(asked["jobs"], tell)
        tell({"done": True})


if __name__ == "__main__":
    main()
