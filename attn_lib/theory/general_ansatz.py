r"""What a branch of the general layer looks like: which conjugates differ from zero, and where to begin.

Each column of Q is positional, tied to one column of Q*, or free. Reflecting a free column, or a column of Q* and the
columns tied to it, leaves such a branch as it is, so all that is odd under these reflections stays zero:
m on columns that are not positional, theta on columns not tied, and the products of columns of different kinds.
Averages over finitely many points respect this only up to their noise; putting the odd ones to zero keeps the iteration
from drifting along the rotations Q -> Q R that change nothing.
"""

from typing import NamedTuple

import numpy as np

__all__ = ["STARTS", "Ansatz", "Hats"]

STARTS = ("semantic", "positional", "mixed", "uninformed")


class Hats(NamedTuple):
    """Conjugates of each token: q_hat (L, r, r), m_hat (L, r), theta_hat (L, r, t), V_hat (L, r, r)."""

    q_hat: np.ndarray
    m_hat: np.ndarray
    theta_hat: np.ndarray
    V_hat: np.ndarray


class Ansatz:
    """The invariant set of one branch.

    Parameters
    ----------
    problem : GeneralAttention
    start : str
        One of ``STARTS``.

    Attributes
    ----------
    masks : Hats
        1 where an entry may differ from zero, for one token: shapes (r, r), (r,), (r, t), (r, r).

    Raises
    ------
    ValueError
        Unknown start, a mixed one with a single column, or a positional one where all positions are zero.
    """

    def __init__(self, problem, start):
        if start not in STARTS:
            raise ValueError(f"start = {start!r}: must be one of {STARTS}")
        r, t = problem.rank, problem.teacher_rank
        if start == "mixed" and r < 2:
            raise ValueError(f"rank = {r!r}: must be >= 2 for the start 'mixed'")
        self.problem = problem
        values, vectors = np.linalg.eigh(np.array(problem.positions))
        n_directions = int((values > 1e-9 * values.sum()).sum())
        if start in ("positional", "mixed") and not n_directions:
            raise ValueError(f"positions = {problem.positions!r}: must not all be 0 for the start {start!r}")
        # the kind of each column: "p" positional, a number one of its own, tied to that column of Q* if below n_tied
        own = list(range(r))
        kinds = {
            "semantic": own,
            "positional": (["p"] * n_directions + own)[:r],
            "mixed": [0, "p", *own[1:]][:r],
            "uninformed": own,
        }[start]
        n_tied = t if start in ("semantic", "mixed") else 0
        same = np.array([[a == b for b in kinds] for a in kinds], dtype=float)
        tied = np.array([[kind == b < n_tied for b in range(t)] for kind in kinds], dtype=float)
        self.masks = Hats(same, np.array([kind == "p" for kind in kinds], dtype=float), tied, same)
        # positional columns begin along the longest directions of the positions
        self._directions = np.zeros((len(values), r))
        for a, column in enumerate(np.flatnonzero(self.masks.m_hat)):
            direction = vectors[:, -1 - a] / np.sqrt(values[-1 - a])
            self._directions[:, column] = direction * np.sign(direction[np.abs(direction).argmax()])

    def hats(self):
        """A point in the basin of the branch.

        Returns
        -------
        Hats
            Those of overlaps of the size that is learned, as if every token had the mean covariance.
        """
        problem, masks = self.problem, self.masks
        L, r = problem.n_tokens, problem.rank
        tau = float(np.mean(problem.token_variances))
        D = problem.lam + 0.1 * problem.alpha * tau**2
        one = np.ones((L, 1, 1))
        return Hats(
            q_hat=one * np.eye(r) * 0.15 * D**2 / (L * tau),
            m_hat=0.15 * D * self._directions,
            theta_hat=one * masks.theta_hat * 0.5 * D / (L * tau),
            V_hat=one * np.eye(r) * 0.1 * problem.alpha * tau / L,
        )

    def to_vector(self, hats):
        """The entries that may differ from zero, symmetric matrices by their upper triangles; and the kind of each.

        Parameters
        ----------
        hats : Hats

        Returns
        -------
        vector, kind : arrays, shape (n,)
            kind is 0 to 3, the place in :class:`Hats`.
        """
        parts = [h[:, self._free(i)].ravel() for i, h in enumerate(hats)]
        return np.concatenate(parts), np.repeat(np.arange(4), [part.size for part in parts])

    def to_hats(self, vector):
        """Inverse of :meth:`to_vector`.

        Parameters
        ----------
        vector : array, shape (n,)

        Returns
        -------
        Hats
        """
        L, hats = self.problem.n_tokens, []
        for i, mask in enumerate(self.masks):
            free = self._free(i)
            part, vector = np.split(vector, [L * int(free.sum())])
            h = np.zeros((L, *mask.shape))
            h[:, free] = part.reshape(L, -1)
            hats.append(h + np.triu(h, 1).transpose(0, 2, 1) if i in (0, 3) else h)
        return Hats(*hats)

    def aligned(self, hats, old):
        """The hats with their odd parts removed, in the gauge Q -> Q R in which m and theta are closest to old ones.

        Parameters
        ----------
        hats, old : Hats

        Returns
        -------
        Hats
        """
        q_hat, m_hat, theta_hat, V_hat = (h * mask for h, mask in zip(hats, self.masks, strict=True))
        overlap = m_hat.T @ old.m_hat + np.einsum("lit,ljt->ij", theta_hat, old.theta_hat)
        left, size, right = np.linalg.svd(overlap + 1e-9 * np.abs(overlap).sum() * np.eye(len(overlap)))
        R = left @ right if size.max() > 0 else np.eye(len(overlap))
        return Hats(R.T @ q_hat @ R, m_hat @ R, R.T @ theta_hat, R.T @ V_hat @ R)

    def _free(self, i):
        """Free entries of one token, as booleans."""
        return (np.triu(self.masks[i]) if i in (0, 3) else self.masks[i]) > 0
