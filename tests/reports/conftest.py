"""Fixtures of the tests of reports."""

from __future__ import annotations

import pytest

from tests.helpers.paths import ROOT


@pytest.fixture
def in_the_root(monkeypatch: pytest.MonkeyPatch) -> None:
    """Run a test in the root of the repository: paths in reports are relative to it."""
    monkeypatch.chdir(ROOT)
