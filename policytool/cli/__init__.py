"""The command line: words to values, one call, a report, an exit code."""

from __future__ import annotations

from policytool.cli.main import main

__all__ = ["main"]
