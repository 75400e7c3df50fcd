"""Imports point down, each library has one home, and packages list all of their members."""

from __future__ import annotations

import ast
import functools
import importlib
import inspect
import json
import pkgutil
import re
from types import FunctionType
from typing import TYPE_CHECKING, Any, Final

import pytest

import policytool
from policytool import formats
from policytool.formats.creating import Creator
from policytool.reports import (
    Reporter,
    checks,
    differences,
    explanations,
    findings,
    inspection,
    plans,
    summaries,
    tuning,
)
from policytool.reports.fields import Report
from tests.contracts.format_contract import FormatContract
from tests.helpers.marks import PARSING, THOROUGH
from tests.helpers.paths import PACKAGE, ROOT
from tests.helpers.source_tree import SourceTree, cycles, room, walk

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from types import ModuleType

    from policytool.formats import Format

ORDER: Final = (
    ("cli", "results"),
    ("reports",),
    ("commands",),
    ("troubleshooting",),
    ("rules", "numerics"),
    ("migration", "comparison"),
    ("model",),
    ("formats",),
    ("releases",),
    ("support",),
)
"""The packages from the top down: each imports only from lines below its own."""

CHILD: Final = "runtime"
"""
What runs in a process of its own, under another name and possibly another Python: it may import
TensorFlow, it imports its own modules relatively, and nothing here imports it.
"""

ENTRIES: Final = ("__main__", "__init__", "api")
"""The modules beside the packages, above all of these."""

HOMES: Final = {
    "h5py": {"formats.hdf5", CHILD},
    "jinja2": {"reports.html"},
    "markupsafe": {"reports.html"},
    "ml_dtypes": {"formats.casting"},
    "google": {"support.text.protobuf_messages"},
    "google_crc32c": {"formats.checkpoint.bundle._index"},
    "yaml": {"support.text.yamltext"},
    "rich": {"reports", "cli.messages"},
    "click": {"cli"},
    "tensorflow": {CHILD},
    "pandas": {"results"},
    "pyarrow": {"reports.rows"},
    "tensorstore": {"formats.orbax.array_process"},
}
"""Third-party library to the modules, or packages, that may import it."""

OPTIONAL: Final = {
    "check, tune and load": (
        {
            "numerics",
            *(f"commands.{name}" for name in ("check", "check_options", "check_run")),
            *(f"commands.{name}" for name in ("check_recordings", "check_releases")),
            *(f"commands.{name}" for name in ("check_trials", "load")),
            *(f"commands.{name}" for name in ("quantized_model", "tune", "tune_run")),
            *("commands.arguments.running", "cli.check_command", "cli.tune_command"),
            *("reports.checks", "reports.tuning", "results.change", "api"),
            "results.program_values",
        },
        {
            "numerics.tensorflow_run",
            "numerics.predictions",
            "numerics.verification",
            "numerics.workers",
            "numerics.environments",
            "api",
            "results.change",
        },
    ),
    "remote files": (
        {
            *(f"support.files.{name}" for name in ("remote", "remote_path", "remote_requests")),
            *(f"support.files.{name}" for name in ("remote_stream", "mlflow_registry")),
            *(f"support.files.{name}" for name in ("opening", "transfers")),
            "commands.remote_migration",
        },
        {
            "support.files.remote_path",
            "support.files.opening",
            "support.files.transfers",
            "commands.remote_migration",
        },
    ),
    "fleets": (
        {"commands.batch", "cli.fleets", "commands.merge", "cli.merge_command"},
        {
            "commands.batch.task",
            "commands.batch.parallel",
            "commands.batch.isolation",
            "cli.fleets",
        },
    ),
}
"""
Each optional part to its modules and packages, and to those that other modules may import: the core
(to read, judge, audit, migrate, compare and explain) can be owned without the rest of a part.
"""

PAGES: Final = 3
"""The first reporters of each command render its page: as text, as Markdown and as HTML."""

BANNED: Final = {"tensorflow", "keras", "tf_keras", "pickle", "marshal", "shelve"}
RESTRICTING: Final = ("commands.batch.cluster", "pickle")
"""The module that limits what Dask unpickles, for which it derives from pickle's class."""

"""What executes things from files, or takes seconds to import."""


pytestmark = PARSING

TREE: Final = SourceTree(root=ROOT)


def _imports(tree: ast.Module) -> Iterator[str]:
    """
    Yield the full names that a module imports, at its top, in functions, and for type checkers.
    """
    for node in walk(tree):
        match node:
            case ast.Import(names=names):
                yield from (alias.name for alias in names)
            case ast.ImportFrom(module=str() as module, names=names, level=0):
                yield from (f"{module}.{alias.name}" for alias in names)
            case ast.ImportFrom(level=level) if level:
                yield f"relative import of {node.module}"


@functools.cache
def _every_import() -> Mapping[str, frozenset[str]]:
    """Return the full names that each module imports."""
    return {module: frozenset(_imports(tree)) for module, tree in TREE.trees.items()}


def _violations(imports: Mapping[str, frozenset[str]]) -> set[tuple[str, str]]:
    """Return the imports that go up, or across a line, each as importer and imported module."""
    level = {name: number for number, names in enumerate(ORDER) for name in names}
    level |= {entry: -1 - place for place, entry in enumerate(reversed(ENTRIES))}
    return {
        (module, name)
        for module, names in imports.items()
        for name in names
        if CHILD not in {room(module), room(name)}
        and room(module) != room(name)
        and level[room(name)] <= level[room(module)]
    }


@THOROUGH
def test_the_packages_are_those_declared() -> None:
    """A new package is placed on purpose, and one that is gone leaves no place."""
    assert set(TREE.rooms) == {name for line in ORDER for name in line} | {CHILD, *ENTRIES}


def test_imports_point_down() -> None:
    """No import goes up, those in functions and for type checkers included."""
    assert not _violations(TREE.imports)


def test_an_upward_import_is_found() -> None:
    """One import that goes up, or to a package of the same line, breaks the order."""
    for upward in (("support.limits", "cli.main"), ("rules.base", "numerics.workers")):
        module, name = upward
        more = {**TREE.imports, module: TREE.imports[module] | {name}}
        assert _violations(more) == {upward}


def test_modules_make_no_cycle() -> None:
    """Modules can be put in one order, imports in functions and for type checkers included."""
    assert not cycles(TREE.imports)


def test_private_modules_are_imported_only_in_their_package() -> None:
    """A module whose name begins with an underscore belongs to its package."""
    assert not TREE.private_imports


def test_no_module_hides_a_public_function() -> None:
    """Importing a module below ``policytool`` must not replace a public function."""
    planned = {"inspect", "audit", "migrate", "check", "diff", "tune", "explain"}
    assert not set(TREE.rooms) & (planned | set(policytool.__all__))


@pytest.mark.parametrize("library", sorted(HOMES))
def test_each_library_has_one_home(library: str) -> None:
    """A third-party library is imported in its home and nowhere else."""
    importers = {
        module
        for module, names in _every_import().items()
        if any(name.partition(".")[0] == library for name in names)
    }
    assert importers
    assert all(
        any(module == home or module.startswith(f"{home}.") for home in HOMES[library])
        for module in importers
    ), importers


@THOROUGH
def test_no_module_imports_libraries_that_execute_files() -> None:
    """No module imports TensorFlow, Keras, or a format of Python that runs code when read."""
    actual = {
        (module, name)
        for module, names in _every_import().items()
        if room(module) != CHILD
        for name in names
        if name.partition(".")[0] in BANNED or name.startswith("relative")
    }
    assert actual == {RESTRICTING}


def test_child_process_is_independent_of_the_package() -> None:
    """
    No module imports the code of the child, and the child imports nothing of policytool, because
    another interpreter lacks it.
    """
    imports = _every_import()
    assert not {
        module
        for module, names in imports.items()
        if any(name.startswith(f"policytool.{CHILD}") for name in names)
    }
    assert not {
        (module, name)
        for module, names in imports.items()
        if room(module) == CHILD
        for name in names
        if name.startswith("policytool")
    }


def test_child_process_is_written_for_python_3_7() -> None:
    """The oldest supported TensorFlow runs under Python 3.7."""
    for file in (PACKAGE / CHILD).rglob("*.py"):
        text = file.read_text(encoding="utf-8")
        for node in ast.walk(ast.parse(text, feature_version=(3, 7))):
            # Python 3.7 needs these parentheses, which `feature_version` does not check.
            if isinstance(node, ast.AnnAssign | ast.Return) and isinstance(node.value, ast.Tuple):
                is_newer = isinstance(node, ast.AnnAssign) or any(
                    isinstance(element, ast.Starred) for element in node.value.elts
                )
                segment = ast.get_source_segment(text, node.value)
                assert not is_newer or str(segment).startswith("("), (file.name, node.lineno)


@pytest.mark.parametrize("part", OPTIONAL)
def test_optional_parts_are_used_through_their_interface(part: str) -> None:
    """No other module imports an internal module of an optional part."""
    members, interface = OPTIONAL[part]

    def is_member(module: str) -> bool:
        return any(module == name or module.startswith(f"{name}.") for name in members)

    used = {
        imported
        for module, imports in TREE.imports.items()
        if not is_member(module)
        for imported in imports
        if is_member(imported)
    }
    assert used == interface


@THOROUGH
def test_nothing_evaluates_text() -> None:
    """``eval``, ``exec`` and ``compile`` of text from files have no place here."""
    calls = {
        (module, node.func.id)
        for module, tree in TREE.trees.items()
        for node in walk(tree)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id in {"eval", "exec", "compile", "__import__"}
    }
    assert not calls


@THOROUGH
def test_only_the_code_of_trusted_lambdas_becomes_a_module() -> None:
    """
    :meth:`policytool.numerics.hand_over.HandOver.functions` writes it if the user trusts it. The
    child process also imports its own package from a file.
    """
    modules = {
        module
        for module, tree in TREE.trees.items()
        for node in walk(tree)
        if isinstance(node, ast.Attribute) and node.attr == "exec_module"
    }
    assert modules == {"commands.load", "runtime.library", "runtime.__main__"}


@pytest.mark.parametrize(
    ("package", "listed"),
    [
        (inspection, inspection.REPORTERS[PAGES:]),
        (summaries, summaries.SUMMARY_REPORTERS[PAGES:]),
        (plans, plans.PLAN_REPORTERS[PAGES:]),
        (differences, differences.DIFFERENCE_REPORTERS[PAGES:]),
        (findings, findings.FINDING_REPORTERS[PAGES:]),
        (checks, checks.CHECK_REPORTERS[PAGES:]),
        (tuning, tuning.TUNE_REPORTERS[PAGES:]),
        (explanations, explanations.EXPLANATION_REPORTERS[PAGES:]),
    ],
    ids=[
        "reports",
        "summary reports",
        "plan reports",
        "difference reports",
        "finding reports",
        "check reports",
        "tune reports",
        "explain reports",
    ],
)
def test_reports_list_every_reporter(
    package: ModuleType, listed: tuple[Reporter[Any], ...]
) -> None:
    """
    The module ``fields`` declares the JSON report, and the columns of rows if there are any; every
    other public module declares a reporter, which is in the tuple, once. A report may
    be one module.
    """
    modules = {
        info.name: importlib.import_module(f"{package.__name__}.{info.name}")
        for info in pkgutil.iter_modules(getattr(package, "__path__", ()))
        if not (info.name.startswith("_") or info.ispkg)
    }
    fields = modules.pop("fields", package)
    assert isinstance(fields.REPORT, Report)
    of_fields = {"json", "csv"} if hasattr(fields, "ROW_COLUMNS") else {"json"}
    declared = [module.REPORTER for module in modules.values()]
    assert all(isinstance(member, Reporter) for member in declared)
    assert all(any(member is entry for entry in listed) for member in declared)
    names = [entry.name for entry in listed]
    assert sorted(names) == sorted([*of_fields, *(member.name for member in declared)])


FORMAT_PACKAGES: Final = sorted(
    module.split(".")[1]
    for module, text in TREE.texts.items()
    if module.startswith("formats.") and re.search(r"^FORMAT: ", text, re.MULTILINE)
)


def test_every_format_is_listed_once() -> None:
    """Every module of ``formats`` that declares a format is listed."""
    declared = {id(_declared(package)): package for package in FORMAT_PACKAGES}
    assert declared.keys() == {id(listed) for listed in formats.FORMATS}
    assert len(formats.FORMATS) == len(FORMAT_PACKAGES)


@pytest.mark.parametrize("package", FORMAT_PACKAGES)
def test_format_declares_the_abilities_of_its_modules(package: str) -> None:
    """The declaration is complete, and each ability of a module is declared."""
    declared = _declared(package)
    assert (declared.file_changes is not None) == declared.is_rewritten
    defined = {
        node.name
        for module, tree in TREE.trees.items()
        if f"{module}.".startswith(f"formats.{package}.")
        for node in tree.body
        if isinstance(node, ast.FunctionDef)
    }
    for function, found, kind in (
        ("file_changes", declared.file_changes, FunctionType),
        ("creator", declared.creator, Creator),
        ("open_values", declared.open_values, FunctionType),
    ):
        if function in defined:
            assert isinstance(found, kind)
        else:
            assert found is None


@pytest.mark.parametrize("package", FORMAT_PACKAGES)
def test_each_format_has_one_format_contract(package: str) -> None:
    """
    The module ``test_read`` of a format subclasses FormatContract, the tests that all formats
    share.
    """
    tests = vars(importlib.import_module(f"tests.formats.{package}.test_read")).values()
    classes = [value for value in tests if isinstance(value, type)]
    assert [
        contract.package
        for contract in classes
        if issubclass(contract, FormatContract) and contract is not FormatContract
    ] == [package]


def _declared(package: str) -> Format:
    declared: Format = importlib.import_module(f"policytool.formats.{package}").FORMAT
    assert declared.package == f"policytool.formats.{package}"
    return declared


def test_formats_of_like_documents_have_one_title() -> None:
    """Reports know a document by its format only."""
    titles = {(listed.document_format, listed.title) for listed in formats.FORMATS}
    assert dict(titles) == formats.TITLES
    assert len(titles) == len(formats.TITLES)


@pytest.mark.parametrize(
    ("command", "listed"),
    [
        *((command, set(formats.TITLES)) for command in ("inspect", "audit", "diff")),
        *((command, formats.REWRITTEN) for command in ("migrate", "tune")),
    ],
)
def test_schemas_list_every_document_format(command: str, listed: set[str]) -> None:
    schema = (PACKAGE / f"reports/schemas/{command}.schema.json").read_text(encoding="utf-8")
    enums: list[list[str]] = []

    def collect(found: dict[str, Any]) -> dict[str, Any]:
        if "enum" in found.get("format", {}):
            enums.append(found["format"]["enum"])
        return found

    json.loads(schema, object_hook=collect)
    assert list(map(set, enums)) == [listed]


@THOROUGH
def test_everything_public_has_a_docstring() -> None:
    """
    Public modules, classes, functions, methods and properties have docstrings that begin with a
    sentence.
    """
    silent = []
    for module, tree in TREE.trees.items():
        documented: list[tuple[str, ast.Module | ast.ClassDef | ast.FunctionDef]] = (
            [(module, tree)] if tree.body else []
        )
        public = (
            node
            for node in walk(tree)
            if isinstance(node, ast.ClassDef | ast.FunctionDef) and not node.name.startswith("_")
        )
        documented += [(f"{module}.{node.name}", node) for node in public]
        nested = {
            id(inner)
            for node in walk(tree)
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


def test_public_api_has_typed_functions_classes_and_a_version() -> None:
    """``policytool.__all__`` lists the public names of the package."""
    public = {name: getattr(policytool, name) for name in policytool.__all__}
    functions = {name: one for name, one in public.items() if isinstance(one, FunctionType)}
    commands = ["audit", "check", "diff", "explain", "inspect", "migrate", "tune"]
    assert [*functions] == sorted([*commands, "load"])
    for function in map(public.get, commands):
        assert isinstance(function, FunctionType)
        returned = inspect.signature(function).return_annotation
        assert isinstance(public[returned], type)
    others = {name for name, one in public.items() if not isinstance(one, FunctionType | type)}
    assert others == {"__version__"}
    assert (PACKAGE / "py.typed").is_file()
