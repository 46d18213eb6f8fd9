"""What the verdicts of a product and mode come to, held to a count that is written down a second time."""

import itertools
import random

import pytest

from ops.studies.fitness import fitness_of
from ops.studies.precision_results import GOLDENS, PrecisionRow
from ops.studies.scope import Refusal

OUTCOMES = ("pass", "fail", "void")


class Result:
    """As much of a result as counts here."""

    def __init__(self, original, rounded, compute_dtype):
        self.outcomes = {"original": original, "rounded": rounded}
        self.compute_dtype = compute_dtype

    def against(self, golden):
        return type("Against", (), {"outcome": self.outcomes[golden]})


def row(layer, product, mode, result):
    refusal = None if result else Refusal(status=161002, error="OperatorError", message="no")
    return PrecisionRow(
        layer=layer, gradient="dw", entry="aclnn", product=product, soc=product, cube_math_type=mode,
        input_dtype="fp32", refusal=refusal, result=result,
    )  # fmt: skip


def naive(rows, golden):
    outcomes = [one.result.against(golden).outcome for one in rows if one.result]
    return "not fit" if "fail" in outcomes else "fit" if "pass" in outcomes else "not judged"


@pytest.mark.parametrize("deciding", GOLDENS)
def test_every_row_is_counted_once_and_equal_products_and_modes_are_one(deciding):
    rng = random.Random(4)
    for _ in range(200):
        choices = [None, *(Result(*both, "fp16") for both in itertools.product(OUTCOMES, repeat=2))]
        pool = rng.choices(choices, k=2)
        rows = [
            row(layer, product, mode, rng.choice(pool))
            for layer in "ab"
            for product in ("310p", "910", "910b")
            for mode in (0, 1)
        ]
        found = fitness_of(rows, deciding)
        covered = [(place, mode) for one in found for place in one.places for mode in one.modes]
        assert sorted(covered) == sorted({(one.product, one.mode) for one in rows})
        for one in found:
            for place, mode in itertools.product(one.places, one.modes):
                own = [each for each in rows if (each.product, each.mode) == (place, mode)]
                assert (one.original, one.rounded) == (naive(own, "original"), naive(own, "rounded"))
                refused = tuple(each.title for each in own if each.result is None)
                assert (one.gradients, one.refused) == (2, refused)
                failing = [
                    tuple(each.title for each in own if each.result and each.result.against(golden).outcome == "fail")
                    for golden in GOLDENS
                ]
                assert [one.failing_original, one.failing_rounded] == failing
                void = [each.title for each in own if each.result and each.result.against(deciding).outcome == "void"]
                assert list(one.void) == void
        kinds = [len(one.refused) == one.gradients for one in found]
        assert kinds == sorted(kinds)


@pytest.mark.parametrize(
    ("results", "deciding", "words"),
    [
        ([("pass", "pass")], "rounded", "910b mode 1 (fp16): fit by both goldens; 1 gradient"),
        ([("fail", "pass")], "rounded",
         "910b mode 1 (fp16): not fit by the original golden: 1 FAIL (l0 dw); fit by the rounded golden; 1 gradient"),
        ([("fail", "pass")], "original",
         "910b mode 1 (fp16): not fit by the original golden: 1 FAIL (l0 dw); fit by the rounded golden; 1 gradient"),
        ([("void", "pass")], "rounded",
         "910b mode 1 (fp16): fit by the rounded golden; not judged by the original golden; 1 gradient"),
        ([("fail", "fail"), ("pass", "pass")], "rounded",
         "910b mode 1 (fp16): not fit by either golden: 1 FAIL (l0 dw); 2 gradients"),
        ([("void", "void")] * 2, "rounded",
         "910b mode 1 (fp16): not judged; of 2 gradients 2 void, not judged (l0 dw, l1 dw)"),
        ([("pass", "pass"), ("void", "void"), None], "rounded",
         "910b mode 1 (fp16): fit by both goldens; of 3 gradients 1 void, not judged (l1 dw), 1 refused (l2 dw)"),
        ([("fail", "pass")] * 6, "rounded",
         "910b mode 1 (fp16): not fit by the original golden: 6 FAIL (l0 dw, l1 dw, l2 dw, l3 dw and 2 more); "
         "fit by the rounded golden; 6 gradients"),
        ([None], "rounded", "910b mode 1: refused"),
    ],
)  # fmt: skip
def test_sentence_names_golden_failures_and_what_is_not_judged(results, deciding, words):
    rows = [row(f"l{number}", "910b", 1, one and Result(*one, "fp16")) for number, one in enumerate(results)]
    (found,) = fitness_of(rows, deciding)
    assert found.words == words
