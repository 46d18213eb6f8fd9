"""What shows launches in time: ``--trace``, a Chrome trace, and ``--op-prof``, a folder like msOpProf's."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from npu_sim.report.files import OutputFileError, write_folder
from ops.cli.output import console
from ops.cli.usage import UsageError, output_path

if TYPE_CHECKING:
    from ops.studies.launch_trace import TracedLaunch

TraceOption = Annotated[
    str | None,
    typer.Option(
        "--trace",
        metavar="FILE",
        help="Chrome trace (Perfetto) of one layer, product and mode, or of all launches of a Python file.",
    ),
]
TraceCoreOption = Annotated[
    list[int] | None, typer.Option("--trace-core", help="Core in the trace or folder; repeatable. Default: all.")
]
OpProfOption = Annotated[
    str | None,
    typer.Option(
        "--op-prof",
        metavar="DIR",
        help="Write, where --trace writes one, a folder OPPROF_... with the files of msOpProf into this one.",
    ),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceFiles:
    """Where the options want what.

    Attributes
    ----------
    trace : Path or None
        File of the Chrome trace.
    op_prof : Path or None
        Folder that gets another one.
    cores : tuple of int or None
        Cores to show; None: all.
    """

    trace: Path | None
    op_prof: Path | None
    cores: tuple[int, ...] | None

    @property
    def option(self) -> str:
        """The first option that is given; "" without one."""
        return "--trace" if self.trace is not None else "--op-prof" if self.op_prof is not None else ""

    def contents(self, launches: Sequence[TracedLaunch]) -> dict[Path, bytes]:
        """Return the trace of the launches by its file, {} where none is wanted."""
        # imported here: they load the compiler, which the help does not need
        from ops.studies.launch_trace import trace_launches

        if self.trace is None or not launches:
            return {}
        return {self.trace: json.dumps(trace_launches(launches, self.cores), allow_nan=False).encode()}

    def write_folder(self, launches: Sequence[TracedLaunch], *, quiet: bool) -> None:
        """Write the folder, if one is wanted, and say where it is unless ``quiet``."""
        from ops.studies.op_prof import folder_name, op_prof_folder

        if self.op_prof is None or not launches:
            return
        target = self.op_prof / folder_name(datetime.now())
        write_folder(target, op_prof_folder(launches, self.cores))
        if not quiet:
            console().print(f"written: {target}", soft_wrap=True)


def read_trace_files(
    trace: str | None,
    cores: Sequence[int] | None,
    op_prof: str | None,
    source: str | None = None,
    others: Sequence[Path | None] = (),
) -> TraceFiles:
    """Return what the options want, refused early if it cannot be written; the last two as of `output_path`.

    Raises
    ------
    UsageError, OutputFileError
        Options contradict each other, or a place cannot be written.
    """
    if trace == "-":
        raise UsageError("--trace must be a file, not standard output")
    file = output_path("--trace", trace, source, others)
    folder = None if op_prof is None else Path(op_prof)
    if folder is not None and not folder.is_dir():
        raise OutputFileError(f"Output folder of --op-prof must exist, but {folder} does not")
    if cores and file is None and folder is None:
        raise UsageError("--trace-core must be given together with --trace or --op-prof")
    return TraceFiles(trace=file, op_prof=folder, cores=tuple(cores) if cores else None)
