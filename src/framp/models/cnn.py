"""A small convolutional network for images of any size."""

from torch import Tensor, nn

from framp.models.norm import norm as norm_layer


class SmallCNN(nn.Module):
    """Three stages of convolution, norm, ReLU and pooling (width, 2·width, 4·width); mean pooling; a linear head."""

    def __init__(self, channels: int, classes: int, width: int = 32, norm: str = "batch") -> None:
        super().__init__()
        self.stages = nn.Sequential(
            _stage(channels, width, norm),
            _stage(width, 2 * width, norm),
            _stage(2 * width, 4 * width, norm),
        )
        self.classifier = nn.Linear(4 * width, classes)
        self.unit_widths = (width, 2 * width, 4 * width)

    def units(self) -> list[nn.Module]:
        """Return the steps after which a shallower network could end."""
        return list(self.stages)

    def pooled(self, maps: Tensor) -> Tensor:
        """Return the features of maps, as a classifier takes them."""
        return maps.mean(dim=(2, 3))

    def features(self, images: Tensor) -> Tensor:
        """Encode images as 4·width features."""
        return self.pooled(self.stages(images))

    def head(self, features: Tensor) -> Tensor:
        """Classify features."""
        logits: Tensor = self.classifier(features)
        return logits

    def forward(self, images: Tensor) -> Tensor:
        """Return the logits."""
        return self.head(self.features(images))


def _stage(inputs: int, outputs: int, norm: str) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, kernel_size=3, padding=1, bias=False),
        norm_layer(norm, outputs),
        nn.ReLU(),
        nn.MaxPool2d(2, ceil_mode=True),
    )
