"""Answers to exercises of Part I: message_passing, general_layers, replica_symmetry, errata."""

__all__ = ["ANSWERS"]

ANSWERS = {}
