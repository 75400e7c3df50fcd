"""Units that a rewrite puts in the place of one, in the order that they are called in."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from policytool.migration.convert.architecture import Role, Unit
from policytool.model.calls import Call, Reference
from policytool.releases import keras_operations
from policytool.releases.policy import policy_from_name

if TYPE_CHECKING:
    from collections.abc import Mapping

    from policytool.migration.convert.architecture import Value
    from policytool.model.calls import Argument

LAMBDA: Final = "TFOpLambda"
SLICING: Final = "SlicingOpLambda"


class UnsayableError(ValueError):
    """
    What the other side has no words for; the message ends a sentence that begins with the layer.
    """


@dataclass
class OperationBuilder:
    """
    What stands in one unit's place: further units, and the last, which has the name of the first.
    """

    unit: Unit
    names: set[str]
    """All names of the network, of added units too."""

    added: list[Unit] = field(default_factory=list)

    def fresh(self, word: str) -> str:
        """Return a name that no unit has."""
        number = 0
        name = f"{self.unit.name}_{word}"
        while name in self.names:
            number += 1
            name = f"{self.unit.name}_{word}_{number}"
        self.names.add(name)
        return name

    def operation(
        self,
        which: str,
        args: tuple[Argument, ...],
        config: Mapping[str, Value] | None = None,
        kwargs: Mapping[str, Argument] | None = None,
    ) -> Reference:
        """Add an operation of Keras 3, named as ``module.Class``, and return its result."""
        module, _, op = which.partition(".")
        unit = Unit(
            class_name=op,
            name=self.fresh(op.lower()),
            config=dict(config or {}),
            role=Role.OPERATION,
            module=f"{keras_operations.MODULES}{module}",
            path=self.unit.path,
            calls=(Call(args=args, kwargs=dict(kwargs or {})),),
        )
        return self._put(unit)

    def function(
        self,
        name: str,
        first: Argument,
        kwargs: Mapping[str, Argument] | None = None,
        *,
        layer: str = LAMBDA,
    ) -> Reference:
        """Add an op layer of Keras 2 and return its result."""
        config: dict[str, Value] = {"trainable": True, "dtype": FLOAT32, "function": name}
        call = Call(args=(first,), kwargs=dict(kwargs or {}))
        return self._put(
            Unit(
                class_name=layer,
                name=self.fresh(name.rpartition(".")[2]),
                config=config,
                path=self.unit.path,
                calls=(call,),
            )
        )

    def layer(self, class_name: str, source: Argument, config: Mapping[str, Value]) -> Reference:
        """Add a layer and return its result."""
        call = Call(args=(source,))
        return self._put(
            Unit(
                class_name=class_name,
                name=self.fresh(class_name.lower()),
                config=dict(config),
                path=self.unit.path,
                calls=(call,),
            )
        )

    def _put(self, unit: Unit) -> Reference:
        self.added.append(unit)
        return Reference(layer=unit.name)


FLOAT32 = policy_from_name("float32")
"""The policy of an op layer, which says nothing of what it computes in."""
