"""Estimates, crossings and power laws on data whose answer is known."""

import numpy as np
import pytest

from attn_lib.comparison import Estimate, crossing, estimate, power_law, z_score


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


def test_rejects_too_little_data():
    with pytest.raises(ValueError, match="n >= 2"):
        estimate([1.0])
    with pytest.raises(ValueError, match="at least 3"):
        crossing([0, 1], [-1, 1], [1, 1])
    with pytest.raises(ValueError, match="must lie between"):
        crossing([0, 1, 2], [1, 2, 3], [1, 1, 1])
    with pytest.raises(ValueError, match="must be > 0"):
        power_law([1, 2, 3], [1, -2, 3], [1, 1, 1])
