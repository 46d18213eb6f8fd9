"""Layer tables of networks, for studies that need shapes only."""

from collections.abc import Callable, Mapping

from ops.studies.models import resnet50
from ops.studies.models.layers import ConvLayer

MODELS: Mapping[str, Callable[[], tuple[ConvLayer, ...]]] = {"resnet50": resnet50.layers}
"""Layer tables by name."""
