"""The command line: parses options, runs a command, and prints its report."""

from __future__ import annotations

from policytool.cli.main import main

__all__ = ["main"]
