"""The state evolution of a single head of full rank: other methods, the potential, limits, symmetries."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import expit

from attn_lib.fixed_point import ConvergenceError
from attn_lib.problems import FiniteRank, MarchenkoPastur, PositionalSemantic, PowerLaw, SingleHead
from attn_lib.theory import single_head as sh
from attn_lib.theory import single_head_iteration
from attn_lib.theory.attention_channel import TwoTokenChannel, conjugates, stein
from attn_lib.theory.attention_jumps import ties
from attn_lib.theory.attention_prox import descend, lowest
from attn_lib.theory.spectral_prior import Hats, Overlaps, direct_prior, potential, prior

C = np.array([[3.0, 1.0], [1.0, 3.0]])
COARSE = 2e-3  # accuracy of solutions of which only a rough value is needed


def head(**changed):
    given = {"alpha": 0.5, "lam": 0.01, "Delta": 0.5, "kappa": 1.0, "target": MarchenkoPastur(kappa0=0.5)}
    return SingleHead(**{**given, **changed})


# Values of an independent implementation: trapezoid rule on a box, spectral integrals over the density.
ROWS = [
    (
        {"alpha": 0.5},
        {
            "m": 1.38094,
            "q": 1.46236,
            "Sigma": 2.30338,
            "test_error": 0.13599,
            "train_loss": 0.0158314,
            "rank": 0.644301,
            "delta": 0.573757,
            "epsilon": 0.0683668,
            "eta": 0.942375,
        },
    ),
    (
        {"alpha": 2.0},
        {
            "m": 1.34234,
            "q": 1.23788,
            "Sigma": 0.333778,
            "test_error": 0.0870899,
            "train_loss": 0.124118,
            "rank": 0.704427,
        },
    ),
    (
        {"alpha": 1.0, "Delta": 0.0, "lam": 0.1},
        {
            "m": 1.13669,
            "q": 0.86877,
            "Sigma": 0.468313,
            "test_error": 0.0116518,
            "train_loss": 0.00816928,
            "rank": 0.492201,
        },
    ),
]


@pytest.mark.parametrize(("changed", "row"), ROWS)
def test_agrees_with_reference_rows(changed, row):
    found = sh.solve(head(**changed))
    assert found.converged and found.residual < 1e-10
    for name, value in row.items():
        result = getattr(found.overlaps, name) if name in Overlaps._fields else getattr(found, name)
        np.testing.assert_allclose(result, value, rtol=2e-4, atol=0, err_msg=name)  # both rules are accurate to 1e-4


# Order parameters with a convex prox, with jumps, near perfect recovery; temperatures that differ.
POINTS = [
    ({}, Overlaps(1.2, 1.1, 0.5)),
    ({"beta": 1.5, "beta0": 0.7}, Overlaps(1.0, 0.9, 6.0)),
    ({"Delta": 0.0}, Overlaps(1.49, 1.485, 0.8)),
    ({}, Overlaps(0.9, 1.2, 130.0)),
]


def brute_force_prox(omega, target, beta, Sigma):
    """The lowest point of a fine grid, polished by BFGS."""
    inverse = np.linalg.inv(C)

    def objective(w):
        x = w - omega.reshape(2, *[1] * (w.ndim - 1))
        loss = 2 * ((expit(beta * w) - target.reshape(2, *[1] * (w.ndim - 1))) ** 2).sum(axis=0)
        return loss + np.einsum("i...,ij,j...->...", x, inverse, x) / (2 * Sigma)

    grid = np.stack(np.meshgrid(*[np.linspace(min(o, -5) - 1, max(o, 5) + 1, 150) for o in omega], indexing="ij"))
    values = objective(grid)
    start = grid.reshape(2, -1)[:, values.argmin()]
    return minimize(objective, start, options={"gtol": 1e-9}), objective


@pytest.mark.parametrize(("changed", "overlaps"), POINTS)
def test_agrees_with_brute_force_prox(changed, overlaps):
    problem = head(**changed)
    m, q, Sigma = overlaps
    Q_prime = 1.5 + problem.Delta / 2
    rng = np.random.default_rng(3)
    root = np.linalg.cholesky(np.kron([[Q_prime, m], [m, q]], C))
    z0, omega = np.split(1.5 * root @ rng.standard_normal((4, 25)), 2)
    target = expit(problem.beta0 * z0)
    found = lowest(omega, target, problem.beta, Sigma)
    for i in range(omega.shape[1]):
        best, objective = brute_force_prox(omega[:, i], target[:, i], problem.beta, Sigma)
        # both are at a minimum, the brute-force one to the square of BFGS' gradient tolerance
        np.testing.assert_allclose(objective(found[:, i]), best.fun, rtol=1e-9, atol=1e-12)


def test_identity_wells_tie_at_a_jump():
    """Where the prox is said to jump, the objective has two minima of the same height, and neighbours jump there."""
    overlaps = POINTS[3][1]
    channel = TwoTokenChannel(head(), 9, 6.0)
    channel.averages(overlaps)
    z, target = channel.z, channel.target
    _, omega = channel._fields(overlaps, slice(None))
    pairs = channel.first[np.abs(np.diff(z, axis=1)[:, channel.first]).max(axis=0) > 3]
    step = (omega[:, pairs + 1] - omega[:, pairs])[:, :1]
    index, t, *wells = ties(z[:, pairs], z[:, pairs + 1], omega[:, pairs], step, target[:, pairs], 1.0, overlaps.Sigma)
    assert len(index) > 20 and (t > 0).all() and (t < 1).all()
    field, goal = omega[:, pairs[index]] + t * step, target[:, pairs[index]]
    heights = []
    for w in wells:
        again, height = descend(w, field, goal, 1.0, overlaps.Sigma)
        np.testing.assert_allclose(again, w, rtol=0, atol=1e-6)  # the end of Newton's method
        heights.append(height)
    assert (np.abs(wells[0] - wells[1]).max(axis=0) > 0.1).all()
    np.testing.assert_allclose(*heights, rtol=0, atol=1e-4)  # t to 1e-6, or 1/256 by bisection where a well ends


def test_identity_corrected_rules_converge():
    """With many jumps a coarse rule agrees with a finer one to the accuracy it claims, 1e-3, and not uncorrected."""
    overlaps = Overlaps(1.747, 2.858, 14.84)
    coarse, fine = TwoTokenChannel(head(), 9, 6.0), TwoTokenChannel(head(), 24, 6.5)
    found, expected = np.array(coarse.averages(overlaps))[:4], np.array(fine.averages(overlaps))[:4]
    np.testing.assert_allclose(found, expected, rtol=1e-3, atol=0)
    assert np.abs((found - coarse.at_jumps[:4]) / expected - 1).max() > 1e-3


def test_agrees_with_prox_of_whole_matrices():
    """The rows of a symmetric field depend on two differences: minimising over all three entries changes nothing."""
    rng = np.random.default_rng(1)
    Sigma, scale = 4.0, np.array([2.0, 1.0, 2.0])  # C of the entries 11, 12, 22
    for z0, omega in rng.standard_normal((5, 2, 3)) * np.sqrt(1.5 * scale):

        def softmax(z):
            square = np.exp([[z[0], z[1]], [z[1], z[2]]])
            return square / square.sum(axis=1, keepdims=True)

        def objective(z, z0=z0, omega=omega):
            return ((softmax(z) - softmax(z0)) ** 2).sum() + ((z - omega) ** 2 / scale).sum() / (2 * Sigma)

        best = min((minimize(objective, start, options={"gtol": 1e-8}) for start in (omega, z0)), key=lambda r: r.fun)
        u0, u = (np.array([[z[0] - z[1]], [z[2] - z[1]]]) for z in (z0, omega))
        (_, value) = descend(lowest(u, expit(u0), 1.0, Sigma), u, expit(u0), 1.0, Sigma)
        np.testing.assert_allclose(value[0] / Sigma, best.fun, rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize(("changed", "overlaps"), POINTS)
def test_agrees_with_monte_carlo(changed, overlaps):
    """Every average against drawn matrices, here in the entries 11, 12, 22 and with weights of the entries."""
    problem = head(**changed)
    m, q, Sigma = overlaps
    channel = TwoTokenChannel(problem, 14, 6.5)
    found = channel.averages(overlaps)
    rng = np.random.default_rng(7)
    root, n = np.linalg.cholesky([[channel.Q_prime, m], [m, q]]), 40000
    z0, omega = np.einsum("ij,jan->ian", root, rng.standard_normal((2, 3, n)) * np.sqrt([[2.0], [1.0], [2.0]]))
    u0, u = ((z[[0, 2]] - z[1]) for z in (z0, omega))
    w = lowest(u, expit(problem.beta0 * u0), problem.beta, Sigma)
    g = -np.linalg.solve(C, w - u) / Sigma
    loss = 2 * ((expit(problem.beta0 * u0) - expit(problem.beta * w)) ** 2).sum(axis=0)
    drawn = {
        "loss": loss,
        "g_g": ((C @ g) * g).sum(axis=0),
        "omega_g": (u * g).sum(axis=0),
        "z0_g": (u0 * g).sum(axis=0),
    }
    for name, values in drawn.items():
        error = values.std() / np.sqrt(n)
        assert abs(values.mean() - getattr(found, name)) < 4 * error, name


@pytest.mark.parametrize(("changed", "overlaps"), POINTS[:3])
def test_agrees_between_stein_and_derivative_form(changed, overlaps):
    channel = TwoTokenChannel(head(**changed), 18, 6.5)
    found = channel.averages(overlaps)
    # beta = 1.5, Sigma = 6: the prox jumps, and the derivative form misses what the jumps contribute
    rtol = 2e-2 if "beta" in changed else 1e-5
    np.testing.assert_allclose(
        (found.response, found.response_star), stein(channel, overlaps, found), rtol=rtol, atol=0
    )


@pytest.mark.parametrize(
    ("changed", "overlaps", "law"),
    [
        ({}, Overlaps(1.2, 1.1, 0.5), prior),
        ({"kappa": 0.7, "target": MarchenkoPastur(kappa0=2.0)}, Overlaps(1.2, 1.1, 0.5), prior),
        ({"target": PowerLaw(gamma=1.0, d=40), "beta": 0.8, "Delta": 0.0}, Overlaps(0.9, 0.8, 0.9), prior),
        ({"beta0": 1.4}, Overlaps(1.2, 1.1, 0.5), direct_prior),
    ],
)
def test_identity_equations_are_the_gradient_of_the_potential(changed, overlaps, law):
    """At any point: the derivatives of Phi are the differences between the variables and their updates."""
    problem, hats = head(**changed), Hats(0.5, 0.05, 0.6)
    channel = TwoTokenChannel(problem, 9, 6.0)

    def phi(x):
        overlaps, hats = Overlaps(*x[:3]), Hats(*x[3:])
        a = channel.averages(overlaps, follow=True)
        return potential(problem, overlaps, hats, a.loss + overlaps.Sigma * a.g_g / 2, law)

    point, step = np.array([*overlaps, *hats]), 1e-4
    shifts = np.diag(step * point)
    gradient = np.array([(phi(point + s) - phi(point - s)) / (2 * s.sum()) for s in shifts])
    new_hats = conjugates(channel, overlaps, channel.averages(overlaps, follow=True), "stein")
    new = law(problem, hats).overlaps
    expected = np.array([
        (hats.m_hat - new_hats.m_hat) / 2,
        (new_hats.Sigma_hat - hats.Sigma_hat) / 4,
        (hats.q_hat - new_hats.q_hat) / 4,
        (overlaps.m - new.m) / 2,
        (overlaps.Sigma - new.Sigma) / 4,
        (new.q - overlaps.q) / 4,
    ])  # fmt: skip
    # the error of a central difference of relative step 1e-4; rounding 1e-16 / 1e-4
    np.testing.assert_allclose(gradient, expected, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("solve", [sh.solve, sh.solve_direct])
def test_identity_linear_response_of_the_minimum(solve):
    """Envelope theorem: the minimum grows with alpha by M, with lam by the penalty divided by lam."""
    problem, step = head(alpha=1.0, lam=0.1), 1e-3
    found = solve(problem)
    channel = TwoTokenChannel(problem, 14, 6.5)
    a = channel.averages(found.overlaps)

    def derivative(name):
        value = getattr(problem, name)
        up, down = (
            solve(replace(problem, **{name: value * (1 + sign * step)}), start=found.hats).potential for sign in (1, -1)
        )
        return (up - down) / (2 * step * value)

    # central differences of step 1e-3 on rules that agree to 1e-4 and err in the same direction
    np.testing.assert_allclose(derivative("alpha"), a.loss + found.overlaps.Sigma * a.g_g / 2, rtol=2e-4, atol=0)
    np.testing.assert_allclose(derivative("lam"), found.penalty / problem.lam, rtol=2e-4, atol=0)
    np.testing.assert_allclose(found.potential, found.train_loss + found.penalty, rtol=0, atol=1e-9)  # as the solver


def test_closed_form_nothing_is_learned_at_a_large_penalty():
    """S = 0 exactly when epsilon reaches the edge of S0 + delta Z, with the conjugates of the flat student."""
    problem = head(alpha=0.5, Delta=0.0, target=FiniteRank(eigenvalues=[1.0]))  # S0 = 1: the edge is 1 + 2 delta
    x, weight = np.polynomial.hermite_e.hermegauss(80)
    s0 = expit(np.sqrt(3) * x)
    weight = weight / weight.sum()
    m_hat = 12 * problem.alpha * weight @ (s0 * (1 - s0))
    a, b = np.meshgrid(x, x)  # u0 and v0 have correlation 1/3
    u0, v0 = np.sqrt(3) * a, np.sqrt(3) * (a / 3 + np.sqrt(8) / 3 * b)
    g_u, g_v = 0.5 - expit(u0), 0.5 - expit(v0)
    g_g = np.einsum("i,j,ji->", weight, weight, 3 * (g_u**2 + g_v**2) + 2 * g_u * g_v)
    lam = (m_hat + 2 * np.sqrt(2 * problem.alpha * g_g)) / 2
    above, below = (sh.solve(replace(problem, lam=lam * factor)) for factor in (1.001, 0.999))
    assert above.overlaps == Overlaps(0, 0, 0) and above.rank == 0 and above.penalty == 0
    assert below.rank > 0 and below.overlaps.q < 1e-3
    flat = 4 * weight @ (s0 - 0.5) ** 2
    # the default accuracy of the rule, 1e-4
    np.testing.assert_allclose([above.test_error, above.train_loss], [flat, 0.5 * flat], rtol=1e-4, atol=0)
    np.testing.assert_allclose(above.hats.m_hat, m_hat, rtol=1e-4, atol=0)


def test_closed_form_few_samples():
    assert sh.solve(head(alpha=1e-5)).overlaps.m == 0
    few, more = (sh.solve(head(alpha=alpha), accuracy=COARSE) for alpha in (0.003, 0.006))
    assert 0 < few.overlaps.m < more.overlaps.m and 0 < few.rank < more.rank


def test_agrees_with_population_minimum_at_many_samples():
    """n >> d^2: the student minimises the population risk; with noise it is a shrunk S0."""
    problem = head(alpha=4000.0, lam=0.01)
    found = sh.solve(problem)
    best = minimize(lambda s: sh.test_error(problem, 1.5 * s[0], 1.5 * s[0] ** 2), [0.9]).x[0]
    # the deviation is of order 1/alpha = 2.5e-4 times a number of order 1
    np.testing.assert_allclose([found.overlaps.m / 1.5, (found.overlaps.q / 1.5) ** 0.5], best, rtol=1e-3, atol=0)


def test_identity_recovery_without_noise():
    """Delta = 0 and enough samples: the error vanishes like lam^2, the rank is that of the target."""
    large, small = (sh.solve(head(alpha=1.0, Delta=0.0, lam=lam)) for lam in (1e-3, 1e-4))
    # corrections of relative order epsilon = 2e-3
    np.testing.assert_allclose(large.test_error / small.test_error, 100, rtol=2e-2, atol=0)
    np.testing.assert_allclose(large.train_loss / small.train_loss, 100, rtol=2e-2, atol=0)
    np.testing.assert_allclose([large.rank, small.rank], 0.5, rtol=1e-6, atol=0)  # delta is far below the gap


def test_identity_scale_of_the_student():
    """Only beta S enters the loss: beta = 2 with lam is beta = 1 with lam / 2."""
    problem = head(alpha=1.0, lam=0.1, beta=2.0)
    found, other = sh.solve(problem), sh.solve(replace(problem, beta=1.0, lam=0.05))
    expected = Overlaps(other.overlaps.m / 2, other.overlaps.q / 4, other.overlaps.Sigma / 4)
    # one map up to rounding; the fixed points to the residual of 1e-11
    np.testing.assert_allclose(found.overlaps, expected, rtol=1e-8, atol=0)
    np.testing.assert_allclose(found.potential, other.potential, rtol=1e-8, atol=0)


def test_identity_scale_of_the_target():
    """Only beta0 (z(S0) + xi) enters: twice S0 and four times Delta at half beta0; the learned S does not change."""
    problem = head(alpha=1.0, lam=0.1, target=FiniteRank(eigenvalues=[2.0, 1.0, 0.5, 0.0]))
    scaled = replace(problem, target=FiniteRank(eigenvalues=[4.0, 2.0, 1.0, 0.0]), Delta=2.0, beta0=0.5)
    found, other = sh.solve(problem), sh.solve(scaled)
    expected = Overlaps(2 * found.overlaps.m, found.overlaps.q, found.overlaps.Sigma)
    np.testing.assert_allclose(other.overlaps, expected, rtol=1e-8, atol=0)  # as above


def test_identity_width_enters_through_the_penalty():
    problem = head(alpha=1.0, lam=0.1)
    wide = replace(problem, kappa=4.0, lam=0.05)
    np.testing.assert_allclose(sh.solve(wide).overlaps, sh.solve(problem).overlaps, rtol=1e-9, atol=0)


def test_identity_start_does_not_matter():
    problem = head(alpha=0.7, lam=0.05)
    found = sh.solve(problem)
    other = sh.solve(problem, start=Hats(*(0.3 * h for h in found.hats)))
    np.testing.assert_allclose(other.overlaps, found.overlaps, rtol=1e-9, atol=0)  # the residual times the condition


@pytest.mark.parametrize("kappa0", [0.5, 1.5])
def test_agrees_with_a_drawn_target(kappa0):
    """The eigenvalues of one Wishart matrix in place of the Marchenko-Pastur law."""
    d = 300
    W = np.random.default_rng(0).standard_normal((d, round(kappa0 * d)))
    eigenvalues = np.clip(np.linalg.eigvalsh(W @ W.T), 0, None)
    eigenvalues *= np.sqrt((1 + kappa0) / (eigenvalues**2).mean())  # the scale alone fluctuates by 4/d
    law = sh.solve(head(alpha=1.0, lam=0.1, target=MarchenkoPastur(kappa0=kappa0)))
    drawn = sh.solve(head(alpha=1.0, lam=0.1, target=FiniteRank(eigenvalues=eigenvalues)), start=law.hats)
    # other averages over the spectrum of a Wishart matrix fluctuate by 1/d around their limits: 1 % is three times that
    np.testing.assert_allclose(drawn.overlaps, law.overlaps, rtol=1e-2, atol=0)
    np.testing.assert_allclose(drawn.test_error, law.test_error, rtol=1e-2, atol=0)


def test_identity_power_law_is_its_list():
    power = PowerLaw(gamma=1.0, d=60)
    problem = head(alpha=1.0, lam=0.1, target=power)
    other = replace(problem, target=FiniteRank(eigenvalues=power.spectrum))
    np.testing.assert_allclose(sh.solve(problem).overlaps, sh.solve(other).overlaps, rtol=1e-9, atol=0)


def test_closed_form_direct_training_without_noise_and_ridge():
    r"""``|S - S0|^2 = Q0 (1 - 4 alpha)``, approached linearly in the ridge."""
    for alpha in (0.1, 0.2):
        excess = []
        for lam in (1e-4, 1e-5):
            m, q, _ = sh.solve_direct(head(alpha=alpha, lam=lam, Delta=0.0), accuracy=COARSE).overlaps
            excess.append((1.5 - 2 * m + q) / 1.5 - (1 - 4 * alpha))
        assert abs(excess[1]) < 0.3 * abs(excess[0]) < 0.01


def test_identity_factorised_training_is_better():
    """Positive S with a nuclear norm against any S with a ridge, each at its best of a few penalties."""
    best = [
        min(solve(head(alpha=0.5, lam=lam), accuracy=COARSE).test_error for lam in lams)
        for solve, lams in ((sh.solve, (0.1, 0.2, 0.4)), (sh.solve_direct, (0.02, 0.05, 0.1)))
    ]
    assert best[0] < best[1] * 0.99


@pytest.mark.parametrize(("m", "q"), [(1.2, 1.1), (0.3, 2.0), (-0.4, 0.5)])
def test_agrees_with_sampled_test_error(m, q):
    problem = head(beta=1.3, beta0=0.8)
    rng, n = np.random.default_rng(2), 100000
    root = np.linalg.cholesky([[1.5 + 0.25, m], [m, q]])
    fields = np.einsum("ij,jan->ian", root, rng.standard_normal((2, 3, n)) * np.sqrt([[2.0], [1.0], [2.0]]))
    A0, A = (
        np.exp(b * z)[[0, 1, 1, 2]].reshape(2, 2, n) for b, z in zip((problem.beta0, problem.beta), fields, strict=True)
    )
    error = ((A0 / A0.sum(axis=1, keepdims=True) - A / A.sum(axis=1, keepdims=True)) ** 2).sum(axis=(0, 1))
    assert abs(error.mean() - sh.test_error(problem, m, q)) < 4 * error.std() / np.sqrt(n)


def test_identity_lam_is_lowered_where_the_start_fails(monkeypatch):
    """The path of falling lam ends at the same fixed point."""
    problem, calls, direct = head(alpha=1.0, lam=0.05), [], single_head_iteration.iterate
    expected = sh.solve(problem)

    def fails_first(*args):
        calls.append(args[0].lam)
        if len(calls) == 1:
            raise ConvergenceError("not from here")
        return direct(*args)

    monkeypatch.setattr(single_head_iteration, "iterate", fails_first)
    found = sh.solve(problem)
    assert calls[0] == 0.05 and calls[1] == 1.0 and sorted(calls[1:], reverse=True) == calls[1:]
    np.testing.assert_allclose(found.overlaps, expected.overlaps, rtol=1e-9, atol=0)


def test_rejects_where_no_fixed_point_is_found(monkeypatch):
    def never(problem, *args):
        if problem.lam < 0.3:
            raise ConvergenceError("no")
        return direct(problem, *args)

    direct = single_head_iteration.iterate
    monkeypatch.setattr(single_head_iteration, "iterate", never)
    with pytest.raises(ConvergenceError, match=r"last lam reached 0\.3"):
        sh.solve(head(lam=0.01))


def test_rejects_narrow_weights():
    problem = head(alpha=1.0, lam=0.1, kappa=0.4)
    with pytest.raises(ValueError, match=r"kappa = 0\.4: must be at least 0\.\d+ here") as error:
        sh.solve(problem, accuracy=COARSE)
    least = sh.least_kappa(problem)
    assert f"{least:.4f}" in str(error.value)
    at_least = sh.solve(replace(problem, kappa=least + 1e-4), accuracy=COARSE)
    np.testing.assert_allclose(at_least.rank, least, rtol=1e-3, atol=0)  # the documented accuracy


@pytest.mark.parametrize("accuracy", [0.0, 1e-9, 0.5, "fine", np.nan])
def test_rejects_accuracy(accuracy):
    with pytest.raises(ValueError, match=r"accuracy = .*must be a number in \[1e-7, 1e-1\]"):
        sh.solve(head(), accuracy=accuracy)


@pytest.mark.parametrize("start", [Hats(1.0, -1.0, 1.0), Hats(1.0, np.inf, 1.0), (1.0, 2.0)])
def test_rejects_start(start):
    with pytest.raises(ValueError, match="start = .*: must be Hats"):
        sh.solve(head(), start=start)


@pytest.mark.parametrize(("m", "q", "name"), [(1.0, 0.5, "q"), (np.nan, 1.0, "m"), (1.0, -1.0, "q")])
def test_rejects_impossible_overlaps(m, q, name):
    with pytest.raises(ValueError, match=f"{name} = "):
        sh.test_error(head(), m, q)


def test_rejects_other_problems():
    with pytest.raises(ValueError, match="problem of type PositionalSemantic: must be a SingleHead"):
        sh.solve(PositionalSemantic(alpha=1.0, omega=0.3))


def test_rejects_an_accuracy_out_of_reach():
    with pytest.raises(ConvergenceError, match="accuracy 1e-07 not reached"):
        single_head_iteration.refine(head(alpha=0.3), OnlyCoarse(head(alpha=0.3)), prior, 1e-7)


class OnlyCoarse(TwoTokenChannel):
    """A channel that does not become finer than n = 7."""

    def refined(self):
        return OnlyCoarse(self.problem, 13 - self.n, self.radius)
