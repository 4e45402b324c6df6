"""Measured runs as data: read, expressed as cases, predicted, and how far the predictions are off."""
