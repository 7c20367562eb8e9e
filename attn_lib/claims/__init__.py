"""Every claim of the papers as an entry with its evidence: theory value, measured value, error, tolerance, verdict.

>>> from attn_lib import claims
>>> [claim.id for claim in claims.all()][:2]
['ps-loss-concentration', 'ps-overlaps']

The same entries run in the tests and are shown in the chapters. :func:`verify` computes the evidence anew,
:func:`verify_all` that of all claims.
"""

import os
import warnings
from functools import cache

from joblib import Parallel, delayed, parallel_config

from attn_lib.claims import part1, part1_more, part2, part2_modes, part2_more, part2_rates, part2_thresholds
from attn_lib.claims.evidence import Claim, Evidence, Row, evidence_for

__all__ = ["Claim", "Evidence", "Row", "all", "verify", "verify_all"]


def all():
    """All claims, in the order of the book.

    Returns
    -------
    tuple of Claim
    """
    return (
        part1.CLAIMS
        + part1_more.CLAIMS
        + part2.CLAIMS
        + part2_thresholds.CLAIMS
        + part2_more.CLAIMS
        + part2_modes.CLAIMS
        + part2_rates.CLAIMS
    )


@cache
def verify(claim_id):
    """Compute the evidence for a claim; remembered within a session.

    When the environment variable ATTN_LIB_EVIDENCE names a folder, evidence found there is not computed again: so do
    `make book` and `make test`, which empty it when anything that the evidence depends on has changed.

    Parameters
    ----------
    claim_id : str
        As listed by :func:`all`.

    Returns
    -------
    Evidence

    Raises
    ------
    ValueError
        Unknown id.
    """
    known = {claim.id: claim for claim in all()}
    if claim_id not in known:
        raise ValueError(f"claim_id = {claim_id!r}: must be one of {tuple(known)}")
    return evidence_for(known[claim_id], os.environ.get("ATTN_LIB_EVIDENCE"))


def verify_all(n_jobs=2):
    """Compute the evidence for every claim, several at a time.

    Parameters
    ----------
    n_jobs : int
        Processes, one thread each.

    Returns
    -------
    dict
        Id to Evidence, in the order of :func:`all`.
    """
    chapters = {}
    for claim in all():
        chapters.setdefault(claim.chapter, []).append(claim.id)
    with warnings.catch_warnings(), parallel_config(backend="loky", inner_max_num_threads=1):
        # joblib replaces a process whose memory has grown between tasks, and says so; nothing is lost
        warnings.filterwarnings("ignore", message="A worker stopped while some jobs were given")
        found = Parallel(n_jobs=n_jobs, batch_size=1)(delayed(_verify_each)(ids) for ids in chapters.values())
    found = {claim_id: evidence for part in found for claim_id, evidence in part.items()}
    return {claim.id: found[claim.id] for claim in all()}


def _verify_each(ids):
    """Claims of one chapter, in one process: they share runs."""
    return {claim_id: verify(claim_id) for claim_id in ids}
