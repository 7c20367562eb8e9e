"""Free convolution with a semicircle and the learned spectrum, against closed forms, polynomials and matrices."""

from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.integrate import quad
from scipy.stats import wasserstein_distance

from attn_lib.problems import SingleHead
from attn_lib.simulation.erm import train_single_head
from attn_lib.spectra import FreeConvolution, learned_spectrum
from attn_lib.spectra.laws import FiniteRank, MarchenkoPastur, PowerLaw, Semicircle
from attn_lib.spectra.learned import LearnedSpectrum
from attn_lib.theory import single_head

# rounding: sums of some hundred terms, amplified by the few units that positions and moments are large
ROUNDING = {"rtol": 1e-10, "atol": 1e-11}

DELTAS = (1e-4, 1e-2, 0.3, 1.0, 10.0)
LAWS = (
    Semicircle(variance=2.0),
    MarchenkoPastur(kappa0=0.5),
    MarchenkoPastur(kappa0=1.0),
    MarchenkoPastur(kappa0=2.0),
    PowerLaw(gamma=1.0, d=500),
    PowerLaw(gamma=0.75, d=300),
    FiniteRank(eigenvalues=[3.0, 1.0, 1.0], d=100),
)


def each_law(function):
    return pytest.mark.parametrize("law", LAWS, ids=repr)(function)


def each_delta(function):
    return pytest.mark.parametrize("delta", DELTAS)(function)


def semicircle_tail(V, delta, eps):
    """The same integrals for the semicircle of variance V, whose Hilbert transform is x/(2V)."""
    radius = 2 * V**0.5
    last = np.arccos(np.clip(eps / radius, -1, 1))

    def integral(f):  # x = R cos t
        density = 2 / np.pi
        return quad(lambda t: density * f(radius * np.cos(t)) * np.sin(t) ** 2, 0, last, epsabs=1e-13, epsrel=1e-13)[0]

    d1J = 4 * delta * integral(lambda x: (x - eps) * x / (2 * V))
    return integral(lambda x: 1), integral(lambda x: x - eps), integral(lambda x: (x - eps) ** 2), d1J


def subordinate(law, delta, z):
    """w from the polynomial equation w + delta^2 G0(w) = z: the root in the upper half plane."""
    if isinstance(law, MarchenkoPastur):  # cubic in G, from w = 1/G + k/(1 - G/k)
        k = law.kappa0**0.5
        G = np.roots([delta**2 / k, -(delta**2 + z / k), z + 1 / k - k, -1])
        w = z - delta**2 * G
    else:
        values, weights = law.atoms
        polynomial = np.polysub([1, -z], 0) * 1.0
        whole = np.poly(values)
        others = sum(m * np.poly(np.delete(values, i)) for i, m in enumerate(weights))
        w = np.roots(np.polyadd(np.polymul(polynomial, whole), delta**2 * others))
    return w[np.argmax(w.imag)]


@each_delta
@pytest.mark.parametrize("variance", [0.5, 3.0])
def test_closed_form_semicircle_plus_semicircle(variance, delta):
    sum_of_both = FreeConvolution(Semicircle(variance=variance), delta)
    V = variance + delta**2
    for eps in 2 * V**0.5 * np.array([-1.5, -0.7, 0.0, 0.3, 0.999, 1.2]):
        np.testing.assert_allclose(sum_of_both.tail(eps), semicircle_tail(V, delta, eps), rtol=1e-10, atol=1e-11 * V)
    x = 2 * V**0.5 * np.linspace(-1.2, 1.2, 41)
    density = np.sqrt(np.maximum(4 * V - x**2, 0)) / (2 * np.pi * V)
    np.testing.assert_allclose(sum_of_both.density(x), density, rtol=1e-10, atol=1e-9)
    inside = np.abs(x) < 2 * V**0.5
    np.testing.assert_allclose(sum_of_both.hilbert(x[inside]), x[inside] / (2 * V), rtol=1e-8, atol=1e-9)
    np.testing.assert_allclose(sum_of_both.edges, [-2 * V**0.5, 2 * V**0.5], rtol=1e-10)


@each_delta
def test_closed_form_one_eigenvalue_becomes_a_semicircle(delta):
    shifted = FreeConvolution(FiniteRank(eigenvalues=[1.5]), delta)
    x = 1.5 + delta * np.linspace(-2.5, 2.5, 22)
    y = x - 1.5
    density = np.sqrt(np.maximum(4 * delta**2 - y**2, 0)) / (2 * np.pi * delta**2)
    # near an edge the density is the square root of a difference of x, known to rounding
    np.testing.assert_allclose(delta * shifted.density(x), delta * density, rtol=1e-9, atol=1e-9)
    for eps in (-1.9, 0.2, 1.7):
        ours, theirs = shifted.tail(1.5 + eps * delta), semicircle_tail(delta**2, delta, eps * delta)
        np.testing.assert_allclose(ours, theirs, rtol=1e-8, atol=1e-11)  # 1.5 + eps delta is rounded


@each_law
@each_delta
def test_closed_form_moments(law, delta):
    """From far below, the tails are moments: those of the sum of two free matrices."""
    eps = law.lower - 2 * delta - 1
    second = law.second_moment + delta**2 - 2 * eps * law.mean + eps**2
    expected = 1, law.mean - eps, second, 2 * delta
    np.testing.assert_allclose(FreeConvolution(law, delta).tail(eps), expected, **ROUNDING)


@pytest.mark.parametrize("law", LAWS[4:], ids=repr)
def test_closed_form_small_delta(law):
    """delta to 0: sums over the list; eps in a gap is passed by nothing, and the moments change by order delta^2."""
    eps = 1.9
    above = np.maximum(law.spectrum - eps, 0)
    mass, J1, J, d1J = FreeConvolution(law, 1e-4).tail(eps)
    np.testing.assert_allclose(mass, (law.spectrum > eps).mean(), rtol=1e-10)
    np.testing.assert_allclose([J1, J], [above.mean(), (above**2).mean()], rtol=1e-6, atol=1e-7)
    assert 0 < d1J < 1e-3


@pytest.mark.parametrize("law", [*LAWS[1:4], FiniteRank(eigenvalues=[3.0, 2.0, 1.9, 0.2], d=7)], ids=repr)
@pytest.mark.parametrize("delta", [0.05, 0.3, 1.0, 10.0])
def test_agrees_with_the_roots_of_a_polynomial(law, delta):
    noisy = FreeConvolution(law, delta)
    x = np.concatenate([c.lower + (c.upper - c.lower) * np.array([0.02, 0.3, 0.6, 0.98]) for c in noisy.components])
    w = np.array([subordinate(law, delta, value) for value in x])
    # roots of a polynomial of degree <= 6 carry more rounding than ours
    np.testing.assert_allclose(noisy.density(x), w.imag / (np.pi * delta**2), rtol=1e-7, atol=1e-9)
    np.testing.assert_allclose(noisy.hilbert(x), (x - w.real) / delta**2, rtol=1e-7, atol=1e-8)


@pytest.mark.parametrize("law", [LAWS[1], LAWS[3], FiniteRank(eigenvalues=[3.0, 2.0, 1.9, 0.2], d=7)], ids=repr)
@pytest.mark.parametrize("delta", [0.1, 1.0])
@pytest.mark.parametrize("eps", [-0.05, 0.1, 1.95])
def test_agrees_with_integrals_over_the_density(law, delta, eps):
    """Path in the upper half plane against adaptive quadrature over the polynomial's density."""
    noisy = FreeConvolution(law, delta)

    def integral(f):
        def over(low, step):  # sin^2 takes away both square roots
            accuracy = {"epsabs": 1e-11, "epsrel": 1e-11, "limit": 200}
            return quad(lambda t: f(low + step * np.sin(t) ** 2) * step * np.sin(2 * t), 0, np.pi / 2, **accuracy)[0]

        return sum(over(max(c.lower, eps), c.upper - max(c.lower, eps)) for c in noisy.components if c.upper > eps)

    def rho(x):
        return subordinate(law, delta, x).imag / (np.pi * delta**2)

    def h(x):
        return (x - subordinate(law, delta, x).real) / delta**2

    mass, J1, J, d1J = noisy.tail(eps)
    assert abs(integral(rho) - mass) < 1e-8
    assert abs(integral(lambda x: (x - eps) * rho(x)) - J1) < 1e-8
    assert abs(integral(lambda x: (x - eps) ** 2 * rho(x)) - J) < 1e-8
    assert abs(4 * delta * integral(lambda x: (x - eps) * rho(x) * h(x)) - d1J) < 1e-8


@each_law
@pytest.mark.parametrize("delta", [0.02, 0.3, 1.0])
def test_identity_derivatives_of_the_tails(law, delta):
    """d J/d eps = -2 J1, d J1/d eps = -mass, d J/d delta = d1J; central differences."""
    step = 1e-4 * delta
    for eps in (0.05, 0.4, 1.7):
        at = FreeConvolution(law, delta).tail(eps)
        more, less = (FreeConvolution(law, delta).tail(eps + s) for s in (step, -step))
        wider, narrower = (FreeConvolution(law, delta + s).tail(eps) for s in (step, -step))
        derivatives = [(a - b) / (2 * step) for a, b in ((more.J, less.J), (more.J1, less.J1), (wider.J, narrower.J))]
        # the differences have an error of step^2 times a third derivative, which is at most of order 1/delta
        np.testing.assert_allclose(derivatives, [-2 * at.J1, -at.mass, at.d1J], rtol=1e-5, atol=1e-6)


@each_law
@each_delta
def test_identity_components_cdf_and_quantiles(law, delta):
    noisy = FreeConvolution(law, delta)
    components = noisy.components
    assert abs(sum(c.mass for c in components) - 1) < 1e-12
    assert (np.diff(noisy.edges) > 0).all()
    masses = np.cumsum([c.mass for c in components])
    upper = np.array([c.upper for c in components])
    np.testing.assert_allclose(noisy.cdf(upper + 1e-12), masses, rtol=0, atol=1e-8)
    lower = np.array([c.lower for c in components])
    assert (noisy.density((lower + upper) / 2) > 0).all()
    assert (noisy.density((upper[:-1] + lower[1:]) / 2) == 0).all()
    assert (noisy.density([lower[0] - 1e-6 * delta, upper[-1] + 1e-6 * delta]) == 0).all()
    u = np.linspace(0.003, 0.997, 40)
    x = noisy.quantile(u)
    np.testing.assert_allclose(noisy.cdf(x), u, rtol=0, atol=1e-11)
    # the logarithmic potential against the path of integration
    np.testing.assert_allclose([noisy.tail(value).mass for value in x[::8]], 1 - u[::8], rtol=0, atol=1e-11)
    np.testing.assert_allclose(noisy.quantile([0.0, 1.0]), [lower[0], upper[-1]], rtol=1e-8, atol=1e-8)


lists = st.lists(st.floats(0, 5, allow_nan=False), min_size=1, max_size=8).filter(lambda s: max(s) > 0.01)


@settings(max_examples=60, deadline=None)
@given(lists, st.floats(1e-3, 5), st.floats(-1, 6), st.floats(0.01, 2))
def test_identity_properties_of_tails(eigenvalues, delta, eps, more):
    noisy = FreeConvolution(FiniteRank(eigenvalues=eigenvalues), delta)
    law = noisy.law
    here, there = noisy.tail(eps), noisy.tail(eps + more)
    assert 0 <= there.mass <= here.mass + 1e-11 and here.mass <= 1 + 1e-11
    # J1 is convex and decreases with slope -mass
    assert here.J1 - more * here.mass - 1e-10 <= there.J1 <= here.J1 - more * there.mass + 1e-10
    assert here.J1**2 <= here.J * here.mass + 1e-10  # Cauchy and Schwarz
    whole = noisy.tail(-2 * delta - 1)
    np.testing.assert_allclose(whole.mass, 1, rtol=1e-10)
    np.testing.assert_allclose(whole.J1 - 2 * delta - 1, law.mean, rtol=1e-9, atol=1e-9)
    assert abs(sum(c.mass for c in noisy.components) - 1) < 1e-11


def sample(spectrum, delta, d, seed):
    """Eigenvalues and eigenvectors of diag(spectrum) + delta Z."""
    Z = np.random.default_rng(seed).normal(size=(d, d)) / (2 * d) ** 0.5
    return np.linalg.eigh(np.diag(spectrum) + delta * (Z + Z.T))


@pytest.mark.parametrize("d", [100, 200])
@pytest.mark.parametrize("delta", [0.1, 0.6])
@pytest.mark.parametrize("eps", [0.05, 0.5])
def test_agrees_with_sampled_matrices(d, delta, eps):
    """Tails of W0 W0^T/sqrt(p0 d) + delta Z: linear statistics, which fluctuate and are biased by order 1/d."""
    law, samples = MarchenkoPastur(kappa0=0.5), []
    for seed in range(12):
        W0 = np.random.default_rng(100 + seed).normal(size=(d, d // 2))
        S0 = np.linalg.eigvalsh(W0 @ W0.T / np.sqrt(d // 2 * d))
        above = np.maximum(sample(S0, delta, d, seed)[0] - eps, 0)
        samples.append([(above > 0).mean(), above.mean(), (above**2).mean()])
    mean, error = np.mean(samples, axis=0), np.std(samples, axis=0, ddof=1) / 12**0.5
    # bias: half an eigenvalue in the count, in the moments 1/d times a few units of the largest eigenvalue squared
    assert (np.abs(mean - FreeConvolution(law, delta).tail(eps)[:3]) < 4 * error + np.array([0.5, 1, 2]) / d).all()


@pytest.mark.parametrize("d", [200, 400])
def test_agrees_with_outliers_of_sampled_matrices(d):
    law = FiniteRank(eigenvalues=[3.0, 2.0, 1.2, 0.4], d=d)
    predicted = FreeConvolution(law, 0.6).outliers[::-1]
    assert [o.eigenvalue for o in predicted] == [3.0, 2.0, 1.2]
    positions, overlaps = [], []
    for seed in range(16):
        values, vectors = sample(law.spectrum, 0.6, d, seed)
        positions.append(values[:-4:-1])
        overlaps.append([vectors[i, -1 - i] ** 2 for i in range(3)])
    for measured, theory in ((positions, [o.position for o in predicted]), (overlaps, [o.overlap for o in predicted])):
        mean, error = np.mean(measured, axis=0), np.std(measured, axis=0, ddof=1) / 4
        assert (np.abs(mean - theory) < 4 * error + 3 / d).all()  # the formulas are exact to order 1/d


def test_closed_form_outliers_of_a_small_rank():
    d = 10**7
    law = FiniteRank(eigenvalues=[3.0, 1.5, 0.9], d=d)
    found = FreeConvolution(law, 1.0).outliers
    assert [o.eigenvalue for o in found] == [1.5, 3.0]  # 0.9 < delta stays in the bulk
    for o in found:
        s = o.eigenvalue
        np.testing.assert_allclose([o.position, o.overlap], [s + 1 / s, 1 - 1 / s**2], rtol=0, atol=20 / d)
        assert o.mass == 1 / d


def test_identity_what_shares_a_component_is_no_outlier():
    close = FreeConvolution(FiniteRank(eigenvalues=[3.0, 2.9], d=20), 0.5)
    assert close.outliers == () and len(close.components) == 2
    assert FreeConvolution(MarchenkoPastur(kappa0=0.5), 0.01).outliers == ()
    twice = FreeConvolution(FiniteRank(eigenvalues=[3.0, 3.0], d=400), 0.5).outliers
    assert [(o.eigenvalue, o.mass) for o in twice] == [(3.0, 2 / 400)]


def learned(law, delta, eta=0.9, epsilon=0.2):
    problem = SingleHead(alpha=1.0, lam=0.01, Delta=0.5, kappa=1.0, target=law)
    return learned_spectrum(SimpleNamespace(problem=problem, eta=eta, delta=delta, epsilon=epsilon))


@pytest.mark.parametrize(
    ("law", "delta"), [(LAWS[1], 0.6), (LAWS[1], 0.05), (FiniteRank(eigenvalues=[3, 1], d=50), 0.3)], ids=repr
)
def test_identity_learned_spectrum_is_a_soft_threshold(law, delta):
    s = learned(law, delta)
    tail = FreeConvolution(law, delta).tail(0.2)

    def integral(f, power=1):
        """In the variable y^(1/power) over the components, whose ends are square roots."""

        def over(low, step):
            return quad(lambda t: f(low + step * np.sin(t) ** 2) * step * np.sin(2 * t), 0, np.pi / 2, limit=200)[0]

        return sum(over(c.lower**power, c.upper**power - c.lower**power) for c in s.components)

    quadrature = 1e-7  # default tolerance of quad 1.5e-8 per component
    assert s.atom + s.rank == 1 and abs(s.rank - tail.mass) < 1e-12
    assert abs(integral(s.density) - s.rank) < quadrature
    assert abs(integral(lambda y: y * s.density(y)) - 0.9 * tail.J1) < quadrature
    assert abs(integral(lambda y: y**2 * s.density(y)) - 0.81 * tail.J) < quadrature
    assert abs(integral(s.singular_density, 0.5) - s.rank) < quadrature
    assert abs(sum(c.mass for c in s.components) - s.rank) < 1e-12
    assert abs(s.cdf(0.0) - s.atom) < 1e-11 and s.cdf(-0.1) == 0 and s.density(-0.1) == 0
    u = np.array([0.0, s.atom / 2, s.atom + 1e-3, 0.9, 0.99, 1.0])
    y = s.quantile(u)
    assert (y[:2] == 0).all() and (np.diff(y[1:]) > 0).all()
    np.testing.assert_allclose(s.cdf(y[2:5]), u[2:5], rtol=0, atol=1e-10)
    np.testing.assert_allclose(y[-1], s.edges[-1], rtol=1e-8)


def test_identity_learned_outliers():
    s = learned(FiniteRank(eigenvalues=[3.0, 1.5, 0.9], d=1000), 0.5, epsilon=1.0)
    below, before = s.outliers, s.noisy.outliers
    assert [o.position for o in below] == [0.9 * (o.position - 1.0) for o in before if o.position > 1]
    assert [o.eigenvalue for o in learned(s.noisy.law, 0.5, epsilon=2.0).outliers] == [3.0]


@pytest.mark.parametrize("delta", [0.0, -1.0, np.nan, "1"])
def test_rejects_delta(delta):
    with pytest.raises(ValueError, match="delta = "):
        FreeConvolution(MarchenkoPastur(kappa0=0.5), delta)


def test_rejects_other_bad_input():
    noisy = FreeConvolution(MarchenkoPastur(kappa0=0.5), 1.0)
    with pytest.raises(ValueError, match="law = "):
        FreeConvolution([1.0, 2.0], 1.0)
    for bad in (np.nan, np.inf, "0", None):
        with pytest.raises(ValueError, match="eps = "):
            noisy.tail(bad)
    for bad in (-0.1, 1.1, [0.5, np.nan]):
        with pytest.raises(ValueError, match="u = "):
            noisy.quantile(bad)
    with pytest.raises(ValueError, match="x = "):
        noisy.density([0.0, np.inf])
    with pytest.raises(ValueError, match="result of type dict"):
        learned_spectrum({"eta": 1.0})
    for field, values in {"eta": (0.0, np.nan), "epsilon": (-0.1, np.inf)}.items():
        for bad in values:
            with pytest.raises(ValueError, match=f"{field} = "):
                LearnedSpectrum(noisy, **{"eta": 1.0, "epsilon": 0.1, field: bad})
    with pytest.raises(ValueError, match="noisy = "):
        LearnedSpectrum(MarchenkoPastur(kappa0=0.5), 1.0, 0.1)


@pytest.mark.parametrize(
    ("make", "field"),
    [
        (lambda: Semicircle(variance=0.0), "variance"),
        (lambda: MarchenkoPastur(kappa0=-0.5), "kappa0"),
        (lambda: PowerLaw(gamma=0.5, d=10), "gamma"),
        (lambda: PowerLaw(gamma=1.0, d=0), "d"),
        (lambda: FiniteRank(eigenvalues=[1.0, -1.0]), "eigenvalues"),
        (lambda: FiniteRank(eigenvalues=[]), "eigenvalues"),
        (lambda: FiniteRank(eigenvalues=[1.0, 1.0], d=1), "d"),
    ],
)
def test_rejects_laws(make, field):
    with pytest.raises(ValueError, match=f"{field} = "):
        make()


@pytest.mark.parametrize("alpha", [0.5, 2.0])
def test_theory_matches_simulation_trained_layers(alpha):
    """Eigenvalues of trained layers against the predicted quantiles, and their rank, at two sizes."""
    problem = SingleHead(alpha=alpha, lam=0.01, Delta=0.5, kappa=1.0, target=MarchenkoPastur(kappa0=0.5))
    predicted = learned_spectrum(single_head.solve(problem))
    quantiles = predicted.quantile((np.arange(2000) + 0.5) / 2000)
    for d in (20, 40):
        e = train_single_head(problem, d=d, seeds=range(4), dtype="float32", tolerance=1e-3, n_test=100, device="cpu")
        distances = [wasserstein_distance(values, quantiles) for values in e.eigenvalues]
        # d points on an interval of length 4 are 1/d away from its law at best; the fluctuations of a spectrum are of
        # the same order, and so is what finite d does to the target
        assert np.mean(distances) < 3 / d
        error = e.rank.std(ddof=1) / 2
        assert abs(e.rank.mean() - predicted.rank) < 4 * error + 1 / d
        # other laws with the same rank or the same threshold are farther away
        for wrong in (LAWS[1], FiniteRank(eigenvalues=[1.0])):
            other = FreeConvolution(wrong, 0.3 + predicted.noisy.delta).quantile((np.arange(2000) + 0.5) / 2000)
            assert np.mean([wasserstein_distance(values, other) for values in e.eigenvalues]) > 3 / d


def test_theory_matches_simulation_outliers():
    """Positions and overlaps of isolated eigenvalues of a layer trained on a power-law target."""
    problem = SingleHead(alpha=0.5, lam=0.01, Delta=0.5, kappa=1.0, target=PowerLaw(gamma=1.0, d=60))
    predicted = learned_spectrum(single_head.solve(problem, accuracy=1e-3)).outliers[:-5:-1]
    e = train_single_head(problem, d=60, seeds=range(3), dtype="float32", tolerance=1e-3, n_test=100, device="cpu")
    learned_vectors = np.linalg.eigh(e.W @ e.W.mT)[1][:, :, :-5:-1]
    target_vectors = np.linalg.eigh(e.S0)[1][:, :, :-5:-1]
    overlaps = np.einsum("rik,rik->rk", learned_vectors, target_vectors) ** 2
    for values, field in ((e.eigenvalues[:, :-5:-1], "position"), (overlaps, "overlap")):
        theory = np.array([getattr(o, field) for o in predicted])
        error = values.std(axis=0, ddof=1) / 3**0.5
        # relative 1/d times a few: one eigenvalue is 1/d of all, and the trained layer has corrections of that order
        assert (np.abs(values.mean(axis=0) - theory) < 4 * error + 3 / 60 * theory).all()
