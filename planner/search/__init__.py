"""Inverse questions: the largest model, batch or sequence, and the single changes that make a run fit."""
