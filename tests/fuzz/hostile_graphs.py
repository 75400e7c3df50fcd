"""
SavedModels with something hostile or odd in a graph: every op that leads out of it, and savers and
tables with every path that can be written.

A model runs what it holds when it is loaded. What is hostile is refused by the guard; what is odd
TensorFlow refuses, or it is harmless.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from tests.fuzz import graph_bytes as made
from tests.fuzz import hostile_names as names
from tests.fuzz.graph_bytes import (
    BOOL,
    FLOAT,
    INT,
    STRING,
    Outside,
    attribute,
    constant,
    function,
    kind,
    kinds,
    message,
    node,
    tensor,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path
    from random import Random

    from tests.fuzz.hostile_names import Paths

_OUTPUTS: Final = {
    "ReadVariableOp": "value",
    "VarHandleOp": "resource",
    "ShardedFilename": "filename",
    "HashTableV2": "table_handle",
}
_PLAIN: Final = ("model", ".part", "", "_temp/part")
"""Texts that savers join to a path."""


@dataclass
class Body:
    """A graph or a function while it is written."""

    rng: Random
    paths: Paths
    within: str = ""
    """The function's name; empty for the graph itself."""

    nodes: list[bytes] = field(default_factory=list)
    runs: list[str] = field(default_factory=list)
    """Nodes that run when the model is loaded."""

    functions: list[bytes] = field(default_factory=list)
    outside: Outside = field(default_factory=Outside)

    def add(
        self, op: str, inputs: Sequence[str] = (), *attributes: bytes, runs: bool = False
    ) -> str:
        """Add a node; return how another takes its output."""
        name = f"{self.within}n{len(self.nodes)}"
        self.nodes.append(node(name, op, inputs, *attributes))
        if runs:
            self.runs.append(name)
        return f"{name}:{_OUTPUTS.get(op, 'output')}:0" if self.within else name

    def text(self, *texts: str, length: int | None = None) -> str:
        """Add a constant with texts."""
        return self.value(STRING, *((8, text) for text in texts), length=length)

    def value(self, dtype: int, *fields: tuple[int, made.Value], length: int | None = None) -> str:
        """Add a constant."""
        return self.add(
            "Const",
            (),
            kind("dtype", dtype),
            attribute("value", 8, tensor(dtype, *fields, length=length)),
        )

    def hostile_text(self) -> str:
        """Add a constant with a path of the model's own, in one of the forms that a tensor has."""
        path = self.paths.any(self.rng)
        content = message((0, path))[1:]  # its length, then the text
        forms = (
            ((8, path),),
            ((4, content),),
            ((8, "model"), (4, content)),
            ((4, content), (8, ".part")),
        )
        if self.rng.random() < 0.2:
            name = f"{self.within}n{len(self.nodes)}"
            self.nodes.append(
                constant(name, STRING, tensor(STRING, (8, "model")), tensor(STRING, (8, path)))
            )
            return f"{name}:output:0" if self.within else name
        return self.value(STRING, *self.rng.choice(forms))

    def around(self, path: str, depth: int) -> str:
        """Hand a path through ops that savers have."""
        for _ in range(depth):
            plain = self.text(self.rng.choice(_PLAIN))
            pair = self.rng.sample((path, plain), 2)
            chosen = self.rng.randrange(5)
            if chosen == 0:
                path = self.add("Identity", (path,), kind("T", STRING))
            elif chosen == 1:
                path = self.add("StringJoin", pair, attribute("N", 3, 2))
            elif chosen == 2:
                path = self.add(
                    "SelectV2",
                    (self.value(BOOL, (11, int(pair[0] == path))), *pair),
                    kind("T", STRING),
                )
            elif chosen == 3:
                path = self.add(
                    "ShardedFilename", (path, self.value(INT, (7, 0)), self.value(INT, (7, 1)))
                )
            else:
                longer = self.add(
                    "ExpandDims",
                    (path, self.value(INT, (7, 0))),
                    kind("T", STRING),
                    kind("Tdim", INT),
                )
                path = self.add(
                    "Reshape",
                    (longer, self.value(INT, length=0)),
                    kind("T", STRING),
                    kind("Tshape", INT),
                )
        return path

    def joined(self) -> str:
        """Return a path whose separator is the model's own."""
        first, second = self.text(""), self.text(self.rng.choice(_PLAIN))
        return self.add(
            "StringJoin",
            (first, second),
            attribute("N", 3, 2),
            attribute("separator", 2, self.paths.marker),
        )

    def from_variable(self) -> str:
        """Return a path that a variable was given by another handle."""
        about = (
            kind("dtype", STRING),
            attribute("shape", 7, b""),
            attribute("shared_name", 2, "v"),
            attribute("container", 2, ""),
        )
        handles = [self.add("VarHandleOp", (), *about) for _ in range(2)]
        self.add("AssignVariableOp", (handles[0], self.hostile_text()), kind("dtype", STRING))
        before = f"^{self.within}n{len(self.nodes) - 1}"
        path = self.add("ReadVariableOp", (handles[1], before), kind("dtype", STRING))
        self.add(
            "AssignVariableOp",
            (handles[1], self.text("model"), f"^{path.partition(':')[0]}"),
            kind("dtype", STRING),
            runs=True,
        )
        return path

    def use(self, path: str, op: str) -> None:
        """Give a path to an op."""
        texts, data = self.text("a", length=1), self.value(FLOAT, (5, b"\0\0\x80?"))
        match op:
            case "SaveV2":
                self.add(
                    op,
                    (path, texts, self.text("", length=1), data),
                    kinds("dtypes", FLOAT),
                    runs=True,
                )
            case "RestoreV2":
                self.add(
                    op, (path, texts, self.text("", length=1)), kinds("dtypes", FLOAT), runs=True
                )
            case "Save":
                self.add(op, (path, texts, data), kinds("T", FLOAT), runs=True)
            case "Restore":
                self.add(op, (path, self.text("a")), kind("dt", FLOAT), runs=True)
            case "MergeV2Checkpoints":
                several = self.add("Pack", (path,), kind("T", STRING), attribute("N", 3, 1))
                self.add(
                    op, self.rng.choice(((several, self.text("model")), (several, path))), runs=True
                )
            case "InitializeTableFromTextFileV2":
                table = self.add(
                    "HashTableV2",
                    (),
                    kind("key_dtype", STRING),
                    kind("value_dtype", made.LONG),
                    attribute("shared_name", 2, "t"),
                )
                self.add(
                    op,
                    (table, path),
                    attribute("key_index", 3, -2),
                    attribute("value_index", 3, -1),
                    runs=True,
                )
            case "WriteFile":
                self.add(op, (path, self.text("x")), runs=True)
            case _:
                self.add(
                    op,
                    (path,),
                    attribute("filename", 2, self.paths.canary),
                    attribute("address", 2, "localhost:1"),
                    runs=True,
                )


_PLACED: Final = (
    "SaveV2",
    "SaveV2",
    "RestoreV2",
    "Save",
    "Restore",
    "MergeV2Checkpoints",
    "InitializeTableFromTextFileV2",
)
_SAVING: Final = tuple(op for op in _PLACED if op != "InitializeTableFromTextFileV2")


def _harmful_op(body: Body) -> None:
    body.use(
        body.hostile_text(),
        body.rng.choice((*names.ops(), "WriteFile", "ReadFile", "MatchingFiles")),
    )


def _path(body: Body) -> None:
    body.use(body.around(body.hostile_text(), body.rng.randrange(3)), body.rng.choice(_PLACED))


def _separator(body: Body) -> None:
    body.use(body.around(body.joined(), body.rng.randrange(2)), body.rng.choice(_SAVING))


def _variable(body: Body) -> None:
    body.use(body.from_variable(), body.rng.choice(_SAVING))


def _stream(body: Body) -> None:
    value = body.rng.choice(((2, f"file://{body.paths.marker}"), (9, "S")))
    body.add("PrintV2", (body.text("x"),), attribute("output_stream", *value), runs=True)


def _vocabulary(body: Body) -> None:
    classes = body.value(made.LONG, (10, b"\0"), length=1)
    numbers = (
        attribute("num_true", 3, 1),
        attribute("num_sampled", 3, 1),
        attribute("unique", 5, 1),
        attribute("range_max", 3, 1),
    )
    body.add(
        "FixedUnigramCandidateSampler",
        (classes,),
        *numbers,
        attribute("vocab_file", *body.rng.choice(((2, body.paths.canary), (9, "S")))),
        runs=True,
    )


def _argument(body: Body) -> None:
    """Call a function with a path that is no saver's."""
    name = _saving_function(body)
    path = body.hostile_text()
    given = (kinds("Tin", STRING), attribute("Tout", 1, b""))
    match body.rng.randrange(4):
        case 0:
            body.add(name, (path,), runs=True)
        case 1:
            branches = (
                made.function_attribute("then_branch", name),
                made.function_attribute("else_branch", name),
            )
            body.add(
                "If",
                (body.value(BOOL, (11, 1)), path),
                kind("Tcond", BOOL),
                *given,
                *branches,
                runs=True,
            )
        case number:
            op = "PartitionedCall" if number == 2 else "StatefulPartitionedCall"
            body.add(op, (path,), *given, made.function_attribute("f", name), runs=True)


def _twice(body: Body) -> None:
    """Write a function twice, and save in one of the two."""
    inner = Body(body.rng, body.paths, within=f"{body.within}t")
    inner.use(inner.hostile_text(), body.rng.choice(_SAVING))
    both = [function(inner.within, (), inner.nodes, inner.runs), function(inner.within, (), [], [])]
    body.functions += body.rng.sample(both, 2)
    body.nodes.append(made.call(f"{body.within}twice", inner.within, ()))
    body.runs.append(f"{body.within}twice")


def _asset(body: Body) -> None:
    """Name a file outside the model as an asset."""
    files = (
        f"../{names.CANARY}",
        f"../../{names.CANARY}",
        body.paths.canary,
        f"a/../../../{names.MARKER}",
        "s3://a/b",
    )
    body.outside.assets.append(("saver", body.rng.choice(files)))
    body.outside.collected = body.rng.random() < 0.5
    body.use("saver", "Save")


def _over_asset(body: Body) -> None:
    """Save where the loader gives an asset's path."""
    path = body.rng.choice(("saver", body.text("model")))
    body.outside.assets.append((path, "words.txt"))
    body.outside.collected = body.rng.random() < 0.5
    body.use(body.around(path, body.rng.randrange(2)), body.rng.choice(("Save", "SaveV2")))


def _over_variables(body: Body) -> None:
    """Save where the loader reads the variables."""
    body.use(body.around("saver", body.rng.randrange(2)), body.rng.choice(("Save", "SaveV2")))
    body.outside.restores = body.runs.pop()


def _saving_function(body: Body) -> str:
    """Add a function that saves where it is told to."""
    inner = Body(body.rng, body.paths, within=f"{body.within}s{len(body.functions)}")
    inner.use("path", "SaveV2")
    body.functions.append(function(inner.within, (("path", STRING),), inner.nodes, inner.runs))
    return inner.within


HOSTILE: Final[tuple[Callable[[Body], None], ...]] = (
    _harmful_op,
    _path,
    _path,
    _separator,
    _variable,
    _stream,
    _vocabulary,
    _argument,
    _twice,
    _asset,
    _over_asset,
    _over_variables,
)
_OF_GRAPHS: Final = (_asset, _over_asset, _over_variables)
"""What functions cannot have."""


def _filled_in(body: Body) -> None:
    """Let a call fill in the function that is called with a path."""
    saves, name = _saving_function(body), f"{body.within}through"
    inner = node(
        "call",
        "StatefulPartitionedCall",
        ("q",),
        kinds("Tin", STRING),
        attribute("Tout", 1, b""),
        attribute("f", 9, "F"),
    )
    body.functions.append(
        function(name, (("q", STRING),), [inner], ["call"], message((1, "F"), (2, "func")))
    )
    body.nodes.append(
        made.call(
            f"{body.within}fill", name, (body.hostile_text(),), made.function_attribute("F", saves)
        )
    )
    body.runs.append(f"{body.within}fill")


def _named_as_op(body: Body) -> None:
    """Call a function that has the name of an op which writes or reads."""
    op = body.rng.choice(("WriteFile", "ReadFile", "SaveV2", "Identity", "StringJoin"))
    body.functions.append(function(op, (("a", STRING), ("b", STRING)), [], []))
    body.add(op, (body.hostile_text(), body.text("x")), runs=True)


def _beside(body: Body) -> None:
    """Put a path where no data comes from: a control input, or the texts of a pure op."""
    path = body.hostile_text()
    plain = body.add(
        "Identity", (body.text("model"), f"^{path.partition(':')[0]}"), kind("T", STRING)
    )
    body.use(body.around(plain, body.rng.randrange(2)), "SaveV2")
    body.add("StringLower", (path,), runs=True)


def _twin_nodes(body: Body) -> None:
    """Give two nodes one name."""
    path = body.text("model")
    body.nodes.insert(
        body.rng.randrange(len(body.nodes)),
        constant(path.partition(":")[0], STRING, tensor(STRING, (8, body.paths.marker))),
    )
    body.use(path, "SaveV2")


ODD: Final[tuple[Callable[[Body], None], ...]] = (_filled_in, _named_as_op, _beside, _twin_nodes)
"""What TensorFlow refuses, or what is harmless."""


def _saved(body: Body) -> None:
    """Save where the loader says, or below the working directory as savers do."""
    body.use(
        body.around(body.text("model") if body.within else "saver", body.rng.randrange(4)),
        body.rng.choice(_SAVING),
    )
    body.runs.clear()  # nobody fills in the saver's path while the model is loaded


def _pure(body: Body) -> None:
    body.add("StringLower", (body.text(body.paths.canary),), runs=True)
    body.add(
        "PrintV2",
        (body.text(body.paths.marker),),
        attribute("output_stream", 2, "stderr"),
        runs=True,
    )


SOUND: Final[tuple[Callable[[Body], None], ...]] = (_saved, _pure)


def merged(rng: Random, paths: Paths, *puts: Callable[[Body], None]) -> bytes:
    """Return a graph with these things in it or in a function, called or not."""
    main = Body(rng, paths)
    functions: list[bytes] = []
    for number, put in enumerate(puts):
        # What runs when the model is loaded must not save, not even to the text of a saver.
        called = () if put is _saved else ("called", "called", "by-name")
        where = rng.choice(("graph", "function", *called))
        if where == "graph" or put in _OF_GRAPHS:
            put(main)
            continue
        body = Body(rng, paths, within=f"f{number}")
        put(body)
        functions += [*body.functions, function(body.within, (), body.nodes, body.runs)]
        if where == "called":
            outer = f"g{number}"
            functions.append(function(outer, (), [made.call("inner", body.within, ())], ["inner"]))
            main.nodes.append(made.call(f"call{number}", rng.choice((body.within, outer)), ()))
            main.runs.append(f"call{number}")
        elif where == "by-name":
            main.add(body.within, (), runs=True)
    run = node("run", "NoOp", [f"^{name}" for name in main.runs])
    twice = [function(f"f{len(puts)}", (), [], [])] if rng.random() < 0.2 else []
    graph = made.graph([*main.nodes, run], [*main.functions, *functions, *twice])
    return made.meta_graph([made.frame(), graph], "run", main.outside)


def write(
    rng: Random, paths: Paths, directory: Path, *, hostile: bool, odd: int = 0
) -> tuple[Path, str]:
    """
    Write a SavedModel; return its path, and what was put into it that the guard has to refuse.
    """
    puts = [*rng.choices(SOUND, k=rng.randrange(3)), *rng.choices(ODD, k=odd)]
    result = ""
    if hostile:
        put = rng.choice(HOSTILE)
        result = put.__name__.strip("_")
        puts.insert(rng.randrange(len(puts) + 1), put)
    graphs = [merged(rng, paths, *puts)]
    if odd and rng.random() < 0.2:  # a second graph alone is refused
        graphs.insert(
            rng.randrange(2),
            made.meta_graph(
                [made.frame(), made.graph([node("run", "NoOp", ())])], "run", Outside(tag="train")
            ),
        )
    return _written(directory, graphs), result


def saved(directory: Path, held: Sequence[bytes], runs: Sequence[str] = ()) -> Path:
    """Write a SavedModel of graphs that are merged, some of whose nodes run when it is loaded."""
    run = made.graph([node("run", "NoOp", [f"^{name}" for name in runs])])
    return _written(directory, [made.meta_graph([made.frame(), *held, run], "run", Outside())])


def _written(directory: Path, graphs: Sequence[bytes]) -> Path:
    folder = directory / "model"
    folder.mkdir(parents=True)
    (folder / "saved_model.pb").write_bytes(message((1, 1), *((2, item) for item in graphs)))
    return folder
