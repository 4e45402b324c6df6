"""Whatever a case file holds, the answer is a case or every problem at once; the spelling table is held to it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import planner
from planner import cases
from planner.errors import BadInput, NewerFormat, PlannerError, Problem
from planner.spec.build import merged, spellings
from planner.spec.case import Case
from planner.spec.fill import APART, APPROXIMATE
from planner.spec.form import CHOICES, SCHEMA, fields, nearby
from planner.spec.recipe import PRECISIONS
from planner.spec.stack import known
from tests.strategies import json_trees, raw_cases

Raw = dict[str, Any]

fuzz = settings(max_examples=150, suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much])

BASE: Raw = {"model": "llama-3.2-1b", "cluster": {"gpu": "h100-sxm", "gpus": 8}}


def problems(raw: Any) -> tuple[Problem, ...]:
    """What is wrong with it; nothing where it is a case. Any error that is not the planner's own comes through."""
    try:
        cases.case(raw, files=False)
    except PlannerError as error:
        return error.problems or (Problem("", "an error without a problem"),)
    return ()


def outcome(raw: Any) -> Case | tuple[str, ...]:
    """The case, or the fields that have problems."""
    found = problems(raw)
    if not found:
        return cases.case(raw, files=False)
    for problem in found:
        assert problem.field
        assert problem.problem
        assert len(str(problem)) < 2000
    return tuple(p.field for p in found)


# Fuzz.


@given(st.dictionaries(st.sampled_from(["model", "cluster", "recipe", "plan", "name", "schema", "x"]), json_trees))
@fuzz
def test_any_json_is_a_case_or_a_list_of_problems(raw: Raw) -> None:
    found = outcome(raw)
    if isinstance(found, Case):
        assert planner.evaluate(found).verdict in ("fits", "edge", "oom")


LEAVES = sorted(f for f in fields() if not any(g.startswith(f"{f}.") for g in fields()) and f != "model")


@given(st.dictionaries(st.sampled_from(LEAVES), json_trees, min_size=1, max_size=4))
@fuzz
def test_any_value_in_any_field_is_a_case_or_a_list_of_problems(changes: Raw) -> None:
    outcome(merged(BASE, changes))


CONFIG = {
    "model_type": "llama", "hidden_size": 2048, "intermediate_size": 8192, "num_hidden_layers": 16,
    "num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 128256,
}  # fmt: skip


@given(st.dictionaries(st.sampled_from([*CONFIG, "head_dim", "tie_word_embeddings", "name"]), json_trees, max_size=3))
@fuzz
def test_any_configuration_is_a_case_or_a_list_of_problems(changes: Raw) -> None:
    found = outcome({**BASE, "model": {**CONFIG, **changes}})
    if isinstance(found, Case):
        assert float(planner.evaluate(found).memory.device) > 0
    else:
        assert all(f.split(".")[0] in ("model", "plan", "recipe") for f in found)


@given(st.text() | st.binary(max_size=300))
@fuzz
def test_any_text_is_read_or_refused(text: str | bytes) -> None:
    try:
        found = cases.read(text)
    except BadInput as error:
        found = {"problems": error.problems}
    assert isinstance(found, dict)
    assert found.get("problems", "none") != ()


@given(raw_cases())
@fuzz
def test_a_case_says_what_was_stated_and_reads_it_again(raw: Raw) -> None:
    found = outcome(raw)
    if isinstance(found, Case):
        said = cases.stated(found)
        assert said == {"schema": SCHEMA, **raw}
        again = cases.case(json.loads(json.dumps(said)))
        assert (again.model, again.recipe, again.plan) == (found.model, found.recipe, found.plan)
        assert (again.stack, again.assumed, again.stated) == (found.stack, found.assumed, found.stated)


# All problems at once.


def test_every_problem_of_shape_is_told() -> None:
    wrong: Raw = {
        "modell": 1, "cluster": {"gpus": "8", "gpu": 5}, "plan": {"tp": 0, "zero": 9, "tq": 1},
        "recipe": {"seq_len": 1.5, "dropout": 2},
    }  # fmt: skip
    assert set(outcome(wrong)) == {
        "modell", "cluster.gpus", "cluster.gpu", "plan.tp", "plan.zero", "plan.tq", "recipe.seq_len", "recipe.dropout",
    }  # type: ignore[arg-type]  # fmt: skip


def test_every_unknown_name_is_told() -> None:
    wrong: Raw = {
        "model": "lama", "cluster": {"gpu": "h100-sxn"}, "recipe": {"optimizer": "x"},
    }  # fmt: skip
    told = outcome(wrong)
    assert {"model", "cluster.gpu"} <= set(told)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("named", "stack", "spread"),
    [
        ("megatronn", "pytorch", "formula_error_unknown_stack"),
        ("Hugging Face", "hf-transformers", ""),
        ("Megatron-LM@core_r0.9", "megatron-lm", ""),
        ("LLaMA-Factory", "hf-transformers", "formula_error_approximate"),
    ],
)
def test_a_framework_is_recognised_or_treated_as_plain_pytorch(named: str, stack: str, spread: str) -> None:
    case = cases.case({**BASE, "recipe": {"framework": named}})
    assert case.stack.id == stack
    assert case.spreads == ((spread,) if spread else ())
    noted = [one for one in case.filled if one.field == "recipe.framework"]
    assert bool(noted) == bool(spread)
    assert all(named in one.filled for one in noted)


def test_the_same_statement_twice_is_the_same_case() -> None:
    one, two = cases.case(BASE), cases.case(BASE)
    assert one == two
    assert hash(one) == hash(two)


LISTS = ("recipe.peft.targets", "recipe.peft.modules_to_save", "recipe.checkpointing_args.recompute")


@pytest.mark.parametrize("field", sorted(CHOICES))
def test_every_choice_of_a_field_is_known_and_nothing_else(field: str) -> None:
    wide = {"recipe.task": "lora"} if field.startswith("recipe.peft") else {}
    field = "recipe.precision.preset" if field == "recipe.precision" else field

    def unknown(word: str) -> bool:
        value: Any = [word] if field in LISTS else word
        told = problems(merged(BASE, {**wide, field: value}))
        return any(p.field == field and "not known" in p.problem and p.nearest for p in told)

    if field == "recipe.checkpointing_args.recompute":
        wide = {"recipe.checkpointing": "selective-modules"}

    assert unknown("no-such-word")
    assert not any(map(unknown, CHOICES[field]))


def test_a_stated_field_is_never_left_out_in_silence() -> None:
    moe = {**BASE, "model": "mixtral-8x7b"}
    stated = merged(moe, {"plan.ep": 8})
    assert problems(stated) or getattr(cases.case(stated).plan, "ep", 1) == 8


# Spellings, and what stands for what has no formula yet.


@pytest.mark.parametrize("field", sorted(set(nearby()) - {"recipe.framework"}))
def test_what_is_only_come_near_to_is_listed_and_widens_the_band(field: str) -> None:
    lora = {"recipe.task": "lora"} if field.startswith("recipe.peft") else {}
    split = {"plan.pp": 4, "plan.cp": 2, "cluster.gpus": 8} if field in ("plan.schedule", "plan.cp_comm") else {}
    for stated, near in nearby()[field].items():
        assert near in CHOICES[field]
        assert stated not in CHOICES[field]
        case = cases.case(merged({"model": "llama-3-8b"}, {**lora, **split, field: stated}))
        noted = [one for one in case.filled if one.field == field and one.spread]
        assert [one.value for one in noted] == [near]
        assert stated in noted[0].filled
        assert case.spreads == (APART.get(field, APPROXIMATE),)


def test_frameworks_without_a_recipe_build_upon_one_that_has_one() -> None:
    for named, base in nearby()["recipe.framework"].items():
        assert known(base)
        assert not known(named), f"{named} has a recipe of its own: take its line out"


def rows() -> Iterator[tuple[str, str, str]]:
    for field, table in spellings().items():
        if field == "recipe.framework":
            continue  # its values are the files of data/stacks
        for spelling, canonical in table.items():
            yield field, spelling, canonical


@pytest.mark.parametrize(("field", "spelling", "canonical"), list(rows()))
def test_a_spelling_means_a_valid_choice(field: str, spelling: str, canonical: str) -> None:
    assert field in CHOICES
    assert canonical in (*CHOICES[field], *nearby().get(field, ()))
    assert spelling == spelling.strip().lower(), "the table is looked up in lower case"
    assert spelling not in CHOICES[field], "a choice needs no spelling"


@pytest.mark.parametrize(("field", "spelling", "canonical"), list(rows()))
def test_a_spelling_is_read_as_what_it_means(field: str, spelling: str, canonical: str) -> None:
    peft = {"recipe.task": "lora"} if field.startswith("recipe.peft") else {}
    values = ([spelling], [canonical]) if field == "recipe.peft.targets" else (spelling.upper(), canonical)
    one, two = (outcome(merged(BASE, {**peft, field: value})) for value in values)
    if isinstance(two, Case):
        assert isinstance(one, Case)
        assert (one.recipe, one.plan) == (two.recipe, two.plan)
    else:
        assert one == two


@pytest.mark.parametrize(("said", "meant"), [(True, "full"), (False, "none")])
def test_checkpointing_may_be_yes_or_no(said: bool, meant: str) -> None:
    found = outcome(merged(BASE, {"recipe.checkpointing": said}))
    assert isinstance(found, Case)
    assert found.recipe.checkpointing == meant


@pytest.mark.parametrize("preset", PRECISIONS)
def test_a_precision_is_a_word_or_a_table_that_differs_from_one(preset: str) -> None:
    word = outcome(merged(BASE, {"recipe.precision": preset}))
    table = outcome(merged(BASE, {"recipe.precision": {"preset": preset}}))
    part = outcome(merged(merged(BASE, {"recipe.precision": preset}), {"recipe.precision.grads": "fp16"}))
    assert isinstance(word, Case)
    assert isinstance(table, Case)
    assert isinstance(part, Case)
    assert word.recipe == table.recipe
    assert part.recipe.precision.preset == preset
    assert part.recipe.precision.grads == "fp16"


# Merging.


def test_merging_puts_dotted_fields_in_and_leaves_what_it_was_given() -> None:
    before = {"model": "gpt2", "plan": {"tp": 2, "offload": {"params": "cpu"}}}
    kept = json.loads(json.dumps(before))
    made = merged(before, {"plan.pp": 4, "plan.offload.optimizer": "cpu", "cluster.gpus": 8, "plan.tp": None})
    assert before == kept
    assert made == {
        "model": "gpt2", "cluster": {"gpus": 8},
        "plan": {"tp": None, "pp": 4, "offload": {"params": "cpu", "optimizer": "cpu"}},
    }  # fmt: skip


def test_a_word_becomes_a_table_when_a_part_of_it_is_stated() -> None:
    assert merged({"model": "gpt2"}, {"model.n_positions": 2048}) == {"model": {"name": "gpt2", "n_positions": 2048}}
    made = merged({"recipe": {"precision": "bf16-pure"}}, {"recipe.precision.grads": "fp32"})
    assert made == {"recipe": {"precision": {"preset": "bf16-pure", "grads": "fp32"}}}
    assert merged({"plan": 5}, {"plan.tp": 2}) == {"plan": {"tp": 2}}


def test_the_last_of_two_changes_wins() -> None:
    assert merged({}, {"plan.tp": 2, "plan": {"pp": 3}}) == {"plan": {"pp": 3}}
    assert merged({}, {"plan": {"pp": 3}, "plan.tp": 2}) == {"plan": {"pp": 3, "tp": 2}}


@given(raw_cases(), st.dictionaries(st.sampled_from(LEAVES), json_trees, max_size=4))
@fuzz
def test_merging_twice_is_merging_once_and_touches_nothing_else(raw: Raw, changes: Raw) -> None:
    kept = json.dumps(raw)
    once = merged(raw, changes)
    assert json.dumps(raw) == kept
    # NaN is not equal to itself: compare as text
    assert json.dumps(merged(once, changes), sort_keys=True) == json.dumps(once, sort_keys=True)
    assert merged(raw, {}) == raw


def test_a_change_is_a_case_again() -> None:
    first = cases.case(BASE)
    second = cases.changed(first, {"plan.tp": 2})
    assert (second.plan.tp, first.plan.tp) == (2, 1)
    assert cases.changed(second, {"plan.tp": None}).plan == first.plan
    with pytest.raises(BadInput):
        cases.changed(first, {"plan.tp": 3})


# Formats.


@pytest.mark.parametrize("schema", ["headroom.case/2", "headroom.case/10"])
def test_a_newer_format_is_its_own_error(schema: str) -> None:
    with pytest.raises(NewerFormat, match="newer version"):
        cases.case({**BASE, "schema": schema, "unheard": "of"})


@pytest.mark.parametrize(
    "schema", ["headroom.case/0", "x/2", "", 2, ["headroom.case/1"], {}, "headroom.case/²"]
)
def test_another_format_is_refused(schema: Any) -> None:
    with pytest.raises(BadInput) as told:
        cases.case({**BASE, "schema": schema})
    assert not isinstance(told.value, NewerFormat)


def test_a_stranger_cannot_read_files() -> None:
    for name in ("/etc/passwd", "../secret.json", "~/x/config.json", "./config.json", "planner/data/models/gpt2.json"):
        with pytest.raises(PlannerError) as told:
            cases.case({**BASE, "model": name}, files=False)
        assert "passwd:" not in str(told.value)
