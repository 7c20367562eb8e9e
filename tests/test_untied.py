"""Theory of untied weights: the law of singular values, the state evolution, and simulation."""

from dataclasses import replace

import numpy as np
import pytest

from attn_lib.comparison import estimate
from attn_lib.problems import MarchenkoPastur, PowerLaw, SingleHead
from attn_lib.simulation.robustness import train_variant
from attn_lib.spectra.free_convolution import FreeConvolution
from attn_lib.spectra.laws import FiniteRank, Semicircle
from attn_lib.spectra.symmetrised import Symmetrised
from attn_lib.theory.untied import solve_untied

PROBLEM = SingleHead(alpha=1.0, lam=0.1, Delta=0.5, kappa=1.0, target=MarchenkoPastur(kappa0=0.5))
ROUNDING = {"rtol": 1e-10, "atol": 1e-12}  # double precision; numbers are of order 1
W = np.array([0.3 + 0.2j, -1.4 + 0.01j, 2.5 + 1j, -4 + 0.5j])


def test_closed_form_symmetrised_list():
    law = PowerLaw(gamma=1.0, d=5)
    both, s = np.concatenate([-law.spectrum, law.spectrum]), Symmetrised(law)
    np.testing.assert_allclose(s.resolvent(W), (1 / (W[:, None] - both)).mean(1), **ROUNDING)
    np.testing.assert_allclose(s.resolvent_derivative(W), -((W[:, None] - both) ** -2).mean(1), **ROUNDING)
    np.testing.assert_allclose(s.log_potential(W), np.log(W[:, None] - both).mean(1), **ROUNDING)
    np.testing.assert_allclose(s.support[:, 0], np.sort(both), **ROUNDING)
    assert (s.lower, s.upper, s.second_moment) == (-law.upper, law.upper, law.second_moment)


@pytest.mark.parametrize("kappa0", [0.3, 1.0, 2.5])
def test_identity_symmetrised_law(kappa0):
    s = Symmetrised(MarchenkoPastur(kappa0=kappa0))
    intervals = s.support
    assert (np.diff(intervals[:, :2].ravel()) >= -1e-12).all()
    np.testing.assert_allclose(intervals[:, 2].sum(), 1, **ROUNDING)
    noisy = FreeConvolution(s, 0.7)
    tail = noisy.tail(0.0)
    np.testing.assert_allclose([tail.mass, 2 * tail.J], [0.5, 1 + kappa0 + 0.49], rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(noisy.density([-1.1, 0.4]), noisy.density([1.1, -0.4]), rtol=1e-9, atol=1e-12)


def test_agrees_with_singular_values_of_a_drawn_matrix():
    d, rng, target = 600, np.random.default_rng(0), PowerLaw(gamma=0.6, d=600)
    left, right = (np.linalg.qr(rng.standard_normal((d, d)))[0] for _ in range(2))
    noise = 0.8 * rng.standard_normal((d, d)) / d**0.5
    s = np.linalg.svd(left * target.spectrum @ right + noise, compute_uv=False)
    tail = FreeConvolution(Symmetrised(target), 0.8).tail(0.6)
    found = [(s > 0.6).mean(), np.maximum(s - 0.6, 0).mean(), (np.maximum(s - 0.6, 0) ** 2).mean()]
    # the largest fluctuation is that of 2 tr M0 noise^T: a standard deviation of 2 delta sqrt(Q0)/d, taken five times
    atol = 10 * 0.8 * target.second_moment**0.5 / d
    np.testing.assert_allclose(found, [2 * tail.mass, 2 * tail.J1, 2 * tail.J], rtol=0, atol=atol)


@pytest.mark.parametrize(("alpha", "beta", "kappa0"), [(0.5, 1.0, 0.5), (2.0, 1.7, 0.2)])
def test_identity_potential_is_train_loss_plus_penalty(alpha, beta, kappa0):
    s = solve_untied(replace(PROBLEM, alpha=alpha, beta=beta, target=MarchenkoPastur(kappa0=kappa0)))
    # the residual of the iteration is 1e-10, and the potential is stationary
    assert s.potential == pytest.approx(s.train_loss + s.penalty, rel=1e-9, abs=1e-10)


def test_identity_slope_of_the_minimum_in_lam_is_the_nuclear_norm():
    minima = [solve_untied(replace(PROBLEM, lam=lam), accuracy=1e-6).potential for lam in (0.099, 0.101)]
    s = solve_untied(PROBLEM, accuracy=1e-6)
    # a centred difference: error of second order in the 1 % step
    assert np.diff(minima)[0] / 0.002 == pytest.approx(s.penalty / 0.1, rel=1e-3, abs=0)


@pytest.mark.parametrize("alpha", [0.5, 2.0])
def test_theory_matches_simulation(alpha):
    for d, seeds in ((24, range(6)), (40, range(20, 25))):
        problem = replace(PROBLEM, alpha=alpha)
        e = train_variant(problem, d=d, seeds=seeds, tied=False, cross=True)
        spectra = [FiniteRank(eigenvalues=np.linalg.svd(M0[0], compute_uv=False)) for M0 in e.M0]
        theory = [solve_untied(replace(problem, target=law), accuracy=1e-3) for law in spectra]
        measured = {
            "test_error": (e.test_error, [s.test_error for s in theory]),
            "train_loss": (e.train_loss, [s.train_loss for s in theory]),
            "m": (e.m[:, 0, 0], [s.overlaps.m for s in theory]),
            "q": (e.q[:, 0, 0], [s.overlaps.q for s in theory]),
        }
        for name, (samples, values) in measured.items():
            found = estimate(samples / np.array(values))
            # 4 standard errors, and corrections of relative order 3/d
            assert abs(found.value - 1) < 4 * found.error + 3 / d, (name, d)


def test_rejects_bad_arguments():
    with pytest.raises(ValueError, match="n_tokens = 3"):
        solve_untied(replace(PROBLEM, n_tokens=3))
    with pytest.raises(ValueError, match="accuracy = 1"):
        solve_untied(PROBLEM, accuracy=1)
    with pytest.raises(ValueError, match=r"kappa = 0\.1: must be at least"):
        solve_untied(replace(PROBLEM, kappa=0.1, lam=0.1 * 10**0.5))
    with pytest.raises(ValueError, match="law"):
        Symmetrised(Semicircle(variance=1.0))
