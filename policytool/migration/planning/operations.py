"""
Dtypes that stand in the operations of a graph themselves, and follow what the layers around them
compute in.

An op layer of TF 1.15 to 2.3 has its dtype written into its ``node_def``; the casts that Keras 3.5
to 3.9 record have theirs in their config.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from policytool.formats.document import Address
from policytool.formats.edits import Edit, Kind
from policytool.migration.plan import Refusal
from policytool.releases import dtypes

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from policytool.migration.planning.decisions import Decisions
    from policytool.model.layer_graph import Graph, Node
    from policytool.model.loaded_model import LoadedModel
    from policytool.support.text.jsontext import Json

NODE_DEF: Final = "TensorFlowOpLayer"
_ENUM: Final = {
    "float16": "DT_HALF",
    "bfloat16": "DT_BFLOAT16",
    "float32": "DT_FLOAT",
    "float64": "DT_DOUBLE",
}
_OF_ENUM: Final = {value: key for key, value in _ENUM.items()}
_INPUT_TYPES: Final = ("T", "SrcT")
"""
The attributes of a ``node_def`` that name the dtype of its inputs; ``DstT`` of a Cast is its own.
"""


_RESIZES: Final = "image.resize"
"""TensorFlow's own interpolation, which gives float32 whatever it takes."""

_CONSTANT_VALUE: Final = "_CONSTANT_VALUE"
"""What a node of TF 2.4 on begins with where its first argument is no tensor of Keras."""


_UNPROMOTED: Final = frozenset(
    {"Conv", "ConvTranspose", "DepthwiseConv", "SeparableConv", "CDist", "Meshgrid", "Polar"}
)
"""
Operations of Keras 3 that promote nothing: an array that is a constant of the graph is float32
(asked of Keras 3.15's own operations).
"""

_WIDE: Final = frozenset(
    {
        *(
            "FFT",
            "FFT2",
            "IFFT2",
            "RFFT",
            "IRFFT",
            "STFT",
            "ISTFT",
            "Cholesky",
            "CholeskyInverse",
            "Det",
            "Eig",
            "Eigh",
            "Inv",
            "Lstsq",
            "Logdet",
        ),
        *(
            "LuFactor",
            "MatrixRank",
            "Pinv",
            "Qr",
            "Slogdet",
            "Solve",
            "SolveTriangular",
            "SVD",
            "I0",
        ),
    }
)
"""
Operations of Keras 3 that TensorFlow lacks a 16-bit kernel for: transforms, linear algebra, a
Bessel function.
"""


def unpromoted(node: Node, *, is_operation: bool) -> tuple[tuple[str, ...], bool]:
    """
    Return the nodes whose dtypes have to be one where an operation of Keras 3 promotes nothing, and
    whether they have to be float32.
    """
    if not is_operation or node.class_name not in _UNPROMOTED | _WIDE:
        return (), False
    return node.parents, node.class_name in _WIDE or len(node.parents) == 1


def takes(node: Node, met: frozenset[str]) -> bool:
    """Return whether an operation without 16-bit kernels gets none: float64 it has kernels for."""
    return is_wide(node) and "float16" not in met and "bfloat16" not in met


def is_wide(node: Node) -> bool:
    """Return whether a node is an operation of Keras 3 that has no 16-bit kernel."""
    return node.site is None and node.class_name in _WIDE


def cast_target(node: Node) -> str | None:
    """
    Return the dtype that a casting op makes; None for those whose result is as wide as their
    inputs.
    """
    config = node.entry.get("config")
    config = config if isinstance(config, dict) else {}
    if node.class_name == NODE_DEF:
        return _OF_ENUM.get(str(_attribute(config, "DstT")))
    if node.class_name == "Cast":
        return str(config.get("dtype"))
    if str(config.get("function")).startswith(_RESIZES):
        return "float32"
    if config.get("function") == "cast":
        return next(_values_of("dtype", node.entry.get("inbound_nodes")), None)
    return None


def begins_with_constant(node: Node) -> bool:
    """
    Return whether an op's first argument is a number, which Keras 2 makes a float32 tensor of.
    """
    pending = [node.entry.get("inbound_nodes")]
    while pending:
        value = pending.pop()
        if isinstance(value, list):
            if (
                len(value) > 2 and value[0] == _CONSTANT_VALUE and isinstance(value[2], float)  # noqa: PLR2004  # the constant's place
            ):  # the constant's place
                return True
            pending += value
    return False


def _attribute(config: Mapping[str, Json], name: str) -> Json:
    value: Json = config.get("node_def")
    for key in ("attr", name, "type"):
        value = value.get(key) if isinstance(value, dict) else None
    return value


def _values_of(key: str, value: Json) -> Iterator[str]:
    if isinstance(value, dict):
        found = value.get(key)
        if isinstance(found, str):
            yield found
        for item in value.values():
            yield from _values_of(key, item)
    elif isinstance(value, list):
        for item in value:
            yield from _values_of(key, item)


def node_def_edits(
    loaded: LoadedModel, node: Node, old: frozenset[str], new: frozenset[str], decisions: Decisions
) -> Iterator[Edit]:
    """Yield the edits that give an op of TF 1.15 to 2.3 the dtype its inputs have now."""
    config = node.entry.get("config")
    if len(old) != 1 or len(new) != 1 or old == new or not isinstance(config, dict):
        return
    (was,), (will,) = old, new
    for name in _INPUT_TYPES:
        if _attribute(config, name) == _ENUM.get(was):
            if config.get("constants") and not _are_whole(config["constants"]):
                path = loaded.layers[node.site].path if node.site is not None else node.name
                message = (
                    f"{path} has constants of dtype {was} in its op, and its inputs would be "
                    f"{will}; keep what feeds it in {was} with --set"
                )
                decisions.refusals.append(Refusal(code="op-constants", message=message, path=path))
                return
            for address in _configs(loaded, node):
                yield Edit(
                    kind=Kind.NUMERICS,
                    address=Address(
                        part=address.part, pointer=f"{address.pointer}/node_def/attr/{name}/type"
                    ),
                    path=loaded.layers[node.site].path if node.site is not None else None,
                    before=_ENUM[was],
                    after=_ENUM[will],
                    reason=f"its op is written for {was}, and its inputs are {will} now",
                )


def _configs(loaded: LoadedModel, node: Node) -> list[Address]:
    """Return every place where the config of an op layer stands."""
    if node.site is None:
        return [Address(part=loaded.document.config_part or "", pointer=f"{node.pointer}/config")]
    ending = "/config/dtype"
    places = [
        address for address in loaded.addresses[node.site] if address.pointer.endswith(ending)
    ]
    return [
        Address(part=address.part, pointer=address.pointer.removesuffix("/dtype"))
        for address in places
    ]


def _are_whole(constants: Json) -> bool:
    """
    Return whether constants are whole numbers alone: axes and indices, whose dtype does not follow
    the op's.
    """
    pending = [constants]
    while pending:
        value = pending.pop()
        if isinstance(value, dict):
            pending += value.values()
        elif isinstance(value, list):
            pending += value
        elif isinstance(value, float):
            return False
    return True


def cast_edits(
    loaded: LoadedModel, graph: Graph, node: Node, decisions: Decisions
) -> Iterator[Edit]:
    """
    Yield the edit that lets a recorded cast follow the layers it casts for; a cast that someone
    wrote feeds other dtypes and stays.
    """
    consumers = [graph.nodes[name].site for name in graph.children().get(node.name, ())]
    config = node.entry.get("config")
    written = config.get("dtype") if isinstance(config, dict) else None
    sites = [site for site in consumers if site is not None and site not in loaded.graphs]
    if (
        not sites
        or len(sites) != len(consumers)
        or any(loaded.layers[site].compute_dtype != written for site in sites)
    ):
        return
    computed = {
        dtype for site in sites if (dtype := decisions.compute_dtype(loaded, site)) is not None
    }
    will = max(sorted(computed), key=dtypes.itemsize) if computed else written
    if isinstance(written, str) and will is not None and will != written:
        yield Edit(
            kind=Kind.NUMERICS,
            address=Address(
                part=loaded.document.config_part or "", pointer=f"{node.pointer}/config/dtype"
            ),
            path=None,
            before=written,
            after=will,
            reason=f"the cast {node.name} follows the layers it casts for",
        )
