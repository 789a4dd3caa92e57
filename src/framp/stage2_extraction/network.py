"""The network that extractors cut."""

from dataclasses import dataclass
from functools import cached_property

import torch

from framp.data.kinds import Kind
from framp.errors import ModelError
from framp.layout import ParameterLayout, Shapes
from framp.models import Architecture, blank
from framp.structure import Structure
from framp.tracing import Run, trace
from framp.work import Work, work_of


@dataclass(frozen=True)
class Network:
    """What extractors may know of the network that they cut."""

    architecture: Architecture
    layout: ParameterLayout
    kind: Kind

    def structure(self, run: Run | None = None) -> Structure:
        """Trace its channels."""
        return trace(blank(self.architecture), self.layout, self.kind, run)

    @cached_property
    def work(self) -> Work:
        """What its entries cost, in multiply-adds."""
        return work_of(blank(self.architecture), self.layout, self.kind)

    def counted_work(self) -> Work | None:
        """Return what its entries cost, None where that cannot be counted."""
        try:
            return self.work
        except (ModelError, RuntimeError):  # the latter from a user's layer that does not run while it is watched
            return None

    def require(self, shapes: Shapes) -> None:
        """Raise unless the smaller network of some shapes can be trained."""
        module, part = blank(self.architecture), self.layout.part(shapes)
        part.bind(module, torch.zeros(part.size, dtype=part.dtype), torch.zeros(part.size, dtype=part.dtype))
        try:
            module.train().head(module.features(self.kind.blank(part.dtype))).sum().backward()  # type: ignore[operator]
        except (RuntimeError, ValueError, IndexError) as error:
            raise ModelError(
                f"{type(module).__name__} cannot be narrowed ({error}); its layers and views have to go by the number "
                "of channels that they get; mend it, or take a TopK method"
            ) from None
