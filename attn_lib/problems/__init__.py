"""Problems: frozen, validated parameters. Theory and simulation both start here, and share nothing else."""

from attn_lib.problems._lasso import DiagonalModel
from attn_lib.problems._part1 import GeneralAttention, PositionalSemantic
from attn_lib.problems._part2 import SingleHead
from attn_lib.spectra.laws import FiniteRank, MarchenkoPastur, PowerLaw

__all__ = [
    "DiagonalModel",
    "FiniteRank",
    "GeneralAttention",
    "MarchenkoPastur",
    "PositionalSemantic",
    "PowerLaw",
    "SingleHead",
]
