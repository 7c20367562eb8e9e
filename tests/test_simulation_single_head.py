"""Training of the single head of Part II: data, gradient, minimum, measurements, interruption, bad input."""

import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
import torch

from attn_lib.problems import FiniteRank, MarchenkoPastur, PowerLaw, SingleHead
from attn_lib.simulation import single_head
from attn_lib.simulation.erm import train_single_head
from attn_lib.simulation.lbfgs import value_and_gradient
from attn_lib.simulation.sensing import TokenMeasurement, pairs
from attn_lib.simulation.single_head_risk import FactorisedRisk, attention_loss
from attn_lib.simulation.single_head_sampling import draw_matrix, draw_start, labelled_tokens

TARGET = MarchenkoPastur(kappa0=0.5)
PROBLEM = SingleHead(alpha=0.5, lam=0.01, Delta=0.5, kappa=1.0, target=TARGET)
ROUNDING = {"rtol": 1e-10, "atol": 1e-12}  # double precision; numbers are of order 1 at most


def problem_of(**changes):
    return SingleHead(**{**vars(PROBLEM), **changes})


def plain_attention(x, S, beta, centre="trace", noise=0.0):
    """softmax(beta z(S)) written out, sample by sample; centre: "trace", or the (T, T) matrix to subtract."""
    rows = []
    for i, tokens in enumerate(x):
        raw = tokens @ S @ tokens.T
        z = raw - (torch.eye(len(tokens), dtype=x.dtype) * torch.trace(S) if isinstance(centre, str) else centre)
        z = z / S.shape[0] ** 0.5 + (noise if isinstance(noise, float) else noise[i])
        e = torch.exp(beta * z)
        rows.append(e / e.sum(1, keepdim=True))
    return torch.stack(rows)


def plain_losses(x, Y, S, beta, task, centring, reference=None):
    """Loss of every sample, straight from the definitions; reference: tokens that an empirical centre is taken over."""
    reference = x if reference is None else reference
    centre = "trace" if centring == "trace" else torch.stack([t @ S @ t.T for t in reference]).mean(0)
    D = Y - plain_attention(x, S, beta, centre)
    return (D**2).sum((1, 2)) if task == "seq2lab" else ((D @ x) ** 2).sum((1, 2)) / x.shape[2]


def risk_of(problem, d, seed=0, task="seq2lab", centring="trace", block=None, dtype=torch.float64):
    n, p = round(problem.alpha * d**2), round(problem.kappa * d)
    x, Y = (v[None] for v in labelled_tokens(problem, draw_matrix(problem, d, seed), n=n, seed=seed, dtype=dtype))
    measurement = TokenMeasurement(x, centring=centring, block=block)
    return FactorisedRisk(measurement, attention_loss(problem, task, x, Y), problem.lam, d=d, p=p), x[0], Y[0]


def learned_matrix(e):
    return e.W @ e.W.swapaxes(1, 2) / (e.settings.p * e.settings.d) ** 0.5


def draw(*shape, seed=0):
    return torch.as_tensor(np.random.default_rng([9, seed]).standard_normal(shape))


@pytest.mark.parametrize("centring", ["trace", "empirical"])
@pytest.mark.parametrize("task", ["seq2lab", "seq2seq"])
@pytest.mark.parametrize("n_tokens", [2, 3])
def test_agrees_with_autograd(n_tokens, task, centring):
    d, p = 8, 5
    problem = problem_of(n_tokens=n_tokens, beta=1.7, beta0=0.6, kappa=p / d, lam=0.3)
    risk, x, Y = risk_of(problem, d, task=task, centring=centring, block=7)
    W = draw(d, p).requires_grad_()
    S = W @ W.T / (p * d) ** 0.5
    expected = plain_losses(x, Y, S, problem.beta, task, centring).sum() + problem.lam * (W**2).sum()
    (expected_gradient,) = torch.autograd.grad(expected, W)
    value, gradient = value_and_gradient(risk, W.detach().reshape(1, -1))
    torch.testing.assert_close(value[0], expected.detach(), **ROUNDING)
    torch.testing.assert_close(gradient.reshape(d, p), expected_gradient, **ROUNDING)


@pytest.mark.parametrize("centring", ["trace", "empirical"])
def test_identity_fields_are_quadratic_and_blocks_do_not_matter(centring):
    d = 8
    problem = problem_of(n_tokens=3)
    risk, _, _ = risk_of(problem, d, centring=centring)
    blocks, _, _ = risk_of(problem, d, centring=centring, block=5)
    Q, D = draw(1, d * d, seed=1), draw(1, d * d, seed=2)
    h1, h2 = risk.steps(Q, D)
    for t in (-0.7, 2.0):
        torch.testing.assert_close(risk.fields(Q + t * D), risk.fields(Q) + t * h1 + t**2 * h2, **ROUNDING)
    g = draw(*risk.fields(Q).shape, seed=3)
    torch.testing.assert_close(blocks.fields(Q), risk.fields(Q), **ROUNDING)
    torch.testing.assert_close(blocks.adjoint(g, Q), risk.adjoint(g, Q), **ROUNDING)


@pytest.mark.parametrize("centring", ["trace", "empirical"])
@pytest.mark.parametrize("n_tokens", [2, 4])
def test_identity_adjoint_is_the_transpose(n_tokens, centring):
    measurement = TokenMeasurement(draw(2, 11, n_tokens, 6), centring=centring, block=4)
    S = draw(2, 6, 6, seed=1)
    S = S + S.mT
    z = measurement.measure(S)
    g = draw(*z.shape, seed=2)
    in_S = measurement.adjoint(g)
    assert z.shape == (2, 11, len(pairs(n_tokens)[0]))
    torch.testing.assert_close((g * z).sum((1, 2)), (in_S * S).sum((1, 2)), **ROUNDING)
    torch.testing.assert_close(in_S, in_S.mT, rtol=0, atol=0)


def test_agrees_with_labels_written_out():
    problem, d = problem_of(n_tokens=3, beta0=1.4), 10
    S0 = draw_matrix(problem, d, seed=3)
    x, Y = labelled_tokens(problem, S0, n=6, seed=3, noisy=False)
    torch.testing.assert_close(Y, plain_attention(x, torch.as_tensor(S0), 1.4), **ROUNDING)


def test_identity_noise_is_symmetric_with_twice_the_variance_on_the_diagonal():
    problem, n = problem_of(Delta=0.3, beta0=1.4), 20_000
    S0 = draw_matrix(problem, 10, seed=0)
    x, noisy = labelled_tokens(problem, S0, n=n, seed=0)
    same, clean = labelled_tokens(problem, S0, n=n, seed=0, noisy=False)
    assert torch.equal(x, same)
    logs = (noisy.log() - clean.log()) / 1.4
    differences = torch.stack([logs[:, 0, 0] - logs[:, 0, 1], logs[:, 1, 1] - logs[:, 1, 0]])  # xi_aa - xi_ab
    expected = torch.tensor([[0.45, 0.15], [0.15, 0.45]], dtype=torch.float64)
    # standard error of a variance: sqrt(2/n) relative; 4.5 of them
    torch.testing.assert_close(torch.cov(differences), expected, rtol=0, atol=0.45 * 4.5 * (2 / n) ** 0.5)


def test_identity_a_seed_fixes_the_data_and_a_larger_set_only_grows():
    S0 = draw_matrix(PROBLEM, 10, seed=4)
    few, many = (labelled_tokens(PROBLEM, S0, n=n, seed=4) for n in (20, 50))
    single = labelled_tokens(PROBLEM, S0, n=20, seed=4, dtype=torch.float32)
    fresh = labelled_tokens(PROBLEM, S0, n=20, seed=4, stream="test")
    for a, b, c in zip(few, many, single, strict=True):
        torch.testing.assert_close(a, b[:20], **ROUNDING)
        torch.testing.assert_close(c, a.float(), rtol=1e-6, atol=1e-6)
    assert not torch.equal(few.x, fresh.x)
    assert not np.array_equal(draw_start(10, 7, 4, 0), draw_start(10, 7, 4, 1))


def test_closed_form_targets():
    power, finite = PowerLaw(gamma=1.0, d=30), FiniteRank(eigenvalues=[4.0, 1.0, 1.0], d=15)
    for target, repeated in ((power, power.spectrum), (finite, np.repeat(finite.spectrum, 2))):
        eigenvalues = np.linalg.eigvalsh(draw_matrix(problem_of(target=target), 30, seed=0))
        np.testing.assert_allclose(eigenvalues, repeated[::-1], **ROUNDING)
    d, law = 200, MarchenkoPastur(kappa0=0.3)
    eigenvalues = np.linalg.eigvalsh(draw_matrix(problem_of(target=law), d, seed=0))
    assert (eigenvalues > 1e-10).sum() == 60
    # sums of d eigenvalues of a Wishart matrix fluctuate by order 1
    np.testing.assert_allclose([eigenvalues.mean(), (eigenvalues**2).mean()], [law.mean, 1.3], rtol=0, atol=10 / d)


@pytest.mark.parametrize(("task", "centring"), [("seq2lab", "trace"), ("seq2seq", "empirical")])
def test_identity_minimum(task, centring):
    """The numbers reported are those of W, which solves the penalised problem over positive matrices S."""
    d, problem = 30, problem_of(lam=0.02)
    e = train_single_head(problem, d=d, seeds=[2], task=task, centring=centring, tolerance=1e-6)
    assert e.converged.all()
    risk, x, Y = risk_of(problem, d, seed=2, task=task, centring=centring)
    S = torch.as_tensor(learned_matrix(e)[0])
    losses = plain_losses(x, Y, S, problem.beta, task, centring)
    np.testing.assert_allclose(e.train_loss[0], losses.sum().item() / d**2, **ROUNDING)
    np.testing.assert_allclose(e.penalty[0], problem.lam * (e.W[0] ** 2).sum() / d**2, **ROUNDING)
    np.testing.assert_allclose(e.penalty[0], problem.nuclear_penalty * e.eigenvalues[0].mean(), **ROUNDING)
    # stationary in the scale of W: the penalty is what the fields lose
    z = risk.measurement.measure(S[None])
    _, g = risk.data_loss.value_and_gradient(z)
    np.testing.assert_allclose(-(g * z).sum().item() / d**2, e.penalty[0], rtol=1e-6, atol=0)  # the tolerance
    # no direction of S lowers the risk: gradient + multiplier of the trace is positive, and 0 where S is not
    multiplier = problem.lam * (e.settings.p * d) ** 0.5
    slope = risk.measurement.adjoint(g)[0] / multiplier + torch.eye(d, dtype=torch.float64)
    assert torch.linalg.eigvalsh(slope).min() > -1e-4
    torch.testing.assert_close(slope @ S, torch.zeros_like(S), rtol=0, atol=1e-4)


@pytest.mark.parametrize(
    ("task", "centring", "noisy"),
    [("seq2lab", "trace", True), ("seq2seq", "empirical", True), ("seq2lab", "trace", False)],
)
def test_agrees_with_measurements_written_out(task, centring, noisy):
    d, n_test = 12, 300
    problem = problem_of(beta=1.5, n_tokens=3)
    settings = {"task": task, "centring": centring, "noisy_test": noisy}
    e = train_single_head(problem, d=d, seeds=[5], n_test=n_test, rank_threshold=0.2, **settings)
    S0, S = draw_matrix(problem, d, 5), learned_matrix(e)[0]
    train = labelled_tokens(problem, S0, n=e.settings.n, seed=5)
    x, Y = labelled_tokens(problem, S0, n=n_test, seed=5, stream="test", noisy=noisy)
    errors = plain_losses(x, Y, torch.as_tensor(S), 1.5, task, centring, reference=train.x).numpy()
    values = np.linalg.eigvalsh(S)
    measured = {
        "test_error": errors.mean(),
        "test_error_se": errors.std(ddof=1) / n_test**0.5,
        "m": np.trace(S @ S0) / d,
        "q": np.trace(S @ S) / d,
        "rank": np.mean(values > 0.2),
        "eigenvalues": values,
        "S0": S0,
    }
    for name, expected in measured.items():
        np.testing.assert_allclose(getattr(e, name)[0], expected, err_msg=name, **ROUNDING)


def test_agrees_with_adam_and_other_starts():
    d = 30
    reference = train_single_head(PROBLEM, d=d, seeds=[0], tolerance=1e-5)
    for options in ({"start": 1}, {"scale": 0.1}, {"scale": 3.0}, {"optimiser": "adam"}):
        other = train_single_head(PROBLEM, d=d, seeds=[0], tolerance=1e-5, **options)
        # losses differ by the square of the tolerance over the smallest curvature, matrices by its first power
        np.testing.assert_allclose(
            other.train_loss + other.penalty, reference.train_loss + reference.penalty, rtol=1e-6, atol=0
        )
        np.testing.assert_allclose(learned_matrix(other), learned_matrix(reference), rtol=0, atol=1e-3)
        np.testing.assert_array_equal(other.rank, reference.rank)


@pytest.mark.parametrize("d", [20, 40])
def test_agrees_with_the_other_task_up_to_finite_size(d):
    a, b = (train_single_head(PROBLEM, d=d, seeds=range(3), task=task) for task in ("seq2lab", "seq2seq"))
    # Gram matrices are the identity up to 1/sqrt(d), which enters averages squared
    for name in ("train_loss", "penalty", "test_error", "m", "q"):
        np.testing.assert_allclose(getattr(a, name).mean(), getattr(b, name).mean(), rtol=6 / d, atol=0, err_msg=name)


def test_agrees_with_single_precision():
    a, b = (train_single_head(PROBLEM, d=40, seeds=[0], dtype=dtype) for dtype in ("float64", "float32"))
    assert b.converged.all()
    # rounding of the data, 1e-7 each, and of sums; matrices differ by the tolerance besides
    np.testing.assert_allclose(a.train_loss + a.penalty, b.train_loss + b.penalty, rtol=1e-5, atol=0)
    np.testing.assert_allclose(a.eigenvalues, b.eigenvalues, rtol=0, atol=1e-3)


def test_identity_seeds_may_share_a_batch(monkeypatch):
    alone = train_single_head(PROBLEM, d=20, seeds=[3, 8], centring="empirical")
    monkeypatch.setattr(single_head, "batches", lambda seeds, *_: [seeds])
    together = train_single_head(PROBLEM, d=20, seeds=[3, 8], centring="empirical")
    for name in ("train_loss", "penalty", "test_error", "m", "q"):
        # rounding differs between batched products, and the path ends elsewhere within the tolerance
        np.testing.assert_allclose(getattr(alone, name), getattr(together, name), rtol=1e-5, atol=0, err_msg=name)


KILLED = """
import sys
from attn_lib.problems import MarchenkoPastur, SingleHead
from attn_lib.simulation.erm import train_single_head
problem = SingleHead(alpha=0.5, lam=0.01, Delta=0.5, kappa=1.0, target=MarchenkoPastur(kappa0=0.5))
train_single_head(problem, d=30, seeds=range(100_000), n_test=50, device="cpu", checkpoint=sys.argv[1])
"""


def test_identity_a_killed_training_goes_on_where_it_stopped(tmp_path, monkeypatch):
    path = tmp_path / "runs.npz"
    process = subprocess.Popen([sys.executable, "-c", KILLED, str(path)])
    deadline = time.monotonic() + 60
    while not path.exists() and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.01)
    os.kill(process.pid, signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL
    trained = []
    monkeypatch.setattr(single_head, "_train", lambda *a, train=single_head._train: trained.extend(a[2]) or train(*a))
    settings = {"d": 30, "n_test": 50, "device": "cpu"}
    resumed = train_single_head(PROBLEM, seeds=[100_000, 0], checkpoint=path, **settings)
    assert trained == [100_000]  # seed 0 was finished before, and is not trained again
    expected = train_single_head(PROBLEM, seeds=[100_000, 0], **settings)
    for name in ("train_loss", "test_error", "eigenvalues", "W", "rank", "converged"):
        np.testing.assert_allclose(getattr(resumed, name), getattr(expected, name), rtol=1e-6, atol=1e-6, err_msg=name)
    with pytest.raises(ValueError, match=r"checkpoint = .*: must hold runs at lam = 0.02, but does at 0.01"):
        train_single_head(problem_of(lam=0.02), seeds=[0], checkpoint=path, **settings)
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(ValueError, match="checkpoint = .*: must be a file that a training wrote"):
        train_single_head(PROBLEM, seeds=[0], checkpoint=path, **settings)


PEAK = """
import re
from attn_lib.problems import MarchenkoPastur, SingleHead
from attn_lib.simulation import single_head
def peak():
    return 1024 * int(re.search(r"VmHWM:\\s+(\\d+) kB", open("/proc/self/status").read())[1])
def train(d, n, **options):
    problem = SingleHead(alpha=n / d**2, lam=0.01, Delta=0.5, kappa=1.0, target=MarchenkoPastur(kappa0=0.5))
    single_head.train_single_head(problem, d=d, seeds=[0], max_iter=3, device="cpu", **options)
    return single_head.single_head_bytes(problem, d=d, n=n, p=d, **options)
train(10, 100, n_test=10)
before = peak()
needed = train(60, 200_000, n_test=10)
print(needed, peak() - before, 8 * 200_000 * 2 * 60)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_identity_memory_stays_below_what_is_announced():
    output = subprocess.run([sys.executable, "-c", PEAK], capture_output=True, text=True, check=True).stdout
    needed, used, tokens = map(int, output.split())
    assert tokens < used < needed < 4 * tokens


def test_rejects_data_beyond_the_memory_before_drawing(monkeypatch):
    monkeypatch.setattr(single_head, "draw_matrix", lambda *_: pytest.fail("something was drawn"))
    message = r"alpha = 1000000.0: must be smaller, .* n = 1000000000000 samples .* need \S+ bytes, and \S+ are free"
    with pytest.raises(ValueError, match=message):
        train_single_head(problem_of(alpha=1e6), d=1000, seeds=[0], device="cpu")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("d", 1),
        ("d", 20.0),
        ("seeds", []),
        ("seeds", [1, 1]),
        ("seeds", 3),
        ("task", "seq2"),
        ("centring", None),
        ("optimiser", "sgd"),
        ("optimiser", ["adam"]),
        ("start", -1),
        ("scale", 0.0),
        ("learning_rate", np.inf),
        ("n_test", 1),
        ("noisy_test", "no"),
        ("tolerance", -1e-4),
        ("max_iter", 0),
        ("rank_threshold", -0.1),
        ("device", "tpu"),
        ("dtype", "float16"),
    ],
)
def test_rejects_bad_settings(name, value):
    with pytest.raises(ValueError, match=f"^{name} = .*: must be "):
        train_single_head(PROBLEM, **{"d": 20, "seeds": [0], name: value})


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("alpha", {"alpha": 1e-4}),
        ("kappa", {"kappa": 0.01}),
        ("kappa0", {"target": MarchenkoPastur(kappa0=0.01)}),
        ("d", {"target": PowerLaw(gamma=1.0, d=15)}),
    ],
)
def test_rejects_problems_that_do_not_fit_the_size(name, changes):
    with pytest.raises(ValueError, match=f"^{name} = .*: must be "):
        train_single_head(problem_of(**changes), d=20, seeds=[0])


def test_rejects_a_start_that_overflows():
    with pytest.raises(ValueError, match="scale = 1e[+]200: must be small enough for a finite loss"):
        train_single_head(PROBLEM, d=10, seeds=[0], scale=1e200)
