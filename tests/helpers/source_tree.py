"""The package as source: its modules, what each imports, and measures of both."""

from __future__ import annotations

import ast
import io
import tokenize
from collections import Counter, defaultdict
from dataclasses import dataclass
from functools import cache, cached_property
from typing import TYPE_CHECKING, Final, TypeVar

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

PACKAGE: Final = "policytool"
CHILDREN: Final = frozenset({"runtime"})
"""What the package that runs in TensorFlow's process is called, before and after the move."""

_Node = TypeVar("_Node", bound=ast.AST)

# fmt: off
_IRREGULAR: Final = frozenset({
    "asked", "begun", "born", "bought", "bound", "broken", "brought", "built", "caught",
    "chosen", "dealt", "done", "drawn", "driven", "eaten", "fallen", "fed", "felt", "forgotten",
    "found", "frozen", "given", "gone", "grown", "heard", "held", "hidden", "kept", "known",
    "laid", "lain", "led", "left", "lent", "lost", "made", "meant", "met", "overridden", "paid",
    "rebuilt", "remade", "rewritten", "said", "seen", "sent", "shown", "sold", "spelt", "spent",
    "spoken", "stolen", "stood", "struck", "sunk", "swept", "sworn", "taken", "taught",
    "thought", "thrown", "told", "torn", "understood", "undone", "woken", "won", "worn",
    "wound", "written",
})
# fmt: on
"""Past participles that differ from the present tense and do not end in -ed."""

_PARTICLES: Final = frozenset(
    {"", "again", "back", "by", "for", "in", "off", "on", "out", "over", "to", "up", "with"}
)
"""What may follow a participle and does not say what comes out."""

_PARTS_OF_SPEECH: Final = frozenset({"bound", "left", "need", "feed", "seed", "speed", "shed"})
"""Words of both lists that are nouns, verbs or adjectives as well."""


# fmt: off
_VAGUE: Final = frozenset({
    "one", "found", "situation", "wanted", "made", "given", "shown", "held", "told", "asked",
    "said", "spelled", "here", "there", "beyond", "alike",
})
# fmt: on
"""Identifiers that do not say what they are."""

# fmt: off
_LAYER_CLASSES: Final = frozenset({
    "BatchNormalization", "LayerNormalization", "GroupNormalization", "UnitNormalization",
    "SpectralNormalization", "Conv1D", "Conv2D", "Conv3D", "DepthwiseConv2D", "SeparableConv2D",
    "ConvLSTM2D", "Dense", "EinsumDense", "Embedding", "LSTM", "GRU", "SimpleRNN", "Bidirectional",
    "TimeDistributed", "MultiHeadAttention", "GroupQueryAttention", "Attention",
    "AdditiveAttention", "GlobalAveragePooling2D", "AveragePooling2D", "MaxPooling2D",
    "Concatenate", "Multiply", "Maximum", "Minimum", "Softmax", "LeakyReLU", "PReLU",
    "Discretization", "StringLookup", "IntegerLookup", "TextVectorization", "Normalization",
    "Rescaling", "Dropout", "SpatialDropout1D", "ZeroPadding2D", "Cropping2D", "UpSampling2D",
    "Reshape", "Flatten", "Permute", "RepeatVector", "Masking", "TFOpLambda", "SlicingOpLambda",
    "TensorFlowOpLayer",
})
# fmt: on
"""A sample of layer classes, whose names show that a module knows facts of single classes."""

_OF_CLASSES: Final = frozenset({"rules", "rewrites", "troubleshooting", "data"})
"""Packages whose modules are about single classes."""


@cache
def parse(text: str) -> ast.Module:
    """Return the syntax tree of a module, which tests share."""
    return ast.parse(text)


@cache
def walk(tree: ast.Module) -> tuple[ast.AST, ...]:
    """Return all nodes of a module."""
    return tuple(ast.walk(tree))


@dataclass(frozen=True, kw_only=True)
class SourceTree:
    """The modules of a checkout's package."""

    root: Path

    @cached_property
    def trees(self) -> Mapping[str, ast.Module]:
        """Each module's syntax tree, by its name below the package; ``__init__`` is the package."""
        return {name: parse(text) for name, text in self.texts.items()}

    @cached_property
    def texts(self) -> Mapping[str, str]:
        """Each module's text."""
        package = self.root / PACKAGE
        found = {}
        for file in sorted(package.rglob("*.py")):
            parts = file.relative_to(package).with_suffix("").parts
            name = ".".join(part for part in parts if part != "__init__") or "__init__"
            found[name] = file.read_text(encoding="utf-8")
        return found

    @cached_property
    def imports(self) -> Mapping[str, frozenset[str]]:
        """The modules that each module imports, in functions and for type checkers as well."""
        return {
            name: frozenset(self._module(found) for found in imported_names(tree, f"{name}."))
            - {name}
            for name, tree in self.trees.items()
        }

    def _module(self, name: str) -> str:
        while name not in self.texts:
            name, dot, _ = name.rpartition(".")
            if not dot:
                return "__init__"
        return name

    @cached_property
    def rooms(self) -> Mapping[str, frozenset[str]]:
        """
        The packages and modules directly below the package, and which others each imports; the
        child process's stands alone.
        """
        actual: dict[str, set[str]] = {room(name): set() for name in self.texts}
        for name, imports in self.imports.items():
            actual[room(name)] |= {room(other) for other in imports} - {room(name)}
        return {name: frozenset(below) for name, below in actual.items()}

    @cached_property
    def floors(self) -> int:
        """The length of the longest way down through the rooms; rooms of a cycle share a floor."""
        cycle_of = {name: cycle for cycle in cycles(self.rooms) for name in cycle}
        depth: dict[str, int] = {}

        def descend(name: str) -> int:
            if name not in depth:
                mine = cycle_of.get(name, frozenset({name}))
                below = frozenset().union(*(self.rooms[item] for item in mine)) - mine
                depth.update(dict.fromkeys(mine, 1 + max(map(descend, below), default=0)))
            return depth[name]

        return max(map(descend, self.rooms))

    @cached_property
    def code_statements(self) -> int:
        """How many statements there are, imports and docstrings left out."""
        return sum(
            isinstance(node, ast.stmt)
            and not isinstance(node, ast.Import | ast.ImportFrom)
            and not (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant))
            for tree in self.trees.values()
            for node in walk(tree)
        )

    @cached_property
    def vague_words(self) -> float:
        """How many of 1,000 identifiers and keywords are a word that says nothing."""
        words = [
            token.string
            for text in self.texts.values()
            for token in tokenize.generate_tokens(io.StringIO(text).readline)
            if token.type == tokenize.NAME
        ]
        return 1000 * sum(word in _VAGUE for word in words) / len(words)

    @cached_property
    def modules_naming_layer_classes(self) -> tuple[str, ...]:
        """The modules that name layer classes, without those that are about single classes."""
        return tuple(
            name
            for name, texts in self._strings.items()
            if texts & _LAYER_CLASSES and not _OF_CLASSES & set(name.split("."))
        )

    @cached_property
    def modules_reading_class_name(self) -> tuple[str, ...]:
        """The modules that read or write Keras' JSON key of a class."""
        return tuple(name for name, texts in self._strings.items() if "class_name" in texts)

    @cached_property
    def _strings(self) -> Mapping[str, frozenset[str]]:
        """The texts in each module, docstrings left out."""
        return {
            name: frozenset(
                node.value
                for node in walk(tree)
                if isinstance(node, ast.Constant) and isinstance(node.value, str)
            )
            - {
                statement.value.value
                for statement in walk(tree)
                if isinstance(statement, ast.Expr)
                and isinstance(statement.value, ast.Constant)
                and isinstance(statement.value.value, str)
            }
            for name, tree in self.trees.items()
        }

    def code_lines(self, *, child: bool) -> int:
        """Return the lines that hold code: no blank lines, comments or docstrings."""
        return sum(
            len(_code_lines(text, self.trees[name]))
            for name, text in self.texts.items()
            if (room(name) in CHILDREN) == child
        )

    @cached_property
    def functions(self) -> tuple[str, ...]:
        """The names of all functions and methods, the child process's left out."""
        return tuple(node.name for node in self._nodes(ast.FunctionDef))

    @cached_property
    def lone_participles(self) -> tuple[str, ...]:
        """The names among them that are a past participle and nothing else."""
        return tuple(name for name in self.functions if is_participle(name.strip("_")))

    @cached_property
    def repeated_classes(self) -> tuple[str, ...]:
        """The public class names that stand in several modules."""
        names = Counter(
            node.name for node in self._nodes(ast.ClassDef) if not node.name.startswith("_")
        )
        return tuple(sorted(name for name, count in names.items() if count > 1))

    @cached_property
    def private_imports(self) -> tuple[tuple[str, str], ...]:
        """Imports of a module whose name begins with an underscore from outside its package."""
        return tuple(
            (name, other)
            for name, imports in sorted(self.imports.items())
            for other in sorted(imports)
            if (at := f".{other}".find("._")) >= 0 and not f".{name}".startswith(f".{other}"[:at])
        )

    def _nodes(self, kind: type[_Node]) -> Iterator[_Node]:
        for name, tree in self.trees.items():
            if room(name) not in CHILDREN:
                yield from (node for node in walk(tree) if isinstance(node, kind))


def room(name: str) -> str:
    """Return the package that a module is in; its own name directly below ``policytool``."""
    return name.partition(".")[0]


def imported_names(tree: ast.Module, module: str) -> Iterator[str]:
    """Yield the names below ``policytool`` that a module imports, relative ones resolved."""
    for node in walk(tree):
        match node:
            case ast.Import(names=names):
                yield from (
                    alias.name.partition(".")[2] for alias in names if room(alias.name) == PACKAGE
                )
            case ast.ImportFrom(module=str(source), names=names, level=0) if (
                room(source) == PACKAGE
            ):
                below = source.partition(".")[2]
                yield from (f"{below}.{alias.name}".lstrip(".") for alias in names)
            case ast.ImportFrom(level=level) if level:
                parts = module.split(".")[:-level]
                source = ".".join((*parts, *((node.module,) if node.module else ())))
                yield from (f"{source}.{alias.name}" for alias in node.names)


def reachable(start: str, graph: Mapping[str, frozenset[str]]) -> frozenset[str]:
    """Return the nodes that a way from a node leads to, itself if it is in a cycle."""
    seen: set[str] = set()
    pending = [*graph[start]]
    while pending:
        if (name := pending.pop()) not in seen:
            seen.add(name)
            pending += graph[name]
    return frozenset(seen)


def cycles(graph: Mapping[str, frozenset[str]]) -> tuple[frozenset[str], ...]:
    """Return the groups of nodes that reach each other."""
    reached = {start: reachable(start, graph) for start in graph}
    groups: dict[frozenset[str], None] = defaultdict()
    for name, found in reached.items():
        group = frozenset({name, *(other for other in found if name in reached[other])})
        if len(group) > 1:
            groups[group] = None
    return tuple(groups)


def is_participle(word: str) -> bool:
    """Return whether a name is a past participle and no more: ``told``, ``carried_out``."""
    first, _, particle = word.partition("_")
    return (
        particle in _PARTICLES
        and first not in _PARTS_OF_SPEECH
        and (first in _IRREGULAR or first.endswith("ed"))
    )


def _code_lines(text: str, tree: ast.Module) -> set[int]:
    skipped = {
        line
        for node in walk(tree)
        if isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
        for line in range(node.lineno, (node.end_lineno or node.lineno) + 1)
    }
    layout = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT}
    return {
        line
        for token in tokenize.generate_tokens(io.StringIO(text).readline)
        if token.type not in {*layout, tokenize.ENDMARKER}
        for line in range(token.start[0], token.end[0] + 1)
    } - skipped
