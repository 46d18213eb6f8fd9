"""Static legality of rows: what one instruction may look like on a product, without regard to the others.

The rules are tables (`program.limits`); here they are applied to whole arrays of rows.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from npu_sim.dtypes.formats import RoundMode
from npu_sim.isa.footprint import NO_FOOTPRINT, REACH_BYTES, TOO_MANY_RUNS, empty_runs, reach
from npu_sim.isa.op import C100, C220, M200, SPEC_OF_OP, Data, Mode, Op, Pipe, Space
from npu_sim.products import Product
from npu_sim.program.core_kind import foreign_rows
from npu_sim.program.disassemble import OPERAND_SPACES, name_of, pipe_name, space_name, type_name
from npu_sim.program.launch import CoreKind
from npu_sim.program.limits import (
    ADDRESS_ALIGNMENT_BYTES,
    B16,
    CASTS,
    DST_DTYPES,
    DTYPES,
    FILL_RANGES,
    FILL_SPACES,
    MMAD_DESTINATION_ALIGNMENT_BYTES,
    MODE_BITS,
    ND_RANGES,
    PAD_UB_GAP_BLOCKS,
    PATHS,
    RANGES,
    Range,
)
from npu_sim.program.violation import Kind, Violation
from npu_sim.units import BLOCK_BYTES, REPEAT_BYTES

_CHUNK_ROWS = 1 << 15

Values = npt.NDArray[np.int64]


def space_capacities(product: Product) -> dict[Space, int]:
    """Return the capacity of every on-chip space in bytes."""
    core = product.core
    return {
        Space.L1: core.l1_bytes,
        Space.L0A: core.l0a_bytes,
        Space.L0B: core.l0b_bytes,
        Space.L0C: core.l0c_bytes,
        Space.UB: core.ub_bytes,
    }


@dataclass(slots=True)
class _Findings:
    """Violations of one chunk of rows."""

    rows: np.ndarray
    first: int
    product: Product
    found: list[Violation] = field(default_factory=list)

    def flag(
        self, index: npt.NDArray[np.intp], bad: npt.NDArray[np.bool_], kind: Kind, text: Callable[[int], str]
    ) -> None:
        """Report ``rows[index[bad]]``; ``text(i)`` says what is wrong with row ``i``."""
        for at in index[bad].tolist():
            row = self.rows[at]
            detail = f"{name_of(row)} {text(at)} ({self.product.name})"
            self.found.append(
                Violation(kind=kind, row=self.first + at, tile=int(row["tile"]), site=int(row["site"]), detail=detail)
            )

    def column(self, index: npt.NDArray[np.intp], name: str) -> Values:
        """Return a field of ``rows[index]`` as int64."""
        return self.rows[name][index].astype(np.int64)

    def ranges(self, index: npt.NDArray[np.intp], ranges: tuple[Range, ...]) -> None:
        """Check ranges of fields."""
        for name, low, high in ranges:
            values = self.column(index, name)
            self.rule(index, (values < low) | (values > high), name, f"in [{low}, {high}]")

    def rule(
        self,
        index: npt.NDArray[np.intp],
        bad: npt.NDArray[np.bool_],
        name: str,
        rule: str,
        kind: Kind = Kind.FIELD_RANGE,
    ) -> None:
        """Report fields that break a rule: "<name> must be <rule>, not <value>"."""
        self.flag(index, bad, kind, lambda at: f"{name} must be {rule}, not {int(self.rows[name][at])}")


def verify(rows: np.ndarray, product: Product, *, core_kind: CoreKind | None = None) -> list[Violation]:
    """Check every row by itself.

    Parameters
    ----------
    rows : INSTR[n]
        Rows of one core, any bytes. Rules that depend on the state of the core (atomic additions, HF32) hold for what
        `issue` has written into the rows: `program.legality` judges programs that it has not seen.
    product : Product
        Architecture, capacities, event ids.
    core_kind : "cube", "vector" or None
        On a product with separate cores also report rows that this kind does not have; None: any core.

    Returns
    -------
    list of Violation
        In the order of the rows: kinds FIELD_RANGE, UNSUPPORTED, READ_MISALIGNED, WRITE_MISALIGNED, CAPACITY. Bounds of
        GM tensors need a launch: `engines.hazards`.
    """
    found: list[Violation] = []
    for first in range(0, len(rows), _CHUNK_ROWS):
        chunk = _Findings(rows[first : first + _CHUNK_ROWS], first, product)
        ops = chunk.rows["op"]
        for op in np.unique(ops).tolist():
            index = np.flatnonzero(ops == op)
            if _is_supported(chunk, index, op):
                _check_opcode(chunk, index, Op(op))
        _check_addresses(chunk)
        if core_kind is not None:
            _check_core_kind(chunk, core_kind)
        found.extend(sorted(chunk.found, key=lambda violation: violation.row))
    return found


def _is_supported(chunk: _Findings, index: npt.NDArray[np.intp], op: int) -> bool:
    """Report opcodes the architecture does not have."""
    if op == Op.NOP:
        return False
    spec = SPEC_OF_OP.get(Op(op)) if op in Op._value2member_map_ else None
    if spec is not None and chunk.product.arch in spec.archs:
        return True
    where = "a known opcode" if spec is None else f"on {', '.join(sorted(spec.archs))}"
    everything = np.ones(len(index), np.bool_)
    chunk.flag(index, everything, Kind.UNSUPPORTED, lambda at: f"must be {where}, not {chunk.product.arch}")
    return False


def _check_core_kind(chunk: _Findings, kind: CoreKind) -> None:
    """Report rows that belong to the other kind of core."""
    other = "vector" if kind == "cube" else "cube"
    index = np.arange(len(chunk.rows))
    bad = foreign_rows(chunk.rows, chunk.product, kind)
    chunk.flag(index, bad, Kind.UNSUPPORTED, lambda at: f"must run on a {other} core, not on a {kind} core")


def _check_opcode(chunk: _Findings, index: npt.NDArray[np.intp], op: Op) -> None:
    chunk.ranges(index, RANGES.get(op, ()))
    _check_pipe(chunk, index, op)
    _check_paths(chunk, index, op)
    _check_types(chunk, index, op)
    if op in (Op.SET_FLAG, Op.WAIT_FLAG):
        _check_flag(chunk, index)
    special = _SPECIAL.get(op)
    if special is not None:
        special(chunk, index)


def _check_pipe(chunk: _Findings, index: npt.NDArray[np.intp], op: Op) -> None:
    pipes = chunk.column(index, "pipe")
    allowed = [int(pipe) for pipe in SPEC_OF_OP[op].pipes]
    if not chunk.product.core.has_fixpipe:
        allowed = [pipe for pipe in allowed if pipe != Pipe.FIX]
    if op == Op.PIPE_BARRIER:
        allowed.remove(Pipe.S)
    names = ", ".join(pipe_name(pipe) for pipe in allowed)
    bad = ~np.isin(pipes, allowed)
    chunk.flag(
        index,
        bad,
        Kind.UNSUPPORTED,
        lambda at: f"pipe must be one of {names}, not {pipe_name(int(chunk.rows['pipe'][at]))}",
    )


def _check_flag(chunk: _Findings, index: npt.NDArray[np.intp]) -> None:
    pipes, peers = chunk.column(index, "pipe"), chunk.column(index, "peer")
    allowed = [int(pipe) for pipe in Pipe if pipe != Pipe.ALL and (pipe != Pipe.FIX or chunk.product.core.has_fixpipe)]
    bad = ~np.isin(peers, allowed) | (peers == pipes)
    names = ", ".join(pipe_name(pipe) for pipe in allowed)
    chunk.flag(
        index,
        bad,
        Kind.UNSUPPORTED,
        lambda at: f"peer must be another pipe of {names}, not {pipe_name(int(chunk.rows['peer'][at]))}",
    )
    chunk.ranges(index, (("event", 0, chunk.product.core.event_count - 1),))


def _check_paths(chunk: _Findings, index: npt.NDArray[np.intp], op: Op) -> None:
    """Check (destination, source) spaces against the data path matrix."""
    if op not in PATHS:
        return
    paths = PATHS[op][chunk.product.arch]
    codes = [dst * 256 + src for dst, src in paths]
    bad = ~np.isin(chunk.column(index, "dst_space") * 256 + chunk.column(index, "src0_space"), codes)
    chunk.flag(
        index, bad, Kind.UNSUPPORTED, lambda at: f"path must exist on {chunk.product.arch}, not {_path(chunk, at)}"
    )
    if op == Op.DATA_COPY:
        mode = chunk.column(index, "mode")
        sources = [Space.UB] if chunk.product.arch in (C100, M200) else [Space.UB, Space.L1]
        stores = chunk.column(index, "dst_space") == Space.GM
        bad = (mode & Mode.ATOMIC != 0) & ~(stores & np.isin(chunk.column(index, "src0_space"), sources))
        names = " or ".join(space.name for space in sources)
        chunk.flag(
            index,
            bad,
            Kind.UNSUPPORTED,
            lambda at: f"with atomic add must go from {names} to GM, not {_path(chunk, at)}",
        )


def _path(chunk: _Findings, at: int) -> str:
    row = chunk.rows[at]
    return f"{space_name(int(row['src0_space']))}->{space_name(int(row['dst_space']))}"


def _check_types(chunk: _Findings, index: npt.NDArray[np.intp], op: Op) -> None:
    arch = chunk.product.arch
    if op in DTYPES:
        _check_type_field(chunk, index, "dtype", DTYPES[op][arch])
    if op in DST_DTYPES:
        _check_type_field(chunk, index, "dst_dtype", DST_DTYPES[op])
    if op in MODE_BITS:
        stray = chunk.column(index, "mode") & ~MODE_BITS[op][arch]
        chunk.flag(index, stray != 0, Kind.UNSUPPORTED, lambda at: f"mode must exist on {arch}, not {_mode(chunk, at)}")


def _check_type_field(chunk: _Findings, index: npt.NDArray[np.intp], name: str, allowed: frozenset[Data]) -> None:
    names = ", ".join(type_name(data) for data in sorted(allowed))
    bad = ~np.isin(chunk.column(index, name), [int(data) for data in allowed])
    chunk.flag(
        index,
        bad,
        Kind.UNSUPPORTED,
        lambda at: f"{name} must be one of {names}, not {type_name(int(chunk.rows[name][at]))}",
    )


def _mode(chunk: _Findings, at: int) -> str:
    bits = int(chunk.rows["mode"][at])
    return "|".join(mode.name.lower() for mode in Mode if bits & mode) or hex(bits)


def _load_2d(chunk: _Findings, index: npt.NDArray[np.intp]) -> None:
    if chunk.product.arch == C100:
        chunk.rule(index, chunk.column(index, "dst_gap") != 0, "dst_gap", "0 (dav-c100 has no such operand)")
    transposes = chunk.column(index, "mode") & Mode.TRANSPOSE != 0
    bad = transposes & (chunk.column(index, "src0_space") != Space.L1)
    chunk.flag(index, bad, Kind.UNSUPPORTED, lambda at: f"with transpose must read L1, not {_path(chunk, at)}")
    types = [int(data) for data in B16]
    bad = transposes & ~np.isin(chunk.column(index, "dtype"), types)
    chunk.flag(
        index,
        bad,
        Kind.UNSUPPORTED,
        lambda at: f"with transpose must move 16-bit data, not {type_name(int(chunk.rows['dtype'][at]))}",
    )


def _load_3d(chunk: _Findings, index: npt.NDArray[np.intp]) -> None:
    get = {name: chunk.column(index, name) for name in SPEC_OF_OP[Op.LOAD_3D].fields}
    item = _item_bytes(get["dtype"])
    c0 = BLOCK_BYTES // item
    chunk.rule(index, get["k_start"] % c0 != 0, "k_start", "a multiple of the channel block")
    remainder = get["channel_size"] % c0
    bad = ~np.isin(remainder, (0, 4, 8, 16)) | ((c0 == 32) & (get["channel_size"] < 4))
    chunk.rule(index, bad, "channel_size", "4, 8 or 16 above a multiple of the channel block, or such a multiple")
    kernel_h = (get["filter_h"] - 1) * get["dilation_h"] + 1
    kernel_w = (get["filter_w"] - 1) * get["dilation_w"] + 1
    map_h = get["l1_h"] + get["pad_top"] + get["pad_bottom"]
    map_w = get["l1_w"] + get["pad_left"] + get["pad_right"]
    active = np.ones(len(index), np.bool_)
    for name in ("k_ext", "m_ext", "l1_h", "l1_w", "channel_size", "filter_h", "filter_w"):
        active &= get[name] > 0
    chunk.rule(index, active & (kernel_h > map_h), "filter_h", "within the padded map after dilation")
    chunk.rule(index, active & (kernel_w > map_w), "filter_w", "within the padded map after dilation")
    columns = -(-get["channel_size"] // c0) * get["filter_h"] * get["filter_w"] * c0
    end = get["k_start"] + get["k_ext"]
    chunk.rule(index, active & (end > columns), "k_ext", "within the columns of the window matrix")
    chunk.rule(index, active & (get["k_ext"] % c0 != 0) & (end < columns), "k_ext", "a multiple of the channel block")
    stride_h, stride_w = np.maximum(get["stride_h"], 1), np.maximum(get["stride_w"], 1)
    windows = np.maximum((map_h - kernel_h) // stride_h + 1, 0) * np.maximum((map_w - kernel_w) // stride_w + 1, 0)
    ragged = (get["m_ext"] % 16 != 0) & (get["m_start"] + get["m_ext"] < windows) & (item < 4)
    chunk.rule(index, active & ragged, "m_ext", "a multiple of 16 or reach the last window")
    _check_load_3d_transpose(chunk, index, get["mode"], item)


def _check_load_3d_transpose(chunk: _Findings, index: npt.NDArray[np.intp], mode: Values, item: Values) -> None:
    arch = chunk.product.arch
    wrong = item == 1 if arch == C220 else item != 2
    to_l0b = chunk.column(index, "dst_space") == Space.L0B
    bad = wrong & ((mode & Mode.TRANSPOSE != 0) | ((arch == C220) & to_l0b))
    chunk.flag(
        index,
        bad,
        Kind.UNSUPPORTED,
        lambda at: f"cannot transpose {type_name(int(chunk.rows['dtype'][at]))} on {arch}: dtype must be wider",
    )


def _load_3d_v1(chunk: _Findings, index: npt.NDArray[np.intp]) -> None:
    for axis, pad in (("h", "pad_top"), ("w", "pad_left")):
        corner, lead = chunk.column(index, f"left_top_{axis}"), chunk.column(index, pad)
        chunk.rule(index, corner < -lead, f"left_top_{axis}", f"at least -{pad}")
        stride = np.maximum(chunk.column(index, f"stride_{axis}"), 1)
        chunk.rule(index, (corner + lead) % stride != 0, f"left_top_{axis}", f"a window position of stride_{axis}")
        taps, fetch = chunk.column(index, f"filter_{axis}"), chunk.column(index, f"fetch_filter_{axis}")
        chunk.rule(index, fetch >= taps, f"fetch_filter_{axis}", f"below filter_{axis}")


def _fill(chunk: _Findings, index: npt.NDArray[np.intp]) -> None:
    arch = chunk.product.arch
    chunk.ranges(index, FILL_RANGES[arch])
    spaces = FILL_SPACES[arch]
    names = ", ".join(space.name for space in sorted(spaces))
    bad = ~np.isin(chunk.column(index, "dst_space"), [int(space) for space in spaces])
    chunk.flag(
        index,
        bad,
        Kind.UNSUPPORTED,
        lambda at: f"destination must be one of {names}, not {space_name(int(chunk.rows['dst_space'][at]))}",
    )


def _mmad(chunk: _Findings, index: npt.NDArray[np.intp]) -> None:
    single = chunk.column(index, "dtype") == Data.FP32
    special = chunk.column(index, "mode") & (Mode.K_ALIGN | Mode.HF32) != 0
    chunk.flag(
        index, special & ~single, Kind.UNSUPPORTED, lambda at: f"mode {_mode(chunk, at)} must come with float operands"
    )


def _fixpipe(chunk: _Findings, index: npt.NDArray[np.intp]) -> None:
    mode = chunk.column(index, "mode")
    is_nd, split = mode & Mode.NZ2ND != 0, mode & Mode.CHANNEL_SPLIT != 0
    chunk.ranges(index[is_nd], ND_RANGES)
    n_size = chunk.column(index, "n_size")
    chunk.rule(index, ~is_nd & ~split & (n_size % 16 != 0), "n_size", "a multiple of 16")
    chunk.rule(index, split & (n_size % 8 != 0), "n_size", "a multiple of 8")
    chunk.flag(
        index, is_nd & split, Kind.UNSUPPORTED, lambda at: "channel split must come with NZ results, not row-major"
    )
    bad = split & (chunk.column(index, "dst_dtype") != Data.FP32)
    chunk.flag(index, bad, Kind.UNSUPPORTED, lambda at: "channel split must come with float results")
    spaces = chunk.column(index, "dst_space")
    bad = ~np.isin(spaces, (Space.GM, Space.L1))
    chunk.flag(
        index,
        bad,
        Kind.UNSUPPORTED,
        lambda at: f"destination must be GM or L1, not {space_name(int(chunk.rows['dst_space'][at]))}",
    )
    bad = ~is_nd & (spaces == Space.GM) & (chunk.column(index, "dst") % BLOCK_BYTES != 0)
    chunk.rule(index, bad, "dst", f"a multiple of {BLOCK_BYTES} for NZ results", Kind.WRITE_MISALIGNED)


def _cast(chunk: _Findings, index: npt.NDArray[np.intp]) -> None:
    src, dst = chunk.column(index, "dtype"), chunk.column(index, "dst_dtype")
    modes = chunk.column(index, "round_mode")
    allowed = [(s * 256 + d) * 256 + mode for (s, d), legal in CASTS[chunk.product.arch].items() for mode in legal]
    bad = ~np.isin((src * 256 + dst) * 256 + modes, allowed)

    def text(at: int) -> str:
        row = chunk.rows[at]
        mode = int(row["round_mode"])
        name = RoundMode(mode).name if mode in RoundMode._value2member_map_ else str(mode)
        types = f"{type_name(int(row['dtype']))}->{type_name(int(row['dst_dtype']))}"
        return f"must be a conversion of {chunk.product.arch}, not {types} with {name}"

    chunk.flag(index, bad, Kind.UNSUPPORTED, text)


def _data_copy_pad(chunk: _Findings, index: npt.NDArray[np.intp]) -> None:
    item = _item_bytes(chunk.column(index, "dtype"))
    for name in ("left_padding", "right_padding"):
        chunk.rule(index, chunk.column(index, name) * item > BLOCK_BYTES, name, f"at most {BLOCK_BYTES} bytes")
    to_ub = chunk.column(index, "dst_space") == Space.UB
    for name, in_ub in (("dst_gap", to_ub), ("src_gap", ~to_ub)):
        bad = in_ub & (chunk.column(index, name) > PAD_UB_GAP_BLOCKS)
        chunk.rule(index, bad, name, f"in [0, {PAD_UB_GAP_BLOCKS}] blocks in UB")
    adds = chunk.column(index, "mode") & Mode.ATOMIC != 0
    chunk.rule(index, adds & (chunk.column(index, "block_len") % item != 0), "block_len", "whole elements to add them")


def _reduce_repeat(chunk: _Findings, index: npt.NDArray[np.intp]) -> None:
    lanes = REPEAT_BYTES // _item_bytes(chunk.column(index, "dtype"))
    chunk.rule(index, chunk.column(index, "mask") > lanes, "mask", f"within the {REPEAT_BYTES} bytes of a repeat")
    if chunk.product.arch == C100:
        chunk.rule(index, chunk.column(index, "dst_rep_stride") == 0, "dst_rep_stride", f"at least 1 on {C100}")


def _trans_data_to_5hd(chunk: _Findings, index: npt.NDArray[np.intp]) -> None:
    single = chunk.column(index, "repeat") == 1
    for name in ("dst_rep_stride", "src_rep_stride"):
        chunk.rule(index, single & (chunk.column(index, name) != 0), name, "0 for a single repeat")


_SPECIAL: dict[Op, Callable[[_Findings, npt.NDArray[np.intp]], None]] = {
    Op.LOAD_2D: _load_2d,
    Op.LOAD_3D: _load_3d,
    Op.LOAD_3D_V1: _load_3d_v1,
    Op.FILL: _fill,
    Op.MMAD: _mmad,
    Op.FIXPIPE: _fixpipe,
    Op.CAST: _cast,
    Op.DATA_COPY_PAD: _data_copy_pad,
    Op.REDUCE_REPEAT: _reduce_repeat,
    Op.TRANS_DATA_TO_5HD: _trans_data_to_5hd,
}

_ITEM_BYTES = np.full(256, 2, np.int64)
_ITEM_BYTES[[Data.FP32, Data.INT32]] = 4
_ITEM_BYTES[[Data.INT8, Data.UINT8]] = 1
_ITEM_BYTES[Data.INT64] = 8


def _item_bytes(dtypes: Values) -> Values:
    return _ITEM_BYTES[dtypes]


def _check_addresses(chunk: _Findings) -> None:
    """Check alignment and capacity of all rows that touch memory."""
    ends = np.zeros((len(chunk.rows), len(Space), 2), np.int64)
    reach(chunk.rows, empty_runs(), ends)
    touching = ends.any(axis=(1, 2))
    alignments = np.ones(256, np.int64)
    for space, alignment in ADDRESS_ALIGNMENT_BYTES.items():
        alignments[space] = alignment
    for op in np.unique(chunk.rows["op"][touching]).tolist():
        index = np.flatnonzero(touching & (chunk.rows["op"] == op))
        for name in ("src0", "src1", "dst"):
            if name in SPEC_OF_OP[Op(op)].fields:
                _check_alignment(chunk, index, Op(op), name, alignments)
    for space, capacity in space_capacities(chunk.product).items():
        bad = (ends[:, space, 1] > capacity) | (ends[:, space, 0] < 0)
        _flag_capacity(chunk, np.flatnonzero(bad), ends[:, space], space, capacity)
    everything, failure = np.arange(len(chunk.rows)), ends[:, 0, 0]
    chunk.flag(
        everything, failure == TOO_MANY_RUNS, Kind.CAPACITY, lambda at: "must touch fewer separate runs of bytes"
    )
    lost = np.flatnonzero(failure == NO_FOOTPRINT)
    # an operand that is out of its range says it better
    lost = lost[~np.isin(lost + chunk.first, [violation.row for violation in chunk.found])]
    text = f"must stay within {REACH_BYTES} bytes of address 0"
    chunk.flag(lost, np.ones(len(lost), np.bool_), Kind.CAPACITY, lambda at: text)


def _check_alignment(chunk: _Findings, index: npt.NDArray[np.intp], op: Op, name: str, alignments: Values) -> None:
    fixed = OPERAND_SPACES.get(op, {}).get(name)
    spaces = np.full(len(index), fixed, np.int64) if fixed is not None else chunk.column(index, f"{name}_space")
    needed = alignments[spaces]
    if op == Op.MMAD and name == "dst":
        needed = np.full(len(index), MMAD_DESTINATION_ALIGNMENT_BYTES, np.int64)
    if op == Op.SCALAR_COPY or (op == Op.REDUCE_REPEAT and name == "dst"):
        needed = _item_bytes(chunk.column(index, "dtype"))
    addresses = chunk.column(index, name)
    kind = Kind.WRITE_MISALIGNED if name == "dst" else Kind.READ_MISALIGNED
    bad = np.flatnonzero(addresses % needed)
    texts = {
        at: f"{space_name(space)} address must be a multiple of {alignment}, not {address}"
        for at, space, alignment, address in zip(
            index[bad].tolist(), spaces[bad].tolist(), needed[bad].tolist(), addresses[bad].tolist(), strict=True
        )
    }
    chunk.flag(index[bad], np.ones(len(bad), np.bool_), kind, texts.__getitem__)


def _flag_capacity(chunk: _Findings, index: npt.NDArray[np.intp], ends: Values, space: Space, capacity: int) -> None:
    for at in index.tolist():
        row = chunk.rows[at]
        first, end = ends[at].tolist()
        chunk.found.append(
            Violation(
                kind=Kind.CAPACITY,
                row=chunk.first + at,
                tile=int(row["tile"]),
                site=int(row["site"]),
                space=space,
                start=first,
                length=end - first,
                detail=f"{name_of(row)} must stay inside the {capacity} bytes of {space.name} ({chunk.product.name})",
            )
        )
