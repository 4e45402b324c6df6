"""What the user states: hardware, model, recipe, plan, case. Frozen, and read from files that name their source."""
