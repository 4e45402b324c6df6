"""Memory of a device that a process can reach."""

from __future__ import annotations

from planner.quantity import formula, minimum


@formula("B", source="cli-contract")
def usable_memory(nominal_gb, per_gb):
    """Memory torch sees on a device known only by the size it is sold as, `per_gb` for each GB of it.

    0.988 GiB per GB is right to 0.3 % on Hopper, to 2 % on a B200, and too much on parts that lose memory to ECC.
    """
    return nominal_gb * per_gb


@formula("B", source="SMI")
def usable_memory_within(expected, total, reserved):
    """Memory torch sees on a device whose printed total is known: what its size promises, but no more than the
    total less what the driver keeps. Against public out-of-memory messages it is right to about 0.3 %."""
    return minimum(expected, total - reserved)
