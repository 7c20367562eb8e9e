"""Layers that leave the assumptions of Part II: risk, tokens and training."""

import numpy as np
import pytest
import torch

from attn_lib.problems import MarchenkoPastur, SingleHead
from attn_lib.simulation.heads_risk import HeadsRisk, preactivations
from attn_lib.simulation.lbfgs import value_and_gradient
from attn_lib.simulation.robustness import train_variant
from attn_lib.simulation.single_head import train_single_head
from attn_lib.simulation.tokens import (
    Correlated,
    Gaussian,
    Rademacher,
    Sphere,
    StudentT,
    Ternary,
    Vocabulary,
    VocabularyGaussian,
    embeddings,
)
from attn_lib.simulation.variant_sampling import variant_data

ROUNDING = {"rtol": 1e-10, "atol": 1e-12}  # double precision; entries are of order 1
PROBLEM = SingleHead(alpha=1.0, lam=0.1, Delta=0.5, kappa=0.75, target=MarchenkoPastur(kappa0=0.5))
THREE_TOKENS = SingleHead(alpha=0.5, lam=0.1, Delta=0.5, kappa=0.5, target=MarchenkoPastur(kappa0=0.5), n_tokens=3)
LAWS = [Gaussian(), Rademacher(), Sphere(), Ternary(0.2), StudentT(6.0), Vocabulary(3.0), Correlated(1.0)]


def normal(*shape):
    return torch.as_tensor(np.random.default_rng(2).standard_normal(shape))


def small_risk(n_heads, tied, cross=False):
    law, problem = Correlated(0.5), THREE_TOKENS
    data = variant_data(problem, law, d=6, n=40, seed=3, cross=cross)
    x, keys, Y = (None if v is None else v[None] for v in data[1:])
    risk = HeadsRisk(x, Y, problem.lam, 1.3, law.variances(6), p=4, n_heads=n_heads, tied=tied, keys=keys)
    return risk, *normal(2, 1, n_heads * (2 - tied) * 24)


@pytest.mark.parametrize(("tied", "cross"), [(True, False), (False, False), (False, True)])
@pytest.mark.parametrize("n_heads", [1, 2])
def test_agrees_with_automatic_differentiation(n_heads, tied, cross):
    risk, Q, _ = small_risk(n_heads, tied, cross)
    (x,), (Y,), (keys,), centred = risk.x, risk.Y, *((risk.keys, 0) if cross else (risk.x, 1))
    Q.requires_grad_(True)
    weights = Q.reshape(n_heads, -1, 6, 4)
    A = 0
    for w in weights:
        M = w[0] @ w[-1].T / 24**0.5
        trace = centred * (M.diagonal() * risk.variances).sum()
        z = torch.einsum("nai,ij,nbj->nab", x, M, keys) - torch.eye(3).double() * trace
        A = A + torch.softmax(1.3 * z / 6**0.5, dim=-1) / n_heads
    value = ((A - Y) ** 2).sum() + THREE_TOKENS.lam * (weights**2).sum() / (1 if tied else 2)
    (gradient,) = torch.autograd.grad(value, Q)
    found = value_and_gradient(risk, Q.detach())
    torch.testing.assert_close(found[0][0], value.detach(), **ROUNDING)
    torch.testing.assert_close(found[1], gradient, **ROUNDING)


@pytest.mark.parametrize("tied", [True, False])
def test_identity_fields_are_quadratic_in_the_weights(tied):
    risk, Q, D = small_risk(2, tied)
    first, second = risk.steps(Q, D)
    torch.testing.assert_close(risk.fields(Q + 0.3 * D), risk.fields(Q) + 0.3 * first + 0.09 * second, **ROUNDING)


def test_agrees_with_the_single_head_when_nothing_is_changed():
    a = train_variant(PROBLEM, d=16, seeds=[4, 9], tolerance=1e-6)
    b = train_single_head(PROBLEM, d=16, seeds=[4, 9], tolerance=1e-6, device="cpu")
    # the data are the same; gradients vanish to 1e-6 of the decay, values to its square, overlaps to its first power
    for name in ("train_loss", "penalty", "test_error"):
        np.testing.assert_allclose(getattr(a, name), getattr(b, name), rtol=1e-5, atol=1e-8)
    np.testing.assert_allclose(a.m[:, 0, 0], b.m, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(a.q[:, 0, 0], b.q, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(a.singular_values[:, 0], b.eigenvalues[:, ::-1], rtol=1e-3, atol=1e-4)
    np.testing.assert_allclose(a.M0[:, 0], b.S0, **ROUNDING)
    assert (a.asymmetry < 1e-20).all()


@pytest.mark.parametrize("symmetric", [True, False])
def test_identity_untied_decay_is_the_nuclear_norm(symmetric):
    e = train_variant(PROBLEM, d=12, seeds=[0], tied=False, symmetric_target=symmetric, tolerance=1e-6)
    nuclear = e.singular_values.sum() * PROBLEM.lam * (9 * 12) ** 0.5 / 12**2
    # at a minimum the two factors are balanced; a gradient of 1e-6 leaves that relative error
    np.testing.assert_allclose(e.penalty, nuclear, rtol=1e-4, atol=1e-8)


def test_identity_cross_attention_knows_no_basis_of_the_keys():
    _, x, keys, _ = variant_data(PROBLEM, Gaussian(), d=8, n=20, seed=0, cross=True)
    rotation, M = torch.linalg.qr(normal(8, 8))[0], normal(1, 8, 8)
    found = preactivations(x, M @ rotation, torch.ones(8).double(), keys)
    torch.testing.assert_close(found, preactivations(x, M, torch.ones(8).double(), keys @ rotation.T), **ROUNDING)
    assert not torch.equal(x, keys)


def test_identity_two_equal_heads_are_one():
    one, Q, _ = small_risk(1, True)
    two, _, _ = small_risk(2, True)
    both = torch.cat([Q, Q], dim=1)
    torch.testing.assert_close(two.errors(both), one.errors(Q), **ROUNDING)


@pytest.mark.parametrize("law", LAWS, ids=str)
def test_identity_moments_of_tokens(law):
    g = torch.as_tensor(np.random.default_rng(0).standard_normal((40_000, 1, 5)))
    x = law.draw(g, 0)[:, 0]
    if isinstance(law, Vocabulary):
        words = embeddings(5, 15, 0)
        assert {tuple(w) for w in x.tolist()} == {tuple(w) for w in words.tolist()}
        return
    variances = law.variances(5)
    assert variances.mean().item() == pytest.approx(1, rel=1e-12, abs=0)
    error = x.std(0) / 40_000**0.5
    assert (x.mean(0).abs() < 5 * error).all()  # 5 standard errors
    squares = x**2
    assert ((squares.mean(0) - variances).abs() <= 5 * squares.std(0) / 40_000**0.5 + 1e-12).all()


def test_identity_gaussian_tokens_with_the_covariance_of_a_vocabulary():
    g, words = normal(20_000, 1, 4), embeddings(4, 8, 5)
    x = VocabularyGaussian(2.0).draw(g, 5)[:, 0]
    products = x[:, :, None] * x[:, None]
    error = products.std(0) / 20_000**0.5
    assert ((products.mean(0) - words.mT @ words / 8).abs() < 5 * error).all()  # 5 standard errors


@pytest.mark.parametrize(
    ("law", "kurtosis"),
    [(Rademacher(), -2), (Ternary(0.2), 2), (StudentT(10.0), 1), (Sphere(), -2)],
)
def test_closed_form_fluctuation_of_the_length(law, kurtosis):
    g = torch.as_tensor(np.random.default_rng(1).standard_normal((20_000, 40)))
    length = (law.draw(g, 0) ** 2).sum(-1)
    deviation = (length - 40) ** 2 / 40
    assert abs(deviation.mean() - (2 + kurtosis)) <= 5 * deviation.std() / 20_000**0.5 + 1e-12


def test_identity_correlated_tokens_are_isotropic_ones_of_another_target():
    law = Correlated(0.7)
    g, c, M = normal(30, 2, 8), law.variances(8), normal(1, 8, 8)
    root = c.sqrt().diag()
    found = preactivations(law.draw(g, 0), M, c)
    torch.testing.assert_close(found, preactivations(g, root @ M @ root, torch.ones(8).double()), **ROUNDING)


def test_identity_preactivations_are_centred():
    M0, x, *_ = variant_data(PROBLEM, Correlated(1.0), d=8, n=50_000, seed=0, symmetric_target=False)
    z = preactivations(x, M0, Correlated(1.0).variances(8))
    assert (z.mean(0).abs() < 5 * z.std(0) / 50_000**0.5).all()  # 5 standard errors


def test_identity_target_without_symmetry_keeps_its_singular_values():
    symmetric, x, *_ = variant_data(PROBLEM, Gaussian(), d=12, n=4, seed=7)
    asymmetric, x_same, *_ = variant_data(PROBLEM, Gaussian(), d=12, n=4, seed=7, symmetric_target=False)
    torch.testing.assert_close(torch.linalg.svdvals(asymmetric), torch.linalg.svdvals(symmetric), **ROUNDING)
    assert (asymmetric - asymmetric.mT).abs().max() > 0.1
    assert x.shape == x_same.shape


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("d", 1),
        ("seeds", [10**6]),
        ("seeds", [1, 1]),
        ("tokens", "gaussian"),
        ("tied", 1),
        ("cross", 2),
        ("tied", True),
        ("symmetric_target", None),
        ("n_heads", 0),
        ("target_heads", 1.5),
        ("n_test", 1),
        ("max_iter", 0),
        ("tolerance", 0.0),
    ],
)
def test_rejects_bad_arguments(name, value):
    with pytest.raises(ValueError, match=name):
        train_variant(PROBLEM, **{"d": 8, "seeds": [0], "cross": value is True, name: value})


@pytest.mark.parametrize(
    ("law", "name", "value"),
    [(Ternary, "fraction", 0.0), (StudentT, "nu", 2), (Vocabulary, "ratio", -1.0), (Correlated, "exponent", np.nan)],
)
def test_rejects_bad_laws(law, name, value):
    with pytest.raises(ValueError, match=name):
        law(value)
