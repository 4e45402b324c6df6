"""An estimate as a report: plain data in the language in use. It arranges and words; it computes nothing."""

from __future__ import annotations

import datetime
from typing import Any

from planner import __version__, answers, i18n
from planner.charts import largest as largest_chart
from planner.charts import memory as memory_chart
from planner.i18n import t
from planner.report import chain, parts, words
from planner.report.document import Block, Figure, Picture, Points, Report, Section, Table, Text
from planner.search.largest import Largest
from planner.step.evaluate import Estimate
from planner.units import count_text

LEVELS = ("allocated", "reserved", "device", "low", "high", "least", "usable", "headroom")
_FIELD = {"low": "mem_low_gib", "high": "mem_high_gib"}


def report(found: Estimate, largest: list[Largest] | None = None, date: datetime.date | None = None) -> Report:
    """The capacity report of one estimate, dated today unless told otherwise."""
    fit = answers.fit(found)
    regimes = answers.largest(largest) if largest else None
    return Report(
        title=found.case.name or t("report.title", model=fit["model"], **_machine(found)),
        language=i18n.current(),
        date=(date or datetime.datetime.now(tz=datetime.UTC).date()).isoformat(),
        version=__version__,
        question=_question(found, fit),
        setting=_setting(fit),
        verdict=found.overall,
        verdict_text=found.headline,
        answer=tuple(_answer(fit)),
        figures=_figures(fit),
        sections=_sections(found, fit, regimes),
        fit=fit,
        largest=regimes,
        case=fit["case"],
    )


def _machine(found: Estimate) -> dict[str, Any]:
    return {"gpus": words.count(found.case.cluster.gpus), "gpu": found.case.cluster.accelerator.name}


def _question(found: Estimate, fit: dict[str, Any]) -> str:
    recipe = fit["recipe"]
    return t(
        "report.question", task=t(f"report.task.{recipe['task']}"), model=fit["model"],
        params=count_text(fit["params"]), seq_len=words.count(recipe["seq_len"]), **_machine(found),
    )  # fmt: skip


def _setting(fit: dict[str, Any]) -> str:
    recipe, plan = fit["recipe"], fit["plan"]
    spread = [
        t(
            f"report.plan.{plan['data_parallel']}", zero=plan["zero"], shards=plan["dp_shard"],
            replicas=plan["dp_replicate"],
        )
    ]  # fmt: skip
    spread += [t(f"report.plan.{axis}", **{axis: plan[axis]}) for axis in ("tp", "pp") if plan[axis] > 1]
    if "cpu" in plan["offload"].values():
        spread.append(t("report.plan.offload"))
    return t(
        "report.setting", framework=recipe["framework"], precision=recipe["precision"]["preset"],
        optimizer=recipe["optimizer"], plan=t("join.list").join(spread), micro_batch=plan["micro_batch"],
        checkpointing=recipe["checkpointing"],
    )  # fmt: skip


def _answer(fit: dict[str, Any]) -> list[str]:
    figures = {
        "device": fit["device_gib"], "low": fit["mem_low_gib"],
        "high": fit["device_gib"] if fit["mem_high_gib"] is None else fit["mem_high_gib"],
        "usable": fit["usable_gib"], "headroom": fit["headroom_gib"], "lacking": abs(fit["headroom_gib"]),
    }  # fmt: skip
    key = fit["verdict"] if fit["mem_high_gib"] is not None else f"open_{fit['verdict']}"
    said = [t(f"report.answer.{key}", **{k: words.one(v) for k, v in figures.items()})]
    said += [t("report.answer.unmodelled", part=part) for part in fit["unmodelled"]]
    phase = t(f"phase.{fit['peak_phase']}")
    said.append(t("report.answer.peak", phase=phase, allocated=words.one(fit["allocated_gib"])))
    if fit["host_verdict"] in ("edge", "oom"):
        host = {"needed": words.whole(fit["host_gib_per_node"]), "capacity": words.whole(fit["host_capacity_gib"])}
        said.append(t("report.answer.host", verdict=t(f"verdict.{fit['host_verdict']}"), **host))
    if fit["together"]:
        titles = t("join.list").join(one["title"] for one in fit["together"])
        said.append(t("report.answer.together", changes=titles))
    return said


def _figures(fit: dict[str, Any]) -> tuple[Figure, ...]:
    low, high = words.one(fit["mem_low_gib"]), fit["mem_high_gib"]
    band = t("show.at_least", low=low) if high is None else t("report.figure.band", low=low, high=words.one(high))
    usable = t("report.figure.of_usable", usable=words.one(fit["usable_gib"]))
    at = t("report.figure.at", phase=t(f"phase.{fit['peak_phase']}"))
    left = fit["headroom_gib"]
    label = t("report.figure.missing" if left < 0 else "report.figure.headroom")
    capacity = fit["host_capacity_gib"]
    if capacity is None:
        host = t("report.figure.host_open")
    else:
        host = t("report.figure.host_of", capacity=words.whole(capacity))
    return (
        Figure(label, words.one(abs(left)), "GiB", usable),
        Figure(t("report.figure.device"), words.one(fit["device_gib"]), "GiB", band),
        Figure(t("report.figure.allocated"), words.one(fit["allocated_gib"]), "GiB", at),
        Figure(t("report.figure.host"), words.whole(fit["host_gib_per_node"]), "GiB", host),
    )


def _sections(found: Estimate, fit: dict[str, Any], regimes: dict[str, Any] | None) -> tuple[Section, ...]:
    made: list[Section | None] = [
        _memory(fit), _warnings(fit), _remedies(fit), _step(fit), _stages(fit), _host(fit), _largest(regimes),
        parts.case(found), parts.assumptions(found), parts.unanswered(), chain.section(found), parts.hardware(found),
        chain.references(found), parts.file(fit["case"]),
    ]  # fmt: skip
    return tuple(section for section in made if section)


def _section(key: str, *blocks: Block) -> Section:
    return Section(key, t(f"report.section.{key}"), blocks)


def _warnings(fit: dict[str, Any]) -> Section | None:
    points = tuple((words.sentence(one["because"]), one["remedy"]) for one in fit["warnings"])
    return _section("warnings", Points("", points)) if points else None


def _memory(fit: dict[str, Any]) -> Section:
    whole = fit["device_gib"]
    rows = [(t(f"part.{k}"), words.two(v), words.share(v, whole)) for k, v in fit["breakdown_gib"].items()]
    rows.append((t("show.device"), words.two(whole), words.share(whole, whole)))
    head = (t("report.memory.part"), t("report.memory.gib"), t("report.memory.share"))
    table = Table(
        t("report.memory.caption"), head, tuple(rows), (1, 2), strong=(len(rows[1:]),), shape="amounts",
        note=t("report.rounded"),
    )  # fmt: skip
    levels = tuple(
        (t(f"report.level.{k}"), t(f"report.memory.{k}"), words.two(fit[_FIELD.get(k, f"{k}_gib")])) for k in LEVELS
    )
    level_head = (t("report.memory.level"), t("report.memory.meaning"), t("report.memory.gib"))
    return _section(
        "memory", Text(t("report.memory.text")), Picture("breakdown", memory_chart.breakdown_alt(fit)), table,
        Table(t("report.memory.levels"), level_head, levels, (2,), strong=(2, 7), shape="levels"),
    )  # fmt: skip


def _step(fit: dict[str, Any]) -> Section:
    moments = fit["moments_gib"]
    rows = tuple((t(f"phase.{name}"), words.two(value)) for name, value in moments.items())
    peak = list(moments).index(fit["peak_phase"])
    head = (t("report.step.moment"), t("report.memory.gib"))
    return _section(
        "step", Text(t("report.step.text", phase=t(f"phase.{fit['peak_phase']}"))),
        Picture("moments", memory_chart.moments_alt(fit)),
        Table(t("report.step.caption"), head, rows, (1,), strong=(peak,), shape="amounts"),
    )  # fmt: skip


def _stages(fit: dict[str, Any]) -> Section | None:
    stages = fit["stages"]
    if len(stages) < 2:
        return None
    worst = max(stages, key=lambda one: one["device_gib"])
    rows = tuple(
        (
            words.count(one["stage"]), words.two(one["allocated_gib"]), words.two(one["device_gib"]),
            words.two(one["headroom_gib"]), t(f"phase.{one['peak_phase']}"), t(f"verdict.{one['verdict']}"),
        )
        for one in stages
    )  # fmt: skip
    columns = ("stage", "allocated", "device", "headroom", "peak", "verdict")
    head = tuple(t(f"report.stages.{c}") for c in columns)
    return _section(
        "stages", Text(t("report.stages.text", stage=worst["stage"])),
        Picture("stages", memory_chart.stages_alt(fit)),
        Table(t("report.stages.caption"), head, rows, (1, 2, 3), strong=(stages.index(worst),), shape="stages"),
    )  # fmt: skip


def _host(fit: dict[str, Any]) -> Section:
    capacity, verdict = fit["host_capacity_gib"], fit["host_verdict"]
    rows = (
        (t("report.host.needed"), words.two(fit["host_gib_per_node"])),
        (t("report.host.low"), words.two(fit["host_low_gib"])),
        (t("report.host.high"), words.two(fit["host_high_gib"])),
        (t("report.host.capacity"), t("report.host.unknown") if capacity is None else words.two(capacity)),
        (t("report.host.verdict"), t(f"verdict.{verdict}") if verdict else t("report.host.unknown")),
    )
    head = (t("report.memory.level"), t("report.memory.gib"))
    table = Table(t("report.host.caption"), head, rows, (1,), strong=(0,), shape="amounts")
    return _section("host", Text(t("report.host.text")), table)


def _remedies(fit: dict[str, Any]) -> Section | None:
    if fit["verdict"] == "fits":
        return None
    if not fit["remedies"]:
        return _section("remedies", Text(t("report.remedies.none")), Text(t("report.remedies.no_path"), strong=True))
    rows = tuple(
        (
            one["title"], words.two(one["saved_gib"]), words.two(one["headroom_gib"]),
            t(f"verdict.{one['verdict']}"), "; ".join(f"{k} = {words.plain(v, '')}" for k, v in parts.flat(one["set"])),
        )
        for one in fit["remedies"]
    )  # fmt: skip
    head = tuple(t(f"report.remedies.{c}") for c in ("change", "saved", "headroom", "verdict", "set"))
    if fit["together"]:
        titles = t("join.list").join(one["title"] for one in fit["together"])
        last = t("report.answer.together", changes=titles)
    else:
        last = t("report.remedies.no_path")
    table = Table(t("report.remedies.caption"), head, rows, (1, 2), shape="remedies")
    return _section("remedies", Text(t("report.remedies.text")), table, Text(last, strong=True))


def _largest(regimes: dict[str, Any] | None) -> Section | None:
    if regimes is None:
        return None
    rows = tuple(
        (
            one["recipe"], words.billions(one["params_comfortable"]), words.billions(one["params"]), _shape(one),
            one["binding"],
        )
        for one in regimes["regimes"]
    )  # fmt: skip
    head = tuple(t(f"report.largest.{c}") for c in ("recipe", "sure", "most", "shape", "binding"))
    return _section(
        "largest", Text(t("report.largest.text")), Picture("largest", largest_chart.alt_text(regimes)),
        Table(t("report.largest.caption"), head, rows, (1, 2), shape="largest", note=t("show.largest_note")),
    )  # fmt: skip


def _shape(one: dict[str, Any]) -> str:
    shape = one["shape"]
    return f"{shape['num_hidden_layers']} × {shape['hidden_size']}" if shape else t("report.none")
