"""Answers to exercises of Part I: attention_layer, glm_mapping, fixed_points."""

__all__ = ["ANSWERS"]

ANSWERS = {}
