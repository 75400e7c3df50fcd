"""
A child process that loads files, with and without their training configuration.

    python -m tests.random_models.load_files LIBRARY JOBS RESULTS
"""

from __future__ import annotations

from typing import Any

from tests.random_models.serving import reason, serve


def handle(keras: Any, job: dict[str, Any]) -> dict[str, Any]:
    """Return why a file does not load: ``plain``, and ``whole`` with ``compile=True``."""
    found: dict[str, Any] = {}
    for key, compiled in (("plain", False), ("whole", True)):
        keras.backend.clear_session()
        try:
            keras.models.load_model(job["path"], compile=compiled)
            found[key] = None
        except Exception:  # noqa: BLE001  # what the library says is the result
            found[key] = reason()
    return found


if __name__ == "__main__":
    serve(handle)
