"""A runner for each type of check. A check holds, or says in words what it found instead."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from planner.quantity import value_of
from planner.search.remedies import path, remedies
from planner.step.evaluate import Estimate
from planner.units import GIB
from tests.cases.practitioners.express import RESTATED, Raw, estimate
from tests.cases.practitioners.measures import measured

VERDICTS = {
    "fits": ("fits",), "oom": ("oom",), "fits_or_tight": ("fits", "edge"), "oom_or_tight": ("oom", "edge"),
    "edge": ("edge",), "tight": ("edge",), "host_oom": ("oom",), "unsafe": ("edge",),
}  # fmt: skip
#: remedies of the vocabulary -> the field that ours change, or the warning whose remedy names it
REMEDIES = {
    "smaller_micro_batch": ("plan.micro_batch",), "smaller_batch": ("plan.micro_batch",),
    "qlora": ("recipe.task", "recipe.peft.base_dtype", "recipe.peft"), "chunked_or_fused_loss": ("recipe.loss",),
    "context_parallel": ("plan.cp",), "more_offload": ("plan.offload",),
}  # fmt: skip
#: what a remedy of the vocabulary is called in a warning's remedy
SAID = {"precompute_ref": "rl_model_copies", "precompute_ref_log_probs": "rl_model_copies",
        "lora_shared_base": "rl_model_copies"}  # fmt: skip


def held(of: Raw, check: Raw) -> list[str]:
    """What of a check does not hold; nothing where all of it does."""
    run = _property if of["id"] in AS_PROPERTY else _BY_TYPE[check["type"]]
    own = [] if waits(of, check) else run(of, check)
    return [*own, *_beside(of, check)]


def _beside(of: Raw, check: Raw) -> Iterable[str]:
    """What a check asks for besides its own type."""
    found = None
    if {"must_flag", "must_recommend_any", "must_not_recommend", "lower_bound_gib_per_gpu"} & check.keys():
        found = estimate(of, check.get("at"))
        codes = {one.code for one in found.warnings}
        missing = set(check.get("must_flag", ())) - codes
        if missing:
            yield f"not warned of {missing}, only of {codes}"
        yield from _recommended(found, check, codes)
        least = check.get("lower_bound_gib_per_gpu")
        if least and float(value_of(found.memory.device)) / GIB < least:
            yield f"below the floor of {least} GiB: {float(value_of(found.memory.device)) / GIB:.1f}"
    for also in _as_list(check.get("also")):
        yield from _verdict(of, also)


def _recommended(found: Estimate, check: Raw, codes: set[str]) -> Iterable[str]:
    changed = {field for one in (*remedies(found), *path(found)) for field in one.changes}
    wanted = check.get("must_recommend_any")
    if wanted and not any(_names(word, changed, codes) for word in wanted):
        yield f"none of {wanted} among {changed}, {codes}"
    wrong = [word for word in check.get("must_not_recommend", ()) if _names(word, changed, set())]
    if wrong:
        yield f"{wrong} recommended: {changed}"


def _names(word: str, changed: set[str], codes: set[str]) -> bool:
    return SAID.get(word) in codes or any(f.startswith(prefix) for f in changed for prefix in REMEDIES.get(word, ()))


def _as_list(value: Any) -> list[Raw]:
    return [] if value is None else value if isinstance(value, list) else [value]


def _verdict(of: Raw, check: Raw) -> Iterable[str]:
    found = estimate(of, check.get("at"))
    host = check.get("scope") == "host" or check["expect"].startswith("host")
    got = found.host.verdict if host else found.verdict
    allowed = {word for name in (check["expect"], *check.get("accept", ())) for word in VERDICTS[name]}
    if got not in allowed:
        m = found.memory
        device, low, high, usable, host_ = (
            f"{float(value_of(one)) / GIB:.1f}" for one in (m.device, m.low, m.high, m.usable, found.host.needed)
        )
        room = f"{device} GiB [{low}, {high}] of {usable}, host {host_} GiB"
        yield f"{check.get('at')}: {got}, not {sorted(allowed)}; {room}"


def _range(of: Raw, check: Raw) -> Iterable[str]:
    got = measured(of, check["metric"], check.get("at"))
    if not any(check["lo"] <= value <= check["hi"] for value in got):
        yield f"{check['metric']}: {[round(v, 3) for v in got]} not in [{check['lo']}, {check['hi']}]"


def _value(of: Raw, check: Raw) -> Iterable[str]:
    stated = check["value"] if isinstance(check["value"], Mapping) else {"": check["value"]}
    for key, wanted in stated.items():
        got = measured(of, check["name"], check.get("at"), key)
        if isinstance(wanted, list):
            good = any(wanted[0] <= value <= wanted[1] for value in got)
        else:
            room = check.get("abs_tol") or abs(wanted) * check.get("rel_tol", 0.05)
            near = [wanted, *check.get("accept", ())]
            good = any(abs(value - one) <= room for value in got for one in near)
        if not good:
            yield f"{check['name']} {key}: {[round(v, 3) for v in got]} for {wanted}"
        for wrong in (one for one in _numbers(check.get("must_not_equal")) if not isinstance(wanted, Mapping)):
            if any(abs(value / wrong - 1) < 0.01 for value in got):
                yield f"{check['name']} {key} is the wrong published {wrong}"


def _numbers(value: Any) -> list[float]:
    return [] if value is None else value if isinstance(value, list) else [value]


def _direction(of: Raw, check: Raw) -> Iterable[str]:
    for name, bounds in check.items():
        if isinstance(bounds, Mapping) and "throughput" not in name and "time" not in name:
            yield from _range(of, {"metric": name, **bounds})


def _ranking(of: Raw, check: Raw) -> Iterable[str]:
    order = check["order_low_to_high"]
    got = [max(measured(of, check["metric"], {"model": name})) for name in order]
    if got != sorted(got):
        yield f"{dict(zip(order, got, strict=True))} are not in order"


def _flag(of: Raw, check: Raw) -> Iterable[str]:
    codes = {one.code for one in estimate(of, check.get("at")).warnings}
    if check["code"] not in codes:
        yield f"{check['code']} is not among {sorted(codes)}"


def _diagnosed(of: Raw, check: Raw) -> Iterable[str]:
    """The named cause is among the warnings of the estimate; the order of causes waits for `diagnose`."""
    codes = {one.code for one in estimate(of, check.get("at")).warnings}
    causes = {check.get("cause"), *check.get("cause_any", ())} - {None}
    if causes and not causes & codes:
        yield f"none of {causes} among {sorted(codes)}"
    if missing := set(check.get("causes", ())) - codes:
        yield f"{missing} not among {sorted(codes)}"


def _multi(of: Raw, check: Raw) -> Iterable[str]:
    for one in check["checks"]:
        if not waits(of, one):
            yield from held(of, one)


def _property(of: Raw, check: Raw) -> Iterable[str]:
    """A property of the product over many inputs has a test of its own, by the case's id."""
    from tests.cases.practitioners import properties

    if of["id"].replace("-", "_") not in dir(properties):
        yield "no property of that name in properties.py"
    else:
        getattr(properties, of["id"].replace("-", "_"))()


def waits(of: Raw, check: Raw) -> bool:
    """Whether a part of a check is about time or throughput, which the product does not answer yet."""
    name = str(check.get("metric") or check.get("name") or "")
    return "time" in name or "hours" in name or name in RESTATED.get(of["id"], {}).get("waits", ())


#: cases whose figure is a difference or a rule: properties of their own, whatever the type of their check
AS_PROPERTY = ("calc-megatron-uneven-pp", "sizing-rule-18x-under-75pct")

_BY_TYPE: dict[str, Callable[[Raw, Raw], Iterable[str]]] = {
    "verdict": _verdict, "range": _range, "value": _value, "table": _value, "ratio": _value, "direction": _direction,
    "ranking": _ranking, "flag": _flag, "diagnose": _diagnosed, "multi": _multi, "invariant": _property,
    "policy": _property, "lint_output": _property,
}  # fmt: skip
