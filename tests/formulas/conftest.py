"""Declares every formula, whichever module calls it."""

import importlib
import pkgutil

from planner import formulas

for module in pkgutil.iter_modules(formulas.__path__):
    importlib.import_module(f"planner.formulas.{module.name}")
