"""Products by name: SoC versions, series aliases, and the product that calls without one use."""

from __future__ import annotations

import contextlib
import difflib
from collections.abc import Iterator
from contextvars import ContextVar

from npu_sim.errors import ProductError, shown
from npu_sim.products import ascend310p, ascend910, ascend910_93, ascend910b
from npu_sim.products.product import Product
from npu_sim.products.source import FrozenMapping

_PRODUCTS: FrozenMapping[Product] = FrozenMapping(
    {product.name: product for table in (ascend310p, ascend910, ascend910b, ascend910_93) for product in table.PRODUCTS}
)

SERIES_ALIASES: FrozenMapping[str] = FrozenMapping(
    {"310p": "Ascend310P3", "910": "Ascend910A", "910b": "Ascend910B2", "910_93": "Ascend910_9392"}
)
"""Series alias to the SoC version it stands for."""

DEFAULT_PRODUCT = "Ascend910B2"

_ATLAS_200I = "Atlas 200I/500 A2"
_ASCEND_950 = "Ascend 950PR/DT"
_OUT_OF_SCOPE: FrozenMapping[str] = FrozenMapping(
    {
        **dict.fromkeys(("Ascend310B1", "Ascend310B2", "Ascend310B3", "Ascend310B4", "310b"), _ATLAS_200I),
        **dict.fromkeys(("Ascend910_95", "Ascend950", "910_95", "950"), _ASCEND_950),
    }
)
"""Names of chips that exist and are not modelled, and their series."""

_OTHER_SPELLINGS: FrozenMapping[str] = FrozenMapping(
    {
        "ascend310p": "310p",
        "ascend910": "910",
        "ascend910b": "910b",
        "ascend910_93": "910_93",
        "a2": "910b",
        "a3": "910_93",
        "atlas a2": "910b",
        "atlas a3": "910_93",
    }
)
"""Family and trade names, lower case."""


def _spellings() -> FrozenMapping[str]:
    """Return every way to write a product, in lower case, and its SoC version.

    In another case than its own, Ascend910B could be the SoC version (of 2019) or the family (A2): it is left out.
    """
    found = {spelling: SERIES_ALIASES[alias] for spelling, alias in _OTHER_SPELLINGS.items()}
    socs = {soc.lower(): soc for soc in _PRODUCTS}
    bare = {soc.removeprefix("ascend"): name for soc, name in socs.items()}
    unclear = {soc for soc in socs if soc in found}
    found = {**bare, **found, **socs, **SERIES_ALIASES}
    return FrozenMapping({spelling: soc for spelling, soc in found.items() if spelling not in unclear})


_SPELLINGS = _spellings()

NEAR_MATCH_COUNT = 4
_LONGEST_NAME = 40

_current: ContextVar[Product | None] = ContextVar("npu_sim_product", default=None)


def list_products() -> tuple[Product, ...]:
    """Return all products: 310P, 910, A2, A3."""
    return tuple(_PRODUCTS.values())


def get_product(name: str | Product) -> Product:
    """Return the product called ``name``.

    Parameters
    ----------
    name : str or Product
        SoC version (``"Ascend910B2"``, also ``"910B2"``), series alias (``"910b"``) or generation (``"A2"``), in any
        case; only ``"Ascend910B"`` must be written so, and is the chip of 2019, not the A2. A `Product` is returned as
        it is, so that variants made with ``dataclasses.replace`` can be used wherever a name can.

    Returns
    -------
    Product
        The frozen record.

    Raises
    ------
    ProductError
        If the name is unknown (the message lists near matches) or the chip is out of scope.

    Examples
    --------
    >>> get_product("910b").name
    'Ascend910B2'
    >>> get_product("Ascend910B").series_name
    'Atlas training series'
    """
    if isinstance(name, Product):
        return name
    if not isinstance(name, str):
        raise ProductError(f"Product must be a name or a Product, not {shown(name)}")
    if name in _PRODUCTS:
        return _PRODUCTS[name]
    wanted = " ".join(name.lower().split()) if len(name) <= _LONGEST_NAME else ""
    if wanted in _SPELLINGS:
        return _PRODUCTS[_SPELLINGS[wanted]]
    for chip, series in _OUT_OF_SCOPE.items():
        if chip.lower() == wanted:
            raise ProductError(
                f"Product must be of the series {', '.join(SERIES_ALIASES)}, not {name!r} ({series} is out of scope)"
            )
    near = near_matches(name)
    hint = f"near matches: {', '.join(near)}" if near else f"aliases: {', '.join(SERIES_ALIASES)}"
    raise ProductError(f"Product must be a known SoC version or series alias, not {shown(name)} ({hint})")


def near_matches(name: str) -> tuple[str, ...]:
    """Return the SoC versions and aliases that contain or resemble ``name``, best first, without regard to case."""
    names: dict[str, list[str]] = {}
    for candidate in (*SERIES_ALIASES, *_PRODUCTS):
        names.setdefault(candidate.lower(), []).append(candidate)
    for spelling, candidate in _OTHER_SPELLINGS.items():
        names.setdefault(spelling, []).append(candidate)
    wanted = name[:_LONGEST_NAME].strip().lower()
    containing = sorted((spelling for spelling in names if len(wanted) > 1 and wanted in spelling), key=len)
    close = difflib.get_close_matches(wanted, names, n=NEAR_MATCH_COUNT, cutoff=0.6)
    found = dict.fromkeys(candidate for spelling in (*containing, *close) for candidate in names[spelling])
    return tuple(found)[:NEAR_MATCH_COUNT]


def product_hint(name: str) -> str | None:
    """Return a warning to show beside ``name`` where the vendor calls another series by the same name, else None.

    The platform configuration knows a SoC version ``Ascend910B``, a bin of the 2019 chip, and a family ``Ascend910B``,
    the A2 generation.
    """
    if name not in _PRODUCTS:
        return None
    product = _PRODUCTS[name]
    namesakes = {other.series: other for other in _PRODUCTS.values() if other.short_soc_version == name}
    for series, other in namesakes.items():
        if series != product.series:
            return f"{name} is a bin of the {product.series_name}; for the {other.series_name} use {series}"
    return None


def current_product(default: str | Product = DEFAULT_PRODUCT) -> Product:
    """Return the product of the innermost `use_product`, or outside of any the one called ``default``.

    Raises
    ------
    ProductError
        As `get_product`, for ``default``.
    """
    current = _current.get()
    return get_product(default) if current is None else current


@contextlib.contextmanager
def use_product(name: str | Product) -> Iterator[Product]:
    """Make ``name`` the current product inside a ``with`` block, in this thread or task only.

    Parameters
    ----------
    name : str or Product
        As for `get_product`.

    Yields
    ------
    Product
        The record.

    Raises
    ------
    ProductError
        As `get_product`, on entry; the current product is then unchanged.
    """
    product = get_product(name)
    token = _current.set(product)
    try:
        yield product
    finally:
        _current.reset(token)
