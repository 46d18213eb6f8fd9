"""ResNet-50 for 224 x 224 images: its 53 convolutions.

Source: He et al. 2015 (arXiv 1512.03385), table 1, with the stride of each stage's first block on its 3x3 convolution,
as torchvision's ``resnet50`` has it (variant 1.5).
"""

from __future__ import annotations

from ops.studies.models.layers import ConvLayer

_STAGES = ((56, 64, 3), (28, 128, 4), (14, 256, 6), (7, 512, 3))
"""(output rows, width, blocks) of conv2_x to conv5_x."""

_EXPANSION = 4


def layers() -> tuple[ConvLayer, ...]:
    """Return the convolutions in forward order."""
    table = [ConvLayer(name="conv1", cin=3, cout=64, hw=224, kernel=7, stride=2, pad=3)]
    channels, hw_in = 64, 56
    for stage, (hw, width, blocks) in enumerate(_STAGES, start=2):
        for block in range(1, blocks + 1):
            stride = hw_in // hw
            name = f"conv{stage}_{block}"
            out = width * _EXPANSION
            table.append(ConvLayer(name=f"{name}a", cin=channels, cout=width, hw=hw_in, kernel=1))
            table.append(ConvLayer(name=f"{name}b", cin=width, cout=width, hw=hw_in, kernel=3, stride=stride, pad=1))
            table.append(ConvLayer(name=f"{name}c", cin=width, cout=out, hw=hw, kernel=1))
            if block == 1:
                table.append(ConvLayer(name=f"{name}s", cin=channels, cout=out, hw=hw_in, kernel=1, stride=stride))
            channels, hw_in = out, hw
    return tuple(table)
