"""Answers to exercises of Part II: error_decomposition, emergence, scaling_laws."""

__all__ = ["ANSWERS"]

ANSWERS = {}
