"""Product files: TOML text, checked, and the products it describes.

A file gives facts by the dotted names that ``npu-sim products`` shows, each with its source::

    base = "dav_c220.toml"                  # a file beside this one, a SoC version or a series alias

    [documents]                             # names for sources, used in braces
    page = "repository:path of a page"

    [series]                                # only in the file that makes a series
    name = "910b"                           # its alias, Product.series
    soc = "Ascend910B2"                     # the SoC version that the alias stands for
    spellings = ["a2"]                      # other names of it

    [facts]                                 # of every SoC of the file
    core.l1_bytes = { value = 524288, ini = "[AICoreSpec] l1_size", note = "what a reader must know" }
    cost.flag_cycles = { value = 1, derived = "{page}", confidence = "M" }

    [socs.Ascend910B2]                      # facts of one SoC; none: the file describes one, called `name`
    l2_bytes = 201326592

The key of the source is its evidence (`npu_sim.products.source.Evidence`); under ``ini`` stands the key in the platform
configuration of the SoC. Only a file of the user's own may give a bare value: its source is then the file, and the
sources of all its facts say that they are the user's. ``"unknown"`` is the value of a fact that no source gives.
A file without ``[socs]`` and ``name`` only serves as a base, if it comes with the package.
"""

from __future__ import annotations

import re
import stat
import tomllib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, get_type_hints

from npu_sim.errors import InputFileError, ProductError, shown
from npu_sim.products.cost import NUMBERS, CostParams
from npu_sim.products.product import CUBE_DTYPES, AccumulationModel, CoreSpec, Product, facts
from npu_sim.products.source import CONFIDENCE, EVIDENCE, PLATFORM_CONFIG, Source
from npu_sim.units import KIB

Fact = tuple[Any, Source]
"""A value and where it comes from."""
Facts = dict[str, Fact]

SUFFIX = ".toml"
MAX_FILE_BYTES = 1 << 20
LEAST_UB_BYTES = 64 * KIB
"""What all vector kernels have room in; some do with less, so that `CoreSpec` allows it."""
_SOC = "<SoC>"
_UNKNOWN = "unknown"
_LONGEST_TEXT = 2000
_SOC_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_.-]{0,39}")
_SERIES_NAME = re.compile(r"[a-z0-9][a-z0-9_. -]{0,39}")
_COST_NAMES = ("cost.name", "cost.revision")
"""Labels of a parameter set: they are no facts and have no source."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """What makes a series.

    Attributes
    ----------
    name : str
        Its alias.
    soc : str
        The SoC version that the alias stands for.
    spellings : tuple of str
        Other names of it, lower case.
    """

    name: str
    soc: str
    spellings: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ProductFile:
    """One file, with every value of the right type.

    Attributes
    ----------
    path : Path
        Where it is.
    base : str
        What it starts from; empty: from nothing.
    documents : mapping of str to str
        Names for sources.
    series : Series or None
        The series it makes.
    facts : dict
        Facts of all its SoCs; the placeholder ``<SoC>`` in a source stands for each one's name.
    socs : mapping of str to dict
        SoC versions and the facts of each.
    """

    path: Path
    base: str
    documents: Mapping[str, str]
    series: Series | None
    facts: Facts
    socs: Mapping[str, Facts]


def read_file(path: Path, *, is_shipped: bool, documents: Callable[[str], Mapping[str, str]]) -> ProductFile:
    """Return a product file.

    Parameters
    ----------
    path : Path
        The file.
    is_shipped : bool
        It comes with the package: every fact needs a source, and the file may be a base only. Others are the user's.
    documents : callable
        Returns the names for sources that a base brings, by its name.

    Raises
    ------
    InputFileError
        It is no readable TOML file of at most 1 MiB.
    ProductError
        A key is unknown or a value is not what it must be; the message names the file, the key and the value.
    """
    reader = _Reader(path, is_shipped)
    top = reader.parse()
    base = reader.text(top, "base", default="")
    given = reader.table(top, "documents")
    own = {key: reader.text(given, key) for key in tuple(given)}
    reader.documents = {**documents(base), **own}
    series = reader.series(top)
    shared = reader.facts(reader.table(top, "facts"))
    given = reader.table(top, "socs")
    socs = {name: reader.facts(reader.table(given, name)) for name in tuple(given)}
    single = reader.text(top, "name", default="" if is_shipped or socs else path.stem)
    if single:
        socs[single] = {}
    for name in socs:
        reader.require(_SOC_NAME.fullmatch(name) is not None, "SoC version", "of 1 to 40 letters, digits, _ . -", name)
    reader.nothing_left(top, "")
    if series is not None:
        reader.require(series.soc in socs, "series.soc", f"one of {', '.join(socs)}", series.soc)
        named = shared.get("short_soc_version")
        shared["series"] = (series.name, Source(reader.origin, "user") if named is None else named[1])
    return ProductFile(path=path, base=base, documents=reader.documents, series=series, facts=shared, socs=socs)


class _Reader:
    """Takes keys out of the tables of one file; what is left over in the end is unknown."""

    def __init__(self, path: Path, is_shipped: bool) -> None:
        self.path = path
        self.is_shipped = is_shipped
        self.origin = "" if is_shipped else f"the user's product file {path}"
        self.documents: Mapping[str, str] = {}

    def require(self, holds: bool, thing: str, rule: str, value: object) -> None:
        if not holds:
            raise ProductError(f"{thing} must be {rule}, not {shown(value)} ({self.path})")

    def parse(self) -> dict[str, Any]:
        content = b""
        try:
            is_regular = stat.S_ISREG(self.path.stat().st_mode)
            if is_regular:
                with self.path.open("rb") as stream:
                    content = stream.read(MAX_FILE_BYTES + 1)
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or error
            raise InputFileError(f"Product file must be readable, but {self.path} is not ({reason})") from error
        if not is_regular:
            raise InputFileError(f"Product file must be a regular file, not {self.path}")
        if len(content) > MAX_FILE_BYTES:
            raise InputFileError(f"Product file must have at most {MAX_FILE_BYTES} bytes, not more ({self.path})")
        try:
            return tomllib.loads(content.decode())
        except (ValueError, RecursionError) as error:
            reason = " ".join(str(error).split())
            raise InputFileError(f"Product file must be TOML, but {self.path} is not ({shown(reason)})") from error

    def table(self, parent: dict[str, Any], key: str) -> dict[str, Any]:
        found = parent.pop(key, {})
        self.require(isinstance(found, dict), key, "a table", found)
        return dict(found)

    def text(self, parent: dict[str, Any], key: str, *, default: str | None = None) -> str:
        found = parent.pop(key, default)
        fits = isinstance(found, str) and found.isprintable() and len(found) <= _LONGEST_TEXT
        self.require(fits and (found != "" or default == ""), key, "a text of one line", found)
        return str(found)

    def nothing_left(self, given: Mapping[str, Any], place: str) -> None:
        for key in given:
            raise ProductError(f"{place}{key} must be a known key, but is not ({self.path})")

    def series(self, top: dict[str, Any]) -> Series | None:
        if "series" not in top:
            return None
        given = self.table(top, "series")
        name, soc = self.text(given, "name"), self.text(given, "soc")
        spellings = given.pop("spellings", [])
        self.require(isinstance(spellings, list), "spellings", "a list of texts", spellings)
        for spelling in (name, *spellings):
            right = isinstance(spelling, str) and _SERIES_NAME.fullmatch(spelling) is not None
            self.require(right, "Name of a series", "of 1 to 40 lower-case letters, digits, blanks, _ . -", spelling)
        self.nothing_left(given, "series.")
        return Series(name=name, soc=soc, spellings=tuple(spellings))

    def facts(self, given: dict[str, Any]) -> Facts:
        return {name: self.fact(name, value) for name, value in self.leaves(given, "")}

    def leaves(self, given: Mapping[str, Any], prefix: str) -> Iterator[tuple[str, Any]]:
        for key, value in given.items():
            if isinstance(value, dict) and prefix + key not in _kinds():
                yield from self.leaves(value, f"{prefix}{key}.")
            elif prefix + key in _kinds():
                yield prefix + key, value
            else:
                raise ProductError(f"{shown(prefix + key)} must be the name of a fact, but is none ({self.path})")

    def fact(self, name: str, given: Any) -> Fact:
        if name in _COST_NAMES:
            return self.value(name, given), Source(name, "user")
        if not isinstance(given, dict):
            self.require(not self.is_shipped, name, "a table of its value and its source", given)
            return self.value(name, given), Source(self.origin, "user")
        table = dict(given)
        self.require("value" in table, name, "a table with a value", given)
        value = self.value(name, table.pop("value"))
        evidence = [key for key in EVIDENCE if key in table]
        one = len(evidence) == 1 or not (evidence or self.is_shipped)
        self.require(one, name, f"a table with one source of {', '.join(EVIDENCE[:-1])}", given)
        text = self.source_text(name, self.text(table, evidence[0])) if evidence else ""
        if evidence == ["ini"] and not name.startswith("cost."):
            text = f"{PLATFORM_CONFIG}{_SOC}.ini {text}"
        note = self.text(table, "note", default="")
        confidence = self.text(table, "confidence", default="")
        self.require(confidence in CONFIDENCE, f"{name} confidence", "H, M or L", confidence)
        self.nothing_left(table, f"{name}.")
        text = ": ".join(filter(None, (self.origin, text)))
        return value, Source(text, evidence[0] if evidence else "user", note, confidence)  # type: ignore[arg-type]

    def source_text(self, name: str, text: str) -> str:
        def document(found: re.Match[str]) -> str:
            known = self.documents.get(found[1])
            self.require(
                known is not None, f"Document of {name}", f"one of {', '.join(self.documents) or 'none'}", found[1]
            )
            return str(known)

        return re.sub(r"\{(\w+)\}", document, text)

    def value(self, name: str, given: Any) -> Any:
        """Return ``given`` as the record holds it."""
        kind, may_be_unknown = _kinds()[name]
        if may_be_unknown and given == _UNKNOWN:
            return None
        is_texts = isinstance(given, list) and all(isinstance(item, str) for item in given)
        if kind is bool:
            self.require(isinstance(given, bool), name, "true or false", given)
        elif kind is int:
            self.require(_is_count(given), name, "an integer of at least 0", given)
        elif kind is str:
            self.text({name: given}, name)
        elif kind == tuple[int, ...]:
            right = isinstance(given, list) and all(map(_is_count, given))
            self.require(right, name, "a list of integers of at least 0", given)
        elif kind == AccumulationModel:
            right = isinstance(given, list) and len(given) == 3 and _is_count(given[0])
            right = right and all(isinstance(item, str) for item in given[1:])
            self.require(right, name, "a list of an integer and two texts", given)
        else:
            self.require(is_texts, name, "a list of texts", given)
            if kind == frozenset[str]:
                return frozenset(given)
        return tuple(given) if isinstance(given, list) else given


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


@cache
def _kinds() -> Mapping[str, tuple[Any, bool]]:
    """Return type, and whether "unknown" is a value, of every fact by its dotted name."""
    found: dict[str, tuple[Any, bool]] = {}
    for prefix, record in (("", Product), ("core.", CoreSpec)):
        for field, hint in get_type_hints(record).items():
            optional = type(None) in getattr(hint, "__args__", ())
            found[prefix + field] = (hint.__args__[0] if optional else hint, optional)
    for name in ("name", "series", "core", "cost", "sources", "core.cube_k", "accumulation"):
        del found[name]
    found |= {f"core.cube_k.{dtype}": (int, False) for dtype in CUBE_DTYPES}
    found |= {f"accumulation.{dtype}": (AccumulationModel, False) for dtype in CUBE_DTYPES}
    found |= {f"cost.{name}": (int, False) for name in NUMBERS}
    return found | {name: (str, False) for name in (*_COST_NAMES, "cost.img2col_rule")}


def facts_of(product: Product) -> Facts:
    """Return the facts of a product with their sources, as a file that names it as its base starts from them."""
    found = {name: (value, product.sources[name]) for name, value in facts(product) if name in product.sources}
    cost = product.cost
    found |= {f"cost.{name}": (getattr(cost, name), source) for name, source in cost.sources.items()}
    return found | {name: (getattr(cost, name[5:]), Source(name, "user")) for name in _COST_NAMES}


def build_product(file: ProductFile, soc: str, inherited: Facts) -> Product:
    """Return one SoC of a file.

    Parameters
    ----------
    file : ProductFile
        Which describes it.
    soc : str
        One of its SoCs.
    inherited : dict
        Facts of its base.

    Raises
    ------
    ProductError
        A fact is missing, or the facts do not fit each other; the message names the file.
    """
    own = file.facts | file.socs[soc]
    known = inherited | own
    if "cube_dtypes" in known:
        known = {name: fact for name, fact in known.items() if _is_for(name, known["cube_dtypes"][0])}
    if any(name.startswith("cost.") for name in own) and "cost.name" in inherited and "cost.name" not in own:
        known["cost.name"] = (f"{known['cost.name'][0]} ({soc})", Source("cost.name", "user"))
    for name, (_, optional) in _kinds().items():
        if not (optional or name in known or name.startswith(("core.cube_k.", "accumulation."))):
            raise ProductError(f"{name} must be given, but is not ({soc}, {file.path})")
    values: dict[str, Any] = {name: None for name, (_, optional) in _kinds().items() if optional}
    values |= {"core": {"cube_k": {}}, "accumulation": {}, "cost": {}}
    for name, (value, _) in known.items():
        *path, last = name.split(".")
        target = values
        for part in path:
            target = target[part]
        target[last] = value
    sources = {name: _named(source, soc) for name, (_, source) in known.items() if name not in _COST_NAMES}
    of_cost = {name[5:]: source for name, source in sources.items() if name.startswith("cost.")}
    of_facts = {name: source for name, source in sources.items() if not name.startswith("cost.")}
    ub_bytes = values["core"]["ub_bytes"]
    if ub_bytes < LEAST_UB_BYTES:
        raise ProductError(f"core.ub_bytes must be at least {LEAST_UB_BYTES}, not {ub_bytes} ({soc}, {file.path})")
    try:
        core = CoreSpec(**values.pop("core"))
        cost = CostParams(arch=values["arch"], sources=of_cost, **values.pop("cost"))
        return Product(name=soc, core=core, cost=cost, sources=of_facts, **values)
    except ProductError as error:
        raise ProductError(f"{error} ({file.path})") from error


def _is_for(name: str, cube_dtypes: frozenset[str]) -> bool:
    """Return whether a fact concerns a product whose Cube has these operand types."""
    *path, last = name.split(".")
    if path in (["core", "cube_k"], ["accumulation"]):
        return last in cube_dtypes
    return "hf32" in cube_dtypes or not name.startswith("hf32_")


def _named(source: Source, soc: str) -> Source:
    if _SOC not in source.text:
        return source
    return Source(source.text.replace(_SOC, soc), source.evidence, source.note, source.confidence)
