"""Cost rules against worked numbers of the published tables; every expectation is arithmetic on the source, by hand."""

from __future__ import annotations

import csv
import dataclasses
import itertools
import math
import pickle
from pathlib import Path

import numpy as np
import pytest

from npu_sim.errors import ProductError
from npu_sim.isa import cost as rules
from npu_sim.isa import cost_rates, emit
from npu_sim.isa.cost_rates import amount
from npu_sim.isa.op import Data, Mode, Op, Space
from npu_sim.isa.row import empty_rows
from npu_sim.products import get_product, list_products
from npu_sim.products.cost import NUMBERS
from npu_sim.products.cost_record import cost_record, img2col_bytes_per_cycle
from npu_sim.products.source import EVIDENCE

C220, C100, M200 = (get_product(name).cost for name in ("910b", "910", "310p"))
GHZ = 1_000_000_000


def cost_of(row, params=C220, *, cores=1, clock_hz=GHZ, **options):
    """Return (occupancy, latency, bytes) of the row that ``row(rows, 0)`` writes into a dirty buffer."""
    rows = empty_rows(1)
    rows.view(np.uint8)[:] = 0xA5
    assert row(rows, 0) == 1
    out = np.zeros((1, 3), np.int64)
    rules.rows_cost(rows, 1, cost_record(params, cores, clock_hz, **options), out)
    return tuple(int(value) for value in out[0])


def mmad(m, n, k, dtype=Data.FP16, mode=Mode.INIT):
    return lambda rows, at: emit.emit_mmad(rows, at, 0, 0, 0, dtype, m, n, k, mode, 0, 0)


def copy(target, source, count, length, src_gap=0, dst_gap=0, *, atomic=False, dtype=Data.FP16):
    def row(rows, at):
        end = emit.emit_data_copy(rows, at, target, 0, source, 0, count, length, src_gap, dst_gap, dtype, 0, 0, 0)
        rows["mode"][at] |= Mode.ATOMIC if atomic else 0
        return end

    return row


def pad(target, source, count, length, src_gap=0, dst_gap=0, *, atomic=False):
    def row(rows, at):
        end = emit.emit_data_copy_pad(
            rows, at, target, 0, source, 0, count, length, src_gap, dst_gap, 0, 0, 0, 0, Data.FP16, 0, 0, 0
        )
        rows["mode"][at] |= Mode.ATOMIC if atomic else 0
        return end

    return row


def nd2nz(rows_, columns, pitch, dtype=Data.FP16, matrices=1):
    return lambda rows, at: emit.emit_nd2nz(
        rows, at, 0, 0, dtype, matrices, rows_, columns, 0, pitch, rows_, 1, 0, 0, 0, 0
    )


def load_2d(target, repeat, source=Space.L1, stride=1, mode=0):
    return lambda rows, at: emit.emit_load_2d(
        rows, at, target, 0, source, 0, Data.FP16, 0, repeat, stride, 0, mode, 0, 0, 0
    )


def load_3d(target, *, width, m_ext=16, k_ext=16, m_start=0, stride=1, filter_w=1, filter_h=1, dtype=Data.FP16, pad=0):
    def row(rows, at):
        emit.set_feature_map(rows, at, 64, width, pad, pad, pad, pad)
        emit.set_window(rows, at, stride, stride, filter_w, filter_h, 1, 1)
        return emit.emit_load_3d(rows, at, target, 0, 0, dtype, 64, k_ext, m_ext, 0, m_start, 0, 0, 0)

    return row


def load_3d_v1(target, *, width, repeat, repeat_mode, stride=1, left_top_w=0, filter_h=1):
    def row(rows, at):
        emit.set_feature_map(rows, at, 64, width, 0, 0, 0, 0)
        emit.set_window(rows, at, stride, stride, 1, filter_h, 1, 1)
        return emit.emit_load_3d_v1(
            rows, at, target, 0, 0, Data.FP16, 0, 0, 0, left_top_w, 0, 1, repeat_mode, repeat, 0, 0
        )

    return row


def fixpipe(m, n, dtype=Data.FP32, target=Space.GM, mode=0, matrices=1, pitch=0):
    step = pitch or n
    return lambda rows, at: emit.emit_fixpipe(
        rows, at, target, 0, 0, dtype, m, n, m, step, matrices, 0, 0, mode, 0, 0, 0
    )


# --- the tables -----------------------------------------------------------------------------------


@pytest.mark.parametrize("params", dict.fromkeys(product.cost for product in list_products()), ids=lambda p: p.name)
def test_cost_table_every_number_has_a_source(params):
    assert set(params.sources) == {*NUMBERS, "img2col_rule"}
    for source in params.sources.values():
        assert len(source.text) > 10
        assert source.confidence in ("H", "M", "L")
        assert source.evidence in EVIDENCE
    hash(params)
    assert pickle.loads(pickle.dumps(params)) == params


def test_cost_table_number_without_source_is_refused():
    sources = {name: source for name, source in C220.sources.items() if name != "flag_cycles"}
    with pytest.raises(ProductError, match=r"\ACost parameter flag_cycles must have a source, not none \(dav-c220\)\Z"):
        dataclasses.replace(C220, sources=sources)


@pytest.mark.parametrize("value", [-1, 1.5])
def test_cost_table_number_that_is_no_natural_is_refused(value):
    with pytest.raises(
        ProductError, match=rf"\ACost parameter flag_cycles must be an integer >= 0, not {value} \(dav-c220\)\Z"
    ):
        dataclasses.replace(C220, flag_cycles=value)


@pytest.mark.parametrize("depth", [0, 33])
def test_cost_table_queue_depth_out_of_range_is_refused(depth):
    with pytest.raises(ProductError, match=rf"\Aqueue_depth_rows must be in \[1, 32\], not {depth} \(dav-c220\)\Z"):
        dataclasses.replace(C220, queue_depth_rows=depth)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((0, GHZ, 1000), "active_cores must be at least 1, not 0"),
        ((1, 0, 1000), "clock_hz must be at least 1, not 0"),
        ((1, GHZ, 1001), r"l2_hit_permille must be in \[0, 1000\], not 1001"),
    ],
)
def test_cost_record_argument_out_of_range_is_refused(arguments, message):
    cores, clock_hz, hit = arguments
    with pytest.raises(ProductError, match=rf"\A{message} \(dav-c220\)\Z"):
        cost_record(C220, cores, clock_hz, l2_hit_permille=hit)


def test_cost_record_bandwidth_is_the_smaller_of_port_and_share():
    # 3.9 TB/s over 24 cores at 1.8 GHz are 90.277 bytes per cycle; one core is limited by its port.
    assert cost_record(C220, 24, 1_800_000_000)["gm_to_l1_millibytes_per_cycle"][0] == 90_277
    assert cost_record(C220, 1, 1_800_000_000)["gm_to_l1_millibytes_per_cycle"][0] == 134_000
    # 48 vector cores: 45.1 bytes per cycle (mskpp measured 46).
    assert cost_record(C220, 48, 1_800_000_000)["gm_to_ub_millibytes_per_cycle"][0] == 45_138


def test_cost_record_l2_misses_share_the_memory_rate():
    # No hit: 1.5 TB/s / 24 / 1.8 GHz = 34.722; half: 2 / (1/3.9 + 1/1.5) = 2.1667 TB/s -> 50.154.
    none = cost_record(C220, 24, 1_800_000_000, l2_hit_permille=0)
    assert none["gm_to_l1_millibytes_per_cycle"][0] == 34_722
    assert none["gm_miss_latency_cycles"][0] == 75
    half = cost_record(C220, 24, 1_800_000_000, l2_hit_permille=500)
    assert half["gm_to_l1_millibytes_per_cycle"][0] == 50_154
    assert half["gm_miss_latency_cycles"][0] == 37


def test_cost_record_contention_slows_every_l1_read():
    calm, busy = (cost_record(C220, 1, GHZ, mte1_contended=contended) for contended in (False, True))
    for name in ("l1_to_l0a", "l1_to_l0b", "transpose_to_l0a", "transpose_to_l0b"):
        key = f"{name}_millibytes_per_cycle"
        assert busy[key][0] == calm[key][0] * 1000 // 1150
    ratio = busy["img2col_millicycles"][0, :, :, 1:] / calm["img2col_millicycles"][0, :, :, 1:]
    np.testing.assert_allclose(ratio, 1.15, rtol=1e-3)  # both are rounded up to whole thousandths
    others = [n for n in calm.dtype.names if "to_l0a_m" not in n and "to_l0b_m" not in n and "img2col" not in n]
    assert all(calm[name][0] == busy[name][0] for name in others)


def test_row_cost_unknown_opcode_answers_minus_one():
    def unknown(rows, at):
        rows["op"][at] = 255
        return at + 1

    assert cost_of(unknown)[0] == cost_rates.UNKNOWN_OPCODE == -1


@pytest.mark.parametrize(
    ("row", "params"),
    [
        (mmad(16, 16, 16, Data.BF16), C100),
        (mmad(16, 16, 16, Data.FP32), M200),
        (mmad(16, 16, 16, Data.INT64), C220),
        (fixpipe(16, 16), C100),
        (nd2nz(16, 16, 16), M200),
        (copy(Space.L1, Space.UB, 1, 8), C220),
        (copy(Space.UB, Space.L1, 1, 8), C220),
        (copy(Space.L0C, Space.L1, 1, 8), C220),
        (lambda r, n: emit.emit_l0c_to_ub(r, n, 0, 0, Data.FP16, 1, 1, 0, 0, 0, 0), C220),
    ],
)
def test_row_cost_path_or_type_the_architecture_lacks_is_unsupported(row, params):
    assert cost_of(row, params)[0] == cost_rates.UNSUPPORTED


@pytest.mark.parametrize(
    "row",
    [
        mmad(0, 16, 16),
        copy(Space.L1, Space.GM, 0, 8),
        copy(Space.GM, Space.UB, 4, 0),
        nd2nz(0, 16, 16),
        load_2d(Space.L0A, 0),
        load_3d(Space.L0A, width=8, m_ext=0),
        fixpipe(0, 16),
        lambda r, n: emit.emit_muls(r, n, 0, 0, Data.FP16, 0, 0, 0, 0),
    ],
)
def test_row_cost_instruction_without_elements_costs_its_issue(row):
    assert cost_of(row) == (1, 0, 0)


# --- Mmad (16 x K0 x 16 steps) --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("shape", "dtype", "mode", "steps"),
    [
        ((128, 64, 256), Data.FP16, 0, 512),
        ((128, 256, 64), Data.BF16, 0, 512),
        ((64, 64, 64), Data.FP16, 0, 64),
        ((17, 1, 15), Data.FP16, 0, 2),
        ((16, 16, 17), Data.FP16, 0, 2),
        ((128, 64, 256), Data.FP32, 0, 2048),
        ((128, 64, 256), Data.FP32, Mode.HF32, 1024),
        ((16, 16, 9), Data.FP32, 0, 4),
        ((128, 64, 256), Data.INT8, 0, 256),
    ],
)
def test_mmad_c220_steps_and_overhead(shape, dtype, mode, steps):
    # 15 cycles beside the steps when it accumulates, 2 when it starts anew; complete 23 cycles beside the steps.
    assert cost_of(mmad(*shape, dtype, mode)) == (steps + 15, 8, 0)
    assert cost_of(mmad(*shape, dtype, mode | Mode.INIT)) == (steps + 2, 21, 0)


def test_mmad_stream_start_matches_the_measured_single_fractal():
    # mskpp: one isolated 16x16x16 takes 24 to 25 cycles, 16x16x2048 150.
    occupancy, latency, _ = cost_of(mmad(16, 16, 16))
    assert occupancy + latency == 24
    occupancy, latency, _ = cost_of(mmad(16, 16, 2048))
    assert occupancy + latency == 151


@pytest.mark.parametrize(
    ("shape", "extra"), [((32, 32, 64), 0), ((16, 32, 64), 2), ((32, 48, 64), 2), ((16, 16, 32), 0), ((16, 16, 16), 0)]
)
def test_mmad_c100_conflicts_of_odd_fractal_counts(shape, extra):
    # + (k fractals - 2) when m or n has an odd fractal count; not on dav-m200.
    m, n, k = shape
    steps = m * n * k // 4096
    assert cost_of(mmad(*shape), C100)[0] == steps + 15 + extra
    assert cost_of(mmad(*shape), M200)[0] == steps + 15


# --- L1 to L0 -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("target", "fractals", "occupancy"),
    [(Space.L0A, 1, 4), (Space.L0A, 2, 5), (Space.L0A, 32, 65), (Space.L0B, 1, 5), (Space.L0B, 32, 129)],
)
def test_load2d_c220_repeat_form(target, fractals, occupancy):
    # mskpp: 1 + 2 per fractal (L0A, at least 4), 1 + 4 (L0B); the missing 28 - 22 - 1 cycles of latency follow.
    assert cost_of(load_2d(target, fractals)) == (occupancy, 5, 512 * fractals)


def test_load2d_isolated_start_and_latency_add_up_to_the_measured_28():
    occupancy, latency, _ = cost_of(load_2d(Space.L0A, 32))
    assert occupancy + C220.mte1_start_cycles + latency == 28 + 64


def test_load2d_unified_cores():
    assert cost_of(load_2d(Space.L0A, 32), C100)[0] == 12 + 32
    assert cost_of(load_2d(Space.L0B, 32), M200)[0] == 12 + 64
    assert cost_of(load_2d(Space.L0A, 32, mode=Mode.TRANSPOSE), C100)[0] == 12 + 64


def test_load2d_from_gm_occupancy_and_isolated_time():
    # max(75, 20 + bytes/139); isolated 190 + bytes/140. 64 fractals = 32768 bytes: 235.7 and 234.06.
    assert cost_of(load_2d(Space.L0A, 64, Space.GM)) == (256, 190 + 235 - 256, 32768)
    assert cost_of(load_2d(Space.L0A, 1, Space.GM)) == (75, 190 + 4 - 75, 512)
    assert cost_of(load_2d(Space.L1, 64, Space.GM))[0] == 20 + math.ceil(32768 / 134)
    assert cost_of(load_2d(Space.L1, 64, Space.GM, stride=9))[0] == 20 + 64 * 4


@pytest.mark.parametrize(
    ("target", "dtype", "fractals", "cycles"),
    [(Space.L0A, Data.FP16, 8, 16), (Space.L0B, Data.FP16, 8, 32), (Space.L0B, Data.FP32, 16, 64)],
)
def test_load_transpose_counts_the_fractals_of_a_square(target, dtype, fractals, cycles):
    row = lambda r, n: emit.emit_load_transpose(r, n, target, 0, 0, dtype, 0, 8, 1, 0, 0, 0, 0)  # noqa: E731
    assert cost_of(row) == (1 + cycles, 5, 512 * fractals)


def test_sparse_weights_load_as_others_and_take_half_of_the_steps():
    load = lambda r, n, count: emit.emit_load_sparse(r, n, 0, 0, 0, Data.INT8, 0, count, 0, 0)  # noqa: E731
    assert cost_of(lambda r, n: load(r, n, 8)) == (1 + 32, 7, 4096)
    assert cost_of(lambda r, n: load(r, n, 0)) == (1, 0, 0)
    for k, steps in ((4, 1), (64, 1), (68, 2), (512, 8)):
        plain, half = (
            cost_of(lambda r, n, e=emitter, k=depth: e(r, n, 0, 0, 0, Data.INT8, 32, 48, k, Mode.INIT, 0, 0))
            for emitter, depth in ((emit.emit_mmad, 32 * steps), (emit.emit_mmad_sparse, k))
        )
        assert half == plain


def test_steps_of_int4_have_twice_the_k_of_int8():
    for params in (C220, M200):
        for k, steps in ((2, 1), (64, 1), (66, 2), (512, 8)):
            of_bytes, of_pairs = (
                cost_of(
                    lambda r, n, e=emitter, k=depth: e(r, n, 0, 0, 0, Data.INT8, 32, 48, k, Mode.INIT, 0, 0), params
                )
                for emitter, depth in ((emit.emit_mmad, 32 * steps), (emit.emit_mmad_int4, k))
            )
            assert of_pairs == of_bytes
    row = lambda r, n: emit.emit_load_transpose_int4(r, n, 0, 0, Data.INT8, 0, 4, 1, 3, 0, 0, 0)  # noqa: E731
    assert cost_of(row) == (1 + 64, 5, 8192)


RATES = [  # strideW, image rows, to L0A, to L0B
    (1, 1, 256, 128),
    (1, 2, 128, 85),
    (1, 3, 102, 73),
    (1, 14, 32, 28),
    (2, 1, 128, 85),
    (2, 2, 85, 64),
    (4, 1, 64, 51),
    (4, 3, 46, 39),
    (8, 1, 32, 28),
    (8, 2, 32, 28),
    (3, 1, 32, 28),
    (16, 1, 32, 28),
]


@pytest.mark.parametrize(("stride", "image_rows", "to_l0a", "to_l0b"), RATES)
def test_img2col_rate_table(stride, image_rows, to_l0a, to_l0b):
    assert img2col_bytes_per_cycle(to_l0b=False, stride_w=stride, image_rows=image_rows) == to_l0a
    assert img2col_bytes_per_cycle(to_l0b=True, stride_w=stride, image_rows=image_rows) == to_l0b


def _image_rows(first, width, fractal):
    """Image rows the 16 outputs from ``first + 16 * fractal`` touch, counted one by one."""
    return len({(first + 16 * fractal + i) // width for i in range(16)})


@pytest.mark.parametrize("stride", [1, 2, 3, 4, 8])
@pytest.mark.parametrize("target", [Space.L0A, Space.L0B])
def test_load3d_c220_sums_the_table_over_its_fractals(target, stride):
    for out_width in (1, 2, 3, 5, 7, 14, 15, 16, 17, 28, 31, 56):
        for m_start in (0, 5, 48):
            width = (out_width - 1) * stride + 1
            row = load_3d(target, width=width, m_ext=16 * 9 - 3, k_ext=40, m_start=m_start, stride=stride)
            cycles = 0.0
            for fractal in range(9):
                image_rows = _image_rows(m_start % out_width, out_width, fractal)
                rate = img2col_bytes_per_cycle(
                    to_l0b=target == Space.L0B, stride_w=stride, image_rows=min(image_rows, 16)
                )
                cycles += 3 * 512 / rate  # k_ext 40 are three blocks of 16 channels
            occupancy, latency, byte_count = cost_of(row)
            assert occupancy - 13 == pytest.approx(cycles, abs=1 + 27e-3), (out_width, m_start)
            assert (latency, byte_count) == (50 - 22 - 13, 9 * 3 * 512)


def test_load3d_worked_numbers():
    # Output width 56 (58 wide, 3 taps): 128 outputs cross rows at 56 and 112; 48..63 crosses, 112 = 7 * 16 does not.
    # To L0B: 7 fractals at 128 and one at floor(512 / 6) = 85 bytes per cycle, 4 blocks of channels.
    row = load_3d(Space.L0B, width=56, m_ext=128, k_ext=64, filter_w=3, filter_h=3, pad=1)
    assert cost_of(row)[0] == 13 + math.ceil(4 * (7 * 4 + 512 / 85))
    assert cost_of(load_3d(Space.L0A, width=16, m_ext=256, k_ext=32))[0] == 13 + 16 * 2 * 2
    # float32: 8 channels per block, the same bytes per cycle.
    assert cost_of(load_3d(Space.L0A, width=16, m_ext=256, k_ext=32, dtype=Data.FP32))[0] == 13 + 16 * 4 * 2


def _pieces(first, width, fractals, stride):
    """Runs of at most 16 / strideW outputs inside one image row, walked output by output."""
    count = 0
    for fractal in range(fractals):
        run, last_row = 0, -1
        for i in range(16):
            image_row = (first + 16 * fractal + i) // width
            if image_row != last_row or run == 16 // stride:
                count += 1
                run = 0
            run += 1
            last_row = image_row
    return count


@pytest.mark.parametrize("stride", [1, 2, 4])
def test_load3d_unified_counts_pieces(stride):
    for out_width in (1, 3, 5, 7, 14, 15, 16, 17, 28, 31):
        for m_start in (0, 6):
            # Two filter rows: the rule for whole rows does not apply.
            width = (out_width - 1) * stride + 1
            row = load_3d(Space.L0A, width=width, m_ext=144, k_ext=16, m_start=m_start, stride=stride, filter_h=2)
            expected = _pieces(m_start % out_width, out_width, 9, stride)
            assert cost_of(row, M200)[0] == 8 + expected, (out_width, m_start)


@pytest.mark.parametrize("stride", [3, 8])
def test_load3d_unified_reads_one_by_one_at_strides_without_a_pattern(stride):
    row = load_3d(Space.L0A, width=32 * stride, m_ext=64, k_ext=32, stride=stride, filter_h=2)
    assert cost_of(row, M200)[0] == 8 + 4 * 2 * 16


def test_load3d_unified_whole_rows_take_one_read_per_fractal():
    assert cost_of(load_3d(Space.L0A, width=72, m_ext=144, k_ext=16), M200)[0] == 8 + 9
    assert cost_of(load_3d(Space.L0A, width=56, m_ext=144, k_ext=16), M200)[0] == 8 + _pieces(0, 56, 9, 1)
    assert cost_of(load_3d(Space.L0B, width=48, m_ext=144, k_ext=16), M200)[0] == 8 + 18


def test_load3d_v1_modes_walk_outputs_or_taps():
    # Output width 24: fractals 0, 1, 2 touch 1, 2, 1 rows (mode 1); one output group read 3 times (mode 0).
    walk = load_3d_v1(Space.L0A, width=24, repeat=3, repeat_mode=1, filter_h=2)
    assert cost_of(walk, C100) == (8 + 4, 50 - 8, 3 * 512)
    taps = load_3d_v1(Space.L0A, width=24, repeat=3, repeat_mode=0, left_top_w=16, filter_h=2)
    assert cost_of(taps, C100)[0] == 8 + 6


# --- GM reads -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("target", "byte_count", "occupancy", "isolated"),
    [
        # 20 + bytes/134, isolated 190 + bytes/172
        (Space.L1, 1024, 20 + 8, 190 + 6),
        (Space.L1, 32768, 20 + 245, 190 + 191),
        # 20 + bytes/128, isolated 210 + bytes/130
        (Space.UB, 1024, 20 + 8, 210 + 8),
        (Space.UB, 8192, 20 + 64, 210 + 64),
    ],
)
def test_data_copy_from_gm_occupancy_and_isolated_time(target, byte_count, occupancy, isolated):
    assert cost_of(copy(target, Space.GM, 1, byte_count // 32)) == (occupancy, isolated - occupancy, byte_count)
    split = cost_of(copy(target, Space.GM, 4, byte_count // 128))
    assert split == (occupancy, isolated - occupancy, byte_count)  # blocks without gaps are one stream


def test_data_copy_from_gm_miss_adds_latency_only():
    hit = cost_of(copy(Space.L1, Space.GM, 1, 32))
    miss = cost_of(copy(Space.L1, Space.GM, 1, 32), l2_hit_permille=0)
    assert miss == (hit[0], hit[1] + 75, 1024)


def test_data_copy_from_gm_large_copy_has_no_negative_latency():
    occupancy, latency, _ = cost_of(copy(Space.L1, Space.GM, 1, 16384))
    assert occupancy == 20 + math.ceil(524288 / 134)
    assert latency == 0


@pytest.mark.parametrize(("length", "payload"), [(1, 64 * 4), (4, 64 * 4), (16, 64 * 4), (32, math.ceil(65536 / 134))])
def test_data_copy_strided_rows_have_a_floor(length, payload):
    # 64 rows of 32, 128, 512 and 1024 bytes: 4 cycles each, or the bytes.
    assert cost_of(copy(Space.L1, Space.GM, 64, length, 3, 0))[0] == 20 + payload
    assert cost_of(copy(Space.L1, Space.GM, 64, length, 0, 3))[0] == 20 + payload


@pytest.mark.parametrize(
    ("rows", "columns", "pitch", "payload"),
    [
        (128, 64, 256, 128 * 4),  # 128-byte rows, 512-byte pitch: the floor
        (128, 512, 512, math.ceil(131072 / 134)),
        (128, 64, 80, math.ceil(512 * 1.1)),  # pitch 160: a multiple of 32, not of 512
        (128, 1024, 1028, math.ceil(math.ceil(262144 / 134) * 1.9)),  # pitch 2056
        (128, 64, 65, 128 * 14),  # pitch 130: the floor of rows that begin anywhere
        (128, 64, 64, math.ceil(16384 / 134)),  # rows without gaps are read like one
        (128, 49, 49, 128 * 14),  # unless they begin anywhere
        (1, 64, 65, 4),  # one row has no pitch
    ],
)
def test_nd2nz_rows(rows, columns, pitch, payload):
    occupancy, latency, byte_count = cost_of(nd2nz(rows, columns, pitch))
    assert occupancy == 20 + payload
    assert byte_count == rows * columns * 2
    isolated = 250 + math.ceil(byte_count / 114)
    assert latency == max(isolated - occupancy, 170)  # never earlier than a contiguous copy


def test_nd2nz_matrices_multiply_the_rows():
    assert cost_of(nd2nz(8, 64, 256, matrices=16)) == cost_of(nd2nz(128, 64, 256))


# --- results out ----------------------------------------------------------------------------------


@pytest.mark.parametrize("byte_count", [1024, 8192, 65536])
def test_ub_to_gm_isolated_law(byte_count):
    occupancy, latency, moved = cost_of(copy(Space.GM, Space.UB, 1, byte_count // 32))
    assert occupancy + latency == 120 + math.ceil(byte_count / 78)
    assert latency == 100
    assert moved == byte_count


def test_ub_to_gm_atomic_doubles_the_payload():
    assert cost_of(copy(Space.GM, Space.UB, 1, 78, atomic=True))[0] == 20 + 64
    assert cost_of(copy(Space.GM, Space.UB, 1, 78))[0] == 20 + 32


def test_ub_to_gm_scattered_blocks_have_a_floor():
    assert cost_of(copy(Space.GM, Space.UB, 100, 1, 0, 7))[0] == 20 + 220


def test_store_rate_is_shared():
    # 48 cores at 1.8 GHz: 45.138 bytes per cycle.
    assert cost_of(copy(Space.GM, Space.UB, 1, 256), cores=48, clock_hz=1_800_000_000)[0] == 20 + math.ceil(
        8192 / 45.138
    )


@pytest.mark.parametrize(
    ("row", "occupancy", "byte_count"),
    [
        (fixpipe(16, 16), 90, 1024),
        (fixpipe(128, 256), math.ceil(131072 / 115), 131072),
        (fixpipe(128, 256, Data.FP16), math.ceil(32768 / 41), 65536),
        (fixpipe(128, 64, mode=Mode.CHANNEL_SPLIT), 1024, 32768),  # a block of 8 a cycle
        (fixpipe(128, 256, mode=Mode.ATOMIC), math.ceil(131072 / 40), 131072),
        (fixpipe(128, 256, Data.FP16, mode=Mode.ATOMIC), 2 * math.ceil(32768 / 41), 65536),
        (fixpipe(128, 64, mode=Mode.NZ2ND, pitch=256), 128 * 21, 32768),  # rows of 256 bytes
        (fixpipe(128, 64, mode=Mode.NZ2ND), math.ceil(32768 / 115), 32768),  # without gaps: written like one
        (fixpipe(128, 9, Data.FP16, mode=Mode.NZ2ND), 128 * 5, 2304),  # rows that begin anywhere, of one block
        (fixpipe(128, 100, Data.FP16, mode=Mode.NZ2ND, pitch=101), 128 * 7 * 5, 25600),  # of seven blocks
        (fixpipe(128, 512, Data.FP16, mode=Mode.NZ2ND, pitch=1001), 128 * 16 * 5, 131072),  # the middle is whole
        (fixpipe(128, 128, mode=Mode.NZ2ND), math.ceil(65536 / 115), 65536),  # rows of 512 bytes
        (fixpipe(64, 64, mode=Mode.NZ2ND, matrices=2, pitch=128), 128 * 21, 32768),
        (fixpipe(128, 16, Data.FP16, mode=Mode.NZ2ND, pitch=256), 128 * 4, 4096),  # rows of 32 bytes
        (fixpipe(64, 64, matrices=2), math.ceil(16384 / 115), 16384),  # ndNum counts only when row-major
        (fixpipe(128, 64, Data.FP16, Space.L1), 20 + 128, 16384),
    ],
)
def test_fixpipe_laws(row, occupancy, byte_count):
    assert cost_of(row) == (occupancy, 0, byte_count)


def test_fixpipe_shares_memory_with_the_other_cores():
    # 24 cores, no L2 hit: 34.722 bytes per cycle, half of it for atomic adds.
    options = {"cores": 24, "clock_hz": 1_800_000_000, "l2_hit_permille": 0}
    assert cost_of(fixpipe(128, 256), **options)[0] == math.ceil(131072 / 34.722)
    assert cost_of(fixpipe(128, 256, mode=Mode.ATOMIC), **options)[0] == 2 * math.ceil(131072 / 34.722)


@pytest.mark.parametrize(("params", "rate"), [(C100, 256), (M200, 512)])
def test_l0c_to_ub_reads_accumulators(params, rate):
    row = lambda r, n: emit.emit_l0c_to_ub(r, n, 0, 0, Data.FP16, 4, 8, 0, 0, 0, 0)  # noqa: E731
    assert cost_of(row, params) == (28 + 32 * 1024 // rate, 0, 32 * 512)


@pytest.mark.parametrize(
    ("params", "row", "occupancy"),
    [
        (C220, copy(Space.UB, Space.UB, 1, 64), 8),
        (C220, copy(Space.UB, Space.UB, 1, 1), 3),
        (C220, copy(Space.GM, Space.L1, 1, 78), 20 + 32),
        (C100, copy(Space.UB, Space.L1, 1, 64), 16),
        (M200, copy(Space.L1, Space.UB, 1, 64), 8),
        (C100, copy(Space.L1, Space.UB, 1, 64), 16),
    ],
)
def test_data_copy_inside_the_core(params, row, occupancy):
    assert cost_of(row, params)[0] == occupancy


@pytest.mark.parametrize(("target", "block"), [(Space.L1, 32), (Space.L0A, 512), (Space.L0B, 512)])
def test_fill_writes_32_bytes_per_cycle(target, block):
    row = lambda r, n: emit.emit_fill(r, n, target, 0, Data.FP16, 3, 5, 9, 0, 0, 0)  # noqa: E731
    assert cost_of(row) == (15 * block // 32, 0, 15 * block)


# --- vector ---------------------------------------------------------------------------------------


def _add(count, dtype=Data.FP16, src0=0, src1=256, dst=0):
    return lambda r, n: emit.emit_add(r, n, dst, src0, src1, dtype, count, 0, 0)


@pytest.mark.parametrize(
    ("row", "occupancy"),
    [
        (_add(128 * 128), 22 + 128),
        (_add(64 * 64, Data.FP32), 22 + 64),
        (_add(128 * 128, src1=0), 22 + 256),  # same bank groups
        (_add(128 * 128, src1=32), 22 + 256),  # half-overlapping groups clash too
        (_add(128 * 128, src1=768), 22 + 128),  # 24 blocks apart = 8 modulo 16
        (_add(128 * 128, dst=64), 22 + math.ceil(128 * 1.77)),
        (_add(128 * 128, dst=65536 + 64), 22 + 128),  # other bank
        (_add(128 * 128, dst=256), 22 + 128),  # on top of the second source
        (_add(129), 22 + 2 + 17 + 6),  # the last block is written in part
        (_add(144), 22 + 2 + 17),
        (lambda r, n: emit.emit_muls(r, n, 0, 0, Data.FP16, 1280, 0, 0, 0), 26 + 10),
        (lambda r, n: emit.emit_muls(r, n, 0, 0, Data.FP32, 640, 0, 0, 0), 26 + 10),
        (lambda r, n: emit.emit_duplicate(r, n, 0, Data.FP16, 1280, 0, 0, 0), 23 + 10),
        (lambda r, n: emit.emit_cast(r, n, 0, 0, Data.FP16, Data.FP32, 0, 640, 0, 0), 27 + 10),  # wider type counts
        (lambda r, n: emit.emit_cast(r, n, 0, 0, Data.FP32, Data.FP16, 0, 640, 0, 0), 27 + 10),
    ],
)
def test_vector_call_time(row, occupancy):
    assert cost_of(row)[:2] == (occupancy, 0)


def test_vector_unified_cores_take_five_cycles_more():
    for params in (C100, M200):
        assert cost_of(_add(128), params)[0] == 27 + 1


def test_add_kernel_with_bank_conflicts_matches_the_published_ratio():
    # asc-devkit, 8192^2 fp16 on 48 cores: 12.85 us with conflicts, 6.95 without; calls of 16384 elements.
    slow, fast = (cost_of(_add(16384, src1=shift))[0] for shift in (0, 256))
    assert slow / fast == pytest.approx(12.85 / 6.95, rel=0.02)


def test_cast_bytes_are_those_of_the_result():
    row = lambda r, n: emit.emit_cast(r, n, 0, 0, Data.FP32, Data.FP16, 0, 640, 0, 0)  # noqa: E731
    assert cost_of(row)[2] == 1280


# --- published measurements ----------------------------------------------------------------------

GOLDEN = Path(__file__).parent.parent / "golden" / "instruction_cycles.csv"


def _predict(law, size):
    if law == "mmad":
        shape, count = size.split("*")
        return int(count) * cost_of(mmad(*map(int, shape.split("x")), mode=0))[0]
    if law == "l0c_to_gm":
        return cost_of(fixpipe(int(size) // 64, 16))[0]
    source = Space.GM if law == "gm_to_l0" else Space.L1
    occupancy, latency, _ = cost_of(load_2d(Space.L0B, int(size) // 512, source))
    return occupancy + latency if law == "gm_to_l0" else occupancy


@pytest.mark.parametrize(
    ("law", "count", "median", "p90"),
    # What two-constant laws leave over on these tables: the reads from GM lie on a curve that is not quite a line.
    [
        ("l0c_to_gm", 97, 0.03, 0.07),
        ("l1_to_l0b", 60, 0.01, 0.03),
        ("gm_to_l0", 66, 0.07, 0.11),
        ("mmad", 4, 0.003, 0.003),
    ],
)
def test_rules_against_published_measurements(law, count, median, p90):
    with GOLDEN.open(encoding="utf-8") as file:
        points = [row for row in csv.DictReader(line for line in file if line[0] != "#") if row["law"] == law]
    errors = [abs(math.log(_predict(law, row["size"]) / float(row["cycles"]))) for row in points]
    assert len(errors) == count
    assert np.median(errors) <= median
    assert np.quantile(errors, 0.9) <= p90


# --- issue ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("params", "expected"),
    [
        (C220, {Op.LOAD_2D: 25, Op.LOAD_SPARSE: 25, Op.LOAD_3D: 60, Op.LOAD_3D_V1: 60}),
        (C100, {Op.LOAD_2D: 25, Op.LOAD_SPARSE: 25, Op.LOAD_3D: 12, Op.LOAD_3D_V1: 12}),
    ],
)
def test_issue_cost_loads_program_registers(params, expected):
    record = cost_record(params, 1, GHZ)
    for op in Op:
        # 32 addresses and four registers for the lists of TransDataTo5HD
        has_lists = op in (Op.TRANS_DATA_TO_5HD, Op.TRANS_DATA_BYTES)
        assert rules.issue_cost(int(op), record[0]) == expected.get(op, 36 if has_lists else 1)


# --- vector and scalar instructions with rules of their own ------------------------------------------


@pytest.mark.parametrize("dtype", [Data.FP16, Data.FP32], ids=lambda dtype: dtype.name)
def test_div_takes_four_cycles_a_repeat(dtype):
    # pto-isa on a 910B3: 64 repeats of float take 288 cycles, with half a mask 16 more
    row = lambda count: lambda r, n: emit.emit_div(r, n, 0, 0, 256, dtype, count, 0, 0)  # noqa: E731
    lanes = 256 // (2 if dtype == Data.FP16 else 4)
    assert cost_of(row(64 * lanes)) == (288, 0, 64 * 256)
    assert cost_of(row(64 * lanes - 16))[0] == 288 + 17
    assert cost_of(row(64 * lanes - 1))[0] == 288 + 17 + 6
    assert cost_of(row(64 * lanes), C100)[0] == 293


def test_two_input_instructions_cost_what_add_costs():
    for first, second in ((0, 256), (0, 0), (64, 320)):
        costs = {
            cost_of(lambda r, n, f=function: f(r, n, 2048, first, second, Data.FP16, 1280, 0, 0))  # noqa: B023
            for function in (emit.emit_add, emit.emit_sub, emit.emit_mul, emit.emit_max, emit.emit_min)
        }
        assert len(costs) == 1


def test_adds_costs_what_muls_costs():
    assert cost_of(lambda r, n: emit.emit_adds(r, n, 0, 0, Data.FP32, 2048, 0, 0, 0)) == (26 + 32, 0, 8192)


def test_reduce_repeat_takes_seven_cycles_a_repeat():
    def row(mask, repeat):
        return lambda r, n: emit.emit_reduce_repeat(r, n, 0, 0, Data.FP32, mask, repeat, 1, 1, 8, 0, 0)

    assert cost_of(row(64, 10)) == (46 + 70, 0, 40)
    assert cost_of(row(63, 10)) == (46 + 17 + 70, 0, 40)
    assert cost_of(row(0, 10)) == (1, 0, 0)
    assert cost_of(row(64, 0), M200) == (1, 0, 0)


def test_trans_data_to_5hd_streams_256_bytes_a_cycle():
    # one is complete after 19 cycles and its steps; those behind it need not wait for that
    row = lambda repeat, dtype: lambda r, n: emit.emit_trans_data_to_5hd(r, n, dtype, repeat, 16, 1, 0, 0)  # noqa: E731
    assert cost_of(row(1, Data.FP16)) == (3, 19, 512)
    assert cost_of(row(100, Data.FP16)) == (200, 19, 51200)
    assert cost_of(row(100, Data.FP32)) == (400, 19, 51200)
    assert cost_of(row(0, Data.FP16)) == (1, 0, 0)
    assert cost_of(row(1, Data.INT8))[0] == cost_rates.UNSUPPORTED


def test_scalar_copy_costs_its_accesses_and_occupies_the_scalar_unit():
    row = lambda dst, src: lambda r, n: emit.emit_scalar_copy(r, n, dst, 0, src, 64, Data.FP32, 0, 0, 0)  # noqa: E731
    assert cost_of(row(Space.UB, Space.UB)) == (20, 0, 4)
    assert cost_of(row(Space.GM, Space.UB)) == (200, 0, 4)
    assert cost_of(row(Space.UB, Space.GM)) == (200, 0, 4)


def test_data_copy_pad_loads_rows_at_the_floor_and_slower_when_misaligned():
    # one block: 20 + 640 / 128, complete after 264 + 640 / 130
    assert cost_of(pad(Space.UB, Space.GM, 1, 640)) == (25, 264 + 5 - 25, 640)
    # 64 rows of 128 bytes: 8192 / 128 = 64 < 64 rows of 2.2 cycles
    assert cost_of(pad(Space.UB, Space.GM, 64, 128))[0] == 20 + 141
    # 10 rows of 6400 bytes, pitch not a multiple of 32: 127 instead of 100 % of 500 cycles
    assert cost_of(pad(Space.UB, Space.GM, 10, 6400))[0] == 20 + 500
    slower = math.ceil(64000 * 1000 / (128000 * 1000 // 1270))
    assert cost_of(pad(Space.UB, Space.GM, 10, 6400, 8))[0] == 20 + slower
    assert cost_of(pad(Space.UB, Space.GM, 3, 0)) == (1, 0, 0)


def test_data_copy_pad_stores_as_data_copy_does():
    assert cost_of(pad(Space.GM, Space.UB, 1, 7800)) == (20 + 100, 100, 7800)
    assert cost_of(pad(Space.GM, Space.UB, 1, 7800, atomic=True))[0] == 20 + 200
    assert cost_of(pad(Space.GM, Space.UB, 100, 32))[0] == 20 + 220
    # rows that share blocks with their neighbours
    assert cost_of(pad(Space.GM, Space.UB, 100, 33))[0] == 20 + 220 + 100 * 55
    assert cost_of(pad(Space.GM, Space.UB, 100, 33, 0, 63))[0] == 20 + 220 + 100 * 55
    assert cost_of(pad(Space.GM, Space.UB, 100, 64, 0, 16))[0] == 20 + 220 + 100 * 55
    assert cost_of(pad(Space.GM, Space.UB, 100, 64, 0, 64))[0] == 20 + 220
    assert cost_of(pad(Space.GM, Space.UB, 100, 10))[0] == 20 + 220


@pytest.mark.skipif(
    not hasattr(cost_rates.transfer_cycles, "signatures"), reason="JIT is off: Python integers do not wrap"
)
def test_amount_is_the_product_or_where_it_stops():
    numbers = [-(2**31), -1, 0, 1, 2, 255, 65535, 65536, 2**20, 2**31 - 1, 2**36]
    for triple in itertools.product(numbers, repeat=3):
        expected = math.prod(triple) if min(triple) > 0 else 0
        assert int(amount(*map(np.int64, triple))) == min(expected, 2**49), triple
