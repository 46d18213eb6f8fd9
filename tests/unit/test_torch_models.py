"""The ways in which models are run: every one gets the gradients of the plain one under `ops.torch.emulate`."""

from __future__ import annotations

import threading

import pytest

import ops.torch
from npu_sim.errors import DTypeError, OperatorError

torch = pytest.importorskip("torch")
nn = torch.nn

OPTIONS = {"product": "910b", "cube_math_type": 1, "linear": True}
NAMES = {"0", "2", "3", "5"}


def made():
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, 8, 3, stride=2), nn.AvgPool2d(2), nn.Flatten(),
        nn.Linear(72, 4),
    )  # fmt: skip


def images():
    return torch.randn(2, 3, 14, 14, generator=torch.Generator().manual_seed(1))


def gradients(model):
    return [parameter.grad.clone() for parameter in model.parameters()]


def step(run, model=None):
    """Return the gradients of a step with the images, and the record."""
    model = model or made()
    with ops.torch.emulate(**OPTIONS, model=model) as emulation:
        run(model)(images()).square().sum().backward()
    return gradients(model), emulation.record


@pytest.fixture(scope="module")
def plain():
    return step(lambda model: model)[0]


def same(left, right):
    return all(torch.equal(a, b) for a, b in zip(left, right, strict=True))


def checkpointed(use_reentrant):
    from torch.utils.checkpoint import checkpoint

    return lambda model: lambda x: checkpoint(model, x.requires_grad_(), use_reentrant=use_reentrant)


# PyTorch warns that the hooks are called for the compiled module too
@pytest.mark.filterwarnings("ignore:Using `torch.compile:UserWarning")
@pytest.mark.parametrize(
    "run",
    [
        lambda model: torch.compile(model, backend="aot_eager"),
        nn.DataParallel,
        checkpointed(True),
        checkpointed(False),
    ],
    ids=["compiled", "data parallel", "checkpoint", "checkpoint with hooks"],
)
def test_bits_and_names_do_not_depend_on_how_a_model_runs(plain, run):
    found, record = step(run)
    assert same(found, plain)
    assert {row.module for row in record.rows.values()} == NAMES


def test_tensors_that_autograd_keeps_elsewhere_change_nothing(plain):
    with torch.autograd.graph.save_on_cpu():
        assert same(step(lambda model: model)[0], plain)


def test_backward_pass_of_a_compiled_graph_is_emulated():
    # what was called in a context before is not compiled again
    torch.compiler.reset()
    model = made()
    loss = torch.compile(model, backend="aot_eager")(images()).square().sum()
    with ops.torch.emulate(**OPTIONS, model=model) as run:
        loss.backward()
    operators = [row.operator for row in run.record.rows.values()]
    assert {name: operators.count(name) for name in operators} == {
        "mm": 1, "avg_pool2d_backward": 1, "convolution_backward": 5,
    }  # fmt: skip
    assert {(row.result, row.calls) for row in run.record.rows.values() if row.operator == "mm"} == {("grad_factor", 2)}


def test_hooks_see_and_change_emulated_gradients(plain):
    model, seen = made(), []
    model[2].register_full_backward_hook(lambda module, inputs, outputs: seen.append(outputs[0].shape))
    model[2].weight.register_hook(lambda gradient: gradient * 2)
    found, _ = step(lambda model: model, model)
    assert seen == [(2, 8, 6, 6)]
    assert torch.equal(found[2], plain[2] * 2)


def test_gradients_of_several_backward_passes_add_up(plain):
    model = made()
    with ops.torch.emulate(**OPTIONS):
        for _ in range(2):
            model(images()).square().sum().backward()
    assert same(gradients(model), [2 * gradient for gradient in plain])


def test_context_is_left_by_an_exception_and_works_again(plain):
    model, run = made(), ops.torch.emulate(**OPTIONS)
    fails = nn.Sequential(model[0], nn.Flatten(7))
    with pytest.raises(IndexError), run:
        fails(images())
    refusing = ops.torch.emulate(product="310p", cube_math_type=0, forward=True)
    with pytest.raises(OperatorError), refusing:
        model(images())
    model(images()).sum().backward()
    assert not run.record.rows
    model.zero_grad()
    with run:
        model(images()).square().sum().backward()
    assert same(gradients(model), plain)


def test_context_inside_itself_names_and_computes_once(plain):
    model, run = made(), ops.torch.emulate(**OPTIONS)
    with run, run:
        model(images()).square().sum().backward()
    assert same(gradients(model), plain)
    assert {row.module for row in run.record.rows.values()} == NAMES
    assert {row.calls for row in run.record.rows.values()} == {1}


def test_another_context_inside_computes_what_it_covers_and_leaves_the_rest():
    model = made()
    with ops.torch.emulate(**OPTIONS) as outer, ops.torch.emulate(product="310p", cube_math_type=1) as inner:
        model(images()).square().sum().backward()
    assert {row.operator for row in outer.record.rows.values()} == {"addmm", "mm"}
    assert {row.operator for row in inner.record.rows.values()} == {"convolution_backward", "avg_pool2d_backward"}


def test_forward_pass_without_gradients_does_not_rename_what_ran_before():
    model = made()
    with ops.torch.emulate(**OPTIONS, model=model) as run:
        y = model[0](images())
        with torch.no_grad():
            model[2](torch.randn(1, 8, 6, 6))
        y.sum().backward()
    assert {row.module for row in run.record.rows.values()} == {"0"}


def test_modules_of_other_threads_do_not_name_operators():
    model, other = made(), nn.Identity()
    entered, leave = threading.Event(), threading.Event()

    class Waits(nn.Module):
        def forward(self, x):
            entered.set()
            leave.wait(10)
            return other(x)

    with ops.torch.emulate(**OPTIONS, model=model) as run:
        thread = threading.Thread(target=lambda: Waits()(images()))
        thread.start()
        entered.wait(10)
        y = model[0](images())
        leave.set()
        thread.join()
        nn.functional.conv2d(y, model[2].weight).sum().backward()
    assert {row.module for row in run.record.rows.values()} == {"0", "2"}


@pytest.mark.parametrize("forward", [False, True])
def test_results_have_the_memory_format_of_pytorchs(forward):
    def strides(emulated):
        model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.AvgPool2d(2)).to(memory_format=torch.channels_last)
        x = images().to(memory_format=torch.channels_last).requires_grad_()
        if not emulated:
            y = model(x)
            y.square().sum().backward()
        else:
            with ops.torch.emulate(product="910b", cube_math_type=2, forward=forward):
                y = model(x)
                y.square().sum().backward()
        return [tensor.stride() for tensor in (y, x.grad, model[0].weight.grad)]

    assert strides(emulated=True) == strides(emulated=False)


def test_tensors_without_memory_are_refused_by_what_they_are():
    model = made().to("meta")
    with pytest.raises(DTypeError, match="must be a tensor in host memory"), ops.torch.emulate(**OPTIONS):
        model(images().to("meta")).sum().backward()
