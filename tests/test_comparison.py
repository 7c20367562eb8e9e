"""Estimates, crossings and power laws on data whose answer is known."""

import numpy as np
import pytest

from attn_lib.comparison import Estimate, crossing, estimate, extrapolate, power_law, z_score


def test_closed_form_estimate_and_z_score():
    measured = estimate([1.0, 2.0, 3.0, 6.0])
    np.testing.assert_allclose(measured, (3.0, np.sqrt(14 / 3) / 2), rtol=1e-12)
    np.testing.assert_allclose(z_score(Estimate(2.0, 0.5), 1.0), 2.0)


def test_identity_crossing_recovers_the_root_with_its_scatter():
    rng = np.random.default_rng(3)
    x, errors = np.array([1.0, 1.1, 1.3, 1.4]), np.array([0.02, 0.01, 0.02, 0.03])
    found = [crossing(x, 0.8 * (x - 1.23) + errors * rng.standard_normal(4), errors) for _ in range(2000)]
    values = np.array([f.value for f in found])
    assert abs(values.mean() - 1.23) < 0.002
    np.testing.assert_allclose(values.std(), np.mean([f.error for f in found]), rtol=0.1)  # 2000 samples: 1.6 %


def test_identity_power_law_recovers_the_exponent_with_its_scatter():
    rng = np.random.default_rng(4)
    x = np.array([1.0, 2.0, 4.0, 8.0])
    y = 3 * x**-0.7
    found = [power_law(x, y * (1 + 0.02 * rng.standard_normal(4)), 0.02 * y) for _ in range(2000)]
    values = np.array([f.value for f in found])
    assert abs(values.mean() + 0.7) < 0.002
    np.testing.assert_allclose(values.std(), np.mean([f.error for f in found]), rtol=0.1)


def test_identity_extrapolation_recovers_limit_and_slope_with_their_scatter():
    rng = np.random.default_rng(5)
    d, errors = np.array([20, 50, 100, 400, 1000]), np.array([0.04, 0.03, 0.02, 0.02, 0.03])
    found = [extrapolate(d, 0.7 - 5 / d + errors * rng.standard_normal(5), errors) for _ in range(2000)]
    for name, truth in (("limit", 0.7), ("slope", -5.0)):
        values, claimed = np.array([getattr(f, name) for f in found]).T
        assert abs(values.mean() - truth) < 4 * values.std() / 2000**0.5
        np.testing.assert_allclose(values.std(), claimed.mean(), rtol=0.1)  # 2000 samples: 1.6 %
    # the mean of chi-square is the number of degrees of freedom, its variance twice that
    assert {f.degrees for f in found} == {3}
    assert abs(np.mean([f.chi_square for f in found]) - 3) < 4 * (6 / 2000) ** 0.5


def test_closed_form_extrapolation_through_a_wrong_form():
    fit = extrapolate([1, 2, 4, 4], [2.0, 1.0, 1.5, 1.5], [1, 1, 2**0.5, 2**0.5])
    # by hand: equal weights at 1/d = 1, 1/2, 1/4 (the last twice at half weight), y = 2, 1, 3/2
    x, y = np.array([1, 0.5, 0.25]), np.array([2, 1, 1.5])
    b = ((x - x.mean()) * y).sum() / ((x - x.mean()) ** 2).sum()
    a = y.mean() - b * x.mean()
    chi_square = ((y - a - b * x) ** 2).sum()
    np.testing.assert_allclose([fit.limit.value, fit.slope.value, fit.chi_square], [a, b, chi_square], rtol=1e-10)


def test_rejects_too_little_data():
    with pytest.raises(ValueError, match="n >= 2"):
        estimate([1.0])
    with pytest.raises(ValueError, match="at least 3"):
        crossing([0, 1], [-1, 1], [1, 1])
    with pytest.raises(ValueError, match="must lie between"):
        crossing([0, 1, 2], [1, 2, 3], [1, 1, 1])
    with pytest.raises(ValueError, match="must be > 0"):
        power_law([1, 2, 3], [1, -2, 3], [1, 1, 1])
    with pytest.raises(ValueError, match="at least 3 different sizes"):
        extrapolate([10, 20, 20], [1, 2, 3], [1, 1, 1])
    with pytest.raises(ValueError, match="all must be > 0"):
        extrapolate([10, 20, 40], [1, 2, 3], [1, 0, 1])
