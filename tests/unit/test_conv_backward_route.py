"""Which way a call takes, condition by condition: each case misses the matrix product by one attribute only."""

from __future__ import annotations

import pytest

from ops.conv_backward.route import choose_route
from ops.conv_backward.rules import check
from tests.oracles.conv_backward_cases import EMPTY, LINE, VOLUME, make_call
from tests.oracles.series import SPLIT

DX, DW, BOTH = (True, False, False), (False, True, False), (True, True, False)
WHOLE = {"x": (4, 6, 5, 3), "w": (8, 6, 5, 3), "y": (4, 8, 1, 1)}
WHOLE_3D = {"x": (4, 6, 2, 5, 3), "w": (8, 6, 2, 5, 3), "y": (4, 8, 1, 1, 1)}
BLOCKS = {"x": (2, 6, 9, 8), "w": (8, 6, 3, 2), "y": (2, 8, 3, 4), "stride": (3, 2)}
BLOCKS_3D = {"x": (2, 6, 2, 9, 8), "w": (8, 6, 1, 3, 2), "y": (2, 8, 2, 3, 4), "stride": (1, 3, 2)}


def route_of(**changes):
    return choose_route(check(make_call(**changes)))


@pytest.mark.parametrize("product", SPLIT)
@pytest.mark.parametrize(
    ("case", "mask", "dx", "dw", "name"),
    [
        (WHOLE, BOTH, "whole map", True, "2D as 3D"),
        (WHOLE, DX, "whole map", False, "2D as 3D"),
        (WHOLE, DW, None, True, "2D as 3D"),
        (WHOLE, (False, False, True), None, False, "2D"),
        ({**WHOLE, "padding": (0, 0, 0, 0)}, BOTH, "whole map", True, "2D as 3D"),
        (WHOLE_3D, BOTH, "whole map", True, "3D"),
        (WHOLE_3D, DX, "whole map", False, "3D"),
        (BLOCKS, DX, "blocks", False, "2D as 3D"),
        (BLOCKS, BOTH, None, False, "2D"),
        (BLOCKS, DW, None, False, "2D"),
        (BLOCKS_3D, DX, "blocks", False, "3D"),
        (BLOCKS_3D, BOTH, "blocks", False, "3D"),  # only the 2D rule looks at the weight gradient
        (BLOCKS_3D, DW, None, False, "3D"),
    ],
)
def test_matrix_products_are_taken_where_the_library_takes_them(case, mask, dx, dw, name, product):
    route = route_of(**case, output_mask=mask, product=product)
    assert (route.input_gradient_matmul, route.weight_gradient_matmul, route.name) == (dx, dw, name)
    assert route.is_matmul == (dx is not None or dw)


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({**WHOLE, "product": "910"}, id="unified-910"),
        pytest.param({**WHOLE, "product": "310p"}, id="unified-310p"),
        pytest.param({**WHOLE, "transposed": True}, id="transposed"),
        pytest.param({**WHOLE, "w": (8, 3, 5, 3), "groups": 2}, id="groups"),
        pytest.param({**WHOLE, "padding": (1, 0), "stride": (3, 1)}, id="padding"),
        pytest.param({**WHOLE, "padding": (0, 0, 0, 1), "stride": (1, 2)}, id="one-of-four-paddings"),
        pytest.param({**WHOLE, "x": (4, 6, 5, 1), "w": (8, 6, 5, 1), "dilation": (1, 2)}, id="dilation"),
        pytest.param({**WHOLE, "x": (4, 6, 5, 4), "stride": (1, 2)}, id="one-axis-larger-than-the-kernel"),
        pytest.param({**WHOLE, "w": (8, 6, 5, 1), "y": (4, 8, 1, 3)}, id="one-axis-of-several-windows"),
        pytest.param({"x": (4, 6, 3), "w": (8, 6, 3), "y": (4, 8, 1)}, id="line"),
        pytest.param({**BLOCKS, "x": (2, 6, 9, 9)}, id="a-column-no-window-covers"),
        pytest.param({**BLOCKS, "stride": (3, 1), "y": (2, 8, 3, 7)}, id="stride-below-kernel"),
        pytest.param({**BLOCKS, "w": (8, 6, 3, 1)}, id="kernel-below-stride"),
        pytest.param({"x": (2, 6, 4, 4), "w": (8, 6, 1, 1), "y": (2, 8, 4, 4)}, id="no-stride-above-one"),
    ],
)
def test_call_that_misses_one_condition_is_a_convolution(changes):
    route = route_of(**changes, output_mask=DX)
    assert not route.is_matmul
    assert route.name == ("1D as 2D" if len(changes["x"]) == 3 else "2D")


@pytest.mark.parametrize(
    ("changes", "keeps"),
    [
        ({"dtype": "bf16", "cube_math_type": 2, "profile": "library"}, True),
        ({"dtype": "bf16", "cube_math_type": 2, "profile": "page"}, False),
        ({"dtype": "bf16", "cube_math_type": 0, "profile": "library"}, False),
        ({"dtype": "bf16", "cube_math_type": 2, "profile": "library", "weight_dtype": "fp16"}, False),
        ({"dtype": "fp16", "cube_math_type": 2, "profile": "library"}, False),
        ({"dtype": "bf16", "cube_math_type": 2, "profile": "library", "output_mask": (False, False, True)}, False),
    ],
)
def test_only_the_library_profile_multiplies_bfloat16_under_use_fp16(changes, keeps):
    assert route_of(**WHOLE, **changes).keeps_bf16 == keeps


POST = "post-dilation: the library spreads a stride-1 result with zeros"
IN_ORDER = "deterministic: a block of gradWeight has one core, or several whose sums meet in workspace, in order"
ONE_CORE = "deterministic: a block of gradWeight has one core (ASSUMED: the library's own schedule is closed)"
PRE = "pre-dilation: the library inserts zeros into gradOutput before the kernel"
POINTS = {"x": (2, 4, 6, 6), "w": (6, 4, 1, 1), "y": (2, 6, 6, 3), "stride": (1, 2)}
STRIDED = {"x": (2, 4, 6, 6), "w": (6, 4, 3, 3), "y": (2, 6, 4, 2), "stride": (1, 3)}


@pytest.mark.parametrize(
    ("changes", "notes"),
    [
        (POINTS, (POST,)),
        (STRIDED, (PRE,)),
        ({**STRIDED, "stride": (1, 2)}, ()),
        ({**POINTS, "stride": (1, 1), "y": (2, 6, 6, 6)}, ()),
        ({**POINTS, "dtype": "bf16"}, ()),
        ({**STRIDED, "dtype": "bf16"}, ()),
        ({**STRIDED, "dtype": "bf16", "cube_math_type": 2}, (PRE,)),
        ({**STRIDED, "product": "910"}, ()),
        ({**STRIDED, "transposed": True}, ()),
        ({**STRIDED, "output_mask": DW}, ()),
        ({**VOLUME, "y": (1, 6, 3, 2, 4), "stride": (1, 3, 1)}, ()),
        ({"deterministic": True}, (IN_ORDER,)),
        ({"deterministic": True, "product": "910"}, (ONE_CORE,)),
        ({**POINTS, "deterministic": True}, (POST, IN_ORDER)),
        ({**LINE, "deterministic": True}, ("the axis becomes W", IN_ORDER)),
        ({"deterministic": True, "output_mask": DX}, ()),
        ({**WHOLE, "deterministic": True}, ()),
        ({**WHOLE, "stride": (5, 3)}, ()),
        (LINE, ("the axis becomes W",)),
        ({**LINE, "stride": (3,), "y": (2, 6, 2)}, ("the axis becomes W", PRE)),
        ({**LINE, "w": (6, 2, 3), "groups": 2}, ("the axis becomes H",)),
        ({**LINE, "w": (6, 2, 3), "groups": 2, "transposed": True}, ("the axis becomes W",)),
        ({**LINE, "x": (2, 4, 91), "w": (6, 2, 3), "y": (2, 6, 1), "groups": 2, "dilation": (45,)},
         ("the axis becomes W",)),
        ({**LINE, "x": (2, 4, 89), "w": (6, 2, 3), "y": (2, 6, 1), "groups": 2, "dilation": (44,)},
         ("the axis becomes H",)),
    ],
)  # fmt: skip
def test_notes_say_what_the_library_does_inside(changes, notes):
    assert route_of(**changes).notes == notes


def test_call_without_elements_takes_the_empty_way():
    route = route_of(**EMPTY)
    assert (route.name, route.notes, route.is_matmul) == ("empty", (), False)
