"""What rules and routes ask of a product instead of its name, so that a new series answers for itself."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from npu_sim.products import Product, get_product, list_series


@dataclass(frozen=True, slots=True, kw_only=True)
class Capability:
    """A question with one answer for each product.

    Attributes
    ----------
    name : str
        In braces it stands for the series that have it in the texts of pages, see `with_series`.
    holds : callable
        The question.
    """

    name: str
    holds: Callable[[Product], bool]

    def series(self) -> tuple[str, ...]:
        """Return the aliases of the series whose product has it."""
        return tuple(alias for alias in list_series() if self.holds(get_product(alias)))


SPLIT = Capability(name="split", holds=lambda product: product.core.is_split)
UNIFIED = Capability(name="unified", holds=lambda product: not product.core.is_split)
BF16 = Capability(name="bf16", holds=lambda product: "bf16" in product.cube_dtypes)
NO_FP32 = Capability(name="no fp32", holds=lambda product: "fp32" not in product.cube_dtypes)
NO_CONV3D = Capability(name="no conv3d", holds=lambda product: not product.supports_conv3d)
ACLNN = Capability(name="aclnn", holds=lambda product: product.has_aclnn)
NO_ACLNN = Capability(name="no aclnn", holds=lambda product: not product.has_aclnn)
ON_PAGES = Capability(name="on pages", holds=lambda product: product.on_operator_pages)
NOT_ON_PAGES = Capability(name="not on pages", holds=lambda product: not product.on_operator_pages)

_CAPABILITIES = (SPLIT, UNIFIED, BF16, NO_FP32, NO_CONV3D, ACLNN, ON_PAGES, NOT_ON_PAGES)


def series_of_calls(capability: Capability = ACLNN) -> tuple[str, ...]:
    """Return the series that have ``capability`` and aclnn calls."""
    return tuple(alias for alias in capability.series() if ACLNN.holds(get_product(alias)))


def with_series(text: str) -> str:
    """Return ``text`` with each capability in braces replaced by the series that have it: "{split}", "910b, 910_93".

    They are those that have aclnn calls, of which the pages are.
    """
    for capability in _CAPABILITIES:
        text = text.replace(f"{{{capability.name}}}", ", ".join(series_of_calls(capability)) or "no series")
    return text
