"""ResNet-18 in its CIFAR form: 11,164,362 maskable parameters for 10 classes at width 64."""

import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from framp.models.norm import norm as norm_layer


class BasicBlock(nn.Module):
    """Two 3x3 convolutions beside a shortcut: the identity, or a 1x1 convolution where the shape changes."""

    def __init__(self, inputs: int, outputs: int, stride: int, norm: str) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, kernel_size=3, stride=stride, padding=1, bias=False)
        self.norm1 = norm_layer(norm, outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, kernel_size=3, padding=1, bias=False)
        self.norm2 = norm_layer(norm, outputs)
        self.shortcut = nn.Sequential()
        if stride != 1 or inputs != outputs:
            self.shortcut = nn.Sequential(
                nn.Conv2d(inputs, outputs, kernel_size=1, stride=stride, bias=False), norm_layer(norm, outputs)
            )

    def forward(self, x: Tensor) -> Tensor:
        """Apply the block."""
        inner = F.relu(self.norm1(self.conv1(x)))
        return F.relu(self.norm2(self.conv2(inner)) + self.shortcut(x))


class ResNet18(nn.Module):
    """Stem without pooling, four stages of two blocks (width, 2·, 4·, 8·width), mean pooling, a linear head."""

    def __init__(self, channels: int, classes: int, width: int = 64, norm: str = "batch") -> None:
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(channels, width, kernel_size=3, padding=1, bias=False), norm_layer(norm, width), nn.ReLU()
        )
        blocks: list[nn.Module] = []
        inputs = width
        for stage in range(4):
            outputs = width * 2**stage
            blocks += [
                BasicBlock(inputs, outputs, 1 if stage == 0 else 2, norm),
                BasicBlock(outputs, outputs, 1, norm),
            ]
            inputs = outputs
        self.blocks = nn.Sequential(*blocks)
        self.classifier = nn.Linear(inputs, classes)
        self.unit_widths = tuple(width * 2 ** (number // 2) for number in range(8))

    def units(self) -> list[nn.Module]:
        """Return the steps after which a shallower network could end: the blocks, the stem before the first."""
        first, *others = self.blocks
        return [nn.Sequential(self.stem, first), *others]

    def pooled(self, maps: Tensor) -> Tensor:
        """Return the features of maps, as a classifier takes them."""
        return maps.mean(dim=(2, 3))

    def features(self, images: Tensor) -> Tensor:
        """Encode images as 8·width features."""
        return self.pooled(self.blocks(self.stem(images)))

    def head(self, features: Tensor) -> Tensor:
        """Classify features."""
        logits: Tensor = self.classifier(features)
        return logits

    def forward(self, images: Tensor) -> Tensor:
        """Return the logits."""
        return self.head(self.features(images))
