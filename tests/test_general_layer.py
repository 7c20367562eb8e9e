"""State evolution of the general layer against the special solver, finite differences, identities and simulation."""

from dataclasses import replace

import numpy as np
import pytest

from attn_lib import proximal
from attn_lib.fixed_point import ConvergenceError, anderson
from attn_lib.problems import GeneralAttention, PositionalSemantic
from attn_lib.simulation.general import train_general
from attn_lib.theory import general_iteration as gi
from attn_lib.theory import general_layer as gl
from attn_lib.theory import general_prox as gp
from attn_lib.theory import positional_semantic as ps
from attn_lib.theory.general_ansatz import STARTS, Ansatz
from attn_lib.theory.general_cavity import Nodes

A2 = ((0.6, 0.4), (0.4, 0.6))
OTHER_A = ((0.3, 0.7), (0.8, 0.2))
A3 = ((0.5, 0.3, 0.2), (0.1, 0.7, 0.2), (0.25, 0.25, 0.5))
THREE = GeneralAttention(
    alpha=1.5,
    omega=0.3,
    A=A3,
    rank=2,
    teacher_rank=2,
    spectrum_weights=(0.3, 0.7),
    spectrum_values=((0.5, 0.2), (0.3, 0.3), (0.1, 0.4)),
)
# 6 scramblings estimate their own error: Student's t with 5 degrees of freedom leaves 6 errors at 0.2 %
ERRORS = 6


def random_fields(shape, n_nodes, seed=0):
    return np.random.default_rng(seed).normal(size=(*shape, n_nodes))


def random_overlaps(problem, seed=0):
    """Overlaps of a random Q, and positive definite responses."""
    rng = np.random.default_rng(seed)
    L, r, t = problem.n_tokens, problem.rank, problem.teacher_rank
    root = rng.normal(size=(L, r, r + t + 2)) / 4
    tau = np.array(problem.token_variances)[:, None, None]
    theta = np.sqrt(tau) * root[..., :t]
    square = root @ root.transpose(0, 2, 1)
    return gl.Overlaps(q=square, m=rng.normal(size=(L, r)) / 4, theta=theta, V=8 * np.eye(r) + square)


def test_agrees_with_finite_differences_of_the_loss():
    tau = np.array(THREE.token_variances)
    z, T = random_fields((3, 2), 5), gp.attention(random_fields((3, 1), 5, seed=1))
    gradient, hessian = gp.loss_derivatives(z, T, tau)
    for index in np.ndindex(3, 2):
        shift = np.zeros((3, 2, 1))
        shift[index] = 1e-5
        up, down = (gp.loss(z + sign * shift, T, tau) for sign in (1, -1))
        # second-order differences: truncation 1e-10, rounding 1e-11
        np.testing.assert_allclose(gradient[index], (up - down) / 2e-5, rtol=0, atol=1e-9)
        up, down = (gp.loss_derivatives(z + sign * shift, T, tau)[0] for sign in (1, -1))
        np.testing.assert_allclose(hessian[index], (up - down) / 2e-5, rtol=0, atol=1e-9)


def test_agrees_with_the_two_token_prox():
    V, sigma, rotate = 12.0, 0.5, np.array([[1, -1], [1, 1]]) / np.sqrt(2)
    w, star = 0.4 * random_fields((2, 1), 500), random_fields((2, 1), 500, seed=1)
    T = gp.attention(star)
    starts = random_fields((7, 2, 1), 500, seed=2)
    z, value = gp.wells(starts, w, T, np.ones((2, 1, 1)) / V, np.full(2, sigma**2), keep=2)
    u, v, best = proximal.prox(*(rotate @ w[:, 0]), T[0, 0], T[1, 1], V, sigma)
    np.testing.assert_allclose(value, best, rtol=1e-9, atol=1e-12)
    clear = gp.moreau_objective(z[1], w, T, np.ones((2, 1, 1)) / V, np.full(2, sigma**2)) > value + 1e-6
    np.testing.assert_allclose((rotate @ z[0, :, 0])[:, clear], np.array([u, v])[:, clear], rtol=0, atol=1e-7)


def test_identity_no_deeper_well_is_left():
    """Starts that the solver does not use: where they find deeper wells, the average must not care."""
    nodes, overlaps = Nodes(THREE, 256, seed=0), random_overlaps(THREE)
    few = nodes.averages(overlaps)
    starts = random_fields((40, *nodes.zeta.shape[:2]), nodes.zeta.shape[-1], seed=1)
    w = nodes.found[0]
    nodes.found = np.concatenate([nodes.found, starts])
    many = nodes.averages(overlaps)
    assert nodes.found[0].shape == w.shape
    assert 0 <= few.moreau - many.moreau + 1e-12
    # half a percent of the nodes may sit in a wrong well of nearly the same depth
    np.testing.assert_allclose(few.moreau, many.moreau, rtol=1e-4)


@pytest.mark.parametrize(
    ("problem", "start"),
    [
        (PositionalSemantic(alpha=2.0, omega=0.3), "semantic"),
        (PositionalSemantic(alpha=1.2, omega=0.6), "positional"),
        (PositionalSemantic(alpha=1.6, omega=0.2, sigma=0.6, A=OTHER_A), "semantic"),
    ],
)
def test_agrees_with_the_special_solver(problem, start):
    special = ps.solve(problem, start)
    general = gl.solve(GeneralAttention.of_two_tokens(problem), start, n_points=2**10)
    error = general.standard_error
    sign = np.array([[1.0], [-1.0]]) if start == "positional" else 1.0
    measured = {**general.overlaps._asdict(), "m": sign * general.overlaps.m}
    measured |= {name: getattr(general, name) for name in ("train_loss", "test_error", "moreau")}
    exact = {**special.overlaps._asdict(), "moreau": special.moreau}
    exact |= {name: getattr(special, name) for name in ("train_loss", "test_error")}
    for name, value in exact.items():
        # the last term is the error that the special solver grants itself
        assert np.all(np.abs(measured[name] - value) <= ERRORS * error[name] + 1e-4 * abs(value)), name
        assert np.all(error[name] <= 0.01 * abs(value)), name


def test_identity_the_loss_is_stationary_in_the_hats():
    hats = Ansatz(THREE, "mixed").hats()
    rng = np.random.default_rng(0)
    hats = gl.Hats(*(h + 0.01 * rng.normal(size=h.shape) for h in hats))
    symmetric = lambda x: (x + x.transpose(0, 2, 1)) / 2  # noqa: E731
    hats = hats._replace(q_hat=symmetric(hats.q_hat), V_hat=symmetric(hats.V_hat))
    overlaps = gi.updated(THREE, hats)
    for name in hats._fields:
        shift = rng.normal(size=getattr(hats, name).shape)
        shift = symmetric(shift) if name in ("q_hat", "V_hat") else shift
        up, down = (
            gi.train_loss(THREE, overlaps, hats._replace(**{name: getattr(hats, name) + s * 1e-5 * shift}), 0.0)
            for s in (1, -1)
        )
        partner = getattr(overlaps, {"q_hat": "V", "V_hat": "q"}.get(name, name.removesuffix("_hat")))
        single = abs(np.sum(partner * shift))  # the slope of one of the terms that cancel
        # truncation: the square of 1e-5 over D, which is 0.02 or more
        assert abs(up - down) / 2e-5 < 1e-6 * single, name


def test_identity_rotation_of_the_columns():
    """Rotated overlaps have rotated averages, if the noise is rotated with them."""
    c, s = np.cos(0.7), np.sin(0.7)
    R = np.array([[c, -s], [s, c]])
    overlaps, nodes = random_overlaps(THREE), Nodes(THREE, 128, seed=0)
    straight = nodes.averages(overlaps)
    turned = gl.Overlaps(R.T @ overlaps.q @ R, overlaps.m @ R, R.T @ overlaps.theta, R.T @ overlaps.V @ R)
    nodes.zeta = np.einsum("ji,ljn->lin", R, nodes.zeta)
    nodes.found = np.einsum("ji,kljn->klin", R, nodes.found)
    rotated = nodes.averages(turned)
    # the descent stops at 1e-9 in the fields
    close = {"rtol": 1e-6, "atol": 1e-9}
    np.testing.assert_allclose(rotated.g, straight.g @ R, **close)
    np.testing.assert_allclose(rotated.g_g, R.T @ straight.g_g @ R, **close)
    np.testing.assert_allclose(rotated.g_teacher, R.T @ straight.g_teacher, **close)
    np.testing.assert_allclose(rotated.response, R.T @ straight.response @ R, **close)


def test_identity_loss_is_the_sum_of_its_parts_and_its_slope_the_moreau_value():
    """Two covariances; neighbouring alphas on the same points, so that their noise cancels."""
    problem = replace(THREE, rank=1, teacher_rank=1)
    low, middle, high = (
        gl.solve(replace(problem, alpha=alpha), n_points=2**9, n_replicates=2) for alpha in (1.45, 1.5, 1.55)
    )
    # off the fixed point by the residual, the parts are so by as much
    np.testing.assert_allclose(middle.train_loss, 1.5 * middle.loss_at_prox + middle.penalty, rtol=middle.residual)
    # curvature of the loss over +-0.05, and its derivative in the noise of the points (about 1 % of a Moreau value)
    np.testing.assert_allclose((high.train_loss - low.train_loss) / 0.1, middle.moreau, rtol=0.02)


def test_identity_permutation_of_the_tokens():
    order = [2, 0, 1]
    A = np.array(A3)[np.ix_(order, order)]
    straight = replace(THREE, rank=1, teacher_rank=1)
    permuted = replace(straight, A=A, spectrum_values=tuple(straight.spectrum_values[i] for i in order))
    a, b = (gl.solve(problem, n_points=2**9, seed=seed) for seed, problem in enumerate((straight, permuted)))
    for name in ("q", "theta", "V"):
        difference = getattr(a.overlaps, name)[order] - getattr(b.overlaps, name)
        error = np.hypot(a.standard_error[name][order], b.standard_error[name])
        assert np.all(np.abs(difference) < ERRORS * error), name


def test_agrees_with_rank_one_beside_a_column_that_is_zero():
    """While the response of the empty column is small its fields stay at zero and the other one does not feel it."""
    problem = PositionalSemantic(alpha=2.0, omega=0.3)
    solution = ps.solve(problem, "semantic")
    q, _, theta, V = solution.overlaps
    layer = replace(GeneralAttention.of_two_tokens(problem), rank=2)
    overlaps = gl.Overlaps(
        q=np.tile(np.diag([q, 1e-12]), (2, 1, 1)),
        m=np.zeros((2, 2)),
        theta=np.tile([[theta], [0.0]], (2, 1, 1)),
        V=np.tile(np.diag([V, 0.5]), (2, 1, 1)),
    )
    runs = [Nodes(layer, 2**10, seed).averages(overlaps) for seed in range(6)]
    V_hat = np.array([gi.conjugates(layer, overlaps, a).V_hat[:, 0, 0].sum() for a in runs])
    assert abs(V_hat.mean() - solution.hats.V_hat) < ERRORS * V_hat.std(ddof=1) / np.sqrt(6)
    assert max(np.abs(a.g_g[:, 1, 1]).max() for a in runs) < 1e-9


def test_identity_a_second_column_does_not_stay_empty():
    """At this ridge an empty column responds so strongly that noise alone fills it."""
    layer = GeneralAttention(alpha=2.0, omega=0.3, A=A2, rank=2)
    solution = gl.solve(layer, "semantic", n_points=2**9, n_replicates=3)
    assert np.all(solution.overlaps.q[:, 1, 1] > 20 * solution.standard_error["q"][:, 1, 1])
    assert np.all(solution.overlaps.q[:, 1, 1] > 0.01)


def test_theory_matches_simulation_of_a_mixed_rank_two_student():
    layer = GeneralAttention(alpha=3.0, omega=0.3, A=A2, rank=2)
    theory = gl.solve(layer, "mixed", n_points=2**10, n_replicates=4)
    q, m, theta, _ = theory.overlaps
    for d in (100, 200):
        e = train_general(layer, d=d, seeds=range(5), start="mixed", scales=(0.25,), device="cpu")
        pairs = {
            "train_loss": (e.train_loss, theory.train_loss),
            "test_error": (e.test_error, theory.test_error),
            "q": (np.trace(e.q[:, 0], axis1=1, axis2=2), np.trace(q[0])),
            "m": (np.linalg.norm(e.m[:, 0], axis=1), np.linalg.norm(m[0])),
            "theta": (np.linalg.norm(e.theta[:, 0, :, 0], axis=1), np.linalg.norm(theta[0])),
        }
        for name, (samples, value) in pairs.items():
            # finite d, fixed beforehand: a fraction 20 / d (the value side alone adds 1-3 % to the error at d = 1000)
            allowed = 4 * samples.std(ddof=1) / np.sqrt(samples.size) + 20 / d * value
            assert abs(samples.mean() - value) < allowed, (d, name)


def test_theory_matches_simulation_of_three_tokens_with_the_value_side():
    """The correction is a tenth of both numbers here; what is left is allowed 3 %."""
    layer = GeneralAttention(alpha=1.5, omega=0.3, A=A3, rank=1)
    theory = gl.solve(layer, n_points=2**9, n_replicates=3)
    shift = gl.value_side(layer, theory.overlaps, n_points=2**9)
    d = 300
    e = train_general(layer, d=d, seeds=range(6), scales=(0.25,), device="cpu")
    for name in ("train_loss", "test_error"):
        samples, value = getattr(e, name), getattr(theory, name) + getattr(shift, name) / d
        assert abs(samples.mean() - value) < 4 * samples.std(ddof=1) / np.sqrt(6) + 0.03 * value, name


def test_closed_form_value_side_without_attention():
    """At Q = 0 attention is uniform, so that S p is the mean position, which vanishes for the simplex."""
    layer = GeneralAttention(alpha=1.5, omega=0.3, A=A3)
    tiny = gl.Overlaps(1e-12 * np.ones((3, 1, 1)), np.zeros((3, 1)), np.zeros((3, 1, 1)), 1e-9 * np.ones((3, 1, 1)))
    np.testing.assert_allclose(gl.value_side(layer, tiny, n_points=64), 0, rtol=0, atol=1e-12)
    P = np.eye(3) + 0.5
    # uniform rows: Tr S P S^T = 3 times the mean entry of P
    shift = gl.value_side(replace(layer, positions=P), tiny, n_points=64)
    np.testing.assert_allclose(shift, (1.5 * 3 * P.mean() / 2, 3 * P.mean() / 2), rtol=1e-6)


def test_rejects_bad_arguments_of_the_solver():
    layer = GeneralAttention(alpha=2.0, omega=0.3, A=A2)
    with pytest.raises(ValueError, match="start = 'random': must be one of"):
        gl.solve(layer, "random")
    with pytest.raises(ValueError, match="rank = 1: must be >= 2"):
        gl.solve(layer, "mixed")
    with pytest.raises(ValueError, match="positions = .*: must not all be 0"):
        gl.solve(replace(layer, positions=np.zeros((2, 2))), "positional")
    for n_points, allowed in ((0, "an integer in"), (32, "an integer in"), (1000, "a power of 2")):
        with pytest.raises(ValueError, match=f"n_points = {n_points}: must be {allowed}"):
            gl.solve(layer, n_points=n_points)
    with pytest.raises(ValueError, match="n_replicates = 1: must be an integer in"):
        gl.solve(layer, n_replicates=1)


def test_rejects_overlaps_that_no_weights_have():
    layer = GeneralAttention(alpha=2.0, omega=0.3, A=A2)
    one = np.ones((2, 1, 1))
    nodes = Nodes(layer, 64, seed=0)
    with pytest.raises(FloatingPointError, match="smallest eigenvalue"):
        nodes.averages(gl.Overlaps(0.1 * one, np.zeros((2, 1)), 0.2 * one, 10 * one))
    with pytest.raises(FloatingPointError, match="V: smallest eigenvalue"):
        nodes.averages(gl.Overlaps(0.1 * one, np.zeros((2, 1)), 0.1 * one, -one))
    with pytest.raises(FloatingPointError, match="must be positive definite"):
        gi.updated(layer, gl.Hats(one, np.zeros((2, 1)), one, -one))


def test_rejects_a_search_that_has_not_converged(monkeypatch):
    monkeypatch.setattr(gi, "anderson", lambda *args, **kw: anderson(*args, **{**kw, "max_iter": 2}))
    with pytest.raises(ConvergenceError, match="no fixed point after 2") as failure:
        gl.solve(GeneralAttention(alpha=2.0, omega=0.3, A=A2), n_points=64)
    assert isinstance(failure.value.partial, gl.Hats)


@pytest.mark.parametrize("start", STARTS)
def test_identity_packing_loses_nothing(start):
    ansatz = Ansatz(THREE, start)
    hats = ansatz.hats()
    vector, kind = ansatz.to_vector(hats)
    assert vector.shape == kind.shape
    for before, after in zip(hats, ansatz.to_hats(vector), strict=True):
        np.testing.assert_allclose(after, before, rtol=1e-14, atol=0)
