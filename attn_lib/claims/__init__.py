"""Every claim of the papers as an entry with its evidence: theory value, measured value, error, tolerance, verdict.

>>> from attn_lib import claims
>>> [claim.id for claim in claims.all()][:2]
['ps-loss-concentration', 'ps-overlaps']

The same entries run in the tests and are shown in the chapters. :func:`verify` computes the evidence for one claim,
:func:`verify_all` that of all claims.
"""

import os
import warnings
from functools import cache

from joblib import Parallel, delayed, parallel_config

from attn_lib.claims import part1, part1_more, part2, part2_modes, part2_more, part2_rates, part2_thresholds
from attn_lib.claims.evidence import Claim, Evidence, Row, evidence_for, is_kept

__all__ = ["Claim", "Evidence", "Row", "all", "batches", "missing", "verify", "verify_all", "verify_each"]

TOGETHER = ("part2/learning_curves", "part2/spectrum")  # claims on the same trained layers, and the longest to compute


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


def batches():
    """Ids of the claims in groups that share runs: a process that computes a whole group does nothing twice.

    Returns
    -------
    tuple of tuple of str
        The longest group comes first.
    """
    groups = {TOGETHER: []}
    for claim in all():
        chapter = TOGETHER if claim.chapter in TOGETHER else claim.chapter
        groups.setdefault(chapter, []).append(claim.id)
    return tuple(tuple(ids) for ids in groups.values())


def missing():
    """Of :func:`batches` what is not in the folder that ATTN_LIB_EVIDENCE names; all of it if there is none.

    Returns
    -------
    tuple of tuple of str
    """
    folder = os.environ.get("ATTN_LIB_EVIDENCE")
    groups = (tuple(claim_id for claim_id in ids if not is_kept(claim_id, folder)) for ids in batches())
    return tuple(ids for ids in groups if ids)


def verify_each(ids):
    """Compute the evidence for some claims, one after the other.

    Parameters
    ----------
    ids : iterable of str

    Returns
    -------
    dict
        Id to Evidence.
    """
    return {claim_id: verify(claim_id) for claim_id in ids}


def verify_all(n_jobs=2):
    """Compute the evidence for every claim, several at a time.

    Parameters
    ----------
    n_jobs : int
        Processes, one thread each. None is started if all evidence is in the folder that ATTN_LIB_EVIDENCE names.

    Returns
    -------
    dict
        Id to Evidence, in the order of :func:`all`.
    """
    with warnings.catch_warnings(), parallel_config(backend="loky", inner_max_num_threads=1):
        # joblib replaces a process whose memory has grown between tasks, and says so; nothing is lost
        warnings.filterwarnings("ignore", message="A worker stopped while some jobs were given")
        computed = Parallel(n_jobs=n_jobs, batch_size=1)(delayed(verify_each)(ids) for ids in missing())
    found = {claim_id: evidence for part in computed for claim_id, evidence in part.items()}
    return {claim.id: found.get(claim.id) or verify(claim.id) for claim in all()}
