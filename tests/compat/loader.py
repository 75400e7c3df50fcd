"""
Load saved models with the newest Keras of one family and tell what came of each: ``python loader.py
RELEASE JOBS RESULTS``.

RELEASE is ``tf_keras2.21`` or ``keras3.15``, as ``fixtures/writer`` names releases. JOBS is a JSON
list of ``[format, path, policy, sample]``: the global policy to load under, or null for the
library's own, and ``RELEASE/CASE`` whose recorded inputs the model is called with, or null. RESULTS
gets one JSON line with the versions, then ``{"begin": N}`` before job N and ``{"end": N, "error":
..., "layers": [...], "outputs": [...]}`` after it, so that whoever finds this process dead knows
the file that killed it. An output is its dtype, its shape and its bytes in hexadecimal.

A load that never returns ends the process: what it left behind could disturb the files after it.
"""

from __future__ import annotations

import gc
import json
import signal
import sys
from importlib import import_module
from pathlib import Path
from typing import Any, Final

import numpy as np

SECONDS: Final = 20
"""What a load may take; the slowest that ends takes a tenth of that."""

LENGTH: Final = 200
"""Characters kept of an error."""

WRITER: Final = Path(__file__).parents[2] / "fixtures"
"""
Holds the package ``writer``, which made the fixtures: their custom classes, and the walk over live
layers that recorded the truth.
"""


class NeverReturnsError(BaseException):
    """Raised by the alarm; not an Exception, because Keras catches those."""


class Loader:
    """
    One library as a loader of models, with the fixtures' custom classes supplied and its safe mode
    off.
    """

    def __init__(self, release: str) -> None:
        self.api: Any = import_module("writer.api").open_release(release)
        classes: dict[str, Any] = import_module("writer.custom_classes").classes(self.api)
        self.truth: Any = import_module("writer.truth")
        self.custom = {**classes, **{f"fixtures>{name}": cls for name, cls in classes.items()}}

    def load(self, kind: str, path: str, policy: str | None) -> Any:
        """Return the model in a file, without its training configuration."""
        keras = self.api.keras
        self.api.reset()
        if policy is not None:
            self.api.set_global(policy)
        # model_from_json has no argument for it, and a reset turns it off again; Keras 3 moved the
        # switch.
        (
            keras.config if self.api.family == "keras3" else keras.__internal__
        ).enable_unsafe_deserialization()
        if kind in {"json", "yaml"}:
            read: Any = getattr(keras.models, f"model_from_{kind}")
            return read(Path(path).read_text(encoding="utf-8"), custom_objects=self.custom)
        return keras.saving.load_model(
            path, custom_objects=self.custom, compile=False, safe_mode=False
        )

    def result(
        self, kind: str, path: str, policy: str | None, sample: str | None
    ) -> dict[str, Any]:
        """
        Return what the live layers of a loaded model say of themselves and what it predicts, or the
        error that it was refused with.
        """
        signal.alarm(SECONDS)
        try:
            model = self.load(kind, path, policy)
            outputs = self.outputs(model, sample) if sample else []
        except Exception as error:  # noqa: BLE001  # whatever a library raises is its refusal
            return {
                "error": f"{type(error).__name__}: {' '.join(str(error).split())}"[-LENGTH:],
                "layers": [],
                "outputs": [],
            }
        finally:
            signal.alarm(0)
        return {"error": None, "layers": self.truth.layers(self.api, model), "outputs": outputs}

    def outputs(self, model: Any, sample: str) -> list[dict[str, Any]]:
        """Return what the model makes of the inputs that were recorded when it was written."""
        release, case = sample.split("/")
        recorded = json.loads((WRITER / release / "truth.json").read_text(encoding="utf-8"))[
            "cases"
        ][case]["inputs"]
        if not recorded:
            return []
        arrays = [
            np.array(item["values"], dtype=item["dtype"].replace("string", "object")).reshape(
                item["shape"]
            )
            for item in recorded
        ]
        created = [np.ascontiguousarray(output) for output in self.api.predict(model, arrays)]
        return [
            {
                "dtype": str(item.dtype),
                "shape": list(item.shape),
                "bytes": item.tobytes().hex() if item.dtype.kind != "O" else "",
            }
            for item in created
        ]


def give_up(*_: object) -> None:
    """Interrupt a load that does not end."""
    raise NeverReturnsError


def main() -> None:
    """Load every job's file and write down what came of it."""
    release, jobs, results = sys.argv[1:]
    sys.path.insert(0, str(WRITER))
    signal.signal(signal.SIGALRM, give_up)
    with Path(results).open("a", encoding="utf-8") as stream:

        def tell(event: dict[str, Any]) -> None:
            print(json.dumps(event), file=stream, flush=True)

        loader = Loader(release)
        # a reset collects garbage; what the imports made would be searched before every file
        gc.freeze()
        tell({"versions": loader.api.versions()})
        for number, (kind, path, policy, sample) in enumerate(
            json.loads(Path(jobs).read_text(encoding="utf-8"))
        ):
            tell({"begin": number})
            try:
                tell({"end": number, **loader.result(kind, path, policy, sample)})
            except NeverReturnsError:
                return


if __name__ == "__main__":
    main()
