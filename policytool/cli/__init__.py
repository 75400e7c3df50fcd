"""The command line: parses options, calls one command, prints its report, and sets the exit code."""

from __future__ import annotations

from policytool.cli.main import main

__all__ = ["main"]
