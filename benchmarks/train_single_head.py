"""One training run of Part II: attn_lib against the plain way, timed in the same process on the same data.

The plain way writes the layer down and differentiates it (autograd), and minimises by torch.optim: L-BFGS with its
strong Wolfe line search, and full-batch Adam at a constant learning rate. attn_lib runs to its default tolerance; the
others until their risk is as close to the minimum (that attn_lib finds at a hundredth of the tolerance), but not
closer than 1e-9, or until --limit seconds. All start from the same W.

python benchmarks/train_single_head.py --d 100 --alpha 1
"""

import argparse
import time

import torch

from attn_lib.problems import MarchenkoPastur, SingleHead
from attn_lib.simulation.erm import train_single_head
from attn_lib.simulation.single_head_sampling import draw_matrix, draw_start, labelled_tokens

CLOSE = 1e-9


class Reached(Exception):
    """The risk is close enough to the minimum, or the time is over."""


def plain_risk(problem, x, Y, W):
    """The risk as the layer's code would have it."""
    d, p = W.shape
    q = x @ W
    z = (q @ q.mT / (p * d) ** 0.5 - torch.eye(x.shape[1], dtype=x.dtype) * (W * W).sum() / (p * d) ** 0.5) / d**0.5
    return ((Y - torch.softmax(problem.beta * z, dim=-1)) ** 2).sum() + problem.lam * (W * W).sum()


def plain_training(optimiser, problem, x, Y, W, *, below, limit, **options):
    """Seconds until the risk is below a value, number of gradients, last risk."""
    W = W.clone().requires_grad_()
    steps = optimiser([W], **options)
    start, values = time.perf_counter(), []

    def closure():
        steps.zero_grad()
        risk = plain_risk(problem, x, Y, W)
        risk.backward()
        values.append(risk.item())
        if values[-1] <= below or time.perf_counter() - start > limit:
            raise Reached
        return risk

    try:
        while True:
            steps.step(closure)
    except Reached:
        return time.perf_counter() - start, len(values), values[-1]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--d", type=int, default=100)
    parser.add_argument("--alpha", type=float, default=1.0)
    parser.add_argument("--lam", type=float, default=0.01)
    parser.add_argument("--learning-rate", type=float, nargs="+", default=[0.02, 0.1], help="of the plain Adam")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--limit", type=float, default=120.0)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    d, target = arguments.d, MarchenkoPastur(kappa0=0.5)
    problem = SingleHead(alpha=arguments.alpha, lam=arguments.lam, Delta=0.5, kappa=1.0, target=target)
    print(f"{problem}\nd = {d}, one seed, {arguments.threads} thread(s), float64 where not said otherwise")
    options = {"d": d, "seeds": [0], "n_test": 2, "device": "cpu"}
    train_single_head(problem, **{**options, "d": 10})  # the first call loads libraries

    exact = train_single_head(problem, **options, tolerance=1e-6)
    minimum = (exact.train_loss + exact.penalty)[0]
    ours, excesses = {}, {}
    for label, more in {
        "L-BFGS": {},
        "L-BFGS, float32": {"dtype": "float32"},
        "Adam": {"optimiser": "adam"},
    }.items():
        start = time.perf_counter()
        found = train_single_head(problem, **options, **more)
        ours[label] = time.perf_counter() - start
        excess = excesses[label] = (found.train_loss + found.penalty)[0] / minimum - 1
        eigenvalues = abs(found.eigenvalues - exact.eigenvalues).max()
        print(f"attn_lib, {label}: {ours[label]:.1f} s with drawing, {found.n_iter[0]} iterations; risk {excess:.0e}")
        print(f"    above its minimum, eigenvalues within {eigenvalues:.0e}, rank off by {found.rank - exact.rank}")

    x, Y = labelled_tokens(problem, draw_matrix(problem, d, 0), n=round(problem.alpha * d**2), seed=0)
    W = torch.as_tensor(draw_start(d, d, 0, 0))
    below, limit = (1 + max(CLOSE, excesses["L-BFGS"])) * minimum * d**2, arguments.limit
    plain = {"L-BFGS": (torch.optim.LBFGS, {"line_search_fn": "strong_wolfe", "history_size": 10})}
    for rate in arguments.learning_rate:
        plain[f"Adam, learning rate {rate}"] = (torch.optim.Adam, {"lr": rate})
    for label, (optimiser, more) in plain.items():
        seconds, n, value = plain_training(optimiser, problem, x, Y, W, below=below, limit=limit, **more)
        excess = value / d**2 / minimum - 1
        print(f"plain {label}: {seconds:.1f} s, {n} gradients; risk {excess:.0e} above;", end=" ")
        print(f"ratio to attn_lib's L-BFGS {seconds / ours['L-BFGS']:.1f}")


if __name__ == "__main__":
    main()
