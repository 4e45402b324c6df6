"""The accuracy table as plain data and as lines of text: what `evidence` prints."""

from __future__ import annotations

import dataclasses
from typing import Any

from planner.evidence.accuracy import Accuracy, Errors, LeftOut, fitted
from planner.i18n import t


def as_json(found: Accuracy, without: dict[str, list[LeftOut]] | None = None) -> dict[str, Any]:
    """The table in the shape of the command line's contract; errors are shares, 0.05 is 5 %."""
    names = [f.name for f in dataclasses.fields(Errors)]
    own = dataclasses.asdict(found.errors) if found.errors else dict.fromkeys(names)
    splits = {f"by_{k}": {n: dataclasses.asdict(e) for n, e in some.items()} for k, some in found.splits.items()}
    fits, untuned, oom = (found.frontier[name] for name in ("fits", "fits_untuned", "oom"))
    return {
        "memory": {
            "coverage": found.coverage if found.counted else None, "counted": found.counted,
            "answered": found.answered, **own,
            "opposite_fits": fits.opposite, "opposite_oom": oom.opposite, "edge_fits": fits.edge,
            "edge_oom": oom.edge, "edge_fits_untuned": untuned.edge, "n_fits": fits.n, "n_fits_untuned": untuned.n,
            "n_oom": oom.n,
            **splits,
        },
        "speed": {},
        "groups": [dataclasses.asdict(group) for group in found.groups],
        "skipped": found.skipped,
        "worst": [
            {"id": r.id, "framework": r.framework, "error": r.error, "assumed": list(r.assumed)} for r in found.worst
        ],
        "fitted": {c.name: list(c.fitted_to) for c in fitted()},
        "left_out": {key: [dataclasses.asdict(one) for one in some] for key, some in (without or {}).items()},
    }  # fmt: skip


def rows_of(found: dict[str, Errors]) -> list[tuple[str, ...]]:
    """Lines of a table by one column: name, rows, groups, error, by repository, bias, 90th percentile, band."""
    return [
        (name, str(e.n), str(e.groups), f"{e.mape:.1%}", f"{e.mape_by_repository:.1%}", f"{e.bias:+.1%}",
         f"{e.p90:.1%}", f"{e.band_coverage:.0%}", f"{e.half_width:.0%}")
        for name, e in found.items()
    ]  # fmt: skip


def sentences(found: Accuracy) -> list[str]:
    """What the table says beside its figures."""
    fits, untuned, oom = (found.frontier[name] for name in ("fits", "fits_untuned", "oom"))
    said = [t("evidence.legend")]
    if found.counted:
        said += [t("evidence.coverage", answered=found.answered, counted=found.counted, share=f"{found.coverage:.1%}")]
    else:
        said += [t("evidence.no_records")]
    said.append(t("evidence.fits", n=fits.n, opposite=f"{fits.opposite:.1%}", edge=f"{fits.edge:.1%}",
                  untuned=untuned.n, edge_untuned=f"{untuned.edge:.1%}"))  # fmt: skip
    said.append(t("evidence.oom", n=oom.n, opposite=f"{oom.opposite:.1%}", edge=f"{oom.edge:.1%}"))
    names = ", ".join(c.name for c in fitted())
    said.append(t("evidence.fitted", names=names or "-"))
    return said
