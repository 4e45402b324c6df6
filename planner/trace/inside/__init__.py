"""What runs inside the worker process: the only code of the planner, beside the probe, that imports torch."""
