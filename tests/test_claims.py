"""What a claim is, how its evidence is judged and kept; `test_claims_part1` and `test_claims_part2` verify them all."""

import numpy as np
import pytest

from attn_lib import claims
from attn_lib.claims.evidence import Claim, agreement, evidence_for, positive
from attn_lib.comparison import Estimate


def test_identity_every_claim_is_complete():
    ids = [claim.id for claim in claims.all()]
    assert len(set(ids)) == len(ids)
    for claim in claims.all():
        assert claim.statement and claim.source and claim.tolerance
        assert claim.chapter.split("/")[0] in ("part1", "part2")  # either is verified in a file of tests


def test_identity_batches_hold_every_claim_once():
    ids = [claim_id for batch in claims.batches() for claim_id in batch]
    assert sorted(ids) == sorted(claim.id for claim in claims.all())


def test_identity_kept_evidence_is_not_missing(tmp_path, monkeypatch):
    monkeypatch.setenv("ATTN_LIB_EVIDENCE", str(tmp_path))
    assert claims.missing() == claims.batches()
    kept = "sh-interpolation-rate"
    (claim,) = (claim for claim in claims.all() if claim.id == kept)
    evidence_for(claim, tmp_path)
    assert not any(kept in batch for batch in claims.missing())
    assert sum(map(len, claims.missing())) == len(claims.all()) - 1


def test_identity_rows_can_fail():
    assert not agreement("x", 1.0, Estimate(1.5, 0.1), relative=0.05).holds
    assert agreement("x", 1.0, Estimate(1.4, 0.1), relative=0.05).holds
    assert not positive("x", 1.0, Estimate(0.3, 0.1)).holds
    assert not positive("x", -1.0, Estimate(3.0, 0.1)).holds


def test_identity_kept_evidence_is_computed_once_and_read_back_exactly(tmp_path):
    computed = []

    def compute():
        computed.append(True)
        yield agreement("x", 1 / 3, Estimate(0.1 + 0.2, 1e-17), absolute=1e-3)
        yield positive("y", -1.0, Estimate(np.nan, np.inf))

    texts = {name: name for name in ("id", "statement", "source", "chapter", "tolerance")}
    claim = Claim(compute=compute, **texts)
    first, second = (evidence_for(claim, tmp_path / "new") for _ in range(2))
    assert len(computed) == 1
    assert repr(first.rows) == repr(second.rows) == repr(evidence_for(claim).rows)
    assert not second.holds


def test_rejects_unknown_claim():
    with pytest.raises(ValueError, match="claim_id = 'ps-nothing': must be one of"):
        claims.verify("ps-nothing")
