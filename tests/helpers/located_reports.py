"""Reports on copies of a model at different locations."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.conftest import run

if TYPE_CHECKING:
    from pathlib import Path


def report(*arguments: str | Path) -> Any:
    """Return the JSON of ``inspect`` without the keys that depend on the path of the model."""
    result = run("inspect", *arguments, "--format", "json").json
    for model in result["models"]:
        model["path"] = ""
    return result
