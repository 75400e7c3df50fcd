"""
How values for an input are drawn: in the range of what the layers that it reaches accept; and
seeded inputs for a model, one at a time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ..facts import facts
from ..library import Refused, child_layers, paths
from .reached_layers import (
    CHANGED,
    WHOLE,
    ReachedLayer,
    count_ids,
    input_statistics,
    is_operation,
    layers_reached,
    takes_ids,
)
from .slots import Slot, are_ids, model_inputs

if TYPE_CHECKING:
    from typing import Any, Callable, Sequence

    Draw = Callable[[Any, Sequence[int]], Any]
    from typing import Any, Iterator, Sequence

    from ..library import Library


SMALL_IDS = 16
"""The upper bound of integers that no known layer uses."""

PIXELS = 256
WORDS = ("", "red", "green", "blue", "a longer text of several words")
UNHEARD = "unheard-of"
_KNOWN = 1000
"""The number of words that are drawn from a vocabulary, its first words."""

_BRIGHT = 4.0
"""The maximum of 255 after a layer that scales images, which is usually 1 or 2."""

_SEQUENCE_RANK = 2
_IMAGE_RANK = 4
_CHANNELS = (1, 3, 4)
UNSCALED = (1.0, 0.0)
"""The factor and the offset of values that no Rescaling changed."""

EXACT = {"float16": 2048, "bfloat16": 256}
"""The limits below which a float dtype represents every integer."""


SPREAD = 3.0
"""The end of the range of normally distributed values, in standard deviations."""


class Recipe:
    """The values for an input."""

    def __init__(
        self, how: str, draw: Draw, edges: tuple[Any, Any] = (-SPREAD, SPREAD), constant: Any = 1.0
    ) -> None:
        self.how = how
        self.edges = edges
        """The lowest and the highest values: numbers, words, or arrays of one for each feature."""

        self.constant = constant
        """A positive value of the range, or one that is once it is normalized, in the same form."""

        self.is_scalable = False
        """Whether they are float values that may be larger: not IDs, masks or text."""

        self.is_mask = False
        """Whether its ones say which places of a sequence count."""

        self.draw = draw
        """
        A function of NumPy's random state and a shape that returns an array of about the input's
        dtype.
        """

        self.padding: float | None = None
        """The padding value after the end of a sequence; None if sequences are not padded."""

        self.limit: tuple[int, str] | None = None
        """
        The number of ids, and the name of the layer that uses them; None if the layer gets only a
        part of the input.
        """

    @property
    def range(self) -> list[float] | None:
        """The lowest and the highest value; None for text."""
        lowest, highest = (np.asarray(edge) for edge in self.edges)
        if lowest.dtype.kind not in "biuf":
            return None
        return [float(lowest.min()), float(highest.max())]


def recipe(
    slot: Slot, reached: Sequence[ReachedLayer] | None, model: Any, few: int | None = None
) -> Recipe:
    """
    Return the recipe by which an input is drawn.

    ``reached`` are the layers that the input reaches. None means that they are unknown; the input
    must then suit every layer of the model. ``few`` is the number of ids if no layer determines it.
    """
    layers = _everything(model) if reached is None else reached
    input_recipe = _recipe_of_dtype(slot, layers, model if reached is None else None, few)
    for reached_layer in layers:
        padding = _masked_value(slot, reached_layer, is_known=reached is not None)
        input_recipe.padding = input_recipe.padding if padding is None else padding
    if input_recipe.padding is None:
        return input_recipe
    counts = [reached_layer.count for reached_layer in layers if reached_layer.count is not None]
    return _padded_recipe(
        input_recipe, input_recipe.padding, has_others=min(counts, default=0) != 1
    )


def _masked_value(slot: Slot, reached: ReachedLayer, *, is_known: bool) -> float | None:
    """
    Return the input value that a layer masks; None if it masks none, or gets changed values.

    If the layers that the input reaches are unknown (``is_known`` is false), ids are assumed to
    belong to an Embedding, and sequences of features to a Masking.
    """
    if is_known and (reached.change == CHANGED or reached.scaling != UNSCALED):
        return None
    if facts(reached.layer).get("makes_mask") == "always":
        is_series = slot.shape is None or len(slot.shape) > _SEQUENCE_RANK
        return (
            float(reached.layer.mask_value)
            if is_known or (is_series and "int" not in slot.dtype)
            else None
        )
    if getattr(reached.layer, "mask_zero", False):
        return 0.0 if is_known or "int" in slot.dtype else None
    return None


def _padded_recipe(recipe: Recipe, padding: float, *, has_others: bool) -> Recipe:
    """
    Return a recipe that does not draw the padding value, if other values are possible.
    """
    draw = recipe.draw
    other = padding + 1 if has_others else padding

    def kept(values: Any) -> Any:
        return np.where(values == padding, np.asarray(other, dtype=values.dtype), values)

    recipe.draw = lambda random, shape: kept(draw(random, shape))
    if not recipe.is_mask:
        recipe.edges = (kept(np.asarray(recipe.edges[0])), kept(np.asarray(recipe.edges[1])))
        recipe.constant = kept(np.asarray(recipe.constant))
    recipe.how += ", padded with {:g}".format(padding)
    return recipe


def _everything(model: Any) -> list[ReachedLayer]:
    """
    Return the layers of a model that its inputs may reach, assuming that their values were changed
    before; empty without a model.
    """
    return (
        [
            ReachedLayer(layer, CHANGED, count_ids(layer))
            for _, layer in paths(model)
            if takes_ids(layer) or not child_layers(layer)
        ]
        if model is not None
        else []
    )


def _recipe_of_dtype(
    slot: Slot, reached: Sequence[ReachedLayer], unknown: Any, few: int | None
) -> Recipe:
    """
    Return the recipe for an input by its dtype. ``unknown`` is the model if the layers that its
    inputs reach are unknown, otherwise None.
    """
    is_known = unknown is None
    if slot.dtype == "string":
        return _words(reached)
    is_mask = _is_mask(slot, reached)
    if slot.dtype == "bool":
        return _flags(slot, is_mask=is_mask)
    is_integer = "int" in slot.dtype
    may_be_ids = is_integer or (
        not is_known and slot.shape is not None and are_ids(slot.shape, unknown)
    )
    id_layers = [
        reached_layer
        for reached_layer in reached
        if reached_layer.count is not None
        and (may_be_ids or (is_known and _carries_ids(slot, reached_layer)))
    ]
    if id_layers:
        return _ids(slot, id_layers, is_known=is_known)
    if is_mask:
        return _flags(slot, is_mask=True)
    recipe = _values(slot, reached, few, is_known=is_known)
    recipe.is_scalable = not is_integer
    return recipe


def _values(
    slot: Slot, reached: Sequence[ReachedLayer], few: int | None, *, is_known: bool
) -> Recipe:
    """Return the recipe for an input of numbers that no layer uses as ids."""
    is_integer = "int" in slot.dtype
    lookup = _first(reached, vocabulary_dtype="int64")
    if lookup is not None and is_integer:
        return _numbers(lookup.layer)
    if is_known:
        bins, rescaling = _first(reached, "boundaries"), _first(reached, "scaling")
        recipe = _around(slot, bins.layer) if bins is not None else None
        recipe = recipe or _learnt(slot, reached)
        recipe = recipe or (
            _rescaled_recipe(slot, rescaling.layer) if rescaling is not None else None
        )
        if recipe is not None:
            return recipe
    if is_integer:
        return (
            _pixels() if _is_image(slot) else _below(slot, few or SMALL_IDS, "small IDs below {}")
        )
    return Recipe(
        "normally distributed values", lambda random, shape: random.standard_normal(size=shape)
    )


def _first(reached: Sequence[ReachedLayer], *properties: str, **values: str) -> ReachedLayer | None:
    """Return the first layer with these facts that is not an inverted lookup, else None."""
    return next(
        (
            reached_layer
            for reached_layer in reached
            if set(properties) <= set(facts(reached_layer.layer))
            and all(facts(reached_layer.layer).get(key) == value for key, value in values.items())
            and not getattr(reached_layer.layer, "invert", False)
        ),
        None,
    )


def _carries_ids(slot: Slot, reached: ReachedLayer) -> bool:
    """
    Return whether a float input contains ids. Before a custom class that contains an embedding,
    only a sequence of single values does.
    """
    return (
        takes_ids(reached.layer)
        or is_operation(reached.layer)
        or slot.shape is None
        or len(slot.shape) <= _SEQUENCE_RANK
    )


def _ids(slot: Slot, id_layers: Sequence[ReachedLayer], *, is_known: bool) -> Recipe:
    """Return the recipe for IDs that are in the range of all layers that take them."""
    smallest_layer = min(id_layers, key=lambda id_layer: id_layer.count or 0)
    count = smallest_layer.count or 1
    scaled = [id_layer for id_layer in id_layers if id_layer.scaling != UNSCALED]
    if scaled:
        return _before_scaling(slot, min(scaled, key=lambda id_layer: id_layer.count or 0))
    if (
        is_known
        and smallest_layer.change == CHANGED
        and (takes_ids(smallest_layer.layer) or is_operation(smallest_layer.layer))
    ):
        count = max(1, count // 2)  # room for what an offset makes of the largest
    recipe = _below(slot, count, "IDs below {}, for " + str(smallest_layer.layer.name))
    unscaled = [
        id_layer for id_layer in id_layers if id_layer.change == WHOLE and takes_ids(id_layer.layer)
    ]
    if is_known and unscaled:
        strictest = min(unscaled, key=lambda id_layer: id_layer.count or 0)
        recipe.limit = (strictest.count or 1, str(strictest.layer.name))
    return recipe


def _before_scaling(slot: Slot, id_layer: ReachedLayer) -> Recipe:
    """Return the input values that Rescaling layers map to ids."""
    count, (scale, offset) = id_layer.count or 1, id_layer.scaling
    ends = sorted(((0 - offset) / scale, (count - 1 - offset) / scale))
    text = "values that a Rescaling layer converts to IDs below {}, for {}".format(
        count, id_layer.layer.name
    )
    if "int" in slot.dtype:
        lowest, highest = int(np.ceil(ends[0])), int(np.floor(ends[1]))
        highest = max(lowest, min(highest, int(np.iinfo(slot.dtype).max)))
        return Recipe(
            text,
            lambda random, shape: random.randint(lowest, highest + 1, size=shape),
            (lowest, highest),
            constant=min(lowest + 1, highest),
        )
    return Recipe(
        text,
        lambda random, shape: (random.randint(0, count, size=shape) - offset) / scale,
        (ends[0], ends[1]),
        constant=(min(1, count - 1) - offset) / scale,
    )


def _below(slot: Slot, count: int, how: str) -> Recipe:
    """
    Return a recipe that draws integers below ``count`` that the dtype of the input represents
    exactly.
    """
    most = min(
        count,
        EXACT.get(slot.dtype, count),
        int(np.iinfo(slot.dtype).max) if "int" in slot.dtype else count,
    )
    return Recipe(
        how.format(count),
        lambda random, shape: random.randint(0, most, size=shape),
        (0, most - 1),
        constant=min(1, most - 1),
    )


def _pixels() -> Recipe:
    """Return a recipe that draws pixel values."""
    return Recipe(
        "pixel values from 0 to 255",
        lambda random, shape: random.randint(0, PIXELS, size=shape),
        (0, PIXELS - 1),
        constant=PIXELS // 2,
    )


def _flags(slot: Slot, *, is_mask: bool) -> Recipe:
    """Return a recipe that draws zeros and ones; for a mask, only ones."""
    if not is_mask:
        return Recipe(
            "flags", lambda random, shape: random.randint(0, 2, size=shape), (0, 1), constant=1
        )
    recipe = Recipe(
        "a mask of ones", lambda _, shape: np.ones(shape, dtype="int64"), (0, 1), constant=1
    )
    recipe.is_mask = True
    if slot.shape is not None and len(slot.shape) == _SEQUENCE_RANK:
        recipe.padding = 0.0
    return recipe


def _is_mask(slot: Slot, reached: Sequence[ReachedLayer]) -> bool:
    """
    Return whether an input is a mask, according to its name or to the layer argument to which it is
    passed. Models do not expect masks of random bits or numbers.
    """
    is_named = "mask" in slot.name.lower() and (slot.dtype == "bool" or "int" in slot.dtype)
    return is_named or any(reached_layer.is_mask for reached_layer in reached)


def _numbers(layer: Any) -> Recipe:
    """
    Return a recipe that draws the numbers of a lookup's vocabulary, and an unknown number if the
    lookup accepts one.
    """
    known = [int(number) for number in _vocabulary(layer)]
    unknown_numbers = [max(known, default=0) + 1] if getattr(layer, "num_oov_indices", 1) else []
    values = np.array([*known, *unknown_numbers], dtype="int64")
    return Recipe(
        "numbers from the vocabulary of {}".format(layer.name),
        lambda random, shape: values[random.randint(0, len(values), size=shape)],
        (values.min(), values.max()),
        constant=values[0],
    )


def _words(reached: Sequence[ReachedLayer]) -> Recipe:
    """
    Draw words of a vocabulary: texts of several words if a layer splits texts, with an unknown word
    if the layer accepts it.
    """
    words_first = sorted(
        reached, key=lambda reached_layer: "splits_texts" in facts(reached_layer.layer)
    )
    lookup = _first(words_first, vocabulary_dtype="string")
    if lookup is None:
        choices = np.array(WORDS, dtype=object)
        return Recipe(
            "words",
            lambda random, shape: choices[random.randint(0, len(choices), size=shape)],
            (choices[0], choices[-1]),
            constant=choices[1],
        )
    layer = lookup.layer
    known = [
        word.decode("utf-8", "replace") if isinstance(word, bytes) else str(word)
        for word in _vocabulary(layer)
    ]
    is_text = bool(facts(layer).get("splits_texts"))
    takes_others = is_text or bool(getattr(layer, "num_oov_indices", True))
    words: Any = np.array([*known, *([UNHEARD] if takes_others else [])], dtype=object)

    def draw(random: Any, shape: Sequence[int]) -> Any:
        if not is_text:
            return words[random.randint(0, len(words), size=shape)]
        texts = [
            " ".join(words[random.randint(0, len(words), size=random.randint(1, 9))])
            for _ in range(int(np.prod(shape)))
        ]
        return np.array(texts, dtype=object).reshape(shape)

    return Recipe(
        "{} from the vocabulary of {}".format("texts" if is_text else "words", layer.name),
        draw,
        (words[0], words[-1]) if len(words) else ("", ""),
        constant=words[-1] if len(words) else "",
    )


def _vocabulary(layer: Any) -> list[Any]:
    try:
        return list(layer.get_vocabulary())[:_KNOWN]
    except Exception:
        # a lookup that never got a vocabulary says so in a way of each release; what it does not
        # hold can be fed all the same
        return []


def _around(slot: Slot, layer: Any) -> Recipe | None:
    """
    Return a recipe that draws values close to the boundaries of a Discretization; None if it has
    none.
    """
    name = facts(layer)["boundaries"]
    boundaries = np.array([float(boundary) for boundary in getattr(layer, name, None) or []])
    if not len(boundaries):
        return None
    width = float(np.diff(boundaries).min()) if len(boundaries) > 1 else 1.0
    text = "values close to the boundaries of {}".format(layer.name)

    def draw(random: Any, shape: Sequence[int]) -> Any:
        boundary = boundaries[
            random.randint(0, len(boundaries), size=shape)
        ] + width * random.standard_normal(size=shape)
        return np.round(boundary) if "int" in slot.dtype else boundary

    edges = (boundaries.min() - width, boundaries.max() + width)
    edges = (np.floor(edges[0]), np.ceil(edges[1])) if "int" in slot.dtype else edges
    return Recipe(text, draw, edges, constant=edges[1])


def _learnt(slot: Slot, reached: Sequence[ReachedLayer]) -> Recipe | None:
    """
    Draw values with the mean and the variance that layers have learned; None if no layer has
    statistics of the input's values.
    """
    statistics = input_statistics(slot, reached)
    if statistics is None:
        return None
    mean, deviations = statistics.mean, statistics.spread
    if _is_image(slot) and mean.min() > 1 and mean.max() < PIXELS:
        return _pixels()

    def as_fed(values: Any) -> Any:
        if "int" not in slot.dtype:
            return values
        ends = np.iinfo(slot.dtype)
        return np.clip(np.round(values), ends.min, ends.max)

    return Recipe(
        "normally distributed values with the mean and variance of {}".format(
            " and ".join(statistics.names)
        ),
        lambda random, shape: as_fed(mean + deviations * random.standard_normal(size=shape)),
        (as_fed(mean - SPREAD * deviations), as_fed(mean + SPREAD * deviations)),
        constant=as_fed(mean + deviations),  # positive once it is normalized
    )


def _rescaled_recipe(slot: Slot, layer: Any) -> Recipe | None:
    """
    Draw values that a Rescaling maps to numbers up to 1, from 0 or from its offset; pixels if the
    input has the shape of an image. None for a Rescaling that makes numbers larger, which is part
    of the model's computation.
    """
    scale, offset = (
        np.asarray(getattr(layer, name, 0.0), dtype="float64") for name in facts(layer)["scaling"]
    )
    largest = np.max(np.abs(scale))
    if _is_image(slot):
        return _pixels() if largest * (PIXELS - 1) <= _BRIGHT else None
    if largest >= 1 or not np.all(scale):
        return None
    lowest, highest = np.minimum(offset, 0), np.maximum(1, -offset)
    ends = np.sort([(edge - offset) / scale for edge in (lowest, highest)], axis=0)
    if "int" in slot.dtype:
        limits = np.iinfo(slot.dtype)
        ends = np.clip([np.ceil(ends[0]), np.floor(ends[1])], limits.min, limits.max)

    def draw(random: Any, shape: Sequence[int]) -> Any:
        values = ends[0] + (ends[1] - ends[0]) * random.uniform(size=shape)
        return np.round(values) if "int" in slot.dtype else values

    return Recipe(
        "values that {} maps to at most 1".format(layer.name),
        draw,
        (ends[0], ends[1]),
        constant=ends[1],
    )


def _is_image(slot: Slot) -> bool:
    return slot.shape is not None and len(slot.shape) == _IMAGE_RANK and slot.shape[-1] in _CHANNELS


BATCH = 3
SIZES = (8, 32, 128, 224)
"""The sizes to try for open dimensions; the smallest that works is used."""


def input_slots(tensors: Sequence[Any]) -> list[Slot]:
    """Return the specs of symbolic tensors, or of TensorSpecs, in their order."""
    slots = []
    for position, tensor in enumerate(tensors):
        kind = type(tensor).__name__
        if "Ragged" in kind or "Sparse" in kind or getattr(tensor, "is_tensor_like", True) is False:
            raise Refused(
                "inputs",
                "input {} is of type {}, for which policytool cannot create values".format(
                    getattr(tensor, "name", position), kind
                ),
            )
        name = str(getattr(tensor, "name", None) or position)
        slots.append(Slot.from_tensor(name, tensor))
    return slots


def draw_inputs(
    library: Library, model: Any, specs: Sequence[Slot], seed: int, size: int
) -> list[Any]:
    """
    Return one tensor for each spec.

    The same seed, shapes and dtypes in the same order result in the same values in every process,
    as long as the names by which specs match the model's inputs do not change.
    """
    reached_by_name = layers_reached_by_name(library, model)
    tensors = []
    for place, spec in enumerate(specs):
        random = np.random.RandomState(1000 * seed + place)
        dims = spec.shape if spec.shape is not None else [None, None]
        shape = [
            BATCH if axis == 0 and extent is None else size if extent is None else extent
            for axis, extent in enumerate(dims)
        ]
        values = recipe(spec, reached_by_name.get(spec.name.partition(":")[0]), model).draw(
            random, shape
        )
        dtype = library.tf.as_dtype(spec.dtype)
        tensors.append(
            library.tf.constant(
                values
                if spec.dtype == "string"
                else np.asarray(values).astype(dtype.as_numpy_dtype),
                dtype=dtype,
            )
        )
    return tensors


def sizes(specs: Sequence[Slot]) -> Iterator[int]:
    """Yield the sizes to try for open dimensions; a single size if only the batch is open."""
    yield from SIZES if any(spec.is_open for spec in specs) else SIZES[:1]


def layers_reached_by_name(library: Library, model: Any) -> dict[str, list[ReachedLayer]]:
    """Return the layers that each input of the model reaches, by name; empty if unknown."""
    try:
        slots = model_inputs(library, model).slots if model is not None else []
    except Refused:
        return {}  # what holds for every layer of the model holds for the input then
    reached_by_slot = layers_reached(library, model) if slots else None
    return (
        {slot.name: layers for slot, layers in zip(slots, reached_by_slot)}
        if reached_by_slot is not None
        else {}
    )
