"""Output of the command line: standard output, notes, and what ends them."""

from __future__ import annotations

import os
import re
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from itertools import takewhile
from types import FrameType
from typing import Any, TextIO, cast

from rich.console import Console
from rich.text import Text

from npu_sim.report.files import OutputFileError

EXIT_INTERRUPTED = 130
"""What shells report for a process that Ctrl-C ended."""
PIPE_WIDTH = 100
"""Columns of text that does not go to a terminal, unless the environment says COLUMNS."""
LEAST_WIDTH = 80
"""Columns that every table gets; a narrower terminal wraps their lines."""


class ReaderGoneError(Exception):
    """Whoever read standard output has closed it (``npu-sim ... | head``); not an `OSError`, so nobody handles it."""


class GuardedOutput:
    """Standard output whose failures have one name each, whichever library was printing.

    Parameters
    ----------
    stream : text stream
        The real standard output.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        """Write ``text``; returns its length."""
        with self._named():
            return self._stream.write(text)

    def flush(self) -> None:
        """Pass on what is buffered."""
        with self._named():
            self._stream.flush()

    @contextmanager
    def _named(self) -> Iterator[None]:
        try:
            yield
        except BrokenPipeError as error:
            raise ReaderGoneError from error
        except OSError as error:
            raise OutputFileError(
                f"Standard output must be writable, but is not ({error.strerror or error})"
            ) from error

    def discard(self) -> None:
        """Let what is still buffered go nowhere, so that the end of the process does not fail on it."""
        with suppress(OSError, ValueError):
            descriptor = os.open(os.devnull, os.O_WRONLY)
            os.dup2(descriptor, self._stream.fileno())
            os.close(descriptor)


def console() -> Console:
    """Return the console of standard output, as wide as the terminal but not narrower than `LEAST_WIDTH`."""
    plain = Console(highlight=False, markup=False)
    known = plain.is_terminal or os.environ.get("COLUMNS", "").isdigit()
    width = max(plain.width, LEAST_WIDTH) if known else PIPE_WIDTH
    return Console(highlight=False, markup=False, width=width, soft_wrap=False)


def print_prose(screen: Console, text: str, style: str = "dim") -> None:
    """Print a paragraph, wrapped between words."""
    screen.print(Text(text, style=style))


def note(text: str) -> None:
    """Write one line to standard error."""
    sys.stderr.write(f"npu-sim: {text}\n")


def note_hints(products: Sequence[str]) -> None:
    """Write a line for every product whose name the vendor also uses for another series."""
    # Imported here: the list of commands does not need the products.
    from npu_sim.products import product_hint

    for hint in dict.fromkeys(map(product_hint, products)):
        if hint is not None:
            note(hint)


def note_compilation() -> None:
    """Say on standard error, once and only when it happens, that code is compiled, and let Ctrl-C end that at once.

    Until `stop_noting`.
    """
    # Imported here: it loads the compiler, which not every command needs.
    from npu_sim import _jit

    if not _jit.JIT_ENABLED or _stops:
        return
    from numba.core import event

    class Listener(event.Listener):
        def on_start(self, event: Any) -> None:
            note_started(event.data["dispatcher"].py_func.__module__)

        def on_end(self, event: Any) -> None:
            if _is_ours(_compiling.pop()):
                _compiled.append(event.data["dispatcher"].py_func.__name__)

    listener, functions = Listener(), cast(Any, event)  # Numba declares no types
    functions.register("numba:compile", listener)
    _stops.append(lambda: functions.unregister("numba:compile", listener))
    _watch_compilation()


@cache
def _watch_compilation() -> None:
    _interrupt_at_once(lambda: bool(_compiling))


def stop_noting() -> None:
    """End what `note_compilation` has begun; the command is over."""
    for stop in _stops:
        stop()
    for known in (_stops, _compiling, _compiled, _noted):
        known.clear()


_stops: list[Callable[[], None]] = []
_compiling: list[str] = []
"""Modules whose code is being compiled, the innermost last."""
_compiled: list[str] = []
"""Functions of ours that have been compiled."""
_noted: list[str] = []
"""The module whose compilation the user was told."""


def _is_ours(module: str) -> bool:
    return module.partition(".")[0] in ("npu_sim", "ops")


def compiled_so_far() -> int:
    """Return how many functions of ours have been compiled since `note_compilation`."""
    return len(_compiled)


def note_started(module: str) -> None:
    """Take note that code of ``module`` is compiled from now on; the first of ours in a process is told to the user."""
    _compiling.append(module)
    if _noted or not _is_ours(module):
        return
    _noted.append(module)
    note("compiling what has not run before (up to half a minute)")


def _interrupt_at_once(is_wanted: Callable[[], bool]) -> None:
    """Let Ctrl-C end the process from another thread while ``is_wanted()``, from now on.

    The compiler spends tens of seconds in one call into LLVM, and Python's own handler has to wait for its return. What
    is compiled is kept by renaming complete files, so nothing is left half done.
    """
    if threading.current_thread() is not threading.main_thread():
        return
    read, write = os.pipe()
    os.set_blocking(write, False)

    def watch() -> None:
        while not (signal.SIGINT in os.read(read, 1) and is_wanted()):
            pass
        # A progress bar hides the cursor; nobody else is left to show it again.
        sys.stderr.write(("\r\x1b[K\x1b[?25h" if sys.stderr.isatty() else "") + "npu-sim: error: interrupted\n")
        sys.stderr.flush()
        os._exit(EXIT_INTERRUPTED)

    def handle(number: int, frame: FrameType | None) -> None:
        # the other thread ends the process; an exception here would only print half a traceback before it does
        if not is_wanted():
            signal.default_int_handler(number, frame)

    signal.signal(signal.SIGINT, handle)
    threading.Thread(target=watch, name="interrupt", daemon=True).start()
    signal.set_wakeup_fd(write, warn_on_full_buffer=False)


def merged_messages(messages: Sequence[str]) -> list[str]:
    """Merge refusals that differ only in the value refused and in the product.

    "Mode must be 1, not 0 (2D, A; rule 5)" and "Mode must be 1, not 3 (2D, B; rule 5)" become "Mode must be 1, not 0 or
    3 (2D: A; B; rule 5)" if A and B refuse both values.
    """
    values_of: dict[tuple[str, str, str], list[str]] = {}
    for message in messages:
        found = re.fullmatch(r"(.*), not (\w+(?: \(\w+\))?) \(([^();]*)((?:; rule [^()]*)?)\)", message)
        requirement, value, where, rule = found.groups() if found else (message, "", "", "")
        known = values_of.setdefault((requirement, where, rule), [])
        if value not in known:
            known.append(value)
    places_of: dict[tuple[str, str, str], list[str]] = {}
    for (requirement, where, rule), values in values_of.items():
        places_of.setdefault((requirement, " or ".join(values), rule), []).append(where)
    return [
        f"{requirement}, not {values} ({_listed_places(places)}{rule})" if values else requirement
        for (requirement, values, rule), places in places_of.items()
    ]


def _listed_places(places: Sequence[str]) -> str:
    """Return "2D: A, training; B, inference" for "2D, A, training" and "2D, B, inference".

    What is refused transposed and not is said once.
    """
    plain = [place for place in places if "transposed, " not in place]
    both = [place for place in places if place not in plain and place.replace("transposed, ", "") in plain]
    places = [place for place in places if place not in both]
    parts = [place.split(", ") for place in places]
    shared = [words[0] for words in takewhile(lambda words: len(set(words)) == 1, zip(*parts, strict=False))]
    if len(places) == 1 or not shared:
        return "; ".join(places)
    return f"{', '.join(shared)}: {'; '.join(', '.join(part[len(shared) :]) for part in parts)}"
