"""What the codes of findings mean: how bad they are, which check looks for them, what to do.

Names that begin with Error are those of asc-tools' npuchk (``docs/02_npu_check_en.md``); all its 19 are here.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

from npu_sim.program.finding_kinds import Kind

Severity = Literal["error", "warning", "advice"]
Tool = Literal["memcheck", "initcheck", "racecheck", "synccheck", "rules"]
SEVERITIES: tuple[Severity, ...] = ("error", "warning", "advice")
TOOLS: tuple[Tool, ...] = ("memcheck", "initcheck", "racecheck", "synccheck", "rules")


class Code(NamedTuple):
    """What a code means; ``title`` and ``hint`` are sentences without their full stop."""

    severity: Severity
    tool: Tool
    title: str
    hint: str


CODES: dict[Kind, Code] = {
    Kind.READ_UNALLOCATED: Code(
        "error", "memcheck", "Reads memory that belongs to no tensor or buffer",
        "allocate the buffer before, free it after the last use, name a tensor of the launch",
    ),
    Kind.READ_UNINITIALISED: Code(
        "error", "initcheck", "Reads bytes that nothing has written", "fill all that is read, padding and tails too"
    ),
    Kind.READ_STALE: Code(
        "error", "initcheck", "Reads a tile whose life is over: its buffer was handed back or allocated anew",
        "load the new tile before, or start the sum with cmatrixInitVal",
    ),
    Kind.READ_UNUSED: Code(
        "advice", "initcheck", "Reads bytes that nothing has written for it and that nothing that is stored depends on",
        "nothing has to be done; fill them if a later k, m or store takes them in",
    ),
    Kind.READ_BY_OFFSETS: Code(
        "advice", "initcheck", "Gathers from a buffer of which nothing has written some bytes",
        "see that no offset leads there; nothing has to be done if the source is only longer than what was loaded",
    ),
    Kind.READ_OUT_OF_BOUNDS: Code(
        "error", "memcheck", "Reads beyond its tensor or buffer", "shorten the last tile, or check the offset"
    ),
    Kind.READ_SPARE: Code(
        "advice", "memcheck", "Reads behind the end of its tensor what is there because allocations are rounded up",
        "shorten the last tile to the tensor, or see that no result depends on it",
    ),
    Kind.READ_MISALIGNED: Code("error", "memcheck", "Reads from an address the unit cannot take", "align the address"),
    Kind.WRITE_UNALLOCATED: Code(
        "error", "memcheck", "Writes memory that belongs to no tensor or buffer",
        "allocate the buffer before, free it after the last use, name a tensor of the launch",
    ),
    Kind.WRITE_OUT_OF_BOUNDS: Code(
        "error", "memcheck", "Writes beyond its tensor or buffer", "shorten the last tile, or check the offset"
    ),
    Kind.WRITE_SPARE: Code(
        "advice", "memcheck", "Writes behind the end of its tensor, where room is because allocations are rounded up",
        "shorten the last store to the tensor (DataCopyPad): of a part of a larger tensor it overwrites the next",
    ),
    Kind.WRITE_UNREAD: Code(
        "advice", "initcheck", "Overwrites a result that nobody has read", "drop the first write, or use what it wrote"
    ),
    Kind.WRITE_MISALIGNED: Code("error", "memcheck", "Writes to an address the unit cannot take", "align the address"),
    Kind.SYNC_WRITE_HAZARD: Code(
        "error", "racecheck", "Overwrites what another pipe or core still reads or writes",
        "let the earlier pipe set a flag behind its instruction and this one wait for it",
    ),
    Kind.SYNC_READ_HAZARD: Code(
        "error", "racecheck", "Reads what another pipe or core may not have written yet",
        "let the earlier pipe set a flag behind its instruction and this one wait for it",
    ),
    Kind.BARRIER_WRITE: Code(
        "error", "racecheck", "Overwrites what an earlier instruction of its own pipe may still write",
        "put a PipeBarrier of the pipe between the two",
    ),
    Kind.WRITES_THE_SAME: Code(
        "advice", "racecheck", "Stores the bytes that another instruction stores too, and in no order with it",
        "nothing has to be done; order the two if one may come to store something else",
    ),
    Kind.BARRIER_READ: Code(
        "error", "racecheck", "Reads what an earlier instruction of its own pipe may not have written yet",
        "put a PipeBarrier of the pipe between the two",
    ),
    Kind.BARRIER_UNNEEDED: Code(
        "advice", "racecheck", "A PipeBarrier that orders nothing that has to be, and takes time", "leave it out"
    ),
    Kind.BANK_CONFLICT: Code(
        "advice", "memcheck", "A vector instruction whose operands meet in banks of UB, and which takes longer for it",
        "begin a second source 256 bytes (modulo 512) from the first, a block stride in an odd number of blocks",
    ),
    Kind.SYNC_UNPAIRED: Code(
        "error", "synccheck", "A SetFlag without WaitFlag, or a WaitFlag without SetFlag", "set and wait in pairs"
    ),
    Kind.SYNC_ALL_UNPAIRED: Code(
        "error", "synccheck", "A SyncAll that not every core calls: the others would wait for ever",
        "call it on every core, those without work too",
    ),
    Kind.SYNC_DUPLICATE: Code(
        "error", "synccheck", "A flag is set again before it was waited for", "wait before, or use another event"
    ),
    Kind.BUFFER_NOT_GIVEN: Code(
        "error", "memcheck", "A queue or TBuf has no memory", "give it its blocks with InitBuffer first"
    ),
    Kind.BUFFER_OTHER_QUEUE: Code(
        "error", "memcheck", "EnQue or FreeTensor of a tensor that is another queue's",
        "call it on the queue that AllocTensor was called on",
    ),
    Kind.BUFFER_STATE: Code(
        "error", "memcheck", "A tensor is used in a state that does not allow it, or a queue has none to give",
        "keep to AllocTensor, EnQue, DeQue, FreeTensor, each once",
    ),
    Kind.BUFFER_LEAK: Code("warning", "memcheck", "A buffer is allocated and never freed", "call FreeTensor"),
    Kind.BUFFER_FREED_TWICE: Code("error", "memcheck", "A buffer is freed that is not alive", "free it once"),
    Kind.BUFFER_TAKEN: Code(
        "error", "memcheck", "A buffer is allocated over one that is alive", "give each its own bytes, or free before"
    ),
    Kind.BUFFER_POOL_NOT_GIVEN: Code(
        "error", "memcheck", "A TBufPool has no memory", "give it a piece of UB or L1 with InitBufPool first"
    ),
    Kind.OUTPUT_HOLE: Code(
        "error", "initcheck", "An output is not written as a whole", "store every tile, the last one too"
    ),
    Kind.STATE_LEFT: Code(
        "warning", "synccheck", "State of the core stays on behind the kernel", "call SetAtomicNone or SetHF32Mode(0)"
    ),
    Kind.CAPACITY: Code("error", "memcheck", "Leaves the memory of a core", "make the tile smaller"),
    Kind.DIVISION_BY_ZERO: Code(
        "warning", "rules", "Divides a whole number by zero", "see that no result depends on it, or divide only where"
        " there is something to divide by",
    ),
    Kind.FIELD_RANGE: Code(
        "error", "rules", "An operand breaks a rule", "keep to the rule; what is too long takes several instructions"
    ),
    Kind.UNSUPPORTED: Code(
        "error", "rules", "The product does not have the instruction, type or path",
        "use another one, another kind of core (kernel(kind=...)), or a product that has it",
    ),
    Kind.UNDEFINED: Code("error", "rules", "What a device makes of it is undefined", "see the message"),
}  # fmt: skip


def code_words(name: str) -> list[str]:
    """Return what a code means, line by line; ``name`` is a code, a name of `Kind`, or the common part of several.

    Returns
    -------
    list of str
        Empty if there is no such code.
    """
    lines = []
    for kind, code in CODES.items():
        if name.lower() in (kind.value.lower(), kind.name.lower(), kind.value.split("/")[0].lower()):
            lines += [
                f"{kind.value} ({kind.name}): {code.severity} of {code.tool}",
                f"  {code.title}.",
                f"  To do: {code.hint}.",
            ]
    return lines
