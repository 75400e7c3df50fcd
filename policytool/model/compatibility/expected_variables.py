"""
The variables that a layer creates, those that quantization adds, and the reasons why stored
variables cannot be restored.
"""

from __future__ import annotations

import math
from collections import Counter
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from policytool.releases.layer_variables import agree
from policytool.support.grouping import group_pairs

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from policytool.formats.document import Tensor
    from policytool.model.tree import Site
    from policytool.releases.layer_variables import VariableSlot
    from policytool.releases.output_shapes import Shape

_GATES: Final = frozenset({"LSTM", "LSTMCell", "GRU", "GRUCell"})

_TRANSPOSED: Final = frozenset({"Conv1D", "Conv2D", "Conv3D", "Conv2DTranspose", "ConvLSTM2D"})
"""The kernels that Keras 2 transposes if shapes differ (``preprocess_weights_for_loading``)."""

_TURN: Final = (3, 2, 0, 1)

_FIRST: Final = frozenset({"kernel", "bias", "embeddings"})
"""The variables that archives store before those of quantization."""

LORA_VARIABLES: Final = 2

SCALES: Final = {"int8": 1, "float8": 6}
"""
By quantization mode, the number of variables that a layer has in addition to its kernel. Measured
in Keras 3.3, 3.6 and 3.15.
"""

CALIBRATED: Final = {"gptq": 3, "awq": 4}
"""
The same for modes that are calibrated. Keras 3.15 does not write the zero points to archives, but
expects them, so that it fails to load its own archives, whether they were calibrated or not.
Archives of Keras 3.12 have them. HDF5 files have all variables (measured in Keras 3.12 and 3.15).
"""


class ExpectedVariable(Struct, frozen=True, kw_only=True):
    """A variable that a layer creates."""

    name: str
    shape: Shape | None
    """The shape from the config, with None for unknown sizes; None if the rank is unknown."""

    place: str
    """The path in an archive, below the group of the layer."""

    trainable: bool
    class_name: str
    slot: VariableSlot
    owner: int
    """The index of the layer's site."""

    quantizes: bool = False
    """Whether quantization or LoRA adds the variable."""

    @property
    def size(self) -> int | None:
        """The number of parameters; None if a size is unknown."""
        sizes = [size for size in self.shape or () if size is not None]
        return (
            math.prod(sizes) if self.shape is not None and len(sizes) == len(self.shape) else None
        )

    def accepts(self, stored: Tensor, *, keras2: bool) -> bool:
        """
        Return whether a stored variable can be restored; unknown sizes accept all values.

        :param keras2: whether a release of Keras 2 reads HDF5, which converts kernels
        """
        if self.shape is None or stored.shape is None or _fits(self.shape, stored.shape):
            return True
        if not keras2:
            return False
        if self.class_name in _GATES and self.slot.name == "bias":
            return _is_converted_bias(self.shape, stored.shape)
        transposed = (
            tuple(stored.shape[axis] for axis in _TURN)
            if len(stored.shape) == len(_TURN)
            else stored.shape
        )
        return self.class_name in _TRANSPOSED and _fits(self.shape, transposed)


def _fits(expected: Shape, stored: tuple[int, ...]) -> bool:
    """Return whether a stored shape agrees with the known sizes of an expected one."""
    return len(expected) == len(stored) and all(
        size in (None, stored_size) for size, stored_size in zip(expected, stored, strict=True)
    )


def _is_converted_bias(expected: Shape, stored: tuple[int, ...]) -> bool:
    """
    Return whether a Keras 2 release converts the stored bias: cuDNN has two for each gate.
    """
    sizes = [size for size in expected if size is not None]
    if len(sizes) != len(expected):
        return True
    size, actual = math.prod(sizes), math.prod(stored)
    return actual in {size, 2 * size} or 2 * actual == size


class LayerVariables(Struct, frozen=True, kw_only=True):
    """The variables of a layer in the order of HDF5."""

    expected: tuple[ExpectedVariable, ...]
    more: int | None = 0
    """The number of other variables; None if it is unknown."""

    added: tuple[ExpectedVariable, ...] = ()
    """The other variables whose shapes are known; quantization adds them."""

    is_ordered: bool = True
    """Whether the stored order is that of the list."""

    @property
    def count(self) -> int | None:
        """The total number of variables; None if it is unknown."""
        return None if self.more is None else len(self.expected) + self.more


def archive_reason(
    site: Site, variables: LayerVariables, stored_by_path: Mapping[str, Tensor], *, is_lora: bool
) -> str | None:
    """Return the reason why a layer cannot be restored from its groups in an archive, or None."""
    paths_by_directory = group_pairs((place.rpartition("/")[0], place) for place in stored_by_path)
    for item in variables.expected:
        tensor = stored_by_path.get(item.place)
        if tensor is None:
            return _missing(site, item, len(stored_by_path))
        is_first = not variables.more or item.slot.name in _FIRST
        if is_first and not item.accepts(tensor, keras2=False):
            return _different(site, item, tensor)
    for item in variables.added:
        tensor = stored_by_path.get(item.place)
        if tensor is not None and not item.accepts(tensor, keras2=False):
            return _different(site, item, tensor)
    pairs = [(item, stored_by_path[item.place]) for item in variables.expected]
    if variables.more == 0 and not _agrees(pairs, keras2=False):
        return _disagreement(site)
    expected_groups = {item.place.rpartition("/")[0] for item in variables.expected}
    stored = sum(len(paths_by_directory[group]) for group in expected_groups)
    needed = len(variables.expected) + (variables.more or 0) - (LORA_VARIABLES if is_lora else 0)
    if variables.more is not None and not is_lora and stored != needed:
        return _count_reason(site, needed, stored)
    return None


def path_reason(site: Site, stored_by_path: Mapping[str, Tensor]) -> str | None:
    """
    Return the reason why a release does not find the variables of a layer in an Orbax checkpoint,
    or None.

    Keras 3.15 restores the variables whose path in the loaded model is stored, and is silent about
    others. It builds each layer when it reads its config, so that paths begin with the name of the
    layer, and not with that of a model or a wrapper around it.
    """
    for tensor in stored_by_path.values():
        if tensor.path[0] != site.name and site.name in tensor.path:
            path = "/".join(tensor.path[tensor.path.index(site.name) :])
            return (
                f"the variables of {site.class_name} {site.name} are silently not restored: "
                f"Keras looks for {path}, but {'/'.join(tensor.path)} is stored"
            )
    return None


def named_reason(
    site: Site, variables: LayerVariables, stored_by_name: Mapping[str, Tensor]
) -> str | None:
    """Return the reason why a layer cannot be restored by the names of its variables, or None."""
    if variables.expected and not stored_by_name:
        return f"{site.class_name} {site.name} has no stored variables"
    for item in (*variables.expected, *variables.added):
        name = item.slot.name if not item.quantizes else item.name
        stored = stored_by_name.get("/".join((*item.slot.within, name)))
        if stored is not None and not item.accepts(stored, keras2=False):
            return _different(site, item, stored)
    return None


def hdf5_reason(
    site: Site, variables: LayerVariables, stored_tensors: Sequence[Tensor], *, keras2: bool
) -> str | None:
    """Return the reason why a layer cannot be restored from its group in HDF5, or None."""
    kernels = [item for item in variables.expected if item.name == "kernel"]
    if variables.count is None:
        missing = variables.expected and not stored_tensors
        if missing:
            return _count_reason(site, len(variables.expected), 0)
        return _kernel_reason(site, kernels, stored_tensors)
    if variables.count != len(stored_tensors):
        return _count_reason(site, variables.count, len(stored_tensors))
    if variables.more:
        return _kernel_reason(site, (*kernels, *variables.added), stored_tensors)
    pairs = list(zip(variables.expected, stored_tensors, strict=True))
    different = next(
        ((item, tensor) for item, tensor in pairs if not item.accepts(tensor, keras2=keras2)),
        None,
    )
    if different is None:
        is_certain = variables.is_ordered and not _agrees(pairs, keras2=keras2)
        return _disagreement(site) if is_certain else None
    if not variables.is_ordered and not _cannot_match(variables, stored_tensors, keras2):
        return None
    return _different(site, *different)


def _kernel_reason(
    site: Site, items: Iterable[ExpectedVariable], stored_tensors: Sequence[Tensor]
) -> str | None:
    """
    Return the reason why no stored variable of the name of a kernel or its scale has its shape, in
    a layer whose other variables are unknown, or None.
    """
    for item in items:
        named = [tensor for tensor in stored_tensors if tensor.path[-1] == item.name]
        if named and not any(item.accepts(tensor, keras2=False) for tensor in named):
            return _different(site, item, named[0])
    return None


def _agrees(pairs: Iterable[tuple[ExpectedVariable, Tensor]], *, keras2: bool) -> bool:
    """
    Return whether layers can have the stored shapes for some values of unknown sizes.

    :param keras2: as for :meth:`ExpectedVariable.accepts`
    """
    by_owner = group_pairs(
        ((item.owner, item.class_name), (item.slot, tensor.shape))
        for item, tensor in pairs
        if tensor.shape is not None
        and not item.quantizes
        and not (keras2 and item.class_name in _GATES | _TRANSPOSED)  # which are converted
    )
    return all(agree(class_name, shapes) for (_, class_name), shapes in by_owner.items())


def _cannot_match(
    variables: LayerVariables,
    stored_tensors: Sequence[Tensor],
    keras2: bool,  # noqa: FBT001
) -> bool:
    """Return whether some variable has no counterpart in any order."""
    shapes = Counter(tensor.shape for tensor in stored_tensors)
    needed = Counter(
        item.shape
        for item in variables.expected
        if item.shape is not None and None not in item.shape
    )
    return any(
        count > shapes[shape]  # type: ignore[index]  # no size is unknown
        for shape, count in needed.items()
        if not keras2
    ) or not all(
        any(item.accepts(tensor, keras2=keras2) for item in variables.expected)
        for tensor in stored_tensors
    )


def shape_text(shape: Shape) -> str:
    """Return a shape as Python writes it, with a question mark for each unknown size."""
    sizes = ", ".join("?" if size in (None, -1) else str(size) for size in shape)
    return f"({sizes},)" if len(shape) == 1 else f"({sizes})"


def _missing(site: Site, item: ExpectedVariable, stored: int) -> str:
    if not stored:
        return f"{site.class_name} {site.name} has no stored variables"
    return f"the variable {item.name} of {site.class_name} {site.name} is not stored"


def _different(site: Site, item: ExpectedVariable, tensor: Tensor) -> str:
    return (
        f"the variable {item.name} of {site.class_name} {site.name} has the shape "
        f"{shape_text(item.shape or ())}, but {shape_text(tensor.shape or ())} is stored"
    )


def _disagreement(site: Site) -> str:
    return f"the stored variables of {site.class_name} {site.name} have shapes that do not match"


def _count_reason(site: Site, needed: int, stored: int) -> str:
    plural = "" if needed == 1 else "s"
    if not stored:
        return f"{site.class_name} {site.name} has no stored variables"
    return (
        f"{site.class_name} {site.name} has {needed} variable{plural}, but {stored} "
        f"{'is' if stored == 1 else 'are'} stored"
    )


def matrix_shape(equation: str, shape: Shape) -> Shape | None:
    """Return the shape of an EinsumDense kernel as a matrix; its rows are summed over."""
    inputs, _, output = equation.partition("->")
    kernel = inputs.partition(",")[2]
    sizes = [size for size in shape if size is not None]
    if len(sizes) != len(kernel):
        return None
    pairs = list(zip(kernel, sizes, strict=True))
    rows = math.prod(size for label, size in pairs if label not in output)
    return rows, math.prod(sizes) // max(rows, 1)


def added_count(mode: str, name: str) -> int | None:
    """
    Return the number of variables that a quantization mode adds for a kernel; None if unknown. For
    blocks of rows, int4 adds scales, zero points and, except for the kernel that reverses an
    embedding, the block of each row (measured in Keras 3.15).
    """
    mode, separator, block_size = mode.partition("/")
    if not separator:
        return SCALES.get(mode)
    if mode != "int4":
        return CALIBRATED.get(mode)
    return 1 if block_size == "-1" else 2 if name.startswith("reverse") else 3
