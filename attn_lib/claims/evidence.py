"""What a claim is, and what counts as evidence for it."""

import json
import os
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

__all__ = ["Claim", "Evidence", "Row", "agreement", "evidence_for", "is_kept", "positive"]

N_ERRORS = 4  # standard errors of a measurement that are allowed for; normal errors exceed them in 6 of 10^5 cases


@dataclass(frozen=True, kw_only=True)
class Claim:
    """One statement of a paper that can be true or false.

    Attributes
    ----------
    id : str
    statement : str
    source : str
        Where the paper says it.
    chapter : str
        The page of the book that derives it.
    compute
        Returns the rows of evidence; theory and simulation are called separately in it.
    tolerance : str
        How the tolerance was fixed beforehand, and why.
    fails_because : str
        Empty for a claim that is found to hold; else the reason for the negative verdict.
    """

    id: str
    statement: str
    source: str
    chapter: str
    compute: Callable
    tolerance: str
    fails_because: str = ""


@dataclass(frozen=True, kw_only=True)
class Row:
    """One comparison: a predicted and a measured number, and whether they agree."""

    label: str
    theory: float
    measured: float
    standard_error: float
    tolerance: float
    holds: bool


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """All comparisons made for a claim. The arrays have one entry per label."""

    claim: Claim
    rows: tuple

    @property
    def labels(self):
        """Names of the numbers compared."""
        return tuple(row.label for row in self.rows)

    @property
    def theory(self):
        """Predicted values."""
        return np.array([row.theory for row in self.rows])

    @property
    def measured(self):
        """Measured values."""
        return np.array([row.measured for row in self.rows])

    @property
    def standard_error(self):
        """Standard errors of the measured values."""
        return np.array([row.standard_error for row in self.rows])

    @property
    def tolerance(self):
        """Largest deviation allowed."""
        return np.array([row.tolerance for row in self.rows])

    @property
    def holds(self):
        """Verdict, true when every row agrees."""
        return all(row.holds for row in self.rows)

    def _repr_markdown_(self):
        verdict = "holds" if self.holds else f"does not hold: {self.claim.fails_because}"
        lines = ["| | theory | measured | standard error | tolerance | agrees |", "|---|---|---|---|---|---|"]
        lines += [
            f"| {r.label} | {r.theory:.5g} | {r.measured:.5g} | {r.standard_error:.1g} | {r.tolerance:.2g} "
            f"| {'yes' if r.holds else 'no'} |"
            for r in self.rows
        ]
        return "\n".join([f"**{self.claim.statement}** ({self.claim.source})", "", *lines, "", f"Verdict: {verdict}."])


def agreement(label, theory, measured, relative=0.0, absolute=0.0):
    """Row for a number that should equal its prediction.

    Parameters
    ----------
    label : str
    theory : float
    measured : Estimate
    relative, absolute : float
        Systematic deviation allowed beside 4 standard errors, as a fraction of the prediction and as a number.

    Returns
    -------
    Row
    """
    tolerance = N_ERRORS * measured.error + relative * abs(theory) + absolute
    return Row(
        label=label,
        theory=float(theory),
        measured=measured.value,
        standard_error=measured.error,
        tolerance=float(tolerance),
        holds=bool(abs(measured.value - theory) <= tolerance),
    )


def positive(label, theory, measured):
    """Row for a number that should be positive, in theory and, by 4 standard errors, as measured.

    Parameters
    ----------
    label : str
    theory : float
        Predicted value.
    measured : Estimate

    Returns
    -------
    Row
        Its tolerance is what the measured value must exceed.
    """
    tolerance = N_ERRORS * measured.error
    return Row(
        label=label,
        theory=float(theory),
        measured=measured.value,
        standard_error=measured.error,
        tolerance=float(tolerance),
        holds=bool(theory > 0 and measured.value > tolerance),
    )


def evidence_for(claim, folder=None):
    """Evidence for a claim: read if a folder holds it, else computed, and written there.

    Parameters
    ----------
    claim : Claim
    folder : path, optional
        Whoever names one empties it when the code or the stored results change.

    Returns
    -------
    Evidence
    """
    if folder is None:
        return Evidence(claim=claim, rows=tuple(claim.compute()))
    kept = _file(claim.id, folder)
    if not kept.is_file():
        rows = [asdict(row) for row in claim.compute()]
        kept.parent.mkdir(parents=True, exist_ok=True)
        unfinished = kept.with_suffix(f".{os.getpid()}")
        unfinished.write_text(json.dumps(rows))
        unfinished.replace(kept)
    return Evidence(claim=claim, rows=tuple(Row(**row) for row in json.loads(kept.read_text())))


def is_kept(claim_id, folder=None):
    """Whether a folder holds the evidence for a claim.

    Parameters
    ----------
    claim_id : str
    folder : path, optional

    Returns
    -------
    bool
    """
    return folder is not None and _file(claim_id, folder).is_file()


def _file(claim_id, folder):
    return Path(folder) / f"{claim_id}.json"
