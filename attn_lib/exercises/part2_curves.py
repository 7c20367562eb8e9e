"""Answers to exercises of Part II: full_rank_attention, learning_curves, spectrum."""

__all__ = ["ANSWERS"]

ANSWERS = {}
