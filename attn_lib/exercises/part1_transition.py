"""Answers to exercises of Part I: phase_transition, linear_baseline, gradient_descent."""

__all__ = ["ANSWERS"]

ANSWERS = {}
