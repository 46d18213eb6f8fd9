"""Parameters of the timing model of one core architecture.

Every number is an integer with its unit in its name, and every number has a `Source` with a confidence. Rates are
stored in thousandths (``_millibytes_per_cycle``), so that the model stays in integers and is the same on every host.

Occupancy and latency are kept apart: occupancy is how long an instruction keeps its pipe, latency is how much later
than the end of the occupancy its result can be used. Where a source gives the time of an isolated instruction, the
latency is that time minus the occupancy.

Abbreviations of sources, all public: AD asc-devkit ``docs/zh/api`` (instruction performance tables) and
``examples/01_simd_cpp_api/05_best_practices``; MK mskpp ``csrc/prof_data/resource910b.cpp``; PI pto-isa (a2a3 cost
model and ``tests/costmodel``); PP pypto ``framework/src/cost_model``; MI msinsight and mstt profiler files; MS those of
mindinsight (910A); PV profile summaries of paddle_ocr_vl_npu (910B2); CB cann-bench, device times of whole calls; TK
CANN-8.1.RC1 ``python/site-packages/tbe/tik/api/cube``; TB the same, ``opp/built-in/data`` tuning banks and ``tbe/dsl``
schedule constants; INI the same, ``data/platform_config``; CA published output of the vendor's cycle model of dav-c220
(traces of AscendOpKernelRunner and msopgen, constants of OpenAscendEmulator), which is no silicon; FIT a fit of ours on
published kernel times.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Literal

from npu_sim.errors import ProductError
from npu_sim.products.source import Source, Sources


@dataclass(frozen=True, slots=True, kw_only=True)
class CostParams:
    """Timing parameters of an architecture. A rate or step of 0 means that the path or data type does not exist.

    Attributes
    ----------
    name, revision, arch : str
        Name and revision of the parameter set (printed by every report), compiler architecture.
    sources : mapping of str to Source
        One entry for every number below.
    issue_cycles, load2d_issue_cycles, load3d_issue_cycles : int
        Scalar unit, per instruction handed to a pipe (LoadData programs registers first).
    address_list_issue_cycles, computed_command_cycles : int
        Scalar unit, per TransDataTo5HD, whose 32 addresses go to vector address registers; per command of a kernel that
        computes the addresses of each from extents it has read (`Launch.list_commands`).
    scalar_ub_cycles, scalar_gm_cycles : int
        Scalar unit, one element moved inside UB, resp. between UB and GM.
    queue_depth_rows : int
        Instructions a pipe queue holds before the scalar unit waits.
    flag_cycles, barrier_cycles : int
        Occupancy of SetFlag, WaitFlag, and of PipeBarrier.
    mmad_*_step_cycles : int
        Cycles of one fractal step 16 x K0 x 16 (K0 = 32 bytes of operand; 8 for fp32 and HF32).
    mmad_overhead_cycles, mmad_accumulate_overhead_cycles, mmad_isolated_cycles : int
        Occupancy beside the steps of an Mmad that starts from zero resp. accumulates; time beside the steps until an
        isolated Mmad is complete.
    mmad_start_cycles : int
        Extra occupancy of the first Mmad behind a wait that held M up.
    mmad_odd_conflict_fractals : int
        If not 0: an Mmad with an odd count of m or n fractals takes (k fractals - this) more cycles (k > 1).
    l1_to_l0a_millibytes_per_cycle, l1_to_l0b_millibytes_per_cycle : int
        load2d; bytes written to L0.
    transpose_to_l0a_millibytes_per_cycle, transpose_to_l0b_millibytes_per_cycle : int
        LoadDataWithTranspose and load2d that transposes.
    load2d_overhead_cycles, load3d_overhead_cycles, load2d_minimum_cycles : int
        Occupancy of one load beside its bytes; least occupancy.
    l1_to_tables_millibytes_per_cycle, l1_to_tables_minimum_cycles, l1_to_tables_isolated_cycles : int
        L1 to the bias table and the Fixpipe buffer: bytes read, least occupancy, latency behind it.
    load2d_isolated_cycles, load3d_isolated_cycles, load_sparse_isolated_cycles : int
        Time beside the bytes until an isolated load is complete.
    mte1_start_cycles : int
        Extra occupancy of the first load after a WaitFlag or PipeBarrier of MTE1.
    mte1_contention_permille : int
        Factor on L1 to L0 transfers while MTE2 keeps writing L1.
    img2col_rule : {"table", "pieces"}
        ``"table"``: documented rates by stride and rows touched (dav-c220); ``"pieces"``: one read per piece of
        16 outputs (dav-c100, dav-m200).
    gm_to_{l1,ub,l0}_{command_cycles, millibytes_per_cycle, isolated_cycles, isolated_millibytes_per_cycle} : int
        Occupancy ``command + bytes / rate`` and completion of an isolated command.
    gm_to_ub_pad_isolated_cycles : int
        As ``gm_to_ub_isolated_cycles``, of DataCopyPad.
    gm_to_l0_minimum_cycles : int
        Least occupancy of a GM to L0 load.
    nd2nz_isolated_cycles, nd2nz_isolated_millibytes_per_cycle : int
        Completion of an isolated ND2NZ.
    gm_row_floor_millicycles, ub_row_floor_millicycles : int
        Least time of one row of ND2NZ or of a strided copy to L1 and L0; of one to or from UB.
    gm_to_ub_misaligned_permille : int
        Factor on the time of DataCopyPad rows in GM whose pitch is not a multiple of 32 bytes.
    gm_row_misaligned_permille, gm_row_pitch_permille : int
        Factor on ND2NZ rows whose pitch is not a multiple of 32 bytes, resp. of 512 bytes.
    gm_row_misaligned_floor_millicycles : int
        Least time of an ND2NZ row whose pitch is not a multiple of 32 bytes.
    l2_miss_cycles, gm_to_ub_miss_millibytes_per_cycle : int
        Latency added to a command that misses L2; rate at which what a UB reads comes to L2 first (0: not known).
    unknown_miss_permille : int
        Part of the inputs that misses where nothing tells (`Launch.inputs`).
    l2_total_bytes_per_microsecond, hbm_total_bytes_per_microsecond, hbm_mixed_bytes_per_microsecond : int
        Achieved totals of the die, shared by the active cores; of memory also while it is read and written by turns.
    ub_to_gm_command_cycles, ub_to_gm_isolated_cycles, ub_to_gm_millibytes_per_cycle : int
        MTE3 store to GM.
    ub_to_gm_ragged_row_cycles : int
        Added for each row of a store of several whose length or pitch in GM is not a multiple of 32 bytes.
    l1_to_gm_millibytes_per_cycle, ub_to_l1_millibytes_per_cycle, l1_to_ub_millibytes_per_cycle : int
        Remaining DataCopy paths.
    ub_to_ub_millibytes_per_cycle, fill_millibytes_per_cycle : int
        Copy inside UB; InitConstValue.
    atomic_permille : int
        Factor on the payload time of a store that adds.
    fix_minimum_cycles, fix_to_gm_{millibytes, millielements}_per_cycle : int
        Fixpipe to GM: the longest of the minimum, the bytes that leave and the elements in L0C.
    fix_split_millibytes_per_cycle : int
        Fixpipe to GM in columns of 8 float32.
    fix_atomic_fp32_millibytes_per_cycle : int
        Fixpipe to GM that adds float32.
    fix_row_floor_cycles, fix_half_row_floor_cycles, fix_narrow_row_bytes : int
        Row-major Fixpipe to rows with gaps: least time of one narrower than this many bytes, of elements of 32 bits and
        of shorter ones.
    fix_misaligned_block_cycles : int
        Row-major Fixpipe to rows whose pitch is not a multiple of 32 bytes: time of 32 bytes of a row.
    fix_to_l1_start_cycles, fix_to_l1_elements_per_cycle, fix_latency_cycles : int
        Fixpipe to L1; latency of every Fixpipe.
    l0c_to_ub_start_cycles, l0c_to_ub_millibytes_per_cycle : int
        L0C to UB on the vector pipe, bytes of L0C.
    vector_{duplicate,add,muls,cast,div,reduce}_cycles : int
        Fixed time of one Ascend C call (the call sets the mask, so calls do not overlap). Sub, Mul, Max and Min take as
        long as Add, Adds as long as Muls.
    vector_5hd_cycles : int
        How much later than its steps a TransDataTo5HD is complete (no mask: calls overlap).
    vector_{div,reduce,5hd}_step_millicycles : int
        Time of a repeat of Div, ReduceRepeat and TransDataTo5HD (512 bytes).
    vector_partial_cycles : int
        Added when the elements do not fill the last repeat.
    vector_partial_block_cycles : int
        Added when the last block of 32 bytes is written in part.
    vector_repeat_bytes, vector_minimum_cycles : int
        Bytes of the wider type per repeat; least occupancy.
    vector_step_millicycles, vector_read_conflict_millicycles, vector_write_conflict_millicycles : int
        Time of a repeat; of an Add whose sources share bank groups; of an Add whose destination half overlaps the
        bank of a source.
    ub_bank_groups, ub_bank_bytes : int
        Bank group of a block: ``address / 32 mod groups``; two blocks can share a bank only inside the same
        ``bank_bytes``.
    {kernel,float_matmul,vector,wide_vector,trans_data,transpose,reduce_sum}_fixed_cycles : int
        Time of a core beside its rows, by the kind of kernel (`Launch.fixed_cost`): code that is fetched, tiling that
        is read, prologue and epilogue.
    trans_data_cold_cycles : int
        What a TransData takes longer where its code is in memory (`Launch.code_in_memory`).
    kernel_start_cycles, vector_start_cycles : int
        Time between the starts of two cores of a kernel of the kinds "kernel" and "float_matmul", and of "vector" and
        "wide_vector".
    record_tiling_permille : int
        Factor on the rows of a matrix product whose tiling was searched where a tuning record has another one
        (`Launch.stands_for_record`).
    {kernel,matmul,float_matmul,static_matmul,tiled_matmul,vector_product,vector,wide_vector,cast,trans_data,transpose,\
    reduce_sum}_model_error_permille : int
        What the model leaves open beside its parameters, by kind of kernel (`Launch.error_kind`): half the width of the
        logarithm of a time in which four of five measured kernels lie.
    {short_k,ragged_rows}_model_error_permille : int
        The same of what makes kernels less certain than others of their kind (`Launch.doubts`).
    phase_barrier_cycles, cross_core_cycles : int
        Synchronisation of all cores between phases; from CrossCoreSetFlag to a core that waits for it.
    launch_single_nanoseconds, launch_few_nanoseconds, launch_few_cores : int
        Task duration minus core time for one core, and for ``launch_few_cores``.
    launch_full_nanoseconds, launch_full_vector_nanoseconds : int
        The same for twice as many or more, of Cube and of vector cores; between them in proportion.
    """

    name: str
    revision: str
    arch: str
    sources: Mapping[str, Source]
    img2col_rule: Literal["table", "pieces"]
    issue_cycles: int
    load2d_issue_cycles: int
    load3d_issue_cycles: int
    address_list_issue_cycles: int
    computed_command_cycles: int
    scalar_ub_cycles: int
    scalar_gm_cycles: int
    queue_depth_rows: int
    flag_cycles: int
    barrier_cycles: int
    mmad_fp16_step_cycles: int
    mmad_bf16_step_cycles: int
    mmad_hf32_step_cycles: int
    mmad_fp32_step_cycles: int
    mmad_int8_step_cycles: int
    mmad_int4_step_cycles: int
    mmad_overhead_cycles: int
    mmad_accumulate_overhead_cycles: int
    mmad_isolated_cycles: int
    mmad_start_cycles: int
    mmad_odd_conflict_fractals: int
    l1_to_l0a_millibytes_per_cycle: int
    l1_to_l0b_millibytes_per_cycle: int
    transpose_to_l0a_millibytes_per_cycle: int
    transpose_to_l0b_millibytes_per_cycle: int
    load2d_overhead_cycles: int
    load3d_overhead_cycles: int
    load2d_minimum_cycles: int
    l1_to_tables_millibytes_per_cycle: int
    l1_to_tables_minimum_cycles: int
    l1_to_tables_isolated_cycles: int
    load2d_isolated_cycles: int
    load3d_isolated_cycles: int
    load_sparse_isolated_cycles: int
    mte1_start_cycles: int
    mte1_contention_permille: int
    gm_to_l1_command_cycles: int
    gm_to_l1_millibytes_per_cycle: int
    gm_to_l1_isolated_cycles: int
    gm_to_l1_isolated_millibytes_per_cycle: int
    gm_to_ub_command_cycles: int
    gm_to_ub_millibytes_per_cycle: int
    gm_to_ub_isolated_cycles: int
    gm_to_ub_isolated_millibytes_per_cycle: int
    gm_to_ub_pad_isolated_cycles: int
    gm_to_l0_command_cycles: int
    gm_to_l0_millibytes_per_cycle: int
    gm_to_l0_isolated_cycles: int
    gm_to_l0_isolated_millibytes_per_cycle: int
    gm_to_l0_minimum_cycles: int
    nd2nz_isolated_cycles: int
    nd2nz_isolated_millibytes_per_cycle: int
    gm_row_floor_millicycles: int
    ub_row_floor_millicycles: int
    gm_to_ub_misaligned_permille: int
    gm_row_misaligned_permille: int
    gm_row_misaligned_floor_millicycles: int
    gm_row_pitch_permille: int
    l2_miss_cycles: int
    gm_to_ub_miss_millibytes_per_cycle: int
    unknown_miss_permille: int
    l2_total_bytes_per_microsecond: int
    hbm_total_bytes_per_microsecond: int
    hbm_mixed_bytes_per_microsecond: int
    ub_to_gm_command_cycles: int
    ub_to_gm_isolated_cycles: int
    ub_to_gm_millibytes_per_cycle: int
    ub_to_gm_ragged_row_cycles: int
    l1_to_gm_millibytes_per_cycle: int
    ub_to_l1_millibytes_per_cycle: int
    l1_to_ub_millibytes_per_cycle: int
    ub_to_ub_millibytes_per_cycle: int
    fill_millibytes_per_cycle: int
    atomic_permille: int
    fix_minimum_cycles: int
    fix_to_gm_millibytes_per_cycle: int
    fix_to_gm_millielements_per_cycle: int
    fix_split_millibytes_per_cycle: int
    fix_atomic_fp32_millibytes_per_cycle: int
    fix_row_floor_cycles: int
    fix_half_row_floor_cycles: int
    fix_narrow_row_bytes: int
    fix_misaligned_block_cycles: int
    fix_to_l1_start_cycles: int
    fix_to_l1_elements_per_cycle: int
    fix_latency_cycles: int
    l0c_to_ub_start_cycles: int
    l0c_to_ub_millibytes_per_cycle: int
    vector_duplicate_cycles: int
    vector_add_cycles: int
    vector_muls_cycles: int
    vector_cast_cycles: int
    vector_div_cycles: int
    vector_div_step_millicycles: int
    vector_reduce_cycles: int
    vector_reduce_step_millicycles: int
    vector_5hd_cycles: int
    vector_5hd_step_millicycles: int
    vector_5hd_32bit_step_millicycles: int
    vector_partial_cycles: int
    vector_partial_block_cycles: int
    vector_repeat_bytes: int
    vector_minimum_cycles: int
    vector_step_millicycles: int
    vector_read_conflict_millicycles: int
    vector_write_conflict_millicycles: int
    ub_bank_groups: int
    ub_bank_bytes: int
    kernel_fixed_cycles: int
    float_matmul_fixed_cycles: int
    kernel_start_cycles: int
    vector_fixed_cycles: int
    wide_vector_fixed_cycles: int
    vector_start_cycles: int
    trans_data_fixed_cycles: int
    trans_data_cold_cycles: int
    transpose_fixed_cycles: int
    reduce_sum_fixed_cycles: int
    record_tiling_permille: int
    kernel_model_error_permille: int
    matmul_model_error_permille: int
    float_matmul_model_error_permille: int
    static_matmul_model_error_permille: int
    tiled_matmul_model_error_permille: int
    short_k_model_error_permille: int
    ragged_rows_model_error_permille: int
    vector_product_model_error_permille: int
    cast_model_error_permille: int
    vector_model_error_permille: int
    wide_vector_model_error_permille: int
    trans_data_model_error_permille: int
    transpose_model_error_permille: int
    reduce_sum_model_error_permille: int
    phase_barrier_cycles: int
    cross_core_cycles: int
    launch_single_nanoseconds: int
    launch_few_nanoseconds: int
    launch_full_nanoseconds: int
    launch_full_vector_nanoseconds: int
    launch_few_cores: int

    def __post_init__(self) -> None:
        values = {field.name: getattr(self, field.name) for field in fields(self) if field.name not in _UNSOURCED}
        object.__setattr__(self, "sources", Sources(self.sources, values))
        for name, value in values.items():
            if name not in self.sources:
                raise ProductError(f"Cost parameter {name} must have a source, not none ({self.name})")
            if name == "img2col_rule":
                continue
            if not isinstance(value, int) or value < 0:
                raise ProductError(f"Cost parameter {name} must be an integer >= 0, not {value!r} ({self.name})")
            least = int(name.endswith(_DIVISORS))
            if not least <= value <= MAX_COST:
                raise ProductError(f"Cost parameter {name} must be in [{least}, {MAX_COST}], not {value} ({self.name})")
        if self.img2col_rule not in ("table", "pieces"):
            raise ProductError(f"img2col_rule must be 'table' or 'pieces', not {self.img2col_rule!r} ({self.name})")
        if not 1 <= self.queue_depth_rows <= MAX_QUEUE_DEPTH:
            raise ProductError(
                f"queue_depth_rows must be in [1, {MAX_QUEUE_DEPTH}], not {self.queue_depth_rows} ({self.name})"
            )

    def fixed_cycles(self, kind: str, active_cores: int, code_in_memory: bool = False) -> int:
        """Return the time beside its rows of a kernel of a kind (`Launch.fixed_cost`) on ``active_cores`` cores."""
        cold = self.trans_data_cold_cycles if code_in_memory and kind == "trans_data" else 0
        cube, vector = self.kernel_start_cycles, self.vector_start_cycles
        between = {"kernel": cube, "float_matmul": cube, "vector": vector, "wide_vector": vector}.get(kind, 0)
        return int(getattr(self, f"{kind}_fixed_cycles")) + between * (active_cores - 1) + cold

    def launch_nanoseconds(self, active_cores: int, core_kind: Literal["cube", "vector"]) -> int:
        """Return task duration minus core time for a launch on ``active_cores`` cores of a kind."""
        few = self.launch_few_cores
        low, high = self.launch_single_nanoseconds, self.launch_few_nanoseconds
        if active_cores <= few:
            return low + (high - low) * (active_cores - 1) // max(few - 1, 1)
        full = self.launch_full_vector_nanoseconds if core_kind == "vector" else self.launch_full_nanoseconds
        return high + (full - high) * min(active_cores - few, few) // max(few, 1)


MAX_QUEUE_DEPTH = 32
"""Ring size of the timeline engine; deeper queues need a bigger ring there."""
MAX_COST = 10**9

_DIVISORS = ("_permille", "_bytes_per_microsecond", "_groups", "_bank_bytes", "_repeat_bytes")
_UNSOURCED = frozenset({"name", "revision", "arch", "sources"})
NUMBERS: tuple[str, ...] = tuple(
    field.name for field in fields(CostParams) if field.name not in _UNSOURCED | {"img2col_rule"}
)
"""Names of the numeric parameters, in the order of the record."""
