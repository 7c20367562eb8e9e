"""Predictions in the limit of high dimension: numpy and scipy only, no simulation, no torch."""
