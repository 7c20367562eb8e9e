"""How the state evolution of a single head is computed: rules, searches for minima, extreme problems."""

from dataclasses import replace

import numpy as np
import pytest

from attn_lib.fixed_point import ConvergenceError
from attn_lib.problems import MarchenkoPastur, SingleHead
from attn_lib.spectra.free_convolution import FreeConvolution
from attn_lib.spectra.laws import FiniteRank
from attn_lib.theory import single_head as sh
from attn_lib.theory import single_head_iteration
from attn_lib.theory.attention_channel import TwoTokenChannel
from attn_lib.theory.spectral_prior import Overlaps, prior

PROBLEM = SingleHead(alpha=0.2, lam=0.01, Delta=0.5, kappa=1.0, target=MarchenkoPastur(kappa0=0.5))


@pytest.mark.parametrize("alpha", [1e8, 1e9])
def test_identity_of_the_potential_holds_at_any_size(alpha):
    """Phi and its two terms grow with alpha, and with them their rounding."""
    found = sh.solve(replace(PROBLEM, alpha=alpha))
    # the residual of 1e-11 in the terms, which are of the size of the sum
    np.testing.assert_allclose(found.potential, found.train_loss + found.penalty, rtol=1e-9, atol=0)
    assert found.potential > 1e6


@pytest.mark.parametrize("Sigma", [4.0, 20.0])
def test_agrees_between_searches_of_contested_nodes_and_of_all(Sigma):
    """Overlaps that have moved by less than 1 %: other minima are looked for only where there were some before."""
    before, after = Overlaps(1.1, 1.1, Sigma), Overlaps(1.092, 1.1, 1.008 * Sigma)
    near, fresh = TwoTokenChannel(PROBLEM), TwoTokenChannel(PROBLEM)
    near.averages(before)
    found, expected = near.averages(after), fresh.averages(after)
    assert 0 < near._contested.mean() < 0.5
    # a tenth of the best accuracy of this rule, for nodes where a lower minimum has appeared meanwhile
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=0)


@pytest.mark.parametrize("Sigma", [0.5, 8.0])
def test_agrees_with_a_rule_of_other_proportions(Sigma):
    """The averages vary more along the fields of the target than along the student's own; equal steps are as good."""
    overlaps = Overlaps(1.1, 1.1, Sigma)
    channel, equal = TwoTokenChannel(PROBLEM, 14, 6.5), TwoTokenChannel(PROBLEM, 14, 6.5)
    fine = TwoTokenChannel(PROBLEM, 20, 6.5)  # its own step is that of equal steps with n = 14
    np.testing.assert_allclose(channel.averages(overlaps), fine.averages(overlaps), rtol=3e-4, atol=0)  # documented
    assert equal.nodes[2].max() < equal.nodes[0].max() < 6.5


@pytest.mark.parametrize(("alpha", "lam"), [(0.2, 0.01), (0.3, 1e-3)])
def test_agrees_with_a_solution_on_a_fine_rule(alpha, lam):
    """The accuracy asked for is reached; in the second problem the two coarsest rules agree by accident."""
    problem, accuracy = replace(PROBLEM, alpha=alpha, lam=lam, kappa=2.0), 1e-3
    found = sh.solve(problem, accuracy=accuracy)
    fine = single_head_iteration.iterate(problem, TwoTokenChannel(problem, 22, 7.0), prior, found.hats)
    for name in found.quadrature_error:
        value = getattr(found.overlaps if name in Overlaps._fields else found, name)
        # the fine rule has an error of its own, 3e-4 where the prox jumps often
        np.testing.assert_allclose(value, fine.values[name], rtol=accuracy + 3e-4, atol=0, err_msg=name)


@pytest.mark.parametrize("law", [MarchenkoPastur(kappa0=0.5), FiniteRank(eigenvalues=[3.0, 1.0], d=20)])
@pytest.mark.parametrize("delta", [0.02, 0.5])
def test_agrees_between_two_ways_to_the_start_of_the_tail(law, delta):
    """Newton's method in the half plane, and the curve b(a) bracketed; the second is used where the first gives up."""
    noisy, found = FreeConvolution(law, delta), 0
    for eps in [*noisy.quantile(np.linspace(0, 1, 17)), -3 * delta, law.upper / 2, law.upper + 3 * delta]:
        direct, curve = noisy._inside(eps), noisy._subordination(np.array([eps]))[0]
        if direct is not None:
            found += 1
            # positions agree to 1e-13; at an edge the slope dz/dw vanishes like a square root
            np.testing.assert_allclose([direct.real, direct.imag], [curve.real, curve.imag], rtol=0, atol=1e-6 * delta)
    assert found >= 3


def test_identity_jacobian_of_a_coarser_rule_serves_on_a_finer_one(monkeypatch):
    """Fewer updates, same fixed point."""
    coarse = TwoTokenChannel(PROBLEM)
    state = single_head_iteration.reach(PROBLEM, coarse, prior, single_head_iteration.starting_point(coarse))
    fine = coarse.refined()
    given = single_head_iteration.iterate(PROBLEM, fine, prior, state.hats, 1e-4, state.jacobian)
    alone = single_head_iteration.iterate(PROBLEM, coarse.refined(), prior, state.hats)
    np.testing.assert_allclose(given.hats, alone.hats, rtol=1e-9, atol=0)  # the residual times the condition
    assert given.n_iter < alone.n_iter


def test_identity_second_stage_falls_back(monkeypatch):
    """With a useless Jacobian Broyden's steps are left for Anderson's."""
    channel = TwoTokenChannel(PROBLEM)
    start = single_head_iteration.starting_point(channel)
    state = single_head_iteration.reach(PROBLEM, channel, prior, start)
    near = [1.01 * h for h in state.hats]
    found = single_head_iteration.iterate(PROBLEM, channel, prior, near, 1e-4, np.zeros((3, 3)))
    np.testing.assert_allclose(found.hats, state.hats, rtol=1e-9, atol=0)


@pytest.mark.parametrize("name", ["alpha", "lam", "kappa", "beta", "beta0"])
@pytest.mark.parametrize("value", [1e308, 1e13, 1e-13])
def test_rejects_numbers_whose_squares_overflow(name, value):
    with pytest.raises(ValueError, match=rf"{name} = .*must be a finite number > 0, from 1e-12 to 1e12"):
        replace(PROBLEM, **{name: value})


def test_rejects_noise_whose_square_overflows():
    with pytest.raises(ValueError, match=r"Delta = 1e\+300: must be a finite number >= 0, up to 1e12"):
        replace(PROBLEM, Delta=1e300)


@pytest.mark.parametrize(
    "changed",
    [
        {"alpha": 1e12},
        {"alpha": 1e-12},
        {"lam": 1e12},
        {"Delta": 1e12},
        {"beta": 1e-12},
        {"alpha": 9.65e6, "lam": 774.0, "Delta": 0.0, "kappa": 1.21, "beta": 4.2, "beta0": 259.0},
    ],
)
def test_rejects_or_solves_the_ends_of_the_ranges(changed):
    """An answer or one of the two documented errors, nothing else."""
    try:
        assert np.isfinite(sh.solve(replace(PROBLEM, **changed)).test_error)
    except (ConvergenceError, ValueError) as error:
        assert str(error)
