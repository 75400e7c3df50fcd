"""Inputs of random graphs, with the layers that make floats of them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from tests.random_models.description import InputSpec, Node
from tests.random_models.samples import WORDS
from tests.random_models.steps import Value

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tests.random_models.description import Shape
    from tests.random_models.drawing import Draw


@dataclass(frozen=True, kw_only=True, slots=True)
class Entry:
    """An input, and the value that a graph goes on with."""

    spec: InputSpec
    nodes: tuple[Node, ...]
    value: Value


def _length(draw: Draw) -> tuple[int | None, int]:
    """Return the declared and the true length of a sequence."""
    if draw.chance(0.35):
        return None, draw.open_length
    length = draw.whole(3, 8)
    return length, length


def _floats(draw: Draw, shape: Shape, sample: Shape, values: str = "normal") -> Entry:
    spec = InputSpec(id=draw.fresh(), shape=shape, sample=sample, values=values)
    origin = spec.id if len(shape) > 2 else ""
    return Entry(spec=spec, nodes=(), value=Value(ref=spec.id, shape=shape, origin=origin))


def vector(draw: Draw) -> Entry:
    """Return an input of numbers."""
    size = draw.units()
    return _floats(draw, (size,), (size,))


def sequence(draw: Draw) -> Entry:
    """Return an input of steps without a mask."""
    declared, length = _length(draw)
    channels = draw.units()
    return _floats(draw, (declared, channels), (length, channels))


def padded(draw: Draw) -> Entry:
    """Return an input of steps that a Masking layer follows."""
    declared, length = _length(draw)
    channels = draw.units()
    entry = _floats(draw, (declared, channels), (length, channels), "padded")
    masking = Node(
        id=draw.fresh(), what="Masking", inputs=(entry.spec.id,), config={"mask_value": 0.0}
    )
    value = Value(ref=masking.id, shape=entry.value.shape)
    return Entry(spec=entry.spec, nodes=(masking,), value=value)


def ids(draw: Draw) -> Entry:
    """Return an input of whole numbers with padding, and their embedding."""
    declared, length = _length(draw)
    return _embedded(draw, declared, length, masked=draw.chance(0.8))


def _embedded(draw: Draw, declared: int | None, length: int, *, masked: bool) -> Entry:
    bound, channels = draw.whole(5, 20), draw.units()
    spec = InputSpec(
        id=draw.fresh(),
        shape=(declared,),
        sample=(length,),
        dtype=draw.pick(("int32", "int32", "int64", "float32")),
        values="ids",
        bound=bound,
    )
    config: dict[str, Any] = {"input_dim": bound, "output_dim": channels, "mask_zero": masked}
    if not draw.keras3 and declared is not None and draw.chance(0.3):
        config["input_length"] = declared
    config |= draw.parts("embeddings")
    node = Node(id=draw.fresh(), what="Embedding", inputs=(spec.id,), config=config)
    return Entry(spec=spec, nodes=(node,), value=Value(ref=node.id, shape=(declared, channels)))


def categories(draw: Draw) -> Entry:
    """Return an input of categories: encoded, or embedded and flattened."""
    bound, size = draw.whole(3, 8), draw.whole(1, 3)
    spec = InputSpec(
        id=draw.fresh(), shape=(size,), sample=(size,), dtype="int32", values="ints", bound=bound
    )
    if draw.chance(0.5):
        config: dict[str, Any] = {"num_tokens": bound, "output_mode": "multi_hot"}
        node = Node(id=draw.fresh(), what="CategoryEncoding", inputs=(spec.id,), config=config)
        return Entry(spec=spec, nodes=(node,), value=Value(ref=node.id, shape=(bound,)))
    channels = draw.units()
    config = {"input_dim": bound, "output_dim": channels}
    node = Node(id=draw.fresh(), what="Embedding", inputs=(spec.id,), config=config)
    flat = Node(id=draw.fresh(), what="Flatten", inputs=(node.id,))
    return Entry(spec=spec, nodes=(node, flat), value=Value(ref=flat.id, shape=(size * channels,)))


def numbers(draw: Draw) -> Entry:
    """Return an input of whole numbers that are looked up or hashed, and encoded or embedded."""
    bound, size = draw.whole(3, 8), draw.whole(1, 3)
    spec = InputSpec(
        id=draw.fresh(), shape=(size,), sample=(size,), dtype="int64", values="ints", bound=bound
    )
    modes = ("int", "multi_hot", "count") if size > 1 else ("int", "one_hot", "multi_hot")
    mode = draw.pick(modes)
    vocabulary: list[Any] = list(range(1, draw.whole(2, bound)))
    what = draw.pick(("IntegerLookup", "StringLookup", "Hashing"))
    if what == "StringLookup":
        spec = replace(spec, dtype="string", values="words")
        vocabulary = list(WORDS[:3])
    config: dict[str, Any] = {"vocabulary": vocabulary, "output_mode": mode}
    tokens = len(vocabulary) + 1
    if what == "Hashing":
        config, tokens = {"num_bins": 5, "output_mode": mode}, 5
    elif draw.chance(0.3):
        config["num_oov_indices"] = draw.pick((0, 2)) if what == "IntegerLookup" else 2
        tokens += config["num_oov_indices"] - 1
    if what == "IntegerLookup" and config.get("num_oov_indices") == 0:
        spec = replace(spec, bound=2)
        config["vocabulary"], tokens = [0, 1], 2
    node = Node(id=draw.fresh(), what=what, inputs=(spec.id,), config=config)
    if mode != "int":
        return Entry(spec=spec, nodes=(node,), value=Value(ref=node.id, shape=(tokens,)))
    last = Node(
        id=draw.fresh(),
        what="Embedding",
        inputs=(node.id,),
        config={"input_dim": tokens, "output_dim": 3},
    )
    return Entry(spec=spec, nodes=(node, last), value=Value(ref=last.id, shape=(size, 3)))


def words(draw: Draw) -> Entry:
    """Return an input of text that is looked up or hashed, and embedded."""
    size = draw.whole(1, 4)
    what = draw.pick(("StringLookup", "Hashing", "TextVectorization"))
    vocabulary = list(WORDS[:3])
    config: dict[str, Any] = {"vocabulary": vocabulary}
    if what == "Hashing":
        config = {"num_bins": 6}
    if what == "TextVectorization":
        size, config = 1, {**config, "output_sequence_length": 3}
    spec = InputSpec(id=draw.fresh(), shape=(size,), sample=(size,), dtype="string", values="words")
    lookup = Node(id=draw.fresh(), what=what, inputs=(spec.id,), config=config)
    channels = draw.units()
    node = Node(
        id=draw.fresh(),
        what="Embedding",
        inputs=(lookup.id,),
        config={"input_dim": 8, "output_dim": channels, "mask_zero": draw.chance(0.4)},
    )
    length = 3 if what == "TextVectorization" else size
    return Entry(
        spec=spec, nodes=(lookup, node), value=Value(ref=node.id, shape=(length, channels))
    )


def bins(draw: Draw) -> Entry:
    """Return an input of numbers that are put in bins and encoded or embedded."""
    size = draw.whole(1, 3)
    entry = _floats(draw, (size,), (size,))
    config: dict[str, Any] = {"bin_boundaries": [-1.0, 0.0, 0.5]}
    if draw.chance(0.3):
        config = {"num_bins": 4, "adapt": [size]}
    node = Node(id=draw.fresh(), what="Discretization", inputs=(entry.spec.id,), config=config)
    if draw.chance(0.5):
        last = Node(
            id=draw.fresh(),
            what="CategoryEncoding",
            inputs=(node.id,),
            config={"num_tokens": 4, "output_mode": "multi_hot"},
        )
        return Entry(spec=entry.spec, nodes=(node, last), value=Value(ref=last.id, shape=(4,)))
    last = Node(
        id=draw.fresh(),
        what="Embedding",
        inputs=(node.id,),
        config={"input_dim": 4, "output_dim": 3},
    )
    return Entry(spec=entry.spec, nodes=(node, last), value=Value(ref=last.id, shape=(size, 3)))


def image(draw: Draw) -> Entry:
    """Return an input of images."""
    channels = draw.pick((1, 3, 3, 4))
    height, width = draw.whole(4, 8), draw.whole(4, 8)
    open_size = draw.chance(0.25)
    shape = (None, None, channels) if open_size else (height, width, channels)
    values = draw.pick(("normal", "image"))
    return _floats(draw, shape, (height, width, channels), values)


def volume(draw: Draw) -> Entry:
    """Return an input of volumes, or of sequences of images."""
    shape = (*(draw.whole(3, 5) for _ in range(3)), draw.whole(1, 3))
    declared = (None, *shape[1:]) if draw.chance(0.2) else shape
    return _floats(draw, declared, shape)


ENTRIES: Final[Mapping[Callable[[Draw], Entry], int]] = {
    vector: 4,
    sequence: 3,
    padded: 3,
    ids: 6,
    categories: 2,
    words: 1,
    numbers: 1,
    bins: 1,
    image: 5,
    volume: 1,
}
"""How often each kind of input is drawn."""
