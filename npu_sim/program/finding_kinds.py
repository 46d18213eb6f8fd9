"""The kinds of finding."""

from __future__ import annotations

from enum import Enum


class Kind(Enum):
    """Kinds of finding; those that begin with Error carry the names of asc-tools' npuchk (``docs/02_npu_check_en.md``).

    What stands behind a slash tells causes apart that have one name there.
    """

    READ_UNALLOCATED = "ErrorRead1"
    READ_UNINITIALISED = "ErrorRead2"
    READ_OUT_OF_BOUNDS = "ErrorRead3"
    READ_SPARE = "ErrorRead3/spare"
    READ_MISALIGNED = "ErrorRead4"
    WRITE_UNALLOCATED = "ErrorWrite1"
    WRITE_OUT_OF_BOUNDS = "ErrorWrite2"
    WRITE_SPARE = "ErrorWrite2/spare"
    WRITE_MISALIGNED = "ErrorWrite4"
    SYNC_WRITE_HAZARD = "ErrorSync1"
    SYNC_READ_HAZARD = "ErrorSync2"
    SYNC_UNPAIRED = "ErrorSync3"
    SYNC_ALL_UNPAIRED = "ErrorSync3/all"
    SYNC_DUPLICATE = "ErrorSync4"
    WRITE_UNREAD = "ErrorWrite3"
    BUFFER_LEAK = "ErrorLeak"
    BUFFER_FREED_TWICE = "ErrorFree"
    BUFFER_NOT_GIVEN = "ErrorBuffer0"
    BUFFER_OTHER_QUEUE = "ErrorBuffer1"
    BUFFER_STATE = "ErrorBuffer2"
    BUFFER_TAKEN = "ErrorBuffer3"
    BUFFER_POOL_NOT_GIVEN = "ErrorBuffer4"
    READ_STALE = "ErrorRead2/stale"
    READ_UNUSED = "ErrorRead2/unused"
    READ_BY_OFFSETS = "ErrorRead2/offsets"
    BARRIER_WRITE = "ErrorSync1/barrier"
    WRITES_THE_SAME = "ErrorSync1/same"
    BARRIER_READ = "ErrorSync2/barrier"
    BARRIER_UNNEEDED = "BarrierUnneeded"
    BANK_CONFLICT = "BankConflict"
    OUTPUT_HOLE = "OutputHole"
    STATE_LEFT = "StateLeft"
    CAPACITY = "Capacity"
    FIELD_RANGE = "FieldRange"
    DIVISION_BY_ZERO = "DivisionByZero"
    UNSUPPORTED = "Unsupported"
    UNDEFINED = "UndefinedOnHardware"
