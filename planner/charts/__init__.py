"""Answers as charts: a specification built once per language and theme, rows bound to it by name."""
