"""Curvature of the empirical risk against automatic differentiation through the outputs of the layer."""

import numpy as np
import torch

from attn_lib.problems import PositionalSemantic
from attn_lib.simulation.erm import train_positional_semantic
from attn_lib.simulation.measurement import lowest_curvature
from attn_lib.simulation.sampling import draw_sample


def test_agrees_with_autograd_through_the_outputs():
    problem, d = PositionalSemantic(alpha=1.5, omega=0.3), 24
    trained = train_positional_semantic(problem, d=d, seeds=[3], device="cpu")
    sample = draw_sample(problem, trained.Q_star[0], n=trained.settings.n, seed=3)
    x, T = torch.as_tensor(sample.x), torch.as_tensor(sample.T)
    position = torch.tensor([1.0, -1.0], dtype=torch.float64)[:, None] / d**0.5

    def risk(Q):
        h = (x + position) @ Q / d**0.5
        f = torch.softmax(h[:, :, None] * h[:, None, :], dim=2) @ (x + position)
        return ((T @ x - f) ** 2).sum() / (2 * d) + problem.lam / 2 * Q @ Q

    hessian = torch.autograd.functional.hessian(risk, torch.as_tensor(trained.Q[0])).numpy()
    expected = np.linalg.eigvalsh(hessian)[0] / problem.lam
    np.testing.assert_allclose(lowest_curvature(trained), [expected], rtol=1e-6)  # central differences, step 1e-4
