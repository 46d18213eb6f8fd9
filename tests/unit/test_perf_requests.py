"""Request files of ``npu-sim perf``: what is understood, what is answered, and that no item stops another."""

from __future__ import annotations

import json
import re
from dataclasses import replace

import numpy as np
import pytest
from test_case_files import INPUT_KERNEL, KERNEL, atk_convolution, atk_pooling, write_csv, write_json

from npu_sim.engines.timeline import run_timeline
from npu_sim.products import get_product
from ops.cli.main import main
from ops.common.generation import GENERATIONS
from ops.common.geometry import ConvGeometry
from ops.common.tensor_desc import TensorDesc
from ops.matmul.plan import MatmulShape
from ops.mm.plan import plan_matrix_product
from ops.studies.calls import answers
from ops.studies.calls.answers import answer, answer_all
from ops.studies.calls.captured import requests_of_layers
from ops.studies.calls.convolution_kernels import convolution_kernel_request
from ops.studies.calls.convolutions import ConvolutionRequest, GradientRequest
from ops.studies.calls.fields import Fields, RequestError
from ops.studies.calls.planned import time_call
from ops.studies.calls.products import recorded_shape
from ops.studies.calls.read_convolution import read_convolution
from ops.studies.calls.read_elementwise import ELEMENTWISE
from ops.studies.calls.request_items import READERS, read_call, read_item
from ops.studies.calls.request_schema import FIELDS, request_schema
from ops.studies.cases import case_of_shape
from ops.studies.layers import Layer, PoolingLayer

CONV = {"x": [2, 20, 9, 7], "w": [36, 20, 3, 3], "stride": 2, "pads": 1}
ITEMS = {
    "conv": {"op": "conv", **CONV, "bias": True},
    "conv_backprop_filter": {"op": "conv_backprop_filter", **CONV},
    "conv_backprop_input": {"op": "conv_backprop_input", **CONV},
    "conv_backward": {"op": "conv_backward", **CONV, "mask": "dx,db"},
    "avg_pool": {"op": "avg_pool", "x": [2, 16, 8, 8], "kernel_size": 2, "in_dtype": "fp16"},
    "avg_pool_grad": {"op": "avg_pool_grad", "x": [2, 16, 8, 8], "g": [2, 16, 4, 4], "kernel_size": [2, 2]},
    "matmul": {"op": "matmul", "m": 48, "k": 64, "n": 32},
    "transdata": {"op": "transdata", "in_shape": [2, 20, 9, 7], "out_format": "NC1HWC0"},
    "cast": {"op": "cast", "in_shape": [70, 30], "in_dtype": "FLOAT", "out_dtype": "FLOAT16"},
    "transpose": {"op": "transpose", "in_shape": [70, 30], "perm": [1, 0]},
    "reduce_sum": {"op": "reduce_sum", "in_shape": [4, 30, 20], "axes": [0, 2]},
    "fill": {"op": "fill", "in_shape": [70, 30]},
    "tensor_move": {"op": "tensor_move", "in_shape": [70, 30], "in_dtype": "INT64"},
    **{name: {"op": name, "in_shape": [70, 30], "in_dtype": "fp16"} for name in ELEMENTWISE},
}


@pytest.fixture(autouse=True)
def _own_directory(monkeypatch, tmp_path):
    for module in ("perf_cases", "perf_call"):
        monkeypatch.setattr(f"ops.cli.{module}.note_compilation", lambda: None)
    monkeypatch.chdir(tmp_path)


def call(capsys, *arguments):
    code = main(["perf", *map(str, arguments)])
    out, err = capsys.readouterr()
    return code, out, err


def microseconds(launches, chip):
    return sum(run_timeline(launch, chip).task_seconds() for launch in launches) * 1e6


def request_of(**item):
    return read_item(item).request


def test_schema_names_what_is_read():
    """Every operator asks for all the fields that the schema says it has."""
    for name, values in ITEMS.items():
        listed = {field for field, (_, _, operators) in FIELDS.items() if name in operators}
        fields = Fields(values)
        for scope in ("call", "kernel"):
            READERS[name](fields, get_product("910b"), scope)
        missing = {field for field in listed if not fields.was_asked(field)}
        # a weight tells its window, and perm the shape
        assert missing == {"transpose": {"out_shape"}}.get(name, {"kernel_size"} if "w" in values else set()), name
    assert {operator for _, _, operators in FIELDS.values() for operator in operators} == set(READERS)


def test_requests_have_the_types_of_the_schema():
    kinds = {str: "string", int: "integer", bool: "boolean", list: "array", dict: "object"}
    properties = request_schema()["items"]["properties"]
    for values in ITEMS.values():
        for name, value in values.items():
            assert kinds[type(value)] in np.atleast_1d(properties[name]["type"]), name


def test_every_operator_is_answered_with_the_times_of_its_launches():
    assert ITEMS.keys() == READERS.keys()
    for scope in ("call", "kernel", "core_time"):
        for name, values in ITEMS.items():
            given = {**values, "product": "910b", "scope": scope}
            found = answer(0, given)
            assert not found.error, (name, found)
            item = read_item(given)
            planned = item.request.plan(item.product)
            steps = planned.calls.steps if scope == "call" else planned.kernels
            timed = [run_timeline(launch, item.product) for step in steps for launch in step.kernel.launches]
            seconds = sum(one.seconds() if scope == "core_time" else one.task_seconds() for one in timed)
            assert timed, name
            assert found.duration_us == pytest.approx(seconds * 1e6, rel=1e-12)
            assert found.cycles == sum(one.total_cycles for one in timed)
            assert 0 < found.low_us < found.duration_us < found.high_us


@pytest.mark.parametrize(
    ("alias", "given", "status"),
    [
        ("910", {"x": [1, 16, 4, 6, 6], "w": [16, 16, 3, 3, 3]}, 561103),
        ("310p", {"x": [1, 16, 6, 6], "w": [16, 16, 3, 3], "dtype": "bf16"}, 161002),
    ],
)
def test_what_a_product_refuses_is_an_answer_with_a_status(alias, given, status):
    found = answer(0, {"op": "conv", **given, "product": alias, "id": "a"})
    assert found.to_plain() == {"id": "a", "error": found.error, "status": status}
    assert get_product(alias).name in found.error


def test_call_of_a_gradient_is_that_of_the_library():
    case = case_of_shape((2, 20, 9, 7), (36, 20, 3, 3), stride=(2,), padding=(1,), dtype="fp32")
    chip = get_product("910b")
    for gradients in (("dx", "dw", "db"), ("dw",), ("db",)):
        expected = time_call(GradientRequest(case=case, gradients=gradients, cube_math_type=3), chip, "call")
        mask = [name in gradients for name in ("dx", "dw", "db")]
        given = answer(
            0, {"op": "ConvolutionBackward", **CONV, "mask": mask, "in_dtype": "DT_FLOAT", "compute": "hf32"}
        )
        assert given.cycles == expected.total_cycles
    forward = time_call(ConvolutionRequest(case=case, has_bias=True, cube_math_type=0), chip, "call")
    given = answer(0, {"op": "Conv2D", **CONV, "bias": [36], "in_dtype": "float32", "compute": "fp32"})
    assert given.cycles == forward.total_cycles


def test_result_of_a_plain_2d_convolution_of_halves_stays_blocked():
    """As the lists of kernels of published calls have it: two TransData for half, three for float and bfloat16."""

    def steps(**given):
        item = read_item({"op": "conv", **CONV, "in_dtype": "fp16", **given})
        return [planned.step.name for planned in item.request.plan(item.product).calls.steps]

    half = ["TransData", "MemSet", "TransData", "Conv2D"]
    assert steps() == steps(out_format="NC1HWC0") == half
    assert "stays in NC1HWC0" in request_of(op="conv", **CONV).words
    for given in ({"out_format": "NCHW"}, {"out_format": "ND"}, {"in_dtype": "bf16"}):
        assert steps(**given) == [*half, "TransData"], given
    assert steps(in_dtype="fp32", compute="hf32") == ["TransData", "TransData", "Conv2D", "TransData"]
    assert steps(w=[20, 1, 3, 3])[-1] == steps(product="310p")[-1] == "TransData"
    with pytest.raises(RequestError, match="out_format of a convolution must be plain or, of a 2D one, NC1HWC0"):
        request_of(op="conv", **CONV, out_format="FRACTAL_Z")


def test_fill_of_what_a_weights_transdata_writes_is_no_part_of_that_kernel():
    given = {"in_shape": [64, 32, 3, 3], "in_dtype": "fp16", "out_format": "FRACTAL_Z"}
    found = {}
    for scope in ("call", "kernel"):
        item = read_item({"op": "transdata", **given, "scope": scope})
        planned = item.request.plan(item.product)
        found[scope] = [launch.name for launch in planned.launches(scope)]
    assert found == {"call": ["MemSet", "TransData"], "kernel": ["TransData"]}


def test_kernel_of_a_gradient_is_that_inside_the_call():
    case = case_of_shape((2, 20, 9, 7), (36, 20, 3, 3), stride=(2,), padding=(1,))
    for product in ("910b", "910", "310p"):
        for gradient, op in (("dw", "conv_backprop_filter"), ("dx", "conv_backprop_input")):
            inside = time_call(GradientRequest(case=case, gradients=(gradient,)), get_product(product), "kernel")
            given = answer(0, {"op": op, **CONV, "compute": "fp16", "product": product, "scope": "core_time"})
            own = sum(one.total_cycles for one in inside.launches if one.launch != "MemSet")
            assert given.cycles == pytest.approx(own, rel=0.02), (product, op)


SAME_CONVOLUTIONS = [
    {"x": [2, 20, 9, 7], "w": [36, 20, 3, 3], "stride": [2, 2], "pads": [1, 1, 1, 1]},
    {"x": [2, 9, 7, 20], "x_format": "NHWC", "w": [3, 3, 20, 36], "w_format": "HWCN", "stride": 2, "padding": 1},
    {"x": [2, 2, 9, 7, 16], "x_format": "NC1HWC0", "w": [36, 20, 3, 3], "strides": [2], "pad": [1, 1]},
    {"x": {"shape": [2, 20, 9, 7], "format": "NCHW"}, "kernel": [3, 3], "g": [2, 36, 5, 4], "stride": 2, "pads": 1},
    {"g": [2, 36, 5, 4], "w": [36, 20, 3, 3], "x": [2, 20, 9, 7], "stride": 2, "padding": 1, "dilations": 1},
    {"attrs": {"stride": [1, 1, 2, 2], "pads": [1, 1], "kernel": [3, 3], "cin": 20}, "X": [2, 32, 9, 7], "cout": 36},
]


@pytest.mark.parametrize("given", SAME_CONVOLUTIONS)
def test_one_convolution_in_many_spellings(given):
    found = request_of(op="Conv2DBackpropFilterV2", compute="fp16", scope="kernel", **given)
    expected = request_of(op="conv_backprop_filter", compute="fp16", scope="kernel", **SAME_CONVOLUTIONS[0])
    assert found.facts() == expected.facts()
    g = expected.facts()
    assert (g["cin"], g["cout"], g["pads"], g["output_extents"]) == (20, 36, (0, 0, 1, 1, 1, 1), (1, 5, 4))


def test_convolution_by_the_shapes_of_a_profile():
    """Blocked shapes alone: channels are whole blocks, and the window is square."""
    given = {"x": [2, 2, 9, 7, 16], "w": [18, 3, 16, 16], "stride": [2, 2], "pads": [1, 1, 1, 1], "compute": "fp16"}
    found = request_of(op="Conv2D", scope="kernel", w_format="FRACTAL_Z", **given).facts()
    assert (found["cin"], found["cout"], found["kernel"], found["output_extents"]) == (32, 48, (1, 3, 3), (1, 5, 4))
    with pytest.raises(RequestError, match="w must be given as a plain shape, or kernel_size"):
        request_of(op="Conv2D", scope="kernel", w_format="FRACTAL_Z", **(given | {"w": [19, 3, 16, 16]}))


def test_3d_convolutions_and_paddings_of_each_side():
    found = request_of(
        op="conv3d_backprop_filter", scope="kernel",
        x=[2, 32, 16, 30, 33], w=[64, 32, 3, 3, 3], pads=[0, 1, 0, 2, 1, 1],
        dilation=[1, 1, 1, 2, 1], in_dtype="float16",
    )  # fmt: skip
    assert found.facts()["output_extents"] == (15, 28, 33)
    assert found.facts()["dilation"] == (1, 2, 1)
    same = request_of(
        op="conv3d_backprop_filter", scope="kernel", x=[2, 16, 30, 33, 32], x_format="NDHWC", kernel_size=[3, 3, 3],
        g=[2, 64, 15, 28, 33], pads=[0, 1, 0, 2, 1, 1], dilation=[1, 2, 1], compute="fp16",
    )  # fmt: skip
    assert same.facts() == found.facts()
    assert found.words == "Conv3DBackpropFilter"


def test_depthwise_weight_may_lack_its_axis_of_one_channel():
    given = {"x": [4, 128, 9, 9], "pads": 1, "groups": 128, "in_dtype": "fp32", "scope": "kernel"}
    found, full = (request_of(op="DepthwiseConv2D", w=w, **given) for w in ([128, 3, 3], [128, 1, 3, 3]))
    assert found.facts() == full.facts()
    assert found.facts()["groups"] == 128


def test_trans_data_by_either_shape():
    for given in (
        {"in_shape": [2, 20, 9, 7]},
        {"in_shape": [2, 20, 9, 7], "in_format": "DEFAULT", "out_shape": [2, 2, 9, 7, 16], "in_dtype": "FLOAT16"},
        {"in_shape": [2, 1260], "out_shape": [2, 2, 9, 7, 16]},
    ):
        found = request_of(op="TransData", out_format="NC1HWC0:1", **given).facts()
        assert (found["x_shape"], found["direction"], found["c0"]) == ((2, 20, 9, 7), "to_blocked", 16)
    back = request_of(
        op="trans_data", in_shape=[108, 12, 16, 8], in_format="FracZ", out_shape=[192, 96, 3, 3], in_dtype="FLOAT"
    ).facts()
    assert (back["direction"], back["c0"], back["x_shape"]) == ("from_fractal", 8, (192, 96, 3, 3))
    # the product without 32-bit transpositions has 16 channels a block
    given = {"op": "transdata", "in_shape": [2, 20, 9, 7], "out_format": "NC1HWC0", "in_dtype": "fp32"}
    assert [request_of(**given, product=product).facts()["c0"] for product in ("910", "910b")] == [16, 8]
    nz = request_of(op="transdata", in_shape=[30, 40], out_format="FRACTAL_NZ", in_dtype="bf16").facts()
    assert (nz["x_shape"], nz["order"]) == ((1, 32, 3, 16), (0, 2, 1, 3))


def test_moves_of_types_the_vector_unit_lacks_move_the_same_bytes():
    for dtype, item in (("INT64", 8), ("bool", 1), ("int16", 2), ("DT_INT32", 4)):
        planned = request_of(op="transpose", in_shape=[6, 40, 20], perm=[1, 0, 2], in_dtype=dtype).plan(
            get_product("910b")
        )
        (step,) = planned.calls.steps
        assert planned.calls.places[step.step.reads[0]].byte_count == 6 * 40 * 20 * item
    assert request_of(op="transpose", in_shape=[3, 5, 7], out_shape=[7, 3, 5]).facts()["order"] == (2, 0, 1)
    wide = request_of(op="cast", in_shape=[100], in_dtype="INT64", out_dtype="INT32").facts()
    assert (wide["x_shape"], wide["input_dtype"], wide["output_dtype"]) == ((200,), "fp32", "fp16")


@pytest.mark.parametrize(
    ("given", "kernel", "shape", "dtype"),
    [
        ({"op": "Add", "in_shape": [[4, 6], [4, 6]], "in_dtype": "DT_BF16"}, "Add", (4, 6), "bf16"),
        ({"op": "Add", "in_shape": [4096], "other_shape": [], "in_dtype": "FLOAT"}, "Adds", (4096,), "fp32"),
        ({"op": "RealDiv", "in_shape": [4096], "other_shape": [1], "in_dtype": "FLOAT"}, "Muls", (4096,), "fp32"),
        ({"op": "Mul", "in_shape": [[4, 6, 8], [4, 6, 1]]}, "Muls", (4, 6, 8), "fp16"),
        ({"op": "Add", "in_shape": [[4, 6, 8], [8]]}, "Add", (24, 8), "fp16"),
        ({"op": "Add", "in_shape": [[8], [4, 6, 8]], "in_dtype": "fp32"}, "Add", (24, 8), "fp32"),
        ({"op": "Relu", "in_shape": [3, 5], "in_dtype": "INT32"}, "Relu", (3, 5), "fp32"),
        ({"op": "Sub", "in_shape": [3, 5], "in_dtype": "INT64"}, "Sub", (3, 5, 2), "fp32"),
        ({"op": "Maximum", "in_shape": [], "in_dtype": "float32"}, "Maximum", (), "fp32"),
        ({"op": "ReluGradV2", "in_shape": [[4, 6], [4, 6]], "in_dtype": "float32"}, "Mul", (4, 6), "fp32"),
    ],
)
def test_element_wise_operators(given, kernel, shape, dtype):
    found = request_of(**given)
    assert (found.words, found.facts()["x_shape"], found.facts()["input_dtype"]) == (kernel, shape, dtype)
    assert answer(0, given).cycles > 0


@pytest.mark.parametrize("shapes", [{"in_shape": [4096], "other_shape": []}, {"in_shape": [[96], [96]]}])
@pytest.mark.parametrize("operator", ["Add", "Sub", "Mul", "Maximum"])
def test_integers_of_64_bits_take_longer_than_as_many_bytes(operator, shapes):
    """They are computed piece by piece: profiled Adds and Subs of int64 take 0.9 to 2.8 us more."""
    wide, narrow = (
        answer(0, {"op": operator, "product": "Ascend910B4", "scope": "kernel", "in_dtype": dtype, **given})
        for dtype, given in (("int64", shapes), ("int32", _doubled(shapes)))
    )
    chip = get_product("Ascend910B4")
    more = chip.cost.wide_vector_fixed_cycles - chip.cost.vector_fixed_cycles
    assert (wide.error, narrow.error) == ("", "")
    assert wide.cycles - narrow.cycles == more > 0.9e-6 * chip.timing_clock_hz


def _doubled(shapes):
    """Return shapes of twice as many elements; one element stays one."""
    if shapes.get("other_shape") == []:
        return {"in_shape": [2 * shapes["in_shape"][0]], "other_shape": []}
    return {"in_shape": [[2 * shape[0]] for shape in shapes["in_shape"]]}


@pytest.mark.parametrize(
    ("given", "sums"),
    [
        ({"in_shape": [32, 4096], "out_shape": [1, 4096]}, (32, 4096, 1)),
        ({"in_shape": [32, 256, 169], "out_shape": [256]}, (32, 256, 169)),
        ({"in_shape": [4096, 1, 151], "out_shape": [4096, 1]}, (1, 4096, 151)),
        ({"in_shape": [160], "out_shape": [1]}, (1, 1, 160)),
        ({"in_shape": [160]}, (1, 1, 160)),
        ({"in_shape": [12288]}, (1, 12, 1024)),
        ({"in_shape": [48, 100000], "axes": [0, 1]}, (1, 48, 100000)),
        ({"in_shape": [8, 20, 5000], "out_shape": [20]}, (1, 40, 20000)),
        ({"in_shape": [4, 6, 8], "axis": -1}, (1, 24, 8)),
        ({"in_shape": [4, 6, 8], "axes": [1]}, (1, 32, 6)),
    ],
)
def test_reduce_sum_knows_its_axes(given, sums):
    assert request_of(op="ReduceSumD", in_dtype="FLOAT", **given).facts()["x_shape"] == sums


def test_matrix_product_by_extents_or_by_shapes():
    chip = get_product("910b")
    shapes = {"a": (48, 64), "b": (32, 64), "output": (48, 32)}
    descs = {name: TensorDesc(shape=shape, dtype="fp16", format="ND") for name, shape in shapes.items()}
    expected = plan_matrix_product(MatmulShape(m=48, k=64, n=32, b_transposed=True), descs, 0, chip)
    for given in (
        {"m": 48, "k": 64, "n": 32, "trans_b": True},
        {"a": [48, 64], "b": [32, 64], "transpose_b": "true"},
        {"a": [48, 64], "b": [32, 64], "out_shape": [48, 32]},
        {"x1": [4, 3, 16, 16], "x1_format": "FRACTAL_NZ", "x2": [32, 64], "adj_x2": 1},
    ):
        found = answer(0, {"op": "MatMulV2", **given})
        assert found.duration_us == pytest.approx(microseconds(expected.calls.launches, chip)), given
    batched = request_of(op="BatchMatMul", a=[3, 4, 16, 8], b=[3, 4, 8, 16])
    assert batched.shape == MatmulShape(m=16, n=16, k=8, batch=12, b_batched=True)


def test_gradient_of_a_pooling_follows_from_the_input():
    given = {"op": "avg_pool_grad", "x": [2, 16, 9, 8], "kernel_size": [3, 2], "stride": [2, 2], "pads": 1}
    assert request_of(**given).dy_shape == (2, 16, 5, 5)
    assert request_of(**given, g=[2, 16, 5, 5]) == request_of(**given)
    with pytest.raises(RequestError, match="g must be given as a shape"):
        request_of(**given, ceil_mode=True)


@pytest.mark.parametrize("name", ["m", "k", "n"])
def test_extents_of_products_are_not_negative(name):
    with pytest.raises(RequestError, match=f"^{name} must be at least 0, not -1"):
        request_of(op="matmul", **({"m": 4, "k": 4, "n": 4} | {name: -1}))


def test_a_name_of_any_length_is_shown_short():
    steps = [{"op": [10, "b" * 3000], "repeat": 2**70}, {"op": "vconv", "repeat": 2, "bytes": 512}]
    found = answer(0, {"op": "instruction", "product": "910b", "mode": "streamed", "ascend_instructions": steps})
    assert found.error.startswith("repeat of [10, ")
    assert len(found.error) < 500


def test_fused_operators_are_the_first():
    assert request_of(op="MatMul+Relu", m=4, k=4, n=4) == request_of(op="matmul", m=4, k=4, n=4)


def test_core_time_is_that_of_a_tuning_record():
    record = {"block_dim": [1, 2, 2, 1, 0], "al1": [64, 1], "bl1": [64, 1], "al0": [4, 4], "bl0": [4, 4], "cl0": [4, 4]}
    found = request_of(op="MatMul", m=256, k=128, n=256, trans_code=2, scope="core_time", tiling=record)
    assert (found.shape.a_transposed, found.shape.b_transposed, found.shape.a_nz) == (True, False, True)
    assert (found.tiling.base_m, found.tiling.cores_n, found.tiling.cores_m, found.block_dim) == (64, 2, 2, None)
    assert request_of(op="MatMul", m=256, k=128, n=256, scope="core_time", **record).tiling == found.tiling
    assert time_call(found, get_product("910b"), "kernel").core_count == 4
    few = request_of(op="MatMul", m=256, k=128, n=256, block_dim=3)
    assert time_call(few, get_product("910b"), "kernel").core_count <= 3


def test_extents_of_tuning_records_may_be_padded_where_operands_are_row_major():
    given = {"op": "matmul", "m": 208, "k": 64, "n": 112, "batch": 48}
    record = request_of(**given, scope="core_time", a_format="ND", b_format="ND", c_format="ND")
    assert (record.name, record.shape.m, record.shape.n) == ("48*208x64x112", 208, 112)
    whole = MatmulShape(m=208, n=112, k=64, batch=48, b_batched=True)
    assert recorded_shape(whole) == replace(whole, m=201, n=105)
    assert recorded_shape(replace(whole, a_nz=True, b_nz=True, c_nz=True)).m == 208
    # rows that begin anywhere take longer than those of 128 elements
    chip = get_product("910b")
    even = request_of(**{**given, "m": 224, "n": 128}, scope="core_time", a_format="ND", b_format="ND", c_format="ND")
    assert time_call(record, chip, "kernel").total_cycles > 1.5 * time_call(even, chip, "kernel").total_cycles
    assert request_of(**given, scope="kernel").is_static is False


def test_the_result_of_a_matrix_product_may_have_a_type_of_its_own():
    given = {"op": "matmul", "m": 512, "k": 64, "n": 512, "in_dtype": "fp16"}
    for product in ("910b", "910", "310p"):
        wide, narrow = (
            time_call(request_of(**given, **out, product=product), get_product(product), "kernel").launches[0]
            for out in ({"out_dtype": "fp32"}, {})
        )
        written = [sum(n for path, n in one.bytes_by_path.items() if path.endswith("->GM")) for one in (wide, narrow)]
        assert written == [4 * 512 * 512, 2 * 512 * 512]


def test_operands_of_a_profiled_matrix_product_are_where_a_network_leaves_them():
    batched = {"batch": 2}
    given = {"op": "matmul", "m": 64, "k": 64, "n": 64}
    found = {
        (scope, *extra): request_of(**given, **extra, scope=scope).inputs_in_l2
        for scope in ("call", "kernel", "core_time")
        for extra in ({}, batched)
    }
    assert found == {
        ("call",): False, ("call", "batch"): False, ("kernel",): False, ("kernel", "batch"): True,
        ("core_time",): True, ("core_time", "batch"): True,
    }  # fmt: skip


def test_matrices_of_a_batch_are_turned_like_one():
    chip = get_product("910b")
    one = {"op": "transpose", "in_dtype": "fp16"}
    for batch, whole in (
        ({"in_shape": [4, 9, 32, 64], "perm": [0, 2, 3, 1]}, {"in_shape": [9, 4 * 32 * 64], "perm": [1, 0]}),
        ({"in_shape": [4, 32, 64, 9], "perm": [0, 3, 1, 2]}, {"in_shape": [4 * 32 * 64, 9], "perm": [1, 0]}),
    ):
        launches = [request_of(**one, **item).plan(chip).launches("call")[0] for item in (batch, whole)]
        assert {launch.name for launch in launches} == {"Transpose"}
        assert len({run_timeline(launch, chip).total_cycles for launch in launches}) == 1
    # rows that stay whole are copied, and so is what several groups of axes change
    for shape, perm in (([4, 9, 32, 64], [0, 2, 1, 3]), ([4, 9, 32, 64], [2, 1, 0, 3])):
        launch = request_of(**one, in_shape=shape, perm=perm).plan(chip).launches("call")[0]
        assert launch.name != "Transpose"


def test_points_of_micro_benchmarks_are_answered_in_cycles():
    add = {"op": "vadds", "repeat": 16, "count": 1}
    point = {"op": "instruction", "id": "p", "ascend_instructions": [add], "mode": "streamed", "dtype": "float32"}
    for where in ({}, {"product": "910b"}, {"chip": "Ascend910B"}):
        found = answer(0, point | where)
        assert (found.cycles, found.product, found.id) == (16, "Ascend910B2", "p")
        assert found.duration_us == pytest.approx(16 / 1800)
    assert answer(0, {"op": "instruction", "ascend_instructions": []}).error.startswith("ascend_instructions must be")


WRONG = [
    ({"op": "conv", "w": [16, 16, 3, 3]}, "x must be given as a shape, or g and w"),
    ({"op": "conv", "x": [2, 16], "w": [16, 16, 3, 3]}, "x must have 3 to 6 axes, not the shape [2, 16]"),
    ({"op": "conv", "x": [2, 16, 9]}, "w must be given as a plain shape, or kernel_size"),
    ({"op": "conv", "x": [2, 64, 9, 9], "w": [16, 24, 3, 3]}, "channels of x must be those of w times groups, not 64"),
    (
        {"op": "conv", "x": [2, 2, 9, 9, 16], "w": [16, 15, 3, 3]},
        "channels of x must be those of w times groups, not 32",
    ),
    (
        {"op": "conv_backward", "x": [2, 64, 9, 9], "w": [64, 64, 3, 3], "groups": 64},
        "channels of x must be those of w times groups, not 64 with 64 times 64",
    ),
    ({"op": "conv", "x": [2, 16, 9], "w": [16, 16, 3, 3]}, "w must have as many axes of the window as x has of pixels"),
    ({"op": "conv", "x": [2, 16, 5, 9], "w": [16, 16, 7, 3]}, "the window must fit into x and its padding, not [7, 3]"),
    ({"op": "conv_backprop_filter", **CONV, "g": [2, 30, 5, 4]}, "channels of g must be the 36 of w, not 30"),
    (
        {"op": "conv", "x": [2, 16, 9, 9], "w": [16, 16, 3, 3], "pads": [1, 2, 3]},
        "pads must have 1, 2 or 4 entries, not 3",
    ),
    ({"op": "conv", "x": [2, 16, 9, 9], "w": [16, 16, 3, 3], "x_format": "FOO"}, "x must have the axes of FOO, "),
    ({"op": "conv_backward", **CONV, "mask": "dz"}, "mask must be three bools or some of dx, dw, db, not 'dz'"),
    ({"op": "maxpool"}, "op must be one of conv, "),
    ({"op": None}, "op must be one of conv, "),
    ({"op": "cast", "in_shape": [4], "product": "Ascend999"}, "Product must be a known SoC version"),
    ({"op": "cast", "in_shape": [4], "scope": "launch"}, "scope must be one of call, kernel, core_time, not launch"),
    ({"op": "cast", "in_shape": "4"}, "in_shape must be"),
    ({"op": "cast", "in_shape": [4], "in_dtype": "float8"}, "dtype must be one of"),
    ({"op": "transpose", "in_shape": [4, 5], "perm": [0, 0]}, "perm must be an order of 2 axes, not [0, 0]"),
    (
        {"op": "transpose", "in_shape": [4, 5], "out_shape": [4, 6]},
        "out_shape must have the extents of [4, 5], not [4, 6]",
    ),
    ({"op": "reduce_sum", "in_shape": [4, 5], "axes": [2]}, "axes must be in [-2, 1] of the shape [4, 5], not [2]"),
    ({"op": "reduce_sum", "in_shape": [4, 5], "axes": [-3]}, "axes must be in [-2, 1] of the shape [4, 5], not [-3]"),
    (
        {"op": "add", "in_shape": [4, 5], "other_shape": [4]},
        "other_shape must be repeated to that of the other, not [4]",
    ),
    ({"op": "transdata", "in_shape": [4, 5, 6, 7], "out_format": "NCWH"}, "out_format must be one of ND, NCL, NCHW, "),
    ({"op": "cast", "in_shape": [4], "block_dim": 0}, "block_dim must be in [1, 1024], not 0"),
    ({"op": "matmul", "m": 4, "k": 5, "nn": 6}, "m, k and n must be given together, not m and k alone"),
    (
        {"op": "matmul", "m": 4, "k": 5, "n": 6, "dtype": "int8"},
        "operands of a matrix product must be fp16, bf16 or fp32",
    ),
    ({"op": "reduce_sum", "in_shape": [4, 5], "out_shape": [7]}, "out_shape must be that of [4, 5] without some axes"),
    ({"op": "transdata", "in_shape": [4, 5], "out_format": "NC1HWC0"}, "in_shape and out_shape must be given"),
    ({"op": "matmul", "a": [4, 5], "b": [6, 7]}, "a and b must have the same inner extent, not 5 and 6"),
    ({"op": "matmul", "m": 2**70, "k": 1, "n": 1}, "m must be"),
    ("cast", "an item must be an object, not str"),
    (None, "an item must be an object, not NoneType"),
]


def test_a_shape_that_was_asked_for_its_type_alone_is_not_looked_at():
    (found,) = answer_all([{"op": "matmul", "m": 4, "k": 5, "n": 6, "x": [1, 2, 3]}])
    assert not found.error
    assert found.ignored == ("x",)
    with pytest.raises(RequestError, match="matmul must be given without x"):
        read_call("matmul", {"m": 4, "k": 5, "n": 6, "x": [1, 2, 3]}, "910b", "call")


def test_the_channels_of_an_input_that_follows_are_those_of_all_groups():
    given = {"g": [2, 36, 5, 4], "w": [36, 10, 3, 3], "pads": 1, "groups": 2}
    assert read_convolution(Fields(given)).geometry.cin == 20


def test_wrong_items_say_what_is_wrong_and_stop_no_other():
    good = {"op": "cast", "in_shape": [100]}
    found = answer_all([item for wrong, _ in WRONG for item in (wrong, good)])
    for (wrong, message), one, other in zip(WRONG, found[::2], found[1::2], strict=True):
        assert one.error.startswith(message), (wrong, one.error)
        assert one.status
        assert not other.error
    assert [one.id for one in found] == list(range(2 * len(WRONG)))


def test_several_processes_give_the_same_answers_and_equal_items_one(monkeypatch):
    items = [{"id": f"n{n}", "op": "cast", "in_shape": [1000 * (n % 3 + 1)]} for n in range(7)]
    counted = []
    single = answer_all(items, 1, lambda done, total, text: counted.append(total))
    assert set(counted) == {3}
    assert [one.id for one in single] == [item["id"] for item in items]
    assert single == answer_all(items, 2)


def test_file_of_requests_is_answered_as_json_and_as_table(capsys, tmp_path):
    items = [{"id": "a", **ITEMS["cast"], "product": "910b"}, {"id": 5, "op": "nonsense"}, ITEMS["matmul"]]
    for document in (items, {"requests": items}):
        (tmp_path / "r.json").write_text(json.dumps(document))
        code, out, err = call(capsys, "r.json", "--json", "-")
        assert (code, err) == (0, "")
        found = json.loads(out)["results"]
        assert [one["id"] for one in found] == ["a", 5, 2]
        assert found[0]["duration_us"] == pytest.approx(answer(0, items[0]).duration_us)
        assert set(found[1]) == {"id", "error", "status"}
        assert found[2]["low_us"] < found[2]["duration_us"] < found[2]["high_us"]
    code, out, _ = call(capsys, "--json", "out.json", "r.json")
    assert code == 0
    text = " ".join(out.split())
    assert "5: no answer, status 161002: op must be one of" in text
    assert "3 requests, 2 answered" in text
    assert json.loads((tmp_path / "out.json").read_text())["results"] == found
    (tmp_path / "r.json").write_text(json.dumps([{"op": "nonsense"}]))
    assert call(capsys, "r.json")[0] == 1


def test_cases_of_atk_and_ttk_are_whole_backward_calls(capsys, tmp_path):
    write_json(tmp_path / "a.json", atk_convolution(), atk_pooling(3))
    code, out, err = call(capsys, "a.json", "--product", "910b", "--json", "-")
    assert (code, err) == (0, "")
    conv, pool = json.loads(out)["rows"]
    assert (conv["layer"], conv["gradients"], conv["cube_math_type"]) == ("ConvolutionBackward 7", ["dx", "dw"], 1)
    given = answer(0, {
        "op": "conv_backward", "x": [2, 4, 5, 4], "g": [2, 6, 3, 4], "w": [6, 2, 3, 3], "stride": [2, 1], "pads": 1,
        "groups": 2, "mask": [True, True, False], "in_dtype": "fp32", "cube_math_type": 1,
    })  # fmt: skip
    assert conv["result"]["total_cycles"] == given.cycles
    assert (pool["layer"], pool["kernel_size"], pool["dy_shape"]) == ("AvgPool2dBackward 3", [2, 3], [1, 3, 2, 2])
    write_csv(tmp_path / "t.csv", KERNEL, INPUT_KERNEL)
    code, out, err = call(capsys, "t.csv", "--product", "910b", "--layer", "dw")
    assert code == 0
    assert re.search("^dw ", out, re.MULTILINE)
    assert not re.search("^dx ", out, re.MULTILINE)


def test_layers_may_want_their_output():
    x = np.zeros((2, 16, 8, 8), np.float16)
    conv = Layer(
        name="c", x=x, dy=x, weight_shape=(16, 16, 3, 3), stride=(1, 1), padding=(1, 1), dilation=(1, 1), groups=1,
        gradients=("dw", "y"),
    )  # fmt: skip
    pool = PoolingLayer(name="p", x_shape=x.shape, dy=x[..., :4, :4], kernel_size=(2, 2), stride=(2, 2), padding=(0, 0),
                        gradients=("y",))  # fmt: skip
    found = requests_of_layers((conv, pool), (0, 2))
    words = [(one.name, one.words.partition(" with")[0], one.cube_math_type) for one in found]
    backward, forward = "call of aclnnConvolutionBackward", "call of aclnnConvolution"
    assert words == [
        ("c", backward, 0), ("c", forward, 0), ("c", backward, 2), ("c", forward, 2),
        ("p", "call of aclnnAvgPool2d", 0), ("p", "call of aclnnAvgPool2d", 2),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"op": "cast"}', "The file must hold a JSON list"),
        ("[", "The file must be JSON"),
        ('[{"aclnn_name": "Other", "inputs": []}]', "The file must hold a case that can be computed"),
    ],
)
def test_file_that_holds_no_requests_is_exit_2(capsys, tmp_path, text, message):
    (tmp_path / "r.json").write_text(text)
    code, out, err = call(capsys, "r.json")
    assert (code, out) == (2, "")
    assert message in err
    assert err.count("\n") == 1


def test_request_that_would_keep_the_rest_waiting_is_refused_by_itself(monkeypatch):
    monkeypatch.setattr(answers, "MOST_ROWS", 100_000)
    items = [{"op": "cast", "in_shape": [1 << 20, 1 << 18]}, {"op": "matmul", "m": 1 << 12, "k": 1 << 12, "n": 1 << 12}]
    small = {"op": "cast", "in_shape": [1 << 15, 1 << 12], "in_dtype": "fp16", "out_dtype": "fp32"}
    found = answer_all([*items, small, ITEMS["cast"]])
    words = "a request must take at most 100,000 instructions, not more (Ascend910B2)"
    assert [one.error for one in found] == [words, words, "", ""]


def test_options_that_requests_say_themselves_are_refused(capsys, tmp_path):
    (tmp_path / "r.json").write_text(json.dumps([ITEMS["cast"]]))
    code, _, err = call(capsys, "r.json", "--product", "910b")
    assert code == 2
    assert "--product must not be given together with requests" in err


def test_operator_by_its_arguments_is_the_request(capsys):
    words = ("--x", "2,20,9,7", "--weight", "36,20,3,3", "--stride", "2", "--padding", "1")
    for product in ("910b", "910"):
        code, out, err = call(capsys, "conv-backward", *words, "--mask", "dx,db", "--product", product, "--json", "-")
        assert (code, err) == (0, "")
        (row,) = json.loads(out)["rows"]
        given = answer(0, {**ITEMS["conv_backward"], "product": product, "dtype": "fp16"})
        assert row["result"]["total_cycles"] == given.cycles
        assert row["gradients"] == ["dx", "db"]
    code, out, _ = call(capsys, "--product", "910b", "conv-backprop-filter", *words, "--scope", "kernel", "--json", "-")
    assert (
        json.loads(out)["rows"][0]["result"]["total_cycles"]
        == answer(0, {**ITEMS["conv_backprop_filter"], "scope": "kernel"}).cycles
    )
    geometry = ConvGeometry.from_shapes((2, 20, 9, 7), (2, 36, 5, 4), (36, 20, 3, 3), 2, 1, 1)
    kernel = time_call(convolution_kernel_request("filter", geometry, "fp16"), get_product("910b"), "kernel")
    assert json.loads(out)["rows"][0]["result"]["total_cycles"] == kernel.total_cycles


@pytest.mark.parametrize(
    "arguments",
    [
        ("avg-pool", "--x", "2,16,8,8", "--kernel-size", "2"),
        ("matmul", "--m", "48", "--k", "64", "--n", "32", "--trans-b"),
        ("transdata", "--in-shape", "2,20,9,7", "--out-format", "NC1HWC0"),
        ("cast", "--in-shape", "70,30"),
        ("reduce-sum", "--in-shape", "4,30,20", "--axes=0,2"),
    ],
)
def test_operators_print_their_times(capsys, arguments):
    code, out, err = call(capsys, *arguments, "--product", "910b")
    assert (code, err) == (0, "")
    assert "1 combination: 0 refused" in out


def test_operator_may_have_fewer_cores_and_another_generation(capsys):
    words = (
        "conv-backprop-filter",
        "--x",
        "8,64,28,28",
        "--weight",
        "64,64,3,3",
        "--padding",
        "1",
        "--product",
        "910b",
    )
    cycles = {}
    for more in ((), ("--block-dim", "3"), ("--generation", "published")):
        code, out, _ = call(capsys, *words, *more, "--scope", "kernel", "--json", "-")
        assert code == 0
        result = json.loads(out)["rows"][0]["result"]
        cycles[more] = result["total_cycles"]
        assert result["core_count"] <= 3 or not more or more[0] != "--block-dim"
    assert len(set(cycles.values())) == 3
    code, _, err = call(capsys, *words, "--generation", "next")
    assert (code, "generation must be one of published, closed, not next" in err) == (2, True)


def test_operator_refuses_what_it_does_not_know(capsys):
    code, _, err = call(capsys, "cast", "--in-shape", "4", "--m", "3", "--stride", "2")
    assert code == 2
    assert "cast must be given without stride, m" in err
    code, _, err = call(capsys, "cast", "--in-shape", "4", "--foo", "3")
    assert code == 2
    code, _, err = call(capsys, "nonsense")
    assert (code, "op must be one of" in err) == (2, True)


def test_perf_without_arguments_prints_its_help(capsys):
    code, out, err = call(capsys)
    assert (code, err) == (0, "")
    assert "Usage: npu-sim perf" in out


def test_fields_that_say_nothing_are_named():
    item = {"op": "matmul", "m": 32, "k": 32, "n": 32, "dtyp": "fp32"}
    one, other = answer_all([{"id": "a", **item}, {"op": "matmul", "m": 32, "k": 32, "n": 32, "dtype": "fp32"}], jobs=1)
    assert (one.ignored, other.ignored) == (("dtyp",), ())
    assert one.to_plain()["ignored"] == ["dtyp"]
    assert one.duration_us != other.duration_us


def test_blocks_beyond_any_product_are_refused():
    one = answer(0, {"op": "matmul", "m": 32, "k": 32, "n": 32, "block_dim": 2**31})
    assert one.error == "block_dim must be in [1, 1024], not 2147483648"


def test_an_answer_says_what_is_launched_and_how_sure_it_is():
    request = {"op": "conv_backprop_filter", "product": "910", "x": [2, 16, 8, 8], "w": [16, 16, 3, 3], "pads": 1}
    (call,) = answer_all([request])
    document = call.to_plain()
    assert [one["launch"] for one in document["by_launch"]] == [
        "TransData", "TransData", "MemSet", "Conv3DBackpropFilter", "TransData"
    ]  # fmt: skip
    assert sum(one["duration_us"] for one in document["by_launch"]) == pytest.approx(document["duration_us"])
    assert document["is_calibrated"] is False
    assert sum(document["critical_shares"].values()) == pytest.approx(1)
    assert set(document["pipe_shares"]) == {"S", "V", "M", "MTE1", "MTE2", "MTE3", "FIX"}


@pytest.mark.parametrize("op", ["conv_backward", "conv"])
def test_kernels_of_whole_calls_have_the_cores_of_the_request(op):
    values = {"op": op, "x": [4, 32, 14, 14], "w": [32, 32, 3, 3], "pads": 1}
    item = read_item(values | {"block_dim": 3})
    assert item.ignored == ()
    few, free = (
        [launch.core_count for launch in answers.time_item(one).kernel.launches if launch.launch.startswith("Conv")]
        for one in (item, read_item(values))
    )
    assert max(few) <= 3 < min(free)


def test_kernels_of_whole_calls_are_of_the_generation_of_the_request():
    values = {"op": "conv_backward", "x": [4, 32, 14, 14], "w": [32, 32, 3, 3], "pads": 1, "mask": "dw"}
    published, closed = (answers.time_item(read_item(values | {"generation": one})) for one in GENERATIONS)
    assert published.kernel.total_cycles != closed.kernel.total_cycles


@pytest.mark.parametrize("blocks", [1, 4])
def test_vector_kernels_have_the_blocks_of_the_request(blocks):
    values = {"op": "cast", "in_shape": [1 << 20], "out_dtype": "fp32", "in_dtype": "fp16"}
    item = read_item(values | {"block_dim": blocks})
    assert item.ignored == ()
    timed, free = (answers.time_item(one) for one in (item, read_item(values)))
    assert [launch.core_count for launch in timed.launches] == [blocks]
    assert free.launches[0].core_count > blocks
    assert timed.seconds > free.seconds


COMPUTED = {
    # tensors, wish, product: what is multiplied
    ("fp32", "fp32", "910b"): "fp32",
    ("fp32", "hf32", "910b"): "hf32",
    ("fp32", "fp16", "910b"): "fp16",
    ("bf16", "bf16", "910b"): "bf16",
    ("fp32", "bf16", "910b"): "hf32",
    ("fp16", "fp32", "910b"): "fp16",
    ("fp16", "bf16", "910_93"): "fp16",
    ("fp32", "fp16", "310p"): "fp16",
    ("fp32", "fp32", "310p"): "fp16",
    ("fp32", "fp32", "910"): "fp16",
    ("fp32", "hf32", "910"): "fp16",
}
CALLS = {
    "matmul": {"m": 64, "k": 64, "n": 64},
    "conv": CONV,
    "conv_backward": CONV,
}


@pytest.mark.parametrize("op", CALLS)
@pytest.mark.parametrize(("dtype", "compute", "product"), COMPUTED)
def test_an_answer_says_what_is_multiplied_and_that_a_wish_was_not_met(op, dtype, compute, product):
    values = {"op": op, **CALLS[op], "in_dtype": dtype, "product": product}
    found = answer(0, {**values, "computeDtype": compute}).to_plain()
    multiplied = COMPUTED[dtype, compute, product]
    assert found["compute_dtype"] == multiplied
    assert found["ignored"] == ([] if multiplied == compute else ["computeDtype"])
    # its time is that of what it says
    assert found["duration_us"] == answer(0, {**values, "compute": multiplied}).duration_us


@pytest.mark.parametrize("op", CALLS)
@pytest.mark.parametrize(("dtype", "compute", "product"), COMPUTED)
def test_perf_refuses_an_operator_that_cannot_multiply_what_is_asked_for(capsys, op, dtype, compute, product):
    given = [f"--{name}={','.join(map(str, np.atleast_1d(value)))}" for name, value in CALLS[op].items()]
    options = ("--dtype", dtype, "--compute", compute, "--product", product, "--json", "-")
    code, out, _ = call(capsys, op, *(one.replace("--w=", "--weight=").replace("pads", "padding") for one in given),
                        *options)  # fmt: skip
    (row,) = json.loads(out)["rows"]
    multiplied = COMPUTED[dtype, compute, product]
    if multiplied == compute:
        assert (code, row["refusal"], row["result"]["compute_dtype"]) == (0, None, compute)
        return
    assert (code, row["result"], row["refusal"]["status"]) == (1, None, 161002)
    words = f"such as {multiplied}, not {compute} ({get_product(product).name})"
    assert row["refusal"]["message"] == f"compute must be a type that these tensors can be multiplied in, {words}"


def test_perf_times_an_operator_where_its_type_can_be_multiplied(capsys):
    """Of several products those that cannot refuse, and stop no other."""
    options = ("--m", "64", "--k", "64", "--n", "64", "--dtype", "fp32", "--compute", "fp32", "--json", "-")
    code, out, _ = call(capsys, "matmul", *options)
    found = {row["product"]: row["result"] and row["result"]["compute_dtype"] for row in json.loads(out)["rows"]}
    assert (code, found) == (0, {"310p": None, "910": None, "910b": "fp32", "910_93": "fp32"})


def test_perf_multiplies_bf16_as_fp16_where_the_call_can(capsys):
    """USE_FP16 is the mode of a convolution in bf16; a matrix product keeps bf16."""
    expected = {"matmul": "bf16", "conv": "fp16", "conv_backward": "fp16"}
    for op, multiplied in expected.items():
        found = answer(0, {"op": op, **CALLS[op], "in_dtype": "bf16", "compute": "fp16"})
        assert (found.compute_dtype, found.ignored) == (multiplied, () if multiplied == "fp16" else ("compute",))


@pytest.mark.parametrize("scope", ["kernel", "core_time"])
def test_a_kernel_says_what_it_multiplies(scope):
    found = answer(0, {"op": "conv", **CONV, "compute": "fp32", "product": "310p", "scope": scope})
    assert (found.compute_dtype, found.ignored) == ("fp16", ("compute",))


def test_what_is_not_multiplied_has_no_type():
    assert answer(0, ITEMS["cast"]).to_plain()["compute_dtype"] == ""


def test_kernels_timed_alone_find_their_code_in_l2_and_those_of_a_call_do_not():
    product = get_product("910b")
    alone = request_of(op="transdata", in_shape=[2, 32, 8, 8], out_format="NC1HWC0", in_dtype="fp16")
    call = request_of(op="conv", x=[2, 32, 8, 8], w=[32, 32, 3, 3], in_dtype="fp32", compute="hf32")
    found = []
    for request in (alone, call):
        launches = request.plan(product).calls.launches
        found.append({launch.code_in_memory for launch in launches if launch.name == "TransData"})
    assert found == [{False}, {True}]


def test_a_trans_data_that_is_timed_as_a_copy_is_as_uncertain_as_others():
    given = {"in_shape": [64, 80], "in_dtype": "fp16"}
    copies = {
        name: request_of(op=name, **given, **extra).plan(get_product("910b")).calls.launches[0].error_kind
        for name, extra in (("transdata", {"out_format": "FRACTAL_NZ"}), ("tensor_move", {}))
    }
    assert copies == {"transdata": "trans_data", "tensor_move": None}
