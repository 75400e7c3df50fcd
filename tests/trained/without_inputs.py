"""
Checks that no trained model is safe without data: ``python -m tests.trained.without_inputs
DIRECTORY PYTHON NAME...``, with the interpreter that has TensorFlow.

Without ``--inputs`` the answer is never *safe* by construction; this runs the command for some
harmless candidates.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from tests.conftest import run
from tests.trained.pairs import POLICIES

UNDECIDED = 5


def main(arguments: list[str]) -> None:
    """Check each of the models under both policies."""
    directory, python, *names = arguments
    for name in names:
        place = Path(directory) / name
        model = place / json.loads((place / "about.json").read_text(encoding="utf-8"))["model"]
        for policy in POLICIES:
            ended = run("check", model, "--to", policy, "--python", python)
            print(name, policy, ended.code, ended.out.partition("\n")[0], flush=True)
            assert ended.code == UNDECIDED, ended.err


if __name__ == "__main__":
    main(sys.argv[1:])
