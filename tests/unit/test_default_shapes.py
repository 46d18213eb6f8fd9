"""Every operator on the shapes of the package: what there is, and that the command computes it."""

from __future__ import annotations

import pytest

from ops.cli.main import main
from ops.studies.default_shapes import default_shapes
from ops.studies.kinds import ENTRIES
from ops.studies.layers import RESULT_NAMES
from ops.studies.precision import study
from ops.studies.precision_results import StudyOptions, default_products
from ops.studies.registry import KINDS, kinds_of


def test_every_result_of_every_operator_in_every_type_is_there():
    capture = default_shapes()
    kinds = [kind for layer in capture.layers for kind in kinds_of(layer, None)]
    assert set(map(id, kinds)) == set(map(id, KINDS))
    assert {layer.dy.dtype.name for layer in capture.layers} == {"float16", "float32", "bfloat16"}
    # nothing is drawn before it is needed
    assert all(tensor.strides == (0,) * tensor.ndim for layer in capture.layers for tensor in (layer.dy, layer.x))


def test_products_refuse_shapes_by_rules_alone():
    """One type of one shape after the other, on all series, by all interfaces."""
    capture = default_shapes("normal", seed=2)
    options = StudyOptions(
        products=default_products(ENTRIES),
        entries=ENTRIES,
        layers=("conv1d fp16", "pooling fp16"),
        cube_math_types=(0,),
    )
    report = study(capture, options)
    assert {(row.gradient, row.entry) for row in report.computed} == {
        *((name, "aclnn") for name in RESULT_NAMES), ("dw", "tbe"), ("dw", "ascendc")
    }  # fmt: skip
    assert {row.product for row in report.computed} == {"310", "310p", "910", "910b", "910_93"}
    assert {row.refusal.status for row in report.rows if row.refusal} == {161002}
    assert report.passed


def test_command_runs_default_shapes(capsys):
    layer = ["--layer", "global pooling fp16", "--product", "910b", "--no-picture", "--no-progress"]
    assert main(["precision", "--default-shapes", *layer]) == 0
    assert main(["precision", "--default-shapes", "--generate", "small", "--seed", "4", *layer]) in (0, 1)
    capsys.readouterr()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("mine.npz", "--default-shapes"), "--default-shapes must not be given together with the file mine.npz"),
        (("--seed", "1"), "--seed must be given together with --generate, --default-shapes or a file of cases"),
    ],
)
def test_wrong_combination_of_sources_is_refused(arguments, message, capsys):
    assert main(["precision", *arguments, "--no-picture"]) == 2
    assert message in " ".join(capsys.readouterr().err.split())


def test_products_together_give_what_each_gives_alone():
    capture = default_shapes()
    given = {"layers": ("grouped bf16",), "gradients": ("dx", "y")}
    names = ("Ascend910B1", "910b", "310p")
    together = study(capture, StudyOptions(products=names, **given))
    alone = [study(capture, StudyOptions(products=(name,), **given)) for name in names]
    assert sorted(together.rows, key=str) == sorted((row for report in alone for row in report.rows), key=str)
