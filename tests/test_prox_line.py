"""Quadrature nodes along lines of constant w_v against the proximal operator itself."""

import numpy as np
import pytest
from scipy.stats import norm

from attn_lib.proximal import moreau_objective, prox
from attn_lib.theory import prox_line
from attn_lib.theory.prox_line import ProxLine


def random_lines(V, sigma, spread, n=150, seed=0):
    rng = np.random.default_rng(seed)
    T11, T22 = 0.3 + 0.6 * rng.random((2, n))
    low = np.full(n, -6 * spread)
    return ProxLine(spread * rng.normal(size=n), T11, T22, V, sigma), low, -low


# from weak folds to lines with several jumps, with several minima in v
CASES = [(12.7, 0.5, 0.1), (28.0, 0.5, 0.3), (44.0, 0.7, 0.39), (250.0, 0.5, 0.25), (250.0, 0.5, 0.45)]


@pytest.mark.parametrize(("V", "sigma", "spread"), CASES)
def test_identity_nodes_are_global_minima(V, sigma, spread):
    lines, low, high = random_lines(V, sigma, spread)
    line, u, v, w_u, weight = lines.nodes(low, high, 20)
    here = lines.w_v[line], lines.T11[line], lines.T22[line], V, sigma
    _, _, value = prox(w_u, *here)
    np.testing.assert_allclose(moreau_objective(u, v, w_u, *here), value, rtol=1e-8, atol=1e-12)


@pytest.mark.parametrize(("V", "sigma", "spread"), CASES)
def test_identity_each_line_covers_all_w_u_once(V, sigma, spread):
    lines, low, high = random_lines(V, sigma, spread)
    line, _, _, w_u, weight = lines.nodes(low, high, 20)
    mass = np.bincount(line, weights=weight * norm.pdf(w_u / spread) / spread, minlength=low.size)
    np.testing.assert_allclose(mass, 1, rtol=0, atol=1e-6)  # 2e-9 of it beyond 6 standard deviations


def test_identity_valleys_are_searched_in_parts(monkeypatch):
    lines, low, high = random_lines(250.0, 0.7, 0.45)
    whole = lines.nodes(low, high, 12)
    monkeypatch.setattr(prox_line, "_GRID", 3000)
    for a, b in zip(lines.nodes(low, high, 12), whole, strict=True):
        np.testing.assert_allclose(a, b, rtol=0, atol=1e-8)


def test_closed_form_without_loss():
    """V to 0: the proximal operator is the identity."""
    lines, low, high = random_lines(1e-13, 0.5, 0.2)
    line, u, v, w_u, weight = lines.nodes(low, high, 10)
    np.testing.assert_allclose(u, w_u, rtol=0, atol=1e-12)
    np.testing.assert_allclose(v, lines.w_v[line], rtol=0, atol=1e-12)
    np.testing.assert_allclose(np.bincount(line, weights=weight), high - low, rtol=1e-12)


def test_identity_lines_with_two_jumps_are_cut_twice():
    lines, low, high = random_lines(44.0, 0.7, 0.39)
    line, *_ = lines.nodes(low, high, 20)
    pieces = np.bincount(line) // 20
    assert pieces.max() >= 3
