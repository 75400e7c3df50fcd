"""What a model is converted to: a release that is to load it, and the container it is put in."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from policytool.model.loaded_model import KERAS2, KERAS3
from policytool.releases.releases import LOADERS
from policytool.releases.targets import generation_of, writer_of

if TYPE_CHECKING:
    from policytool.releases.generations import Generation

_ARCHIVES_SINCE = "tf2.12"
"""The first loader that reads ``.keras`` archives."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Target:
    """A release, by its name in :data:`policytool.releases.releases.LOADERS`, and a container."""

    loader: str
    container: str
    """``h5``, ``keras`` or ``json``."""

    @property
    def family(self) -> str:
        """``keras2`` or ``keras3``, as :mod:`policytool.model.loaded_model` names them."""
        return KERAS3 if self.loader.startswith(KERAS3) else KERAS2

    @property
    def is_keras3(self) -> bool:
        """Whether the release is one of Keras 3."""
        return self.family == KERAS3

    def since(self, loader: str) -> bool:
        """
        Return whether the release is this one or a later one, in the order of
        :data:`policytool.releases.releases.LOADERS`.
        """
        return LOADERS.index(self.loader) >= LOADERS.index(loader)

    @property
    def generation(self) -> Generation:
        """The generation that the release belongs to."""
        return writer_of(self.loader)

    @property
    def keras_version(self) -> str:
        """What the release writes as its version, as far as minor releases are told apart."""
        release = next(release for release in self.generation.releases if release.id == self.loader)
        first = release.keras_versions[0]
        return f"{first}0" if first.endswith(".") else first

    @property
    def reads_bare_names(self) -> bool:
        """Whether the release reads a mixed policy as a bare name, the canonical spelling."""
        return generation_of(self.loader) is None

    @property
    def reads_archives(self) -> bool:
        """Whether the release reads ``.keras`` archives."""
        return self.since(_ARCHIVES_SINCE)

    @property
    def says_modules(self) -> bool:
        """
        Whether serialised objects say their ``module`` and ``registered_name``: in archives of
        every release, and in all that TF 2.13 and later write.
        """
        return self.container == "keras" or self.since("tf2.15")
