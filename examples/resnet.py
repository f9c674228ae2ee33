"""ResNet-50 (He et al., 2015), with the stride in the 3x3 convolution as is usual now."""

from __future__ import annotations

from torch import Tensor, nn


def conv3x3(channels: int, out_channels: int, stride: int = 1) -> nn.Conv2d:
    return nn.Conv2d(channels, out_channels, 3, stride, padding=1, bias=False)


def conv1x1(channels: int, out_channels: int, stride: int = 1) -> nn.Conv2d:
    return nn.Conv2d(channels, out_channels, 1, stride, bias=False)


class Bottleneck(nn.Module):
    """1x1 to fewer channels, 3x3, 1x1 to four times as many; added to what came in."""

    expansion = 4

    def __init__(self, channels: int, width: int, stride: int = 1):
        super().__init__()
        out_channels = width * self.expansion
        self.conv1, self.bn1 = conv1x1(channels, width), nn.BatchNorm2d(width)
        self.conv2, self.bn2 = conv3x3(width, width, stride), nn.BatchNorm2d(width)
        self.conv3, self.bn3 = conv1x1(width, out_channels), nn.BatchNorm2d(out_channels)
        self.relu = nn.ReLU(inplace=True)
        self.shortcut: nn.Module | None = None
        if stride != 1 or channels != out_channels:
            self.shortcut = nn.Sequential(
                conv1x1(channels, out_channels, stride), nn.BatchNorm2d(out_channels)
            )

    def forward(self, x: Tensor) -> Tensor:
        identity = x if self.shortcut is None else self.shortcut(x)
        out = self.relu(self.bn1(self.conv1(x)))
        out = self.relu(self.bn2(self.conv2(out)))
        out = self.bn3(self.conv3(out))
        out += identity
        return self.relu(out)


class ResNet(nn.Module):
    def __init__(self, depths: tuple[int, ...], num_classes: int):
        super().__init__()
        self.channels = 64
        self.conv1 = nn.Conv2d(3, 64, 7, stride=2, padding=3, bias=False)
        self.bn1 = nn.BatchNorm2d(64)
        self.relu = nn.ReLU(inplace=True)
        self.maxpool = nn.MaxPool2d(3, stride=2, padding=1)
        self.stages = nn.Sequential(
            *(self._stage(64 * 2**i, depth, stride=1 if i == 0 else 2) for i, depth in enumerate(depths))
        )
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.fc = nn.Linear(self.channels, num_classes)
        self._initialize()

    def _stage(self, width: int, depth: int, stride: int) -> nn.Sequential:
        blocks = []
        for i in range(depth):
            blocks.append(Bottleneck(self.channels, width, stride if i == 0 else 1))
            self.channels = width * Bottleneck.expansion
        return nn.Sequential(*blocks)

    def _initialize(self) -> None:
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

    def forward(self, x: Tensor) -> Tensor:
        x = self.maxpool(self.relu(self.bn1(self.conv1(x))))
        x = self.stages(x)
        return self.fc(self.avgpool(x).flatten(1))


def resnet50(num_classes: int = 1000) -> ResNet:
    return ResNet((3, 4, 6, 3), num_classes)
