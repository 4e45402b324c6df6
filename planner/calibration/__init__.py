"""Coefficients that only a measurement can give, with their spread, range and origin."""
