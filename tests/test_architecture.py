"""Imports point down, each library has one home, and packages list all of their members."""

from __future__ import annotations

import ast
import importlib
import inspect
import pkgutil
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

import policytool
from policytool import formats, reports
from policytool.formats import Format, creating, rewriting
from policytool.formats.creating import Builder
from policytool.formats.rewriting import Writer
from policytool.migration.planning import keep
from policytool.migration.planning.keep import KeepRule
from policytool.releases import generations
from policytool.releases.generations import Generation
from policytool.reports import Reporter, checks, differences, findings, plans
from policytool.reports.checks import CheckReporter
from policytool.reports.differences import DifferenceReporter
from policytool.reports.findings import FindingReporter
from policytool.reports.plans import PlanReporter

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import ModuleType

PACKAGE: Final = Path(policytool.__file__).parent

LEVELS: Final = (
    # L0 mechanisms, which know nothing of models
    {
        *(
            "errors",
            "limits",
            "jsontext",
            "yamltext",
            "dtypes",
            "mistaken",
            "version",
            "naming",
            "examples",
            "classes",
            "casting",
            "drafts",
        ),
        *(
            "graphops",
            "protobuf_messages",
            "checkpoints",
            "wire",
            "child",
            "codec",
            "guard",
            "opening",
            "pool",
            "workers",
            "runtime",
        ),
    },
    # L1 values: a policy; a file as named JSON parts
    {"policy", "policymap", "document"},
    # L2 the layer tree as a value; what is to change in it, how it differs from another, what was
    # measured of it, and JSON and YAML text that changes
    {"model", "content", "plan", "comparison", "finding", "measurement", "jsonedit", "yamledit"},
    # L3 files and spellings to values
    {
        *(
            "formats",
            "generations",
            "features",
            "provenance",
            "tree",
            "training",
            "loaders",
            "opaque",
        ),
        *("capabilities", "kernels", "hazards", "wiring"),
    },
    # L4 from a path to a model, and to its stored values
    {"recognition", "resolving", "traced", "reading", "discovery", "values"},
    # L5 from a model to a plan, from a plan to a file; from two models to what differs; what runs
    # when TensorFlow loads one; what it did, held against the plan
    {
        "planning",
        "conversion",
        "building",
        "rules",
        "writers",
        "comparing",
        "executable",
        "retracing",
        "verification",
        "predictions",
        "remedies",
        "selecting",
        "checking",
    },
    # L6 what each command does
    {"operations"},
    # L7 values to text
    {"reports"},
    # L8 the command line
    {"cli", "__main__", "_worker"},
)
"""
Package or module to level; within a level modules may import each other, as long as they make no
circle.
"""

HOMES: Final = {
    "h5py": {"formats._hdf5", "writers._hdf5", "building", "values", "runtime"},
    "ml_dtypes": {"casting"},
    "google": {"protobuf_messages"},
    "google_crc32c": {"checkpoints._crc32c"},
    "yaml": {"yamltext"},
    "rich": {"reports", "cli.progress"},
    "click": {"cli"},
    "tensorflow": {"runtime"},
}
"""Third-party library to the modules, or packages, that may import it."""

BANNED: Final = {"tensorflow", "keras", "tf_keras", "pickle", "marshal", "shelve"}
"""What executes things from files, or takes seconds to import."""

CHILD: Final = "runtime"
"""
What runs in a process of its own, under another name and possibly another Python: it may import
TensorFlow, it imports its own modules relatively, and nothing here imports it.
"""


def _modules() -> Iterator[tuple[str, ast.Module]]:
    """Yield each module's name below the package and its syntax tree."""
    for file in sorted(PACKAGE.rglob("*.py")):
        parts = file.relative_to(PACKAGE).with_suffix("").parts
        yield (
            ".".join(part for part in parts if part != "__init__") or "__init__",
            ast.parse(file.read_text(encoding="utf-8")),
        )


MODULES: Final = dict(_modules())


def _imports(tree: ast.Module) -> Iterator[str]:
    """
    Yield the full names that a module imports, at its top, in functions, and for type checkers.
    """
    for node in ast.walk(tree):
        match node:
            case ast.Import(names=names):
                yield from (alias.name for alias in names)
            case ast.ImportFrom(module=str() as module, names=names, level=0):
                yield from (f"{module}.{alias.name}" for alias in names)
            case ast.ImportFrom(level=level) if level:
                yield f"relative import of {node.module}"


def _own(name: str) -> str | None:
    """
    Return the module or package directly below ``policytool`` that a full name is in; None for
    foreign names.
    """
    first, _, rest = name.partition(".")
    return rest.partition(".")[0] if first == "policytool" and rest else None


def _level(top: str) -> int:
    return next(number for number, names in enumerate(LEVELS) if top in names)


def _tops() -> set[str]:
    return {module.partition(".")[0] for module in MODULES} - {"__init__", "data"}


def test_every_module_has_a_level() -> None:
    """A new module is placed on purpose; a module that is gone leaves no place."""
    assert set.union(*LEVELS) == _tops()


@pytest.mark.parametrize("module", sorted(set(MODULES) - {"__init__"}))
def test_imports_point_down(module: str) -> None:
    """A module imports from its own level or lower ones, never from those above."""
    top = module.partition(".")[0]
    if top == "data":
        return
    for name in _imports(MODULES[module]):
        imported = _own(name)
        if imported is not None and imported != "data" and imported in _tops():
            assert _level(imported) <= _level(top), f"{module} imports {name}, which is above it"


def test_modules_make_no_circle() -> None:
    """Top modules and packages can be put in one order, type checkers' imports left out."""
    graph = {top: set[str]() for top in _tops()}
    for module, tree in MODULES.items():
        top = module.partition(".")[0]
        if top in graph:
            graph[top] |= {
                own
                for name in _imports(_without_type_checking(tree))
                if (own := _own(name)) in graph and own != top
            }
    while graph:
        free = {top for top, below in graph.items() if not below & set(graph)}
        assert free, f"circle among {sorted(graph)}"
        graph = {top: below for top, below in graph.items() if top not in free}


def _without_type_checking(tree: ast.Module) -> ast.Module:
    kept = [
        node
        for node in tree.body
        if not (isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING")
    ]
    return ast.Module(body=kept, type_ignores=[])


@pytest.mark.parametrize("library", sorted(HOMES))
def test_each_library_has_one_home(library: str) -> None:
    """A third-party library is imported in its home and nowhere else."""
    importers = {
        module
        for module, tree in MODULES.items()
        if any(name.partition(".")[0] == library for name in _imports(tree))
    }
    assert importers
    assert all(
        any(module == home or module.startswith(f"{home}.") for home in HOMES[library])
        for module in importers
    ), importers


def test_nothing_imports_what_executes_files() -> None:
    """No module imports TensorFlow, Keras, or a format of Python's own that runs code when read."""
    ours = {module: tree for module, tree in MODULES.items() if module.partition(".")[0] != CHILD}
    found = {
        (module, name)
        for module, tree in ours.items()
        for name in _imports(tree)
        if name.partition(".")[0] in BANNED or name.startswith("relative")
    }
    assert not found


def test_the_child_stands_alone() -> None:
    """
    No module imports what runs in the child, and that imports nothing of policytool's: another
    interpreter has none of it.
    """
    imports = {module: set(_imports(tree)) for module, tree in MODULES.items()}
    assert not {
        module for module, names in imports.items() if any(_own(name) == CHILD for name in names)
    }
    assert not {
        (module, name)
        for module, names in imports.items()
        if module.partition(".")[0] == CHILD
        for name in names
        if name.startswith("policytool")
    }


def test_the_child_is_written_for_old_pythons() -> None:
    """Its modules are Python 3.7, which is what the oldest TensorFlow that it serves runs under."""
    for file in (PACKAGE / CHILD).glob("*.py"):
        ast.parse(file.read_text(encoding="utf-8"), feature_version=(3, 7))


def test_nothing_evaluates_text() -> None:
    """``eval``, ``exec`` and ``compile`` of text from files have no place here."""
    calls = {
        (module, node.func.id)
        for module, tree in MODULES.items()
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id in {"eval", "exec", "compile", "__import__"}
    }
    assert not calls


@pytest.mark.parametrize(
    ("package", "constant", "kind", "listed"),
    [
        (formats, "FORMAT", Format, formats.FORMATS),
        (creating, "BUILDER", Builder, creating.BUILDERS),
        (generations, "GENERATION", Generation, generations.GENERATIONS),
        (reports, "REPORTER", Reporter, reports.REPORTERS),
        (plans, "REPORTER", PlanReporter, plans.PLAN_REPORTERS),
        (differences, "REPORTER", DifferenceReporter, differences.DIFFERENCE_REPORTERS),
        (findings, "REPORTER", FindingReporter, findings.FINDING_REPORTERS),
        (checks, "REPORTER", CheckReporter, checks.CHECK_REPORTERS),
        (rewriting, "WRITER", Writer, rewriting.WRITERS),
        (keep, "RULE", KeepRule, keep.KEEP_RULES),
    ],
    ids=[
        "formats",
        "builders",
        "generations",
        "reports",
        "plan reports",
        "difference reports",
        "finding reports",
        "check reports",
        "writers",
        "keep rules",
    ],
)
def test_packages_list_every_member(
    package: ModuleType, constant: str, kind: type, listed: tuple[object, ...]
) -> None:
    """
    Every public module of the package declares its constant, and all of them are in the package's
    tuple, once.
    """
    declared = []
    for info in pkgutil.iter_modules(package.__path__):
        if not info.name.startswith("_") and not info.ispkg:
            member = getattr(importlib.import_module(f"{package.__name__}.{info.name}"), constant)
            assert isinstance(member, kind)
            declared.append(member)
    assert len(listed) == len(declared)
    assert all(any(member is entry for entry in listed) for member in declared)
    names = [getattr(member, "name", None) or getattr(member, "id", None) for member in listed]
    assert len(set(names)) == len(names)


def test_everything_public_says_what_it_is() -> None:
    """
    Public modules, classes, functions, methods and properties have docstrings that begin with a
    sentence.
    """
    silent = []
    for module, tree in MODULES.items():
        documented: list[tuple[str, ast.Module | ast.ClassDef | ast.FunctionDef]] = (
            [(module, tree)] if tree.body else []
        )
        public = (
            node
            for node in ast.walk(tree)
            if isinstance(node, ast.ClassDef | ast.FunctionDef) and not node.name.startswith("_")
        )
        documented += [(f"{module}.{node.name}", node) for node in public]
        nested = {
            id(inner)
            for node in ast.walk(tree)
            if isinstance(node, ast.FunctionDef)
            for inner in ast.walk(node)
            if inner is not node
        }
        silent += [
            name
            for name, node in documented
            if id(node) not in nested and not (ast.get_docstring(node) or "").strip()
        ]
    assert not silent


def test_public_api_is_what_it_lists() -> None:
    """``policytool.__all__`` names what the package offers, and each is callable and typed."""
    assert policytool.__all__ == ["audit", "check", "diff", "inspect", "migrate"]
    for name in policytool.__all__:
        assert (
            inspect.signature(getattr(policytool, name)).return_annotation
            is not inspect.Signature.empty
        )
    assert (PACKAGE / "py.typed").is_file()
