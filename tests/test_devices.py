"""Trainings on a GPU, simulated (:mod:`simulated_gpu`): the results of a CPU, nothing left behind there, few waits."""

from dataclasses import fields, is_dataclass

import numpy as np
import pytest
import torch
from simulated_gpu import NAME, SimulatedGPU

from attn_lib.problems import GeneralAttention, MarchenkoPastur, PositionalSemantic, SingleHead
from attn_lib.simulation import (
    _hardware,
    direct,
    gaussian_sensing,
    logit_fit,
    robustness,
    search,
    single_head_sampling,
    variant_sampling,
)
from attn_lib.simulation.amp import train_by_amp
from attn_lib.simulation.dynamics import Start, train_by_descent
from attn_lib.simulation.erm import train_positional_semantic, train_single_head
from attn_lib.simulation.general import train_general
from attn_lib.simulation.general_risk import GeneralRisk
from attn_lib.simulation.matrix_amp import train_by_matrix_amp
from attn_lib.simulation.matrix_prox import AttentionProx
from attn_lib.simulation.measurement import lowest_curvature
from attn_lib.simulation.risk import AttentionRisk
from attn_lib.simulation.single_head_risk import FactorisedRisk
from attn_lib.simulation.tokens import Correlated, StudentT, VocabularyGaussian

ONE = PositionalSemantic(alpha=1.5, omega=0.3)
GENERAL = GeneralAttention(alpha=2, omega=0.3, A=[[0.5, 0.3, 0.2], [0.2, 0.5, 0.3], [0.3, 0.2, 0.5]], rank=2)
TWO = SingleHead(alpha=1.0, lam=0.05, Delta=0.5, kappa=0.75, target=MarchenkoPastur(kappa0=0.5))
FREE = 10**9  # bytes: a training of Part II announces 2e8, so that two seeds of three share a batch


SHORT = {"n_test": 50, "max_iter": 4}


def variant(**changes):
    return lambda **where: robustness.train_variant(TWO, d=10, seeds=range(3), **SHORT, **changes, **where)


def searched(method, **changes):
    fixed = {"n_rounds": 2, "n_runs": 2, "method": method}
    return lambda **where: search.search_lower_minima(ONE, d=20, seeds=[0, 1], **fixed, **changes, **where)


def single(**changes):
    return lambda **where: train_single_head(TWO, d=10, seeds=range(3), **SHORT, **changes, **where)


def curvature(**where):
    return lowest_curvature(train_positional_semantic(ONE, d=20, seeds=[0, 1], n_test=10, device="cpu"), **where)


def descent(**changes):
    starts = Start(semantic=1.0), Start(random=0.3)
    fixed = {"starts": starts, "n_steps": 6, "learning_rate": 0.15, "record_every": 4, "n_test": 50, **changes}
    return lambda **where: train_by_descent(ONE, d=20, seeds=range(3), **{**fixed, **where})


TRAININGS = {
    "erm": lambda **where: train_positional_semantic(ONE, d=30, seeds=range(3), **SHORT, **where),
    "general": lambda **where: train_general(GENERAL, d=20, seeds=range(3), start="mixed", **SHORT, **where),
    "gradient descent": descent(),
    "adam": descent(optimiser="adam"),
    "message passing": lambda **where: train_by_amp(ONE, d=30, seeds=[0, 1], n_iter=3, **where),
    "perturbation": searched("perturbation"),
    "annealing": searched("annealing", size=1e-3),
    "search by message passing": searched("message passing", size=3),
    "curvature": curvature,
    "single head": single(),
    "sequences": single(task="seq2seq", centring="empirical", noisy_test=False),
    "adam of part II": single(optimiser="adam"),
    "direct": lambda **where: direct.train_direct(TWO, d=10, seeds=range(3), **SHORT, **where),
    "cross-validation": lambda **where: direct.cross_validation(
        TWO, d=10, seeds=[0, 1], folds=2, lams=(1.0, 2.0), tolerance=0.1, **where
    ),
    "logits": lambda **where: logit_fit.fit_logits(TWO, d=10, seeds=range(3), **where),
    "Gaussian measurements": lambda **where: gaussian_sensing.train_on_gaussians(
        TWO, d=10, seeds=range(3), **SHORT, **where
    ),
    "matrix message passing": lambda **where: train_by_matrix_amp(
        TWO, d=12, seeds=[0, 1], n_iter=3, n_test=50, **where
    ),
    "two heads": variant(n_heads=2, target_heads=2, symmetric_target=False, tied=False, tokens=StudentT(6.0)),
    "cross-attention": variant(cross=True, tied=False, tokens=Correlated(0.5)),
    "tied variant": variant(tokens=VocabularyGaussian(2.0)),
}


@pytest.fixture
def gpu(monkeypatch):
    monkeypatch.setattr(_hardware, "devices", lambda: ["cpu", f"{NAME}:0", NAME])
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (FREE, FREE))
    for module, name, value in ((search, "_MAX_ITER", 4), (search, "_STEPS", 4), (logit_fit, "_TOLERANCE", 10.0)):
        monkeypatch.setattr(module, name, value)  # short runs: an operation on the simulated device takes 0.1 ms
    return SimulatedGPU()


def columns(result):
    """The arrays of a result, by name."""
    if isinstance(result, np.ndarray):
        return {"result": result}
    names = [f.name for f in fields(result)] if is_dataclass(result) else result._fields
    found = {name: getattr(result, name) for name in names}
    return {name: v for name, v in found.items() if isinstance(v, np.ndarray)}


@pytest.mark.parametrize("name", TRAININGS)
def test_agrees_with_the_cpu(name, gpu):
    """By default on the GPU, of which some memory is free; seeds in other batches, samples in other blocks."""
    expected = columns(TRAININGS[name](device="cpu"))
    with gpu:
        found = columns(TRAININGS[name]())
    assert sum(gpu.sent.values()) > 0
    assert expected.keys() == found.keys()
    for key, value in expected.items():
        # Sums are taken in another order; a few iterations amplify rounding, of numbers of order one, by 1e3 at most.
        np.testing.assert_allclose(found[key], value, rtol=1e-10, atol=1e-12, err_msg=key)


@pytest.mark.parametrize("name", ["erm", "general", "single head", "direct", "Gaussian measurements", "two heads"])
def test_agrees_with_single_precision(name):
    double, single = (TRAININGS[name](device="cpu", dtype=dtype) for dtype in ("float64", "float32"))
    for key in ("train_loss", "test_error", "m", "q"):
        # 7 digits, of which four iterations lose three at most
        np.testing.assert_allclose(getattr(single, key), getattr(double, key), rtol=1e-4, atol=1e-4, err_msg=key)
    assert not np.array_equal(single.train_loss, double.train_loss)


@pytest.mark.parametrize("name", ["single head", "Gaussian measurements", "two heads", "cross-attention"])
def test_identity_data_are_drawn_in_pieces(name, monkeypatch):
    expected = columns(TRAININGS[name](device="cpu"))
    for module in (single_head_sampling, gaussian_sensing, variant_sampling):
        monkeypatch.setattr(module, "BLOCK", 1000)  # random numbers, of 2 000 and more
    found = columns(TRAININGS[name](device="cpu"))
    for key, value in expected.items():
        np.testing.assert_allclose(found[key], value, rtol=1e-10, atol=1e-12, err_msg=key)  # rounding of products


def test_identity_memory_that_is_kept_is_free(gpu, monkeypatch):
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda device: 300)
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda device: 100)
    assert _hardware.free_memory(torch.device(NAME)) == FREE + 200


def test_identity_the_default_is_a_gpu_where_there_is_one(gpu, monkeypatch):
    with gpu:
        assert train_positional_semantic(ONE, d=10, seeds=[0], **SHORT).settings.device == NAME
        assert sum(gpu.sent.values()) > 0
    monkeypatch.undo()
    assert train_positional_semantic(ONE, d=10, seeds=[0], **SHORT).settings.device == _hardware.devices()[-1]


def test_identity_seeds_share_a_gpu(gpu):
    assert _hardware.batches(list(range(5)), NAME, FREE // 4, on_cpu=3) == [[0, 1], [2, 3], [4]]
    assert _hardware.batches(list(range(5)), NAME, FREE, on_cpu=3) == [[k] for k in range(5)]
    assert _hardware.batches(list(range(5)), "cpu", FREE, on_cpu=3) == [[0, 1, 2], [3, 4]]
    assert _hardware.batches([7, 8], "cpu", FREE, on_cpu=0) == [[7], [8]]


def test_rejects_tensors_of_two_devices(gpu):
    """What the comparison with the CPU rests on: the simulated device refuses what a GPU refuses."""
    with gpu:
        x = torch.ones(3, device=NAME)
        for mistake in (
            lambda: x + torch.ones(3),
            lambda: torch.arange(3) * x,
            lambda: torch.stack([x, torch.ones(3)]),
            lambda: torch.ones(3)[x.long()],
            lambda: torch.where(x > 0, torch.ones(3), x),
        ):
            with pytest.raises(RuntimeError, match="not on the device|indexed by one of the device"):
                mistake()
        with pytest.raises(RuntimeError, match="numpy"):
            x.numpy()
        assert (x + torch.tensor(1.0)).tolist() == [2.0, 2.0, 2.0]  # a single number may come from the CPU


@pytest.mark.parametrize(
    ("name", "function"),
    [
        ("two heads", "eye"),
        ("single head", "eye"),
        ("sequences", "arange"),
        ("curvature", "eye"),
        ("matrix message passing", "empty"),
    ],
)
def test_rejects_a_training_that_forgets_the_device(name, function, gpu, monkeypatch):
    """The mistake that the comparison must find: a tensor made without ``device=``."""
    made = getattr(torch, function)
    monkeypatch.setattr(torch, function, lambda *args, device=None, **options: made(*args, **options))
    with gpu, pytest.raises((RuntimeError, NotImplementedError)):
        TRAININGS[name]()


def traffic(gpu, train):
    """Numbers of the operations that waited for the device, and of the tensors that were sent to it."""
    gpu.waits.clear(), gpu.sent.clear()
    with gpu:
        train()
    return np.array([gpu.waits.total(), gpu.sent.total()])


def counted(monkeypatch, kind, method):
    """A list that grows with every call of a method."""
    calls, original = [], getattr(kind, method)
    monkeypatch.setattr(kind, method, lambda self, *args: calls.append(1) or original(self, *args))
    return calls


@pytest.mark.parametrize(
    ("name", "kind"), [("erm", AttentionRisk), ("general", GeneralRisk), ("single head", FactorisedRisk)]
)
def test_identity_a_descent_waits_for_its_stopping_tests_only(name, kind, gpu, monkeypatch):
    """Of an iteration, whether all runs have stopped; of a trial of its line search, whether all have passed."""
    losses, iterations = counted(monkeypatch, kind, "loss"), counted(monkeypatch, kind, "steps")
    found = []
    for max_iter in (2, 6):
        monkeypatch.setitem(SHORT, "max_iter", max_iter)
        found.append([*traffic(gpu, TRAININGS[name]), len(losses), len(iterations)])
        losses.clear(), iterations.clear()
    waits, sent, losses, iterations = np.subtract(*found[::-1])
    assert iterations > 0 and losses >= iterations  # of a loss, one trial
    assert waits <= iterations + losses + 2  # 2: one last test of each batch, where it stops before max_iter
    assert sent == 0


@pytest.mark.parametrize("name", ["gradient descent", "adam"])
def test_identity_a_path_waits_for_nothing(name, gpu):
    """Not before the end: the number of waits does not depend on the number of steps."""
    short, long = (traffic(gpu, lambda n=n: TRAININGS[name](n_steps=n)) for n in (4, 12))
    assert short.tolist() == long.tolist()


def test_identity_waits_of_matrix_message_passing(gpu, monkeypatch):
    """Of every iteration 4, and what the library of linear algebra checks; of every Newton step of the prox 3, and as
    many as its steps are halved.
    """
    objectives, steps = (counted(monkeypatch, AttentionProx, name) for name in ("_objective", "_hessian"))
    found = []
    for n_iter in (2, 5):
        made = traffic(gpu, lambda n=n_iter: train_by_matrix_amp(TWO, d=12, seeds=[0], n_iter=n, n_test=20))
        found.append([*made, len(objectives), len(steps)])
        objectives.clear(), steps.clear()
    waits, sent, objectives, steps = np.subtract(*found[::-1])
    newton = steps - 3  # the response takes one Hessian an iteration
    halved = objectives - 3 - 2 * newton  # the choice of the deeper well, and two values a step, are no halvings
    assert newton > 3 and halved >= 0
    assert waits <= 3 * 4 + 3 * newton + halved
    assert sent == 0
