"""Imports every module of policytool that runs in its own process, so that a fork need not."""

from __future__ import annotations

import importlib
import pkgutil

import policytool

for found in pkgutil.walk_packages(policytool.__path__, "policytool."):
    if (
        not found.name.startswith("policytool.runtime")
        and not found.name.endswith("__main__")
        and not found.name.endswith("._worker")
    ):
        importlib.import_module(found.name)
