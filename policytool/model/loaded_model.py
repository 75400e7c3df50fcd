"""A model in memory: the contents of its file, its layers, and values derived from both."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, wraps
from typing import TYPE_CHECKING, Final, TypeVar, TypeVarTuple
from weakref import WeakKeyDictionary

from msgspec.structs import replace

from policytool.formats.document import Address
from policytool.model import compatibility, custom_classes
from policytool.model.layer_graph import connections, graphs
from policytool.model.tree import INPUT_CLASS, Unspelled, layer_objects
from policytool.model.tree.layer_objects import entries_of
from policytool.releases import dtypes, generations, layer_variables, policy, symbols
from policytool.releases.generations import SubPolicy
from policytool.releases.releases import KERAS3, newest
from policytool.support.errors import SpellingError
from policytool.support.grouping import group_pairs
from policytool.support.text import jsontext

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from policytool.formats.document import Document, Signature
    from policytool.model.hazards import Hazard
    from policytool.model.layer_graph import Graph
    from policytool.model.model import Layer, Model, Optimizer, Verdict
    from policytool.model.tree import LayerObject, Site
    from policytool.model.tree.storage import Placed
    from policytool.model.writer_version import ConfigTraits
    from policytool.releases.generations import Generation
    from policytool.releases.policy import Policy, PolicyMap
    from policytool.releases.releases import Release
    from policytool.support.text.jsontext import Json


_CODE: Final = frozenset({"pickled-weights", "op-path"})
"""The codes of observations about code that accesses files."""


def code_outside_configs(document: Document) -> tuple[str, ...]:
    """
    Return a clause for each pickle, and for each op of the graph that accesses files, the network
    or Python.
    """
    ops = (symbols.op(name) for name in sorted(document.ops) if name != symbols.PRINTING)
    return (
        *(entry.message for entry in document.observations if entry.code in _CODE),
        *(op.sentence for op in ops if op is not None),
    )


@dataclass(frozen=True, kw_only=True, eq=False)
class LoadedModel:
    """
    A model and its document, with cached values that rules and plans use repeatedly.
    """

    stored: compatibility.StoredVariables
    """The document with its layers, and the variables that it stores and that the layers create."""

    description: Model
    """The description of the model for reports, without the verdicts, which few commands use."""

    @property
    def document(self) -> Document:
        """The document."""
        return self.stored.document

    @property
    def origins(self) -> Sequence[Release]:
        """The releases that can have written the file, oldest first."""
        return self.stored.origins

    @property
    def traits(self) -> ConfigTraits:
        """The properties of the configs that show releases."""
        return self.stored.traits

    @property
    def placed(self) -> Placed:
        """The sites of the layers, with their variables."""
        return self.stored.placed

    @property
    def family(self) -> str:
        """The family of the releases that write and load the file: Keras 1 and 2, or Keras 3."""
        return self.origins[-1].family

    @property
    def sites(self) -> tuple[Site, ...]:
        """The sites of its layers."""
        return self.placed.sites

    @property
    def layers(self) -> tuple[Layer, ...]:
        """The layers, with the same indices as :attr:`sites`."""
        return self.description.layers

    def variable_name(self, site: Site, stored: str) -> str:
        """Return the name of a layer's variable; if the file only numbers it, that of its class."""
        if not stored.isdecimal() or custom_classes.is_opaque(site):
            return stored
        slots = layer_variables.slots(site.class_name, self.origins[-1].id, site.config or {})
        own = (slot for slot in slots or () if not slot.within)
        return next((slot.name for slot in own if str(slot.index) == stored), stored)

    @property
    def optimizer(self) -> Optimizer | None:
        """The stored optimizer; None if the model was not compiled."""
        return self.description.optimizer

    @property
    def signatures(self) -> tuple[Signature, ...]:
        """The signatures of a SavedModel's graph."""
        return self.description.signatures

    @cached_property
    def loaders(self) -> Sequence[Verdict]:
        """The verdict of each release on the file, which is computed when it is used."""
        return compatibility.verdicts(self.stored)

    @cached_property
    def model(self) -> Model:
        """
        The description for reports, without the fields that only ``inspect`` shows. All verdicts
        are computed, within the budget of the file.
        """
        code = self._executed_code()
        return replace(self.description, loaders=tuple(self.loaders), executed_code=code)

    def _executed_code(self) -> tuple[str, ...]:
        """
        Return a clause for each place in the file with code that runs when the model is loaded, or
        with a reference to a harmful function. The search is slow, and runs only for few models.
        """
        clauses = code_outside_configs(self.document)
        if not (self.traits.contains_code or self.traits.harmful_references):
            return clauses
        from policytool.model.hazards import RUNNING  # loads lists that few models need

        return clauses + tuple(
            f"{self.layers[hazard.site].path if hazard.site is not None else 'a config'} "
            f"{hazard.what}"
            for hazard in self.hazards
            if hazard.harm in RUNNING
        )

    @cached_property
    def connected_layers(self) -> tuple[Layer, ...]:
        """The layers with their inputs."""
        inputs = connections(self.graphs.values())
        return tuple(
            replace(
                layer, inputs=tuple(self.layers[source].path for source in inputs.get(index, ()))
            )
            for index, layer in enumerate(self.layers)
        )

    @cached_property
    def sized_model(self) -> Model:
        """The model with the output shape, the parameters and the inputs of each layer."""
        stored = self.stored
        layers = tuple(
            replace(
                layer,
                output_shape=stored.shapes.output(index),
                created_parameters=None if layer.variables else stored.parameters(index),
            )
            for index, layer in enumerate(self.connected_layers)
        )
        return replace(self.model, layers=layers)

    @property
    def generation(self) -> Generation:
        """The newest generation whose releases can have written the file."""
        return self.origins[-1].generation

    @property
    def is_keras3(self) -> bool:
        """Whether Keras 3 wrote the file."""
        return self.family == KERAS3

    @cached_property
    def loader(self) -> str:
        """
        The newest release of the library that loads such files, with its name in
        :mod:`policytool.model.compatibility.incompatibilities`.
        """
        return newest(self.family).id

    @property
    def children(self) -> Mapping[int | None, Sequence[int]]:
        """The indices of the sites directly below each site."""
        return self.placed.children

    @property
    def configs(self) -> tuple[tuple[Address, Json], ...]:
        """
        The JSON values that contain the layers, with their addresses: the metadata of every object
        in a SavedModel, else the model's config.
        """
        if self.document.nodes:
            return tuple(
                (Address(part=part, pointer=""), value)
                for part, value in self.document.parts.items()
            )
        return (
            (
                Address(part=self.document.config_part or "", pointer=self.document.config_pointer),
                self.document.config,
            ),
        )

    @cached_property
    def dtypes(self) -> tuple[tuple[Address, Json], ...]:
        """The address and value of each ``dtype`` in the configs, including copies."""
        return tuple(
            (Address.below(root, *steps), value)
            for root, config in self.configs
            for steps, value in dtype_places(config)
        )

    @property
    def is_saved_object(self) -> bool:
        """Whether the file is a SavedModel or its metadata, whose objects are loaded separately."""
        return bool(self.document.nodes)

    @cached_property
    def objects(self) -> tuple[LayerObject, ...]:
        """The objects that serialize its layers, copies included."""
        return tuple(layer_objects(self.document, self.sites))

    @cached_property
    def entries(self) -> Mapping[Address, int]:
        """
        The site of each layer, by the address of the object that serializes the layer. If both
        directions of a Bidirectional are built from an object, it is the site of the forward layer.
        """
        return entries_of(self.objects)

    @cached_property
    def places(self) -> Mapping[Address, tuple[int, ...]]:
        """
        The sites that use each address of a stored or possible ``dtype``. Both directions of a
        Bidirectional may share an address.
        """
        places = group_pairs(
            (address, item.site) for item in self.objects for address in item.policies
        )
        return {address: tuple(dict.fromkeys(sites)) for address, sites in places.items()}

    @cached_property
    def hazards(self) -> tuple[Hazard, ...]:
        """
        The parts of the configs that run code, name code, or open other files when the model is
        loaded. Ops of the graph are not included.
        """
        from policytool.model import hazards  # loads lists that inspect does not need

        return hazards.of(self.document, self.entries)

    @cached_property
    def addresses(self) -> Mapping[int, Sequence[Address]]:
        """All addresses in the file that store the ``dtype`` of each site."""
        return group_pairs(
            (index, address) for address, indices in self.places.items() for index in indices
        )

    @cached_property
    def makers(self) -> Mapping[int, int]:
        """
        The layers of a SavedModel that another layer creates, each with its creator, such as the
        projections of MultiHeadAttention or the cell of LSTM. No config mentions them.

        Each is an object with its own metadata, which loaders ignore: the creator determines its
        policy.
        """
        maker_by_site: dict[int, int] = {}
        for index, site in enumerate(self.sites):
            parent = site.parent
            if (
                parent is None
                or not self.is_saved_object
                or self.sites[parent].is_model
                or custom_classes.is_opaque(self.sites[parent])
            ):
                continue
            node = self.document.nodes.get(self.sites[parent].node or 0)
            if node is not None and not any(
                address.part == node.part for address in self.addresses[index]
            ):
                maker_by_site[index] = parent
        return maker_by_site

    @cached_property
    def by_names(self) -> Mapping[tuple[str, ...], int]:
        """
        The site of each sequence of names from the root to a layer. A shared layer has a sequence
        for each of its places.
        """
        return {
            names: index
            for index, site in reversed(list(enumerate(self.sites)))
            for names in (site.names, *site.also_at)
        }

    def value_at(self, address: Address) -> Json | Unspelled:
        """Return the value at an address; ``ABSENT`` if there is none."""
        try:
            holder, key = jsontext.place(self.document.parts[address.part], address.pointer)
            value: Json = holder[key]
        except (LookupError, TypeError):
            return Unspelled.ABSENT
        return value

    @cached_property
    def graphs(self) -> Mapping[int, Graph]:
        """The graph of each functional and sequential model, by its site."""
        return graphs(self.placed, self.entries, keras3=self.is_keras3)

    @cached_property
    def own_policies(self) -> Mapping[int, Policy | PolicyMap]:
        """
        The policy or policy map in the config of each site. Sites without a stored policy are not
        included.
        """
        policies = {}
        for index, site in enumerate(self.sites):
            if isinstance(site.spelled, str | dict) and site.sub_policy is None:
                try:
                    policies[index] = generations.parse(site.spelled, self.generation)
                except SpellingError:
                    continue  # inspect reports it as unknown-policy; migrate does not change it
        return policies

    def below(self, index: int) -> Iterator[int]:
        """Yield the index of a site and of all sites below it."""
        pending = [index]
        while pending:
            site_index = pending.pop()
            yield site_index
            pending += reversed(self.children[site_index])

    def is_input(self, index: int) -> bool:
        """Return whether the site is an input layer."""
        return self.sites[index].class_name == INPUT_CLASS

    @cached_property
    def computing_layers(self) -> tuple[Layer, ...]:
        """
        The layers that compute in a float dtype, or in that of their first input: neither input
        layers, models that contain layers, nor layers that another layer creates with its own
        policy, such as the cell of an LSTM. Reports of dtypes count these layers.
        """
        return tuple(
            layer
            for index, layer in enumerate(self.layers)
            if not self.is_input(index)
            and not (self.sites[index].is_model and self.children.get(index))
            and not (self.sites[index].sub_policy is SubPolicy.OWN and not self.sites[index].stored)
            and (layer.compute_dtype is None or dtypes.is_float(layer.compute_dtype))
        )

    def is_floating(self, index: int) -> bool:
        """
        Return whether the layer computes in a float dtype. A layer that computes in the dtype of
        its first input counts.
        """
        layer = self.layers[index]
        return layer.policy is not None and (
            layer.compute_dtype is None or dtypes.is_float(layer.compute_dtype)
        )

    def has_weights(self, index: int) -> bool:
        """
        Return whether the layer, or a layer that it creates, has variables. If the file stores no
        variables, return whether the config has initialisers.
        """
        if self.document.tensors is not None:
            own_variables = (
                index,
                *(
                    child
                    for child in self.children[index]
                    if self.sites[child].sub_policy is not None
                ),
            )
            return any(
                not variable.dtype.startswith("string")
                for part in own_variables
                for variable in self.layers[part].variables
            )
        config = self.sites[index].config
        return config is not None and any(key.endswith("_initializer") for key in config)

    def can_say(self, index: int) -> bool:
        """
        Return whether the file can store a policy for the layer: it has a ``dtype``, or its config
        is of a generation that leaves out default dtypes.
        """
        site = self.sites[index]
        if site.sub_policy is not None or site.address is None or site.config is None:
            return False
        if isinstance(site.spelled, str | dict):
            return True
        omits_defaults = (
            site.spelled is Unspelled.ABSENT
            and self.layers[index].policy is not None
            and not self.is_input(index)
            and not site.is_model
        )
        return omits_defaults and not custom_classes.is_opaque(
            site
        )  # a custom class may not support a dtype

    def policy_name(self, index: int) -> str | None:
        """
        Return the name of the layer's policy in current releases. Removed names are replaced, and
        the name of a quantised policy is that of its source policy.
        """
        layer = self.layers[index]
        if layer.quantization is not None:
            return layer.quantization.source
        return current_name(layer.policy)

    def config(self, index: int) -> Mapping[str, object]:
        """Return the config of the layer; empty if the layer has none."""
        return self.sites[index].config or {}


def current_name(name: str | None) -> str | None:
    """
    Return the policy name that replaces a removed name. Return the name itself if it is current, or
    if it has no replacement.
    """
    if name is None:
        return None
    known = policy.policy_from_name(name)
    life = policy.lifecycle(known)
    if (
        known.compute_dtype is None
        or not life.replacement
        or not name.endswith("_with_float32_vars")
    ):  # the replacement of infer_with_float32_vars depends on the inputs
        return name
    candidate = policy.policy_from_name(life.replacement)
    has_same_dtypes = (candidate.compute_dtype, candidate.variable_dtype) == (
        known.compute_dtype,
        known.variable_dtype,
    )
    return candidate.name if has_same_dtypes else name


def dtype_places(config: Json) -> Iterator[tuple[tuple[str | int, ...], Json]]:
    """
    Yield the steps and the value of each ``dtype`` in a config, in the order of the config. A
    ``dtype`` inside a policy is part of the policy and not yielded.
    """
    pending: list[tuple[tuple[str | int, ...], Json]] = [((), config)]
    while pending:
        steps, value = pending.pop()
        if isinstance(value, dict):
            below: list[tuple[tuple[str | int, ...], Json]] = []
            for key, item in value.items():
                if key == "dtype" and isinstance(item, str | dict):
                    yield (*steps, key), item
                elif isinstance(item, dict | list):
                    below.append(((*steps, key), item))
            pending += reversed(below)
        elif isinstance(value, list):
            pending += [
                ((*steps, position), item)
                for position, item in reversed(list(enumerate(value)))
                if isinstance(item, dict | list)
            ]


Arguments = TypeVarTuple("Arguments")
Result = TypeVar("Result")


def once_per_model(
    make: Callable[[LoadedModel, *Arguments], Result],
) -> Callable[[LoadedModel, *Arguments], Result]:
    """Return the function with a cache of its results, which exists as long as the model."""
    kept: WeakKeyDictionary[LoadedModel, dict[tuple[object, ...], Result]] = WeakKeyDictionary()

    @wraps(make)
    def find_or_make(loaded: LoadedModel, *arguments: *Arguments) -> Result:
        results = kept.setdefault(loaded, {})
        if arguments not in results:
            results[arguments] = make(loaded, *arguments)
        return results[arguments]

    return find_or_make
