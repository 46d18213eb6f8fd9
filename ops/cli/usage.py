"""What every command holds its options to. Imports little: commands that take no layers begin sooner."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from npu_sim.errors import NpuSimError
from npu_sim.report.files import check_writable


class UsageError(NpuSimError, ValueError):
    """Options that contradict each other or have no meaning."""


def one_product_name(products: Sequence[str] | None, what: str) -> str | None:
    """Return the only product that was named for ``what``, a word for the message; None for none.

    Raises
    ------
    UsageError
        Several are: all but one would be left out.
    """
    names = tuple(dict.fromkeys(products or ()))
    if len(names) > 1:
        raise UsageError(f"--product must be given once for {what}, not {len(names)} times")
    return names[0] if names else None


def output_path(option: str, text: str | None, source: str | None, others: Sequence[Path | None] = ()) -> Path | None:
    """Return where a file goes (None for none and for standard output), refused early if it cannot be written.

    Parameters
    ----------
    option : str
        Name of the option, for messages.
    text : str or None
        As given; "-" is standard output.
    source : str or None
        Input file, which must not be replaced.
    others : sequence of Path or None
        Outputs that must be other files.
    """
    if text is None or text == "-":
        return None
    path = Path(text)
    check_writable(path)
    if source is not None and path.resolve() == Path(source).resolve():
        raise UsageError(f"{option} must not be the input {source}")
    for other in others:
        if other is not None and other.resolve() == path.resolve():
            raise UsageError(f"{option} must be another file than {other}")
    return path
