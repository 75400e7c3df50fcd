"""
The contract of rules whose fault no release writes: the file is made in the test, from a real one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import pytest

from tests.contracts.rule_contract import RuleContract

if TYPE_CHECKING:
    from pathlib import Path


class MadeRuleContract(RuleContract):
    """Shared assertions; a subclass makes the file that its rule must find something in."""

    paths: ClassVar[tuple[str | None, ...]]
    """The layer paths of the findings in that file."""

    def make(self, folder: Path) -> Path:
        """Return a file with the fault, below an empty folder."""
        raise NotImplementedError

    @pytest.fixture(autouse=True)
    def _is_made(self, tmp_path: Path) -> None:
        folder = tmp_path / "made"
        folder.mkdir()
        type(self).triggers = {str(self.make(folder)): self.paths}
