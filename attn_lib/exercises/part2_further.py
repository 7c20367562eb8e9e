"""Answers to exercises of Part II: what_carries_over, lasso, errata."""

__all__ = ["ANSWERS"]

ANSWERS = {}
