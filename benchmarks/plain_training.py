"""Training by the published recipes: the layer written down, differentiated by autograd, minimised by torch.optim."""

import torch

from attn_lib.simulation.attention import positions


class Reached(Exception):
    """The risk is close enough to the minimum, or there were as many gradients as allowed."""


def positional_semantic_risk(problem, x, T, Q):
    """The risk of Part I, through the (n, 2, d) outputs of the layer and of the target."""
    d = len(Q)
    inputs = x + torch.as_tensor(positions(d), dtype=x.dtype)
    h = inputs @ Q / d**0.5
    outputs = torch.softmax(h[:, :, None] * h[:, None, :], dim=2) @ inputs
    return ((T @ x - outputs) ** 2).sum() / (2 * d) + problem.lam / 2 * (Q @ Q)


def single_head_risk(problem, x, Y, W):
    """The risk of Part II, through the queries of all tokens and the attention matrices."""
    d, p = W.shape
    q = x @ W
    trace = torch.eye(x.shape[1], dtype=x.dtype) * (W * W).sum() / (p * d) ** 0.5
    z = (q @ q.mT / (p * d) ** 0.5 - trace) / d**0.5
    return ((Y - torch.softmax(problem.beta * z, dim=-1)) ** 2).sum() + problem.lam * (W * W).sum()


def loss_and_gradient(risk, problem, x, Y, parameters):
    parameters = parameters.detach().requires_grad_()
    value = risk(problem, x, Y, parameters)
    return value, torch.autograd.grad(value, parameters)


def train(optimiser, risk, parameters, *, below, most=5000):
    """Minimise until the risk is at most ``below``, or ``most`` gradients were taken.

    ``optimiser`` makes a torch.optim optimiser of a list of parameters. Returns the number of gradients, and the last
    risk.
    """
    parameters = parameters.clone().requires_grad_()
    steps, values = optimiser([parameters]), []

    def closure():
        steps.zero_grad()
        value = risk(parameters)
        value.backward()
        values.append(value.item())
        if values[-1] <= below or len(values) == most:
            raise Reached
        return value

    try:
        while True:
            steps.step(closure)
    except Reached:
        return len(values), values[-1]
