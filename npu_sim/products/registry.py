"""Products by name: SoC versions, series aliases, files, and the product that calls without one use.

Every file in ``data`` beside this module, and in the directories that `ENVIRONMENT` names, is read when a product is
first asked for; `npu_sim.products.files` says what one holds. Nothing else knows which products there are.
"""

from __future__ import annotations

import contextlib
import difflib
import os
from collections.abc import Iterator, Mapping
from contextvars import ContextVar
from functools import cache, cached_property
from pathlib import Path
from threading import RLock
from typing import Any

from npu_sim.errors import InputFileError, ProductError, shown
from npu_sim.products.files import SUFFIX, Facts, ProductFile, build_product, facts_of, read_file
from npu_sim.products.product import CoreSpec, Product
from npu_sim.products.source import FrozenMapping

ENVIRONMENT = "NPU_SIM_PRODUCTS"
"""Directories with product files of the user's, separated as in ``PATH``."""

DEFAULT_PRODUCT = "Ascend910B2"

_SHIPPED = Path(__file__).with_name("data")

_ATLAS_200I = "Atlas 200I/500 A2"
_ASCEND_950 = "Ascend 950PR/DT"
_OUT_OF_SCOPE: FrozenMapping[str] = FrozenMapping(
    {
        **dict.fromkeys(("Ascend310B1", "Ascend310B2", "Ascend310B3", "Ascend310B4", "310b"), _ATLAS_200I),
        **dict.fromkeys(("Ascend910_95", "Ascend950", "910_95", "950"), _ASCEND_950),
    }
)
"""Names of chips that exist and are not modelled, and their series."""

NEAR_MATCH_COUNT = 4
_LONGEST_NAME = 40


class _Registry:
    """The products of some directories.

    The records of shipped products are made when they are first asked for: most runs need one of them.

    Attributes
    ----------
    series : FrozenMapping
        Series alias to the SoC version it stands for.
    names : FrozenMapping
        Family and trade names, lower case, to the alias.
    spellings : FrozenMapping
        Every way to write a product, in lower case, to the SoC version. In another case than its own, Ascend910B could
        be the SoC version (of 2019) or the family (A2): it is left out.
    """

    def __init__(self, folders: tuple[Path, ...]) -> None:
        self._read: dict[Path, ProductFile] = {}
        self._built: dict[str, Product] = {}
        self._pending: list[object] = []
        self._lock = RLock()  # two threads that make one product are not a base of itself
        described = [file for folder in folders for file in self._files_in(folder)]
        self._file_of: dict[str, ProductFile] = {}
        series: dict[str, str] = {}
        names: dict[str, str] = {}
        for file in described:
            for soc in file.socs:
                _claim(self._file_of, soc, file, file)
            if file.series is not None:
                _claim(series, file.series.name, file.series.soc, file)
                for name in file.series.spellings:
                    _claim(names, name, file.series.name, file)
        self.series, self.names = FrozenMapping(series), FrozenMapping(names)
        self.spellings = self._spellings()
        for soc, file in self._file_of.items():
            if file.path.parent != _SHIPPED:  # what is wrong with the user's shows at once
                self._product(soc)

    @cached_property
    def products(self) -> FrozenMapping[Product]:
        """SoC version to record, series by series."""
        order = list(self.series)
        built = sorted(map(self._product, self._file_of), key=lambda product: order.index(product.series))
        return FrozenMapping({product.name: product for product in built})

    def load(self, path: Path) -> Product:
        """Return the product of a file that describes one, or of the SoC that the alias of its series stands for."""
        file = self._file(path)
        socs = tuple(file.socs) if file.series is None else (file.series.soc,)
        if len(socs) != 1:
            raise ProductError(f"Product file must describe one SoC, not {', '.join(socs) or 'none'} ({path})")
        with self._lock:
            return build_product(file, socs[0], self._inherited(file))

    def _files_in(self, folder: Path) -> list[ProductFile]:
        """Return the files that describe SoCs, in the order of their first one; the others are bases only."""
        if not folder.is_dir():
            raise InputFileError(f"{ENVIRONMENT} must name directories, not {folder}")
        files = [self._file(path) for path in sorted(folder.glob(f"*{SUFFIX}"))]
        return sorted((file for file in files if file.socs), key=lambda file: min(file.socs))

    def _file(self, path: Path) -> ProductFile:
        def documents(base: str) -> Mapping[str, str]:
            return self._file(path.parent / base).documents if base.endswith(SUFFIX) else {}

        with self._lock, self._entered(path):
            if path in self._read:
                return self._read[path]
            is_shipped = path.parent == _SHIPPED
            file = read_file(path, is_shipped=is_shipped, documents=documents)
            if is_shipped:  # the user's may change between two calls
                self._read[path] = file
            return file

    def _inherited(self, file: ProductFile) -> Facts:
        if not file.base:
            return {}
        if file.base.endswith(SUFFIX):
            base = self._file(file.path.parent / file.base)
            return self._inherited(base) | base.facts
        soc = self._soc_of(file.base)
        if soc is None:
            raise ProductError(
                f"base must be a file, a SoC version or a series alias, not {shown(file.base)} ({file.path})"
            )
        return facts_of(self._product(soc))

    def _product(self, soc: str) -> Product:
        with self._lock, self._entered(soc):
            if soc not in self._built:
                file = self._file_of[soc]
                self._built[soc] = build_product(file, soc, self._inherited(file))
            return self._built[soc]

    @contextlib.contextmanager
    def _entered(self, thing: Path | str) -> Iterator[None]:
        if thing in self._pending:
            raise ProductError(f"base must be another product or file, but {thing} is based on itself")
        self._pending.append(thing)
        try:
            yield
        finally:
            self._pending.remove(thing)

    def _spellings(self) -> FrozenMapping[str]:
        found = {spelling: self.series[alias] for spelling, alias in self.names.items()}
        socs = {soc.lower(): soc for soc in self._file_of}
        bare = {soc.removeprefix("ascend"): name for soc, name in socs.items()}
        unclear = {soc for soc in socs if soc in found}
        found = {**bare, **found, **socs, **self.series}
        return FrozenMapping({spelling: soc for spelling, soc in found.items() if spelling not in unclear})

    def _soc_of(self, name: str) -> str | None:
        """Return the SoC version that ``name`` means, None if it means none."""
        if name in self._file_of:
            return name
        return self.spellings.get(" ".join(name.lower().split()) if len(name) <= _LONGEST_NAME else "")

    def find(self, name: str) -> Product | None:
        """Return the product that ``name`` means, None if it means none."""
        soc = self._soc_of(name)
        return None if soc is None else self._product(soc)


def _claim(known: dict[str, Any], name: str, value: Any, file: ProductFile) -> None:
    if name in known:
        raise ProductError(f"Names must be given to one product or series, but {name} is taken already ({file.path})")
    known[name] = value


def _registry() -> _Registry:
    return _read_directories(os.environ.get(ENVIRONMENT, ""))


def is_known_core(core: CoreSpec) -> bool:
    """Return whether a product that comes with the package has exactly this core."""
    return id(core) in _known_identities() or core in _known_cores()


@cache
def _known_identities() -> frozenset[int]:
    """Return the identities of the cores that are known, which live as long as the process: comparing takes longer."""
    return frozenset(id(product.core) for product in _read_directories("").products.values())


@cache
def _known_cores() -> frozenset[CoreSpec]:
    return frozenset(product.core for product in _read_directories("").products.values())


@cache
def _read_directories(theirs: str) -> _Registry:
    return _Registry((_SHIPPED, *(Path(folder) for folder in theirs.split(os.pathsep) if folder)))


_current: ContextVar[Product | None] = ContextVar("npu_sim_product", default=None)


def list_products() -> tuple[Product, ...]:
    """Return all products, series by series."""
    return tuple(_registry().products.values())


def list_series() -> Mapping[str, str]:
    """Return every series by its alias, and the SoC version that the alias stands for."""
    return _registry().series


def load(path: str | os.PathLike[str]) -> Product:
    """Return the product that a file of the user's describes: a base and the facts that differ from it.

    Parameters
    ----------
    path : str or path-like
        A TOML file as in `npu_sim.products.files`, for instance ``base = "910b"`` and, under ``[facts]``,
        ``hf32_mantissa_bits = 10``. The product is called as the file is, without its suffix, unless it says a name.

    Returns
    -------
    Product
        The record; the sources of what the file says name the file.

    Raises
    ------
    InputFileError
        It is no readable TOML file of at most 1 MiB.
    ProductError
        A key is unknown, a value is not what it must be or does not fit the others, or several SoCs are described.
    """
    return _registry().load(Path(path))


def get_product(name: str | Product) -> Product:
    """Return the product called ``name``.

    Parameters
    ----------
    name : str or Product
        SoC version (``"Ascend910B2"``, also ``"910B2"``), series alias (``"910b"``) or generation (``"A2"``), in any
        case; only ``"Ascend910B"`` must be written so, and is the chip of 2019, not the A2. What ends in ``.toml`` is
        the path of a product file, see `load`. A `Product` is returned as it is, so that variants made with
        ``dataclasses.replace`` can be used wherever a name can.

    Returns
    -------
    Product
        The frozen record.

    Raises
    ------
    ProductError
        If the name is unknown (the message lists near matches) or the chip is out of scope; for files as `load`.
    InputFileError
        As `load`.

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
    if name.endswith(SUFFIX):
        return load(name)
    registry = _registry()
    product = registry.find(name)
    if product is not None:
        return product
    wanted = " ".join(name[: _LONGEST_NAME + 1].lower().split())
    for chip, series in _OUT_OF_SCOPE.items():
        if chip.lower() == wanted:
            raise ProductError(
                f"Product must be of the series {', '.join(registry.series)}, not {name!r} ({series} is out of scope)"
            )
    near = near_matches(name)
    hint = f"near matches: {', '.join(near)}" if near else f"aliases: {', '.join(registry.series)}"
    raise ProductError(f"Product must be a known SoC version or series alias, not {shown(name)} ({hint})")


def near_matches(name: str) -> tuple[str, ...]:
    """Return the SoC versions and aliases that contain or resemble ``name``, best first, without regard to case."""
    names: dict[str, list[str]] = {}
    registry = _registry()
    for candidate in (*registry.series, *registry.products):
        names.setdefault(candidate.lower(), []).append(candidate)
    for spelling, candidate in registry.names.items():
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
    products = _registry().products
    if name not in products:
        return None
    product = products[name]
    namesakes = {other.series: other for other in products.values() if other.short_soc_version == name}
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
