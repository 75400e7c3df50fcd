"""
How many small errors in a package its tests notice, by the mutation operators of cosmic-ray.

Each mutant changes an operator, a number or a branch in a function. A fast test of the package
that executes the line should fail. Use a worktree of its own: the tool changes modules in place,
and restores them. A seed draws the same mutants of the same modules.

    python3 -m venv /tmp/mutants
    /tmp/mutants/bin/pip install cosmic-ray==8.7.0 coverage==7.17.4
    /tmp/mutants/bin/python -m tests.mutants --number 25 --seed 1 model rules
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import random
import subprocess
import tempfile
from collections import Counter
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

import coverage
from cosmic_ray import plugins
from cosmic_ray.ast import ast_nodes, get_ast
from cosmic_ray.mutating import use_mutation

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

FAST: Final = "not (slow or compat or browser)"
KILLED: Final = "killed"
SURVIVED: Final = "survived"
SLOW: Final = "the tests took too long"
UNTESTED: Final = "no test of the package executes the line"

Contexts = dict[str, dict[int, list[str]]]


@dataclass(frozen=True, kw_only=True, slots=True)
class Mutant:
    """A change of one line, and what the tests did with it."""

    module: str
    line: int
    operator: str
    occurrence: int
    source: str
    outcome: str = ""
    killer: str = ""


def _mutable_lines(tree: ast.Module) -> set[int]:
    """Return the lines in functions that have no annotation, whose operators never run."""
    functions = [
        node for node in ast.walk(tree) if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
    ]
    inside = {
        line
        for function in functions
        for statement in function.body
        for line in range(statement.lineno, (statement.end_lineno or 0) + 1)
    }
    annotated = {
        line
        for node in ast.walk(tree)
        for part in (getattr(node, "annotation", None), getattr(node, "returns", None))
        if isinstance(part, ast.expr)
        for line in range(part.lineno, (part.end_lineno or 0) + 1)
    }
    return inside - annotated


def _mutants(module: Path) -> Iterator[Mutant]:
    """Yield all mutants of a module."""
    text = module.read_text(encoding="utf-8")
    lines = text.splitlines()
    mutable = _mutable_lines(ast.parse(text))
    nodes = list(ast_nodes(get_ast(text)))
    for name in plugins.operator_names():
        operator_class = plugins.get_operator(name)
        if operator_class.arguments():
            continue
        operator = operator_class()
        positions = [position for node in nodes for position in operator.mutation_positions(node)]
        for occurrence, ((line, _), _) in enumerate(positions):
            if line in mutable:
                yield Mutant(
                    module=str(module),
                    line=line,
                    operator=name.removeprefix("core/"),
                    occurrence=occurrence,
                    source=lines[line - 1].strip(),
                )


def _drawn(package: str, number: int, seed: int) -> list[Mutant]:
    """Draw mutants of different lines."""
    chance = random.Random(f"{seed} {package}")  # noqa: S311  # no secrets
    by_line: dict[tuple[str, int], list[Mutant]] = {}
    for module in sorted(Path("policytool", package).rglob("*.py")):
        for mutant in _mutants(module):
            by_line.setdefault((mutant.module, mutant.line), []).append(mutant)
    drawn = chance.sample(sorted(by_line), min(number, len(by_line)))
    return [chance.choice(by_line[key]) for key in drawn]


def _pytest(python: str, *arguments: str, environment: Mapping[str, str], limit: float) -> str:
    """Return the output of the tests if one fails, and nothing otherwise."""
    command = [python, "-m", "pytest", "-q", "-p", "no:randomly", "-p", "no:cacheprovider"]
    command += ["-m", FAST, *arguments]
    done = subprocess.run(
        command,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
        timeout=limit,
    )
    return done.stdout + done.stderr if done.returncode else ""


def _contexts(package: str, python: str) -> Contexts:
    """Return which tests of the package execute each line of its modules."""
    with tempfile.TemporaryDirectory() as directory:
        file = str(Path(directory, "coverage"))
        _pytest(
            python,
            f"tests/{package}",
            f"--cov=policytool/{package}",
            "--cov-context=test",
            "--cov-report=",
            environment={"COVERAGE_FILE": file},
            limit=3600,
        )
        data = coverage.CoverageData(file)
        data.read()
        return {name: data.contexts_by_lineno(name) for name in data.measured_files()}


def _statement(mutant: Mutant) -> range:
    """Return the lines of the statement or handler of a mutant, without those of its body."""
    tree = ast.parse(Path(mutant.module).read_text(encoding="utf-8"))
    spans = []
    for node in ast.walk(tree):
        if isinstance(node, (ast.stmt, ast.ExceptHandler)):
            body = getattr(node, "body", None)
            end = body[0].lineno if body else (node.end_lineno or node.lineno) + 1
            first = min(
                [node.lineno, *(each.lineno for each in getattr(node, "decorator_list", ()))]
            )
            spans.append(range(first, max(end, node.lineno + 1)))
    return min((span for span in spans if mutant.line in span), key=len)


def _tests(mutant: Mutant, package: str, contexts: Contexts) -> list[str]:
    """Return the tests that execute a line; all of the package if a process of them does."""
    by_line = contexts.get(str(Path(mutant.module).resolve()), {})
    named = [test for line in _statement(mutant) for test in by_line.get(line, ())]
    tests = sorted({context.split("[")[0].split("|")[0] for context in named} - {""})
    return tests or [f"tests/{package}"] * bool(named)


def _judged(mutant: Mutant, tests: list[str], python: str, limit: float) -> Mutant:
    """Return the mutant with what its tests did."""
    if not tests:
        return replace(mutant, outcome=UNTESTED)
    operator = plugins.get_operator(f"core/{mutant.operator}")()
    try:
        with use_mutation(Path(mutant.module), operator, mutant.occurrence):
            output = _pytest(python, "-x", *tests, environment={}, limit=limit)
    except subprocess.TimeoutExpired:
        return replace(mutant, outcome=SLOW)
    failed = [line for line in output.splitlines() if line.startswith(("FAILED", "ERROR"))]
    return replace(mutant, outcome=KILLED if output else SURVIVED, killer="".join(failed[:1])[:200])


def main() -> None:
    """Test mutants of the packages, and print those that survive."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("packages", nargs="+")
    parser.add_argument("--tests-python", default=".venv/bin/python")
    parser.add_argument("--number", type=int, default=30, help="of mutants of each package")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--limit", type=float, default=60, help="seconds for the tests of a mutant")
    parser.add_argument("--json", type=Path, help="where the mutants are written")
    options = parser.parse_args()
    results: list[Mutant] = []
    for package in options.packages:
        contexts = _contexts(package, options.tests_python)
        outcomes: Counter[str] = Counter()
        for mutant in _drawn(package, options.number, options.seed):
            tests = _tests(mutant, package, contexts)
            result = _judged(mutant, tests, options.tests_python, options.limit)
            results.append(result)
            outcomes[result.outcome] += 1
            if result.outcome != KILLED:
                print(f"{result.module}:{result.line}: {result.operator}: {result.outcome}")
                print(f"    {result.source}", flush=True)
            if options.json is not None:
                options.json.write_text(json.dumps([asdict(each) for each in results], indent=1))
        print(f"{package}: {dict(outcomes)}", flush=True)


if __name__ == "__main__":
    main()
