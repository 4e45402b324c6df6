"""Every formula of the planner, and nothing else: pure functions of named numbers with a unit and a source."""
