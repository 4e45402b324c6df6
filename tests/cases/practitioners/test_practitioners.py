"""The practitioners' cases of memory, against the product; the others are listed with what they wait for."""

from __future__ import annotations

import pytest

from tests.cases.practitioners.checks import held
from tests.cases.practitioners.express import CASES, RESTATED, Raw

ANSWERED = ("memory-measured", "fits", "oom", "host-ram", "calculator-bug", "sizing-question")
#: kinds that a later version answers, and with what
WAITING = {
    "throughput": "speed", "config-mistake": "lint", "oom-message": "parsing of messages", "diagnosis": "diagnose",
}  # fmt: skip

NOW = [pytest.param(of, id=of["id"]) for of in CASES if of["kind"] in ANSWERED]
LATER = [pytest.param(of, id=f"{of['kind']}: {of['id']}") for of in CASES if of["kind"] in WAITING]


@pytest.mark.parametrize("of", NOW)
def test_the_right_answer(of: Raw) -> None:
    """A case that is not met stands as an expected failure, with what is known of why in restated.toml."""
    doubt = RESTATED.get(of["id"], {}).get("doubt")
    wrong = held(of, of["right_answer"]["check"])
    if doubt and wrong:
        pytest.xfail(f"{doubt} ({'; '.join(wrong)})")
    assert not wrong


@pytest.mark.parametrize("of", LATER)
def test_a_case_that_waits(of: Raw) -> None:
    pytest.skip(f"waits for {WAITING[of['kind']]}")


def test_no_case_is_left_out() -> None:
    assert {of["kind"] for of in CASES} == {*ANSWERED, *WAITING}
    assert set(RESTATED) <= {of["id"] for of in CASES}
    assert all(of["source"].get("repo_or_url") for of in CASES)
