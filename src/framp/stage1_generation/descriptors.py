"""What the hypernetwork is told about a client: features of its data, or merely who it is.

The features themselves are computed by the client (`framp.client.describe`); here they are standardised over the
training clients, because mean features of a random network are nearly alike for everybody.
"""

from collections.abc import Callable, Sequence
from typing import Protocol, final

import torch
from torch import Tensor

from framp import rng
from framp.config import Config
from framp.data.kinds import Kind
from framp.messages import ExtractorTraining
from framp.models.features import flattened, with_classifier

_CLIP = 5.0
_CHUNK = 1 << 14


class Descriptors(Protocol):
    """The hypernetwork's inputs."""

    @property
    def clients(self) -> int:
        """Number of registered clients."""

    @property
    def dimensions(self) -> int:
        """Length of a descriptor."""

    def of(self, client: int) -> Tensor:
        """Return one client's descriptor."""

    def mean(self) -> Tensor:
        """Return the descriptor of the average client, from which the Union model is generated; always one tensor."""

    def training(self) -> ExtractorTraining | None:
        """Return what participants are asked to do for the feature extractor; None: nothing."""

    def learn(self, changes: Sequence[Tensor]) -> None:
        """Learn from what the participants' training changed of the feature extractor."""

    def extractor(self, round: int) -> Tensor | None:
        """Return the extractor by which all clients have to describe themselves anew before a round; None: not now."""

    def refresh(self, client: int, raw: Tensor) -> None:
        """Take a client's new description in."""

    def refreshed(self) -> None:
        """Take note that all clients have described themselves anew."""

    def state(self) -> dict[str, Tensor]:
        """Return all that was learned, as named tensors: the very memory, not copies."""


class Fixed:
    """What descriptors have in common that stay as they are."""

    def training(self) -> ExtractorTraining | None:
        """Ask for nothing."""
        return None

    def learn(self, changes: Sequence[Tensor]) -> None:
        """Learn nothing."""

    def extractor(self, round: int) -> Tensor | None:
        """Stay as they are."""
        return None

    def refresh(self, client: int, raw: Tensor) -> None:
        """Nobody was asked."""
        raise AssertionError("fixed descriptors are not refreshed")

    def refreshed(self) -> None:
        """Nobody was asked."""

    def state(self) -> dict[str, Tensor]:
        """Return nothing: nothing is learned."""
        return {}


class Features(Fixed):
    """Descriptors made from data; `raw` holds one row a client."""

    def __init__(self, raw: Tensor, standardise: bool) -> None:
        self.raw, self._standardise = raw, standardise
        self.centre, self.scale = torch.zeros(raw.shape[1]), torch.ones(raw.shape[1])
        self._mean = torch.zeros(raw.shape[1])
        self._measure()

    def _measure(self) -> None:
        """Measure centre, scale and mean of the rows, into the tensors that are there."""
        if self._standardise:
            mean = _chunked_mean(self.raw, lambda rows: rows)
            variance = _chunked_mean(self.raw, lambda rows: (rows - mean).square())
            self.centre.copy_(mean)
            self.scale.copy_(variance.sqrt().clamp(min=1e-8))
        self._mean.copy_(_chunked_mean(self.raw, lambda rows: self.seen(rows.float())))

    @staticmethod
    def from_data() -> bool:
        """Ask the clients for features."""
        return True

    @classmethod
    def configured(cls, config: Config, raw: Tensor, kind: Kind, classes: int) -> "Features":
        """Standardise unless the configuration says otherwise."""
        return cls(raw, config.generation.standardise)

    @property
    def clients(self) -> int:
        """Number of registered clients."""
        return len(self.raw)

    @property
    def dimensions(self) -> int:
        """Length of a descriptor."""
        return self.raw.shape[1]

    def seen(self, raw: Tensor) -> Tensor:
        """Return raw features as the hypernetwork sees them: also those of clients that came later."""
        return ((raw - self.centre) / self.scale).clamp(-_CLIP, _CLIP)

    def of(self, client: int) -> Tensor:
        """Return one client's standardised descriptor."""
        return self.seen(self.raw[client])

    def mean(self) -> Tensor:
        """Return the mean of the standardised descriptors."""
        return self._mean


@final
class TrainedFeatures(Features):
    """Descriptors whose feature extractor is trained by the participants (the ablation row "Update").

    Each participant also trains φ under a linear classifier; the server takes the mean. Every so many rounds all
    clients describe themselves anew, and the descriptors are standardised anew.
    """

    def __init__(self, raw: Tensor, standardise: bool, parameters: Tensor, training: tuple[int, int, float]) -> None:
        super().__init__(raw.clone(), standardise)
        self.parameters = parameters
        self._every, self._epochs, self._rate = training

    @classmethod
    def configured(cls, config: Config, raw: Tensor, kind: Kind, classes: int) -> "TrainedFeatures":
        """Start at the random feature extractor by which the clients enrolled."""
        network = with_classifier(kind, classes, feature_seed(config.seed))
        generation = config.generation
        training = (generation.refresh_every, generation.extractor_epochs, generation.extractor_rate)
        return cls(raw, generation.standardise, flattened(network), training)

    def training(self) -> ExtractorTraining:
        """Ask participants to train φ for an epoch or so."""
        return ExtractorTraining(self.parameters.clone(), self._epochs, self._rate)

    def learn(self, changes: Sequence[Tensor]) -> None:
        """Move φ and its classifier by the mean of the participants' changes."""
        self.parameters += torch.stack(list(changes)).mean(dim=0)

    def extractor(self, round: int) -> Tensor | None:
        """Ask every so many rounds."""
        return self.parameters.clone() if round > 1 and (round - 1) % self._every == 0 else None

    def refresh(self, client: int, raw: Tensor) -> None:
        """Put a client's new row in its place."""
        self.raw[client] = raw

    def refreshed(self) -> None:
        """Standardise anew."""
        self._measure()

    def state(self) -> dict[str, Tensor]:
        """Return φ, the rows, and how they are standardised."""
        return {
            "descriptors.extractor": self.parameters,
            "descriptors.raw": self.raw,
            "descriptors.centre": self.centre,
            "descriptors.scale": self.scale,
            "descriptors.mean": self._mean,
        }


@final
class OneHot(Fixed):
    """Descriptors that say only who the client is; an unseen client has none."""

    def __init__(self, clients: int) -> None:
        self.clients = self.dimensions = clients
        self._mean = torch.full((clients,), 1 / clients)

    @staticmethod
    def from_data() -> bool:
        """Ask the clients for nothing."""
        return False

    @classmethod
    def configured(cls, config: Config, raw: Tensor, kind: Kind, classes: int) -> "OneHot":
        """Take one dimension a client."""
        return cls(len(raw))

    def of(self, client: int) -> Tensor:
        """Return the unit vector of a client."""
        vector = torch.zeros(self.dimensions)
        vector[client] = 1
        return vector

    def mean(self) -> Tensor:
        """Return the mean of all unit vectors."""
        return self._mean


def feature_seed(seed: int) -> int:
    """Return the seed of φ, which a run's seed stands for."""
    return rng.number(seed, rng.NOBODY, rng.NOBODY, "feature extractor")


def _chunked_mean(rows: Tensor, transform: Callable[[Tensor], Tensor]) -> Tensor:
    """Average over clients in float64 without a second copy of the registry."""
    total = torch.zeros(rows.shape[1], dtype=torch.float64)
    for start in range(0, len(rows), _CHUNK):
        total += transform(rows[start : start + _CHUNK].double()).double().sum(dim=0)
    return total / len(rows)
