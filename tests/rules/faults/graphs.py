"""SavedModels whose graphs harm the machine that runs them (PT6)."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final

from policytool.support.text import protobuf_messages
from tests.helpers import changed_fixtures
from tests.rules.faults.fault import Fault

if TYPE_CHECKING:
    from pathlib import Path

SAVED: Final = "tf2.15/global_mixed_float16"


def _op(op: str, fixture: str = SAVED) -> Fault:
    return Fault(
        "PT605",
        op if fixture == SAVED else f"{op} in {fixture}",
        partial(changed_fixtures.with_op, name=fixture, op=op),
    )


def _second_graph(folder: Path) -> Path:
    """Write a SavedModel with a second graph that is not for serving and writes files."""
    (folder / "harmful").mkdir()
    source = changed_fixtures.with_op(folder / "harmful", SAVED, "WriteFile")

    def swap(message: Any) -> None:
        message.meta_graphs.append(message.meta_graphs[0])
        harmful: Any = protobuf_messages.parse(
            "SavedModel", (source / "saved_model.pb").read_bytes()
        )
        message.meta_graphs[1].graph_def[:] = harmful.meta_graphs[0].graph_def
        message.meta_graphs[1].meta_info.ClearField("tags")

    return changed_fixtures.saved_model(folder, SAVED, swap)


def _two_graphs(folder: Path) -> Path:
    return changed_fixtures.saved_model(
        folder, SAVED, lambda message: message.meta_graphs.append(message.meta_graphs[0])
    )


FAULTS: Final = (
    *map(
        _op,
        (
            *("ReadFile", "WriteFile", "MatchingFiles", "PyFunc", "PyFuncStateless"),
            *("EagerPyFunc", "TextLineDataset", "SaveDataset", "WholeFileReaderV2"),
            *("DatasetFromGraph", "SaveV2", "PrintV2", "XlaCallModule"),
        ),
    ),
    _op("ReadFile", "keras3.15/loops.export"),
    _op("ReadFile", "tf1.15/default_float32"),
    Fault("PT605", "WriteFile in a second graph", _second_graph),
    Fault("PT609", "two graphs", _two_graphs),
)
