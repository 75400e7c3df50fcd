"""
An interpreter that claims to have libraries, and answers jobs as it is told: what verification does
with its answers is tested without TensorFlow.
"""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

NEWEST: Final = {"tensorflow": "2.21.0", "tf_keras": "2.21.0", "keras": "3.15.1"}

_CODE: Final = """
import json, os, pathlib, resource, sys, time
here = pathlib.Path(__file__)
told = json.loads(here.with_suffix(".json").read_text())
with open(here.with_suffix(".log"), "a") as log:
    is_asked = sys.argv[2:] == ["installed"]
    script = "installed" if is_asked else os.path.basename(sys.argv[1])
    started = {"script": script, "pid": os.getpid()}
    started["memory"] = resource.getrlimit(resource.RLIMIT_DATA)[0]
    log.write(json.dumps(started) + chr(10))
if is_asked:
    sys.stdout.write(told["installed"])
    sys.exit()
import numpy as np
stream = os.fdopen(int(sys.argv[2]), "w")
for line in sys.stdin:
    job = json.loads(line)
    with open(here.with_suffix(".log"), "a") as log:
        told_of = {"which": job["which"], "rows": job["batch_size"], "bound": job["memory"]}
        log.write(json.dumps({**told_of, "pid": os.getpid()}) + chr(10))
    answer = told["answers"][job["which"]]
    time.sleep(answer.get("sleep", 0))
    if "exit" in answer:
        os._exit(answer["exit"])
    if "code" in answer:
        event = {"error": answer}
    else:
        if job["like"] is None:
            np.savez(os.path.join(job["inputs"], "inputs.0.npz"), x=np.zeros(3))
        np.savez(job["outputs"], **{"0.0.0": np.array(answer["values"], dtype="float32")})
        call = {"signature": None, "number": 0, "batches": 1, "inputs": []}
        outputs = [{"name": "a", "dtype": "float32"}]
        event = {"result": {
            "versions": answer["versions"], "samples": 16, "calls": [{**call, "outputs": outputs}]
        }}
    stream.write(json.dumps({"step": "verifying: " + job["which"]}) + chr(10))
    stream.write(json.dumps(event) + chr(10))
    stream.flush()
"""


@dataclass(frozen=True, kw_only=True)
class FakeInterpreter:
    """An executable, and what it was asked."""

    path: Path

    def log(self, key: str) -> list[Any]:
        """Return what each start (``script``, ``memory``) or each job (``which``) was about."""
        log = self.path.with_suffix(".log")
        lines = log.read_text(encoding="utf-8").splitlines() if log.exists() else []
        return [entry[key] for line in lines if key in (entry := json.loads(line))]

    def processes(self) -> int:
        """Return how many processes did jobs."""
        log = self.path.with_suffix(".log").read_text(encoding="utf-8").splitlines()
        return len({entry["pid"] for line in log if "which" in (entry := json.loads(line))})


def predicted(library: str, release: str, values: Sequence[float] = (0.5, 2.0)) -> dict[str, Any]:
    """Return the answer of a library that predicts values."""
    versions = {"library": library, "keras": release, "tensorflow": "2.21.0"}
    return {"versions": versions, "values": list(values)}


def failed(code: str, message: str) -> dict[str, Any]:
    """Return the answer of a library that cannot do it."""
    return {"code": code, "message": message, "trace": ""}


SOURCE: Final = predicted("tf_keras", "2.21.0")
RESULT: Final = predicted("keras", "3.15.1")


def fake_interpreter(
    path: Path,
    *,
    installed: Mapping[str, str | None] | str = NEWEST,
    source: Mapping[str, Any] = SOURCE,
    result: Mapping[str, Any] = RESULT,
) -> FakeInterpreter:
    """Write an interpreter; if nothing is converted, the original answers what ``source`` says."""
    path.write_text(f"#!{sys.executable}\n{_CODE}", encoding="utf-8")
    path.chmod(0o755)
    answers = {"the source": source, "the original": source, "the result": result}
    actual = {
        "installed": installed if isinstance(installed, str) else json.dumps(installed),
        "answers": answers,
    }
    path.with_suffix(".json").write_text(json.dumps(actual), encoding="utf-8")
    return FakeInterpreter(path=path)
