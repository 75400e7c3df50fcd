"""What a model is converted to: a release that is to load it, and the container it is put in."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from policytool.releases.releases import ARCHIVES, KERAS3, get, is_since, release_name
from policytool.releases.targets import generation_of

if TYPE_CHECKING:
    from policytool.releases.generations import Generation


@dataclass(frozen=True, kw_only=True, slots=True)
class Target:
    """A release, by its name in :data:`policytool.releases.releases.LOADERS`, and a container."""

    loader: str
    container: str
    """``h5``, ``keras`` or ``json``."""

    running: str | None = None
    """The release that is to run the result, if it is written as for an older one, ``loader``."""

    @property
    def release(self) -> str:
        """The release that is to run the result."""
        return self.running or self.loader

    @property
    def name(self) -> str:
        """The release that is to load the model, as people write it: ``Keras 3.15``."""
        return release_name(self.loader)

    @property
    def family(self) -> str:
        """:data:`~policytool.releases.releases.KERAS2` or its ``KERAS3``."""
        return get(self.loader).family

    @property
    def is_keras3(self) -> bool:
        """Whether the release is one of Keras 3."""
        return self.family == KERAS3

    @property
    def is_tf_keras(self) -> bool:
        """Whether the release is one of tf_keras."""
        return get(self.loader).library == "tf_keras"

    @property
    def package(self) -> str:
        """Where the release has its private modules."""
        if self.is_tf_keras:
            return "tf_keras.src"
        return "keras.src" if self.since("tf2.13") else "keras"

    def since(self, loader: str) -> bool:
        """Return whether the release is this one or a later one; Keras 3 is later than Keras 2."""
        return is_since(self.loader, loader)

    def after(self, loader: str) -> bool:
        """Return whether the release is a later one than this; see :meth:`since`."""
        return not is_since(loader, self.loader)

    @property
    def generation(self) -> Generation:
        """The generation that the release belongs to."""
        return get(self.loader).generation

    @property
    def keras_version(self) -> str:
        """What the release writes as its version, as far as minor releases are told apart."""
        version = get(self.loader).keras_version
        return f"{version}0" if version.endswith(".") else version

    @property
    def reads_bare_names(self) -> bool:
        """Whether the release reads a mixed policy as a bare name, the canonical spelling."""
        return generation_of(self.loader) is None

    @property
    def reads_archives(self) -> bool:
        """Whether the release reads ``.keras`` archives."""
        return get(self.loader).formats == ARCHIVES

    @property
    def says_modules(self) -> bool:
        """
        Whether serialised objects say their ``module`` and ``registered_name``: in archives of
        every release, and in all that TF 2.13 and later write.
        """
        return self.container == "keras" or self.since("tf2.15")
