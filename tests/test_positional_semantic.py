"""State evolution of Part I against closed forms, an independent average, identities and published numbers."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import qmc

from attn_lib.fixed_point import ConvergenceError
from attn_lib.problems import PositionalSemantic
from attn_lib.proximal import attention_diagonal, loss, prox
from attn_lib.theory import iteration
from attn_lib.theory import positional_semantic as ps
from attn_lib.theory.cavity import Rule, cavity_averages

RULE = Rule(n_teacher=15, n_inner=19, step=0.68, radius=6.25)
OTHER_A = ((0.3, 0.7), (0.8, 0.2))


def sobol_averages(problem, overlaps, log2_points, seed):
    """The same averages by quasi-Monte Carlo with the prox solved globally at every point."""
    rho, (q, m, theta, V) = problem.rho, overlaps
    normal = qmc.MultivariateNormalQMC(np.zeros(4), seed=seed).random(2**log2_points)
    star, zeta = np.sqrt(rho) * normal[:, :2], normal[:, 2:]
    spread = np.sqrt(q - theta**2 / rho)
    w = theta / rho * star + spread * zeta + [np.sqrt(2) * m, 0.0]
    S = np.array(attention_diagonal(*star.T))
    T11, T22 = (1 - problem.omega) * S + problem.omega * np.diag(problem.A)[:, None]
    u, v, value = prox(*w.T, T11, T22, V, problem.sigma)
    g = (np.stack([u, v], axis=1) - w) / V
    return {
        "g_u": g[:, 0].mean(),
        "g_g": (g**2).sum(axis=1).mean(),
        "g_zeta": (g * zeta).sum(axis=1).mean(),
        "g_teacher": (g * star).sum(axis=1).mean(),
        "moreau": value.mean(),
        "loss_at_cavity": loss(*w.T, T11, T22, problem.sigma).mean(),
    }


@pytest.mark.parametrize(
    ("problem", "overlaps"),
    [
        (PositionalSemantic(alpha=2.0, omega=0.3), ps.Overlaps(0.115, 0.0, 0.158, 12.7)),
        (PositionalSemantic(alpha=0.8, omega=0.3), ps.Overlaps(0.0567, 0.0, 0.0593, 26.5)),
        (PositionalSemantic(alpha=1.0, omega=0.1, sigma=0.7), ps.Overlaps(0.08, 0.25, 0.0, 10.0)),
        (PositionalSemantic(alpha=1.0, omega=0.5, A=OTHER_A), ps.Overlaps(0.06, 0.2, 0.0, 15.0)),
        (PositionalSemantic(alpha=1.0, omega=0.5, A=OTHER_A), ps.Overlaps(0.06, 0.0, 0.09, 15.0)),
        # several jumps on a line
        (PositionalSemantic(alpha=0.6, omega=0.3, sigma=0.7), ps.Overlaps(0.1515, 0.0, 0.0, 43.8)),
        (PositionalSemantic(alpha=0.3, omega=0.3, lam=0.001), ps.Overlaps(0.0611, 0.0, 0.0, 250.8)),
    ],
)
def test_agrees_with_quasi_monte_carlo(problem, overlaps):
    exact = cavity_averages(problem, overlaps, RULE)
    runs = [sobol_averages(problem, overlaps, 13, seed) for seed in range(6)]
    for name in runs[0]:
        sample = np.array([run[name] for run in runs])
        error = sample.std(ddof=1) / np.sqrt(len(sample))
        # 6 scramblings estimate their own error: Student's t with 5 degrees of freedom leaves 6 errors at 0.2 %
        assert abs(getattr(exact, name) - sample.mean()) < 6 * error + 1e-6 * abs(sample.mean()), name


def test_identity_total_mass():
    for overlaps in (ps.Overlaps(0.115, 0.0, 0.158, 12.7), ps.Overlaps(0.05, 0.26, 0.0, 11.4)):
        mass = cavity_averages(PositionalSemantic(alpha=2.0, omega=0.3), overlaps, RULE).mass
        np.testing.assert_allclose(mass, 1, rtol=0, atol=1e-6)


def test_agrees_with_a_finer_rule_within_the_reported_error():
    problem = PositionalSemantic(alpha=1.2, omega=0.2)
    for start in ("semantic", "positional"):
        coarse, fine = (ps.solve(problem, start, accuracy=a) for a in (1e-4, 1e-5))
        for name, error in coarse.quadrature_error.items():
            source = [s.overlaps if name in s.overlaps._fields else s for s in (coarse, fine)]
            before, after = (getattr(s, name) for s in source)
            assert abs(before - after) <= error, name
            assert error <= 1e-4 * abs(before), name


@pytest.mark.parametrize(
    ("start", "published"),
    [
        ("semantic", {"q": 0.114820, "theta": 0.158163, "train_loss": 0.00359071, "2 eps_g": 0.0028082}),
        ("positional", {"q": 0.051071, "m": 0.258229, "train_loss": 0.00451277, "2 eps_g": 0.0069461}),
    ],
)
def test_published_reference_points(start, published):
    """Converged replica-symmetric values at omega = .3, alpha = 2 found by another quadrature, to 1e-4."""
    solution = ps.solve(PositionalSemantic(alpha=2.0, omega=0.3), start)
    ours = {**solution.overlaps._asdict(), "train_loss": solution.train_loss, "2 eps_g": 2 * solution.test_error}
    for name, value in published.items():
        np.testing.assert_allclose(ours[name], value, rtol=1e-4, err_msg=name)


CASES = [
    (PositionalSemantic(alpha=1.5, omega=0.3), "semantic"),
    (PositionalSemantic(alpha=1.5, omega=0.3), "positional"),
    (PositionalSemantic(alpha=0.6, omega=0.0), "uninformed"),
    (PositionalSemantic(alpha=1.0, omega=0.5, sigma=0.7, lam=0.1, A=OTHER_A), "positional"),
]


@pytest.mark.parametrize(("problem", "start"), CASES)
def test_identity_train_loss_is_the_loss_at_the_prox_plus_the_ridge(problem, start):
    s = ps.solve(problem, start)
    averages = cavity_averages(problem, s.overlaps, s.rule)
    ridge = problem.lam * s.overlaps.q / (2 * problem.sigma**2)
    np.testing.assert_allclose(s.train_loss, problem.alpha * averages.loss_at_prox + ridge, rtol=1e-7)


@pytest.mark.parametrize(("problem", "start"), CASES)
def test_identity_residual_of_one_more_update_written_out(problem, start):
    """The eight equations of the state evolution, written again from the specification."""
    s = ps.solve(problem, start)
    (q, m, theta, V), a, alpha = s.overlaps, cavity_averages(problem, s.overlaps, s.rule), problem.alpha
    sigma2, rho = problem.sigma**2, problem.sigma**2
    V_hat = -alpha * a.g_zeta / np.sqrt(q - theta**2 / rho)
    q_hat, m_hat = alpha * a.g_g, (np.sqrt(2) * alpha * a.g_u if m else 0.0)
    theta_hat = (alpha * a.g_teacher + theta * V_hat) / rho if theta else 0.0
    D = problem.lam + sigma2 * V_hat
    again = (
        sigma2 * (sigma2 * q_hat + m_hat**2 + sigma2 * rho * theta_hat**2) / D**2,
        m_hat / D,
        sigma2 * rho * theta_hat / D,
        sigma2 / D,
    )
    np.testing.assert_allclose(again, (q, m, theta, V), rtol=0, atol=1e-7)
    assert s.residual <= 1e-7
    assert s.converged


@pytest.mark.parametrize(("problem", "start"), CASES[:2])
def test_identity_envelope_theorem(problem, start):
    step = 0.01
    low, high = (
        ps.solve(replace(problem, alpha=problem.alpha + s), start, accuracy=1e-6).train_loss for s in (-step, step)
    )
    moreau = ps.solve(problem, start, accuracy=1e-6).moreau
    # central difference: relative truncation (step / alpha)^2 / 6 ~ 1e-5, times a third derivative of order one
    np.testing.assert_allclose((high - low) / (2 * step), moreau, rtol=1e-4)


def test_agrees_with_finite_response():
    """The linear responses against one update from a small overlap."""
    problem = PositionalSemantic(alpha=1.5, omega=0.3)
    point = ps.solve(problem, "uninformed")
    small = 1e-3
    for name, response in (("m", point.response_m), ("theta", point.response_theta)):
        overlaps = point.overlaps._replace(**{name: small})
        hats = iteration.conjugates(problem, overlaps, cavity_averages(problem, overlaps, point.rule))
        updated = getattr(iteration.updated(problem, hats), name)
        np.testing.assert_allclose(updated / small, response, rtol=2e-3)  # the correction is of order small^2 / q


def test_closed_form_strong_ridge():
    """lam to infinity: Q = 0, attention 1/2 everywhere."""
    problem = PositionalSemantic(alpha=1.0, omega=0.3, lam=1e4)
    s = ps.solve(problem, "uninformed")
    assert s.collapsed
    assert s.overlaps.q < 1e-11
    nodes = np.random.default_rng(0).normal(size=(2, 400_000)) * problem.sigma
    T11, T22 = (0.7 * S + 0.18 for S in attention_diagonal(*nodes))
    expected = loss(0.0, 0.0, T11, T22, problem.sigma)
    error = expected.std() / np.sqrt(expected.size)
    assert abs(s.test_error - expected.mean()) < 5 * error
    np.testing.assert_allclose(s.train_loss, problem.alpha * s.test_error, rtol=1e-5)


def test_identity_collapse_is_reported():
    below = ps.solve(PositionalSemantic(alpha=0.5, omega=0.3), "semantic")
    assert below.collapsed
    assert below.overlaps.theta == 0
    assert below.response_theta < 1
    above = ps.solve(PositionalSemantic(alpha=0.8, omega=0.3), "semantic")
    assert not above.collapsed
    ended = ps.solve(PositionalSemantic(alpha=1.4, omega=0.1), "positional")
    assert ended.collapsed
    assert ended.overlaps.m == 0


def test_identity_warm_start_changes_nothing():
    problem = PositionalSemantic(alpha=1.4, omega=0.3)
    neighbour = ps.solve(replace(problem, alpha=1.2), "semantic")
    cold, warm = ps.solve(problem, "semantic"), ps.solve(problem, "semantic", guess=neighbour.overlaps)
    np.testing.assert_allclose(warm.overlaps, cold.overlaps, rtol=1e-6)


def test_agrees_with_a_sampled_linear_baseline():
    problem = PositionalSemantic(alpha=1.0, omega=0.3, A=OTHER_A)
    baseline = ps.linear_baseline(problem)
    h = np.random.default_rng(1).normal(size=(400_000, 2)) * problem.sigma
    scores = h[:, :, None] * h[:, None, :]
    softmax = np.exp(scores) / np.exp(scores).sum(axis=2, keepdims=True)
    T = 0.7 * softmax + 0.3 * np.array(OTHER_A)
    errors = problem.sigma**2 / 2 * ((T - baseline.W) ** 2).sum(axis=(1, 2))
    assert abs(errors.mean() - baseline.test_error) < 5 * errors.std() / np.sqrt(len(errors))
    np.testing.assert_allclose(T.mean(axis=0), baseline.W, atol=5 * 0.1 / np.sqrt(len(h)))


def test_published_linear_baseline():
    error = ps.linear_baseline(PositionalSemantic(alpha=1.0, omega=0.3)).test_error
    np.testing.assert_allclose(2 * error, 0.0039428, rtol=2e-5)  # the last published digit


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("alpha", 0, "alpha = 0: must be a finite number > 0"),
        ("omega", 1.2, r"omega = 1.2: must be a number in \[0, 1\]"),
        ("lam", -1, "lam = -1: must be a finite number > 0"),
        ("sigma", float("nan"), "sigma = nan: must be a finite number > 0"),
        ("sigma", "wide", "sigma = 'wide': must be a finite number > 0"),
        ("A", [[0.5, 0.6], [0.4, 0.6]], "rows sum to 1"),
        ("A", [[1.5, -0.5], [0.4, 0.6]], "entries >= 0"),
        ("A", [[1.0]], "2 x 2"),
    ],
)
def test_rejects_bad_problems(field, value, message):
    with pytest.raises(ValueError, match=message):
        PositionalSemantic(**{"alpha": 1.0, "omega": 0.3, field: value})


def test_rejects_bad_arguments():
    problem = PositionalSemantic(alpha=1.0, omega=0.3)
    with pytest.raises(ValueError, match="start = 'random': must be one of"):
        ps.solve(problem, "random")
    with pytest.raises(ValueError, match="accuracy = 0: must be in"):
        ps.solve(problem, accuracy=0)
    with pytest.raises(ValueError, match="one of them must be 0"):
        cavity_averages(problem, ps.Overlaps(0.1, 0.1, 0.1, 10.0), RULE)


def test_rejects_by_raising_when_not_converged(monkeypatch):
    monkeypatch.setattr(iteration, "anderson", lambda *a, **k: iteration_failure())
    with pytest.raises(ConvergenceError, match="semantic branch: stuck") as caught:
        ps.solve(PositionalSemantic(alpha=1.0, omega=0.3))
    assert isinstance(caught.value.partial, ps.Overlaps)
    monkeypatch.undo()
    monkeypatch.setattr(iteration, "cavity_averages", lambda *a: no_prox())
    with pytest.raises(ConvergenceError, match="semantic branch: .*proximal operator: 1 of 2") as caught:
        ps.solve(PositionalSemantic(alpha=1.0, omega=0.3))
    assert isinstance(caught.value.partial, ps.Overlaps)


def no_prox():
    raise RuntimeError("proximal operator: 1 of 2 nodes above tol")


def iteration_failure():
    from attn_lib.fixed_point import FixedPoint

    raise ConvergenceError("stuck", FixedPoint(np.log([0.1, 10.0, 0.1]), 1.0, 3))


@pytest.mark.parametrize("omega", [0.0, 0.3])
def test_identity_every_start_converges_on_a_grid(omega):
    """Among them points just beyond the end of a branch, where an iteration lingers."""
    for alpha in (0.1, 0.5, 0.9, 1.74, 1.9, 6.0):
        for start in ("semantic", "positional"):
            solution = ps.solve(PositionalSemantic(alpha=alpha, omega=omega), start, accuracy=1e-2)
            assert solution.residual <= 1e-7
            assert (solution.overlaps.theta if start == "semantic" else solution.overlaps.m) > 0 or solution.collapsed


@pytest.mark.parametrize(
    ("changed", "alpha", "start"),
    [
        ({"sigma": 0.3}, 2.0, "positional"),
        ({"sigma": 0.7}, 0.6, "semantic"),
        ({"lam": 0.1}, 4.0, "semantic"),
        ({"lam": 0.001}, 2.0, "positional"),
        ({"omega": 0.7}, 2.0, "semantic"),
        ({"omega": 0.15, "A": OTHER_A}, 0.6, "semantic"),
    ],
    ids=str,
)
def test_identity_solutions_exist_on_the_published_slices(changed, alpha, start):
    """Each slice where it was hard: large V and q, where lines fold several times; just beyond the end of a branch."""
    solution = ps.solve(PositionalSemantic(**{"alpha": alpha, "omega": 0.3, **changed}), start)
    assert (solution.overlaps.theta if start == "semantic" else solution.overlaps.m) > 0 or solution.collapsed
    assert solution.residual <= 1e-7
    assert solution.quadrature_error["q"] <= 1e-4 * solution.overlaps.q


@pytest.mark.parametrize(
    ("problem", "start"),
    [
        (PositionalSemantic(alpha=17.7, omega=1.0, sigma=0.37, lam=0.0927, A=np.eye(2)), "positional"),
        (
            PositionalSemantic(alpha=15.7, omega=0.8, sigma=0.35, lam=0.008, A=((0.72, 0.28), (0.09, 0.91))),
            "positional",
        ),
        (PositionalSemantic(alpha=9.5, omega=0.5, sigma=0.53, lam=0.006, A=((0.93, 0.07), (0.32, 0.68))), "semantic"),
    ],
)
def test_agrees_with_the_branch_followed_when_the_start_has_no_response(problem, start):
    """Where lambda + sigma^2 V_hat is negative at the overlaps that the search begins with."""
    first = ps._initial(problem, start)
    V_hat = iteration.conjugates(problem, first, cavity_averages(problem, first, ps._COARSE)).V_hat
    assert problem.lam + problem.sigma**2 * V_hat < 0
    followed = ps.solve(replace(problem, omega=0.3), start)
    for omega in np.linspace(0.3, problem.omega, 6)[1:]:
        followed = ps.solve(replace(problem, omega=float(omega)), start, guess=followed.overlaps)
    found = ps.solve(problem, start)
    assert not found.collapsed
    np.testing.assert_allclose(found.overlaps, followed.overlaps, rtol=2e-4)  # two of accuracy 1e-4


def test_agrees_with_neighbours_where_a_node_crosses_the_edge_of_the_rule():
    """On the first rule a node enters the ball at this fixed point: the averages jump by 3e-6 there."""
    at, *beside = (
        ps.solve(PositionalSemantic(alpha=alpha, omega=0.1, sigma=0.6), "positional") for alpha in (1, 0.999, 1.001)
    )
    # q is smooth in alpha: its second difference over 1e-3 is below 1e-6; each solution is accurate to 1e-4
    np.testing.assert_allclose(at.overlaps.q, np.mean([s.overlaps.q for s in beside]), rtol=2e-4, atol=0)
