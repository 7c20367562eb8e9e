"""Answers to exercises of Part II: message_passing, thresholds, inductive_bias."""

__all__ = ["ANSWERS"]

ANSWERS = {}
