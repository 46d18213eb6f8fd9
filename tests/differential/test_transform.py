"""Bulk transforms against the index maps, over all small shapes and some large ones; words compared bit for bit.

The index maps themselves are tested against reshapes in ``tests/unit/test_layouts_index.py``. Expected storages are
built by scattering through a map into zeros, so padding is compared too.
"""

from itertools import product
from math import prod

import ml_dtypes
import numpy as np
import pytest

from npu_sim.dtypes.formats import BF16, FP16
from npu_sim.layouts import transform, transform_jit
from npu_sim.layouts.formats import ActivationLayout, Format, MatrixLayout, WeightLayout
from npu_sim.layouts.transform import (
    activation_from_blocked,
    blocked_from_activation,
    fractal_from_weight,
    matrix_from_nz,
    nz_from_matrix,
    trans_data,
    weight_from_fractal,
)
from tests.oracles.index_maps import index_fractal_z_3d, index_ndc1hwc0, index_nz

WIDTHS = [(np.uint16, 16), (np.uint32, 16), (np.uint32, 8)]
MARGIN = 40
CANARY = 0xA5C3


def random_words(shape, words, seed=0):
    """Words without 0 and without the canary, so that neither padding nor a missed write can look right."""
    return np.random.default_rng(seed).integers(1, CANARY, shape).astype(words)


def guarded(elems, words):
    """An array of canaries and the view of ``elems`` words inside it."""
    whole = np.full(elems + 2 * MARGIN, CANARY, words)
    return whole, whole[MARGIN : MARGIN + elems]


def check_guard(whole):
    assert np.all(whole[:MARGIN] == CANARY)
    assert np.all(whole[-MARGIN:] == CANARY)


def expected_activation(x, layout):
    axes = np.indices((layout.n, layout.c, layout.d, layout.h, layout.w))
    offsets = index_ndc1hwc0(*axes, layout.c1, layout.d, layout.h, layout.w, layout.c0)
    storage = np.zeros(layout.storage_elems, x.dtype)
    storage[offsets.reshape(-1)] = x.reshape(-1)
    return storage


def weight_offsets(layout):
    axes = np.indices((layout.cout, layout.cin_per_group, layout.kd, layout.kh, layout.kw))
    merged = (layout.cout_per_group, layout.cin_per_group, layout.mag, layout.cin1_g, layout.cout_g)
    return index_fractal_z_3d(*axes, *merged, layout.kd, layout.kh, layout.kw, layout.c0).reshape(-1)


def expected_weight(x, layout):
    storage = np.zeros(layout.storage_elems, x.dtype)
    storage[weight_offsets(layout)] = x.reshape(-1)
    return storage


def check_both_ways(x, layout, expected, forward, backward):
    """Forward fills exactly the storage; backward gives ``x`` whatever stands in the padding."""
    whole, out = guarded(layout.storage_elems, x.dtype)
    before = x.copy()
    assert forward(x, layout, out) is not None
    assert np.array_equal(out, expected)
    check_guard(whole)
    storage = np.where(out == 0, np.asarray(CANARY, x.dtype), out)
    whole, out = guarded(x.size, x.dtype)
    backward(storage, layout, out.reshape(x.shape))
    assert np.array_equal(out, x.reshape(-1))
    check_guard(whole)
    assert np.array_equal(x, before)


def check_activation(words, c0, n, c, d, h, w):
    layout = ActivationLayout(n=n, c=c, d=d, h=h, w=w, c0=c0)
    x = random_words(layout.logical_shape, words)
    check_both_ways(x, layout, expected_activation(x, layout), blocked_from_activation, activation_from_blocked)


def check_weight(words, c0, groups, cout_g, cin_g, taps):
    kd, kh, kw = taps
    layout = WeightLayout(cout=groups * cout_g, cin_per_group=cin_g, groups=groups, kd=kd, kh=kh, kw=kw, c0=c0)
    x = random_words(layout.logical_shape, words)
    check_both_ways(x, layout, expected_weight(x, layout), fractal_from_weight, weight_from_fractal)


def check_matrix(words, n0, leading, m, n):
    layout = MatrixLayout(m=m, n=n, n0=n0, leading=leading)
    x = random_words(layout.logical_shape, words)
    count, rows, columns = np.indices((prod(leading), m, n))
    padded_rows = -(-m // 16) * 16
    offsets = count * layout.n1 * padded_rows * n0 + index_nz(rows, columns, padded_rows, n0)
    expected = np.zeros(layout.storage_elems, words)
    expected[offsets.reshape(-1)] = x.reshape(-1)
    check_both_ways(x, layout, expected, nz_from_matrix, matrix_from_nz)


@pytest.mark.parametrize(("words", "c0"), WIDTHS)
def test_activation_all_small_shapes_match_index_map(words, c0):
    for c, plane in product(range(1, 2 * c0 + 2), range(1, 2 * c0 + 3)):
        n, d = 1 + (c + plane) % 2, 1 + plane % 3
        check_activation(words, c0, n, c, d, 1, plane)


@pytest.mark.parametrize(("words", "c0"), WIDTHS)
def test_activation_planes_around_the_chunk_match_index_map(words, c0):
    chunk = transform_jit.CHUNK
    lengths = [chunk * k + rest for k in (1, 2, 3) for rest in (-1, 0, 1, 5, 15, 16, 17, chunk - 1)]
    for length, d, c in product(lengths, (1, 2), (c0 - 3, 2 * c0)):
        check_activation(words, c0, 1, c, d, 1, length)


@pytest.mark.parametrize(("words", "c0"), WIDTHS)
def test_weight_all_small_shapes_match_index_map(words, c0):
    taps = [(1, 1, 1), (2, 1, 1), (1, 1, 2), (1, 3, 3), (3, 2, 2), (1, 4, 4), (2, 1, 17), (1, 5, 5)]
    counts = (1, 2, 3, 7, 8, 9, 15, 16, 17, 24, 33)
    for index, (cout_g, cin_g) in enumerate(product(counts, counts)):
        for shift, groups in enumerate((1, 2, 3)):
            check_weight(words, c0, groups, cout_g, cin_g, taps[(index + 3 * shift) % len(taps)])
    for shape, groups in product(taps, (4, 5, 16, 17)):
        for cout_g, cin_g in ((1, 1), (2, 1), (1, 3), (4, 4), (3, 5)):
            check_weight(words, c0, groups, cout_g, cin_g, shape)
    for shape in taps:
        for cin in (c0, 2 * c0, 2 * c0 + 1, 3 * c0 - 1):
            check_weight(words, c0, 1, 33, cin, shape)


@pytest.mark.parametrize(("words", "n0"), WIDTHS)
def test_matrix_all_small_shapes_match_index_map(words, n0):
    for m, n in product((1, 2, 15, 16, 17, 20, 31, 32, 33), range(1, 2 * n0 + 3)):
        check_matrix(words, n0, (), m, n)
    check_matrix(words, n0, (3,), 20, 28)
    check_matrix(words, n0, (2, 3), 5, 37)


def test_bounds_small_shapes():
    """Run with the JIT off (see `test_transform_front.py`) this checks the bounds of every access."""
    for words, c0 in WIDTHS:
        for c, plane in ((1, 1), (c0 - 1, 3), (c0, c0), (c0 + 1, c0 + 1), (3, 2 * c0 + 5)):
            for n, d in ((1, 1), (2, 2)):
                check_activation(words, c0, n, c, d, 1, plane)
        for taps in ((1, 1, 1), (2, 1, 1), (1, 1, 3), (2, 3, 3), (1, 1, 17)):
            for groups, cout_g, cin_g in ((1, 1, 1), (1, 3, c0), (1, 2, 2 * c0 + 1), (2, 3, 5), (17, 1, 1)):
                check_weight(words, c0, groups, cout_g, cin_g, taps)
        for m, n in ((1, 1), (16, n_of := 2 * c0), (17, n_of + 1)):
            check_matrix(words, c0, (), m, n)
    x = random_words((2, 17, 2, 1, 19), np.uint32).view(np.float32)
    for shape in ((2, 17, 2, 1, 19), (4, 17, 1, 1, 19), (19, 17, 1, 2, 2)):
        layout = ActivationLayout(**dict(zip("ncdhw", shape, strict=True)), c0=16)
        y = x.reshape(shape)
        assert np.array_equal(blocked_from_activation(y, layout, cast=FP16), cast_then_convert(y, layout, FP16, False))


def task_parts(function, tasks, elems, words, *arguments):
    """Run every task alone into a fresh array of canaries and yield what it wrote."""
    for task in range(tasks):
        whole, out = guarded(elems, words)
        function(arguments[0], out, task, task + 1, *arguments[1:])
        check_guard(whole)
        yield out


def check_tasks(function, tasks, elems, words, *arguments):
    """Tasks write disjoint parts, and together everything a single call writes."""
    together = np.full(elems, CANARY, words)
    function(arguments[0], together, 0, tasks, *arguments[1:])
    union = np.full(elems, CANARY, words)
    written = 0
    for part in task_parts(function, tasks, elems, words, *arguments):
        mask = part != CANARY
        written += int(mask.sum())
        union[mask] = part[mask]
    assert written == elems
    assert np.array_equal(union, together)


@pytest.mark.parametrize(("words", "c0"), WIDTHS)
def test_tasks_write_disjoint_parts_and_all_of_the_storage(words, c0):
    for c, d, plane in ((c0 + 3, 2, 5), (2 * c0, 1, 3 * transform_jit.CHUNK + 9), (3, 2, 40)):
        layout = ActivationLayout(n=2, c=c, d=d, h=1, w=plane, c0=c0)
        x = random_words(2 * c * d * plane, words)
        tasks = 2 * d * layout.c1 * transform_jit.chunks_of_plane(plane)
        scratch = np.empty((c0 + 1) * transform_jit.SCRATCH_STEP, words)
        storage = expected_activation(x, layout)
        extents = (scratch, c, d, plane, c0)
        check_tasks(transform_jit.blocked_from_planes, tasks, storage.size, words, x, *extents)
        check_tasks(transform_jit.planes_from_blocked, tasks, x.size, words, storage, *extents)
    for groups, cout_g, cin_g, (kd, taps) in ((1, 40, 2 * c0 + 1, (1, 9)), (3, 20, 5, (2, 3)), (1, 33, 3 * c0, (1, 1))):
        layout = WeightLayout(cout=groups * cout_g, cin_per_group=cin_g, groups=groups, kd=kd, kh=1, kw=taps, c0=c0)
        x = random_words(prod(layout.logical_shape), words)
        scratch = np.empty(c0 * (taps + 1), words)
        merged = (scratch, groups, cout_g, cin_g, kd, taps, c0, layout.mag, layout.cin1_g, layout.cout_g)
        storage = expected_weight(x, layout)
        rows = layout.real_g * layout.cout_g // 16
        check_tasks(transform_jit.fractal_from_weights, rows, storage.size, words, x, *merged)
        blocks = -(-layout.cout // 16)
        check_tasks(transform_jit.weights_from_fractal, blocks, x.size, words, storage, *merged)
    x = random_words(2 * 40 * 21, words)
    padded = 2 * 48 * (-(-21 // c0) * c0)
    check_tasks(transform_jit.nz_from_rows, 6, padded, words, x, 40, 21, c0)
    check_tasks(transform_jit.rows_from_nz, 6, x.size, words, random_words(padded, words), 40, 21, c0)


SPECIAL_WORDS = np.array(
    [
        *(0x00000000, 0x80000000, 0x3F800000, 0x7F800000, 0xFF800000, 0x7FC00000, 0x7F800001, 0xFFC12345),
        # fp16: largest value, the tie above it, smallest normal, largest and smallest subnormal, ties to zero
        *(0x477FE000, 0x477FEFFF, 0x477FF000, 0xC77FF000, 0x38800000, 0x387FC000, 0x33800000, 0x33000000, 0x33000001),
        # ties to even in the last place of fp16 and of bf16, and beside them
        *(0x3F801000, 0x3F803000, 0x3F801001, 0x3F800FFF, 0x3F808000, 0x3F818000, 0x3F808001, 0x3F807FFF),
        # bf16: largest value, overflow, subnormals
        *(0x7F7F0000, 0x7F7F8000, 0xFF7F8000, 0x7F7F7FFF, 0x00008000, 0x00018000, 0x007FFFFF, 0x00000001),
    ],
    np.uint32,
)


def naive_cast(x, target, saturate):
    """Round with NumPy or ml_dtypes, then apply the overflow mode; independent of the project's conversions."""
    storage = np.float16 if target is FP16 else ml_dtypes.bfloat16
    largest, infinity, quiet_nan = (0x7BFF, 0x7C00, 0x7E00) if target is FP16 else (0x7F7F, 0x7F80, 0x7FC0)
    with np.errstate(over="ignore", invalid="ignore"):
        code = x.astype(storage).view(np.uint16)
    overflow = (code & 0x7FFF) == infinity
    if saturate:
        code = np.where(overflow, (code & 0x8000) | largest, code)
    return np.where(np.isnan(x), 0 if saturate else quiet_nan, code).astype(np.uint16)


def cast_then_convert(x, layout, target, saturate):
    return blocked_from_activation(naive_cast(x, target, saturate), layout)


@pytest.mark.parametrize("saturate", [False, True])
@pytest.mark.parametrize("target", [FP16, BF16])
def test_fused_cast_equals_cast_then_convert(target, saturate):
    rng = np.random.default_rng(0)
    shapes = [(1, c, d, 1, plane) for c in (1, 16, 17, 33) for d in (1, 2) for plane in (1, 3, 15, 16, 17, 49, 300)]
    for shape in [*shapes, (2, 20, 1, 30, 30), (1, 5, 1, 24, 24), (1, 5, 2, 30, 30)]:
        words = rng.integers(0, 2**32, prod(shape), dtype=np.uint32)
        # patterns of all exponents, numbers near 1, and every special word somewhere
        words[::2] = rng.standard_normal(words[::2].size).astype(np.float32).view(np.uint32)
        specials = rng.choice(SPECIAL_WORDS, words[::5].size)
        words[::5] = specials
        x = words.view(np.float32).reshape(shape)
        layout = ActivationLayout(**dict(zip("ncdhw", shape, strict=True)), c0=16)
        whole, out = guarded(layout.storage_elems, np.uint16)
        blocked_from_activation(x, layout, out, cast=target, saturate=saturate)
        assert np.array_equal(out, cast_then_convert(x, layout, target, saturate))
        check_guard(whole)
        assert np.array_equal(x.view(np.uint32).reshape(-1), words)


@pytest.mark.parametrize("threads", [2, 3, 8])
def test_threads_do_not_change_the_words(threads, monkeypatch):
    monkeypatch.setattr(transform, "BYTES_PER_THREAD", 1)
    x = random_words((2, 40, 1, 100, 101), np.uint32).view(np.float32)
    layout = ActivationLayout(n=2, c=40, h=100, w=101, c0=16)
    one = blocked_from_activation(x, layout)
    assert np.array_equal(blocked_from_activation(x, layout, threads=threads), one)
    assert np.array_equal(activation_from_blocked(one, layout, threads=threads), x.view(np.uint32))
    half = blocked_from_activation(x, layout, cast=FP16)
    assert np.array_equal(blocked_from_activation(x, layout, cast=FP16, threads=threads), half)
    weight = random_words((300, 200, 1, 3, 3), np.uint32)
    fractal = WeightLayout(cout=300, cin_per_group=200, kh=3, kw=3, c0=8)
    storage = fractal_from_weight(weight, fractal)
    assert np.array_equal(fractal_from_weight(weight, fractal, threads=threads), storage)
    assert np.array_equal(weight_from_fractal(storage, fractal, threads=threads), weight)
    matrix = random_words((3, 500, 333), np.uint32)
    nz = MatrixLayout(m=500, n=333, n0=8, leading=(3,))
    assert np.array_equal(nz_from_matrix(matrix, nz, threads=threads), nz_from_matrix(matrix, nz))
    assert np.array_equal(matrix_from_nz(nz_from_matrix(matrix, nz), nz, threads=threads), matrix)


def test_weight_gradient_products_between_groups_are_dropped():
    # One merged group of 4: the kernel fills the whole 16 x 16 block, only the 4 diagonal blocks are the gradient.
    layout = WeightLayout(cout=8, cin_per_group=3, groups=4, kh=1, kw=1, c0=16)
    assert layout.mag == 4
    full = np.arange(1, 257, dtype=np.float32).reshape(16, 16)
    gradient = weight_from_fractal(full, layout)[:, :, 0, 0, 0]
    for co, ci in np.ndindex(8, 3):
        assert gradient[co, ci] == full[co, 3 * (co // 2) + ci]


def test_trans_data_all_pairs_round_trip():
    x4 = random_words((2, 20, 4, 5), np.uint16).view(np.float16)
    flat = ActivationLayout(n=2, c=20, h=4, w=5, c0=16, format=Format.NC1HWC0)
    deep = ActivationLayout(n=2, c=20, d=3, h=4, w=5, c0=16)
    fractal = WeightLayout(cout=20, cin_per_group=20, kh=2, kw=3, c0=16, format=Format.FRACTAL_Z)
    fractal_3d = WeightLayout(cout=20, cin_per_group=20, kd=2, kh=2, kw=3, c0=16)
    cases = [
        (x4, Format.NCHW, Format.NC1HWC0, flat),
        (random_words((2, 20, 3, 4, 5), np.uint16), Format.NCDHW, Format.NDC1HWC0, deep),
        (random_words((20, 20, 2, 3), np.uint16), Format.NCHW, Format.FRACTAL_Z, fractal),
        (random_words((20, 20, 2, 2, 3), np.uint16), Format.NCDHW, Format.FRACTAL_Z_3D, fractal_3d),
        (
            random_words((3, 20, 28), np.uint16),
            Format.ND,
            Format.FRACTAL_NZ,
            MatrixLayout(m=20, n=28, n0=16, leading=(3,)),
        ),
    ]
    for x, src, dst, layout in cases:
        storage = trans_data(x, src, dst, layout)
        assert storage.shape == (layout.storage_elems,)
        assert np.array_equal(trans_data(storage, dst, src, layout), x.view(np.uint16))
    # documented offsets of single elements
    assert trans_data(x4, Format.NCHW, Format.NC1HWC0, flat)[1169] == x4.view(np.uint16)[1, 17, 2, 3]
    line = ActivationLayout(n=2, c=20, h=1, w=9, c0=16, format=Format.NC1HWC0)
    ncl = random_words((2, 20, 9), np.uint16)
    storage = trans_data(ncl, Format.NCL, Format.NC1HWC0, line)
    assert np.array_equal(storage, expected_activation(ncl, line))
    assert np.array_equal(trans_data(storage, Format.NC1HWC0, Format.NCL, line), ncl[:, :, None])
