"""Every claim of Part I, verified: the verdict shown in the book is the one computed here."""

import pytest

from attn_lib import claims

CLAIMS = [claim for claim in claims.all() if claim.chapter.startswith("part1/")]


@pytest.mark.parametrize("claim", CLAIMS, ids=lambda claim: claim.id)
def test_theory_matches_simulation_in(claim):
    evidence = claims.verify(claim.id)
    assert evidence.rows
    assert evidence.holds == (not claim.fails_because), evidence._repr_markdown_()
