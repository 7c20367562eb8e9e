"""Replicon and one step of replica-symmetry breaking against closed forms, direct averages and the potential."""

import numpy as np
import pytest

from attn_lib.fixed_point import ConvergenceError
from attn_lib.problems import PositionalSemantic
from attn_lib.proximal import attention_diagonal, prox
from attn_lib.theory import positional_semantic as ps
from attn_lib.theory import replica_breaking as rb
from attn_lib.theory.nested_cavity import shared_nodes
from attn_lib.theory.replicon import _smooth, distance_map, replicon

CASES = {
    "semantic": PositionalSemantic(alpha=0.65, omega=0.0),
    "positional": PositionalSemantic(alpha=0.65, omega=0.0),
}


@pytest.fixture(scope="module")
def symmetric():
    return {start: ps.solve(problem, start, accuracy=1e-3) for start, problem in CASES.items()}


def sample(problem, overlaps, n, seed, distance=0.0):
    """Target diagonals and two cavity fields, (2, n) each, drawn plainly."""
    rng, rho, (q, m, theta, _) = np.random.default_rng(seed), problem.rho, overlaps
    star = np.sqrt(rho) * rng.standard_normal((2, n))
    common = theta / rho * star + np.sqrt(q - distance - theta**2 / rho) * rng.standard_normal((2, n))
    common[0] += np.sqrt(2) * m
    S = np.array(attention_diagonal(*star))
    T = (1 - problem.omega) * S + problem.omega * np.diag(problem.A)[:, None]
    return T, *(common + np.sqrt(distance) * rng.standard_normal((2, n)) for _ in range(2))


def force(problem, T, w, V):
    return (np.array(prox(*w, *T, V, problem.sigma)[:2]) - w) / V


@pytest.mark.parametrize("start", CASES)
def test_agrees_with_two_sampled_replicas(symmetric, start):
    """The distance map against prox of two correlated fields drawn at random."""
    s, distance = symmetric[start], 0.004
    problem, V = s.problem, s.overlaps.V
    T, *fields = sample(problem, s.overlaps, 30_000, 0, distance)
    a, b = (force(problem, T, w, V) for w in fields)
    direct = problem.alpha * V**2 / 2 * ((a - b) ** 2).sum(axis=0)
    values = [distance_map(s, distance, seed=seed) for seed in range(4)]
    error = np.hypot(direct.std() / np.sqrt(direct.size), np.std(values, ddof=1) / 2)
    assert abs(np.mean(values) - direct.mean()) < 4.5 * error  # the error is itself uncertain by 20 %


@pytest.mark.parametrize("start", CASES)
def test_agrees_with_the_expansion_at_small_distance(symmetric, start):
    """R Delta + J sqrt(Delta) and the map agree up to what jumping pairs add at order Delta."""
    s = symmetric[start]
    r = replicon(s)
    for distance in (1e-5, 1e-4):
        values = [distance_map(s, distance, seed=seed, log2_points=12) for seed in range(4)]
        expansion = r.smooth * distance + r.jump * np.sqrt(distance)
        next_order = 3 * expansion * np.sqrt(distance / s.overlaps.q)
        assert abs(np.mean(values) - expansion) < 5 * np.std(values, ddof=1) / 2 + next_order


def test_agrees_with_jumps_counted_in_a_sample(symmetric):
    """J from pairs of fields so close that only a jump can separate their forces."""
    s = symmetric["positional"]
    problem, V, distance = s.problem, s.overlaps.V, 1e-5
    T, *fields = sample(problem, s.overlaps, 100_000, 1, distance)
    a, b = (force(problem, T, w, V) for w in fields)
    square = ((a - b) ** 2).sum(axis=0)
    jumped = V**2 * square > 0.01  # of fields that differ by 0.004; smaller jumps carry next to nothing
    J = problem.alpha * V**2 / 2 * np.where(jumped, square, 0) / np.sqrt(distance)
    assert jumped.sum() > 100  # enough for a fair standard error
    assert abs(replicon(s).jump - J.mean()) < 4 * J.std() / np.sqrt(J.size)


def test_closed_form_replicon_without_jumps():
    """Strong ridge: z = w - V grad l(w), and R = alpha V^2 E|H|^2 with the Hessian H of the loss at w = 0."""
    problem = PositionalSemantic(alpha=1.0, omega=0.3, lam=50.0)
    V = problem.rho / problem.lam
    overlaps = ps.Overlaps(1e-8, 0.0, 0.0, V)
    star = np.sqrt(problem.rho) * shared_nodes(12, 3)[:2]
    T = 0.7 * np.array(attention_diagonal(*star)) + 0.3 * 0.6
    # at z = 0: S = 1/2, l = sigma^2 sum (x_l / 4 + 1/2 - T_l)^2 with x = u^2 +- u v; second order in (u, v)
    c = problem.sigma**2 / 2 * (0.5 - T)
    H_uu, H_uv = 2 * (c[0] + c[1]), c[0] - c[1]
    expected = problem.alpha * V**2 * (H_uu**2 + 2 * H_uv**2).mean()
    got = _smooth(problem, overlaps, shared_nodes(12, 3))
    np.testing.assert_allclose(got, expected, rtol=5e-3)  # next order: V |H| = 2e-3


@pytest.mark.parametrize("start", CASES)
def test_identity_at_y_0_the_loss_is_replica_symmetric(symmetric, start):
    s = symmetric[start]
    broken = rb.solve_broken(s, 0.0, log2_points=10)
    q, m, theta, V = s.overlaps
    o = broken.overlaps
    # the symmetric fixed point is known to 1e-7, the broken one to 1e-5 in the logarithms
    np.testing.assert_allclose((o.q1, o.m, o.theta, o.V), (q, m, theta, V), rtol=1e-4, atol=0)
    np.testing.assert_allclose(broken.train_loss, s.train_loss, rtol=1e-7)
    np.testing.assert_allclose(distance_map(s, o.q1 - o.q0, log2_points=10), o.q1 - o.q0, rtol=1e-4)


@pytest.fixture(scope="module")
def broken(symmetric):
    """Positional branch, three neighbouring y, three scramblings."""
    ys, s = (100.0, 150.0, 200.0), symmetric["positional"]
    runs = []
    for seed in range(3):
        runs.append([])
        for y in ys:
            guess = runs[-1][-1].overlaps if runs[-1] else None
            runs[-1].append(rb.solve_broken(s, y, guess=guess, log2_points=9, seed=seed))
    return runs


def test_identity_complexity_is_the_slope_in_y(broken):
    """Train loss at two y against Simpson's rule for complexity / y^2, within the spread of the scramblings.

    Three of them estimate their own error: Student's t with 2 degrees of freedom leaves 9 errors at 1 %.
    """
    excess = []
    for low, middle, high in broken:
        slopes = [b.complexity / b.y**2 for b in (low, middle, high)]
        excess.append(high.train_loss - low.train_loss - (slopes[0] + 4 * slopes[1] + slopes[2]) * 100 / 6)
    rise = np.mean([high.train_loss - low.train_loss for low, _, high in broken])  # Simpson's rule is good to 2 %
    assert rise > 0
    assert abs(np.mean(excess)) < 9 * np.std(excess, ddof=1) / np.sqrt(len(excess)) + 0.02 * rise


def test_identity_stationary_in_the_conjugates(broken):
    for b in (run[1] for run in broken):
        averages = {"free": 0.0, "entropy": 0.0}

        def potential(hats, b=b, averages=averages):
            return rb._potential(b.problem, b.overlaps, rb.BrokenHats(*hats), averages, b.y)[0]

        for i, value in enumerate(b.hats):
            kicked = [np.array(b.hats), np.array(b.hats)]
            if not value:
                continue
            step = 1e-4 * value
            kicked[0][i] += step
            kicked[1][i] -= step
            slope = (potential(kicked[0]) - potential(kicked[1])) / (2 * step)
            assert abs(slope * value) < 1e-4 * b.train_loss, b.hats._fields[i]  # fixed point to 1e-5


def test_identity_stationary_in_the_overlaps(symmetric, broken):
    """Derivatives of the potential, averages taken anew; the sum rule of the averages holds up to the random error."""
    rule, slopes = symmetric["positional"].rule, []
    for seed, b in enumerate(run[1] for run in broken):
        nodes = shared_nodes(9, seed)

        def potential(overlaps, b=b, nodes=nodes):
            o = rb.BrokenOverlaps(*overlaps)
            averages = rb._averages(b.problem, o, b.y, rule, nodes, 10)
            return rb._potential(b.problem, o, b.hats, averages, b.y)[0]

        slopes.append([])
        for name in ("q1", "q0", "m", "V"):
            step = 0.01 * getattr(b.overlaps, name)
            up, down = (b.overlaps._replace(**{name: getattr(b.overlaps, name) + s}) for s in (step, -step))
            slopes[-1].append((potential(up) - potential(down)) / 0.02 / b.train_loss)
    error = np.std(slopes, axis=0, ddof=1) / np.sqrt(len(slopes))
    assert (np.abs(np.mean(slopes, axis=0)) < 9 * error + 2e-3).all()  # differences of 1 % leave a curvature


def test_rejects(symmetric):
    s = symmetric["semantic"]
    for y in (-1.0, np.nan, np.inf):
        with pytest.raises(ValueError, match="y = .*: must be 0 or a number in"):
            rb.solve_broken(s, y)
    collapsed = ps.solve(PositionalSemantic(alpha=0.5, omega=0.3), "semantic", accuracy=1e-2)
    with pytest.raises(ValueError, match="semantic solution: must be one of a branch that has not collapsed"):
        rb.solve_broken(collapsed, 0.0)
    for distance in (0.0, 1.0):
        with pytest.raises(ValueError, match=r"distance = .*: must be in \["):
            distance_map(s, distance)


def test_rejects_a_distance_that_is_not_resolved():
    s = ps.solve(PositionalSemantic(alpha=1.5, omega=0.3), "semantic", accuracy=1e-2)
    with pytest.raises(ConvergenceError, match="is not resolved") as caught:
        rb.solve_broken(s, 0.0, log2_points=8)
    assert isinstance(caught.value.partial, rb.BrokenOverlaps)
