"""One training run of Part I: the published recipe against attn_lib, timed in the same process.

The recipe is full-batch gradient descent from Q*, 5000 steps, each through the (n, 2, d) outputs with
autograd. Its data are drawn beforehand and not counted; the time of attn_lib includes drawing the data and
measuring the error on fresh samples. By default a part of the 5000 steps is run and the time scaled up (every
step costs the same); --steps 5000 runs all.
"""

import argparse
import time

import torch

from attn_lib.problems import PositionalSemantic
from attn_lib.simulation.attention import positions
from attn_lib.simulation.erm import train_positional_semantic
from attn_lib.simulation.sampling import draw_sample, draw_target

RECIPE_STEPS = 5000


def published_recipe(problem, x, T, Q, *, steps, step_size):
    """Gradient descent on the risk from Q; returns the last risk / d and |gradient|/(lam sqrt(d))."""
    d = len(Q)
    y, inputs = T @ x, x + torch.as_tensor(positions(d), dtype=x.dtype)
    Q = Q.clone().requires_grad_()
    for _ in range(steps):
        h = inputs @ Q / d**0.5
        outputs = torch.softmax(h[:, :, None] * h[:, None, :], dim=2) @ inputs
        risk = ((y - outputs) ** 2).sum() / (2 * d) + problem.lam / 2 * (Q @ Q)
        (gradient,) = torch.autograd.grad(risk, Q)
        with torch.no_grad():
            Q -= step_size * gradient
    return risk.item() / d, gradient.norm().item() / (problem.lam * d**0.5)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--d", type=int, default=1000)
    parser.add_argument("--alpha", type=float, default=1.5)
    parser.add_argument("--omega", type=float, default=0.3)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--step-size", type=float, default=0.15)
    parser.add_argument("--dtype", choices=["float32", "float64"], default="float64", help="of the recipe")
    parser.add_argument("--threads", type=int, default=1)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    problem = PositionalSemantic(alpha=arguments.alpha, omega=arguments.omega)
    dtype = getattr(torch, arguments.dtype)

    def ours():
        return train_positional_semantic(problem, d=arguments.d, seeds=[0], scales=(1.0,), device="cpu")

    ours()  # the first call loads libraries
    start = time.perf_counter()
    trained = ours()
    our_time = time.perf_counter() - start

    Q_star = draw_target(arguments.d, seed=0)
    sample = draw_sample(problem, Q_star, n=trained.settings.n, seed=0)
    x, T, Q = (torch.as_tensor(a, dtype=dtype) for a in (*sample, Q_star))
    start = time.perf_counter()
    steps = arguments.steps
    loss, gradient_norm = published_recipe(problem, x, T, Q, steps=steps, step_size=arguments.step_size)
    measured = time.perf_counter() - start
    recipe_time = measured * RECIPE_STEPS / steps

    print(f"{problem}")
    print(f"d = {arguments.d}, one seed, start Q*, {arguments.threads} thread(s)")
    print(f"attn_lib, float64: {our_time:.3f} s, {trained.n_iter[0]} iterations")
    report(trained.train_loss[0], trained.gradient_norm[0])
    print(f"recipe, {arguments.dtype}, {steps} steps of size {arguments.step_size}: {measured:.1f} s")
    report(loss, gradient_norm)
    how = "measured" if steps == RECIPE_STEPS else f"scaled from {steps}"
    print(f"recipe, {RECIPE_STEPS} steps ({how}): {recipe_time:.0f} s;  ratio {recipe_time / our_time:.0f}")


def report(loss, gradient_norm):
    print(f"    train loss {loss:.10f}, |gradient|/(lam sqrt(d)) {gradient_norm:.1e}")


if __name__ == "__main__":
    main()
