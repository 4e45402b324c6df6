"""The command line keeps its contract: exit status, keys of each answer, every problem at once, never a traceback."""

from __future__ import annotations

import io
import json
import math
import os
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from planner import cli, paths
from planner.spec.stack import stacks

ROOT = Path(__file__).resolve().parents[2]
SMALL = ["--model", "llama-3.2-1b", "--gpu", "h100-sxm", "--gpus", "8", "--framework", "hf"]
TIGHT = ["--model", "llama-3-8b", "--gpu", "rtx-4090", "--gpus", "1"]

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Run:
    """A command in this process: exit status, standard output, standard error."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("COLUMNS", "100")

    def go(*arguments: str, given: str | bytes = b"") -> tuple[int, str, str]:
        data = given.encode("utf-8") if isinstance(given, str) else given
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))
        with pytest.raises(SystemExit) as ended:
            cli.main([str(a) for a in arguments])
        out, err = capsys.readouterr()
        assert "Traceback" not in err + out
        return int(ended.value.code or 0), out, err

    return go


def numbers(tree: Any) -> Iterator[float]:
    match tree:
        case dict():
            for value in tree.values():
                yield from numbers(value)
        case list():
            for value in tree:
                yield from numbers(value)
        case bool() | str() | None:
            pass
        case _:
            yield tree


def answer(out: str) -> dict[str, Any]:
    """One JSON object, with finite numbers."""
    tree = json.loads(out, parse_constant=lambda name: pytest.fail(f"{name} in the answer"))
    assert isinstance(tree, dict)
    assert all(math.isfinite(n) for n in numbers(tree))
    return tree


def refused(run: Run, *arguments: str, given: str | bytes = b"") -> dict[str, dict[str, Any]]:
    """The problems of a wrong input by field: told with exit status 2, for people and as JSON alike."""
    status, out, err = run(*arguments, given=given)
    assert (status, out) == (2, ""), out
    assert err
    status, out, _ = run(*arguments, "--json", given=given)
    assert status == 2
    problems = answer(out)["error"]["problems"]
    assert problems
    for problem in problems:
        assert set(problem) == {"field", "problem", "nearest"}
        assert problem["field"]
        assert problem["problem"]
        assert problem["field"] in err
    return {p["field"]: p for p in problems}


# Answers.

FIT = {
    "verdict", "usable_gib", "headroom_gib", "allocated_gib", "reserved_gib", "device_gib", "mem_low_gib",
    "mem_high_gib", "peak_phase", "breakdown_gib", "stages", "host_gib_per_node", "step_time_s",
    "tokens_per_s_per_gpu", "mfu", "days", "cost_usd", "warnings", "params",
}  # fmt: skip
UNKNOWN_YET = ("step_time_s", "tokens_per_s_per_gpu", "mfu", "days", "cost_usd")
PHASES = {"forward", "loss", "backward", "root_reduce", "optimizer"}


@pytest.mark.parametrize(
    "extra",
    [
        [], ["--checkpointing", "full"], ["--task", "qlora"], ["--set", "plan.tp=2"], ["--set", "plan.pp=4"],
        ["--framework", "megatron-lm"], ["--framework", "deepspeed", "--set", "plan.offload.optimizer=cpu"],
        ["--node", "dgx-h100", "--nodes", "2"], ["--micro-batch", "4096"],
    ],
)  # fmt: skip
def test_fit_answers_with_the_contracts_keys(run: Run, extra: list[str]) -> None:
    base = SMALL if "--node" not in extra else SMALL[:2]
    status, out, err = run("fit", *base, *extra, "--json")
    assert (status, err) == (0, "")
    found = answer(out)
    assert set(found) >= FIT
    assert all(found[name] is None for name in UNKNOWN_YET)
    assert found["verdict"] in ("fits", "edge", "oom")
    assert found["peak_phase"] in PHASES
    assert sum(found["breakdown_gib"].values()) == pytest.approx(found["device_gib"], rel=1e-9)
    assert found["headroom_gib"] == pytest.approx(found["usable_gib"] - found["device_gib"])
    assert found["mem_low_gib"] <= found["device_gib"] <= found["mem_high_gib"]
    assert len(found["stages"]) == found["plan"]["pp"]
    assert max(s["device_gib"] for s in found["stages"]) == found["device_gib"]
    assert isinstance(found["params"], int)
    for warning in found["warnings"]:
        assert set(warning) == {"code", "because", "remedy"}
        assert all(warning.values())


def test_an_answer_is_a_case_again(run: Run, tmp_path: Path) -> None:
    """What `fit` says it was asked, asked again, is answered alike."""
    _, out, _ = run("fit", *SMALL, "--checkpointing", "full", "--set", "plan.zero=3", "--json")
    first = answer(out)
    (tmp_path / "case.json").write_text(json.dumps(first["case"]), encoding="utf-8")
    _, out, _ = run("fit", "case.json", "--json")
    assert answer(out) == first


def test_largest_answers_with_the_contracts_keys(run: Run) -> None:
    status, out, _ = run("largest", "--gpu", "h100-sxm", "--gpus", "8", "--json")
    assert status == 0
    found = answer(out)
    assert set(found) >= {"regimes", "rules"}
    kinds = [one["regime"] for one in found["regimes"]]
    assert set(kinds) == {"full", "16-bit-states", "8-bit-states", "offload", "lora", "qlora"}
    assert kinds.count("full") == 3
    for one in found["regimes"]:
        assert set(one) >= {"regime", "recipe", "params", "shape", "plan", "binding", "headroom_gib", "days"}
        assert one["days"] is None
        assert one["params"] > 1e9
        assert one["shape"]["hidden_size"] == 8192
        assert one["shape"]["num_key_value_heads"] == 8
        assert one["shape"]["head_dim"] == 128
        assert one["shape"]["vocab_size"] == 128_256


@pytest.mark.parametrize(("command", "key"), [("batch", "micro_batch"), ("sequence", "seq_len")])
def test_limits_answer_with_the_contracts_keys(run: Run, command: str, key: str) -> None:
    status, out, _ = run(command, *SMALL, "--checkpointing", "full", "--json")
    found = answer(out)
    assert status == 0
    assert set(found) >= {key, "binding", "headroom_gib"}
    assert found[key] >= found[f"{key}_comfortable"] > 0


def test_explain_answers_with_the_chain(run: Run, tmp_path: Path) -> None:
    (tmp_path / "case.json").write_text('{"model": "llama-3.2-1b"}', encoding="utf-8")
    for name in ("device", "allocated", "weights", "loss", "high", "host", "parameters"):
        status, out, _ = run("explain", "case.json", name, "--json")
        found = answer(out)
        assert status == 0
        assert set(found) >= {"name", "value", "unit", "formula", "source", "inputs"}
        assert found["name"] == name
    status, out, _ = run("explain", "llama-3.2-1b", "weights", "--gpus", "8", "--gpu", "h100-sxm")
    assert status == 0
    assert "⟵ state_bytes = " in out
    assert "rajbhandari2019" in out
    problems = refused(run, "explain", "case.json", "wieghts")
    assert problems["quantity"]["nearest"] == "weights"


@pytest.mark.parametrize("what", ["gpus", "nodes", "models", "recipes", "prices"])
def test_the_catalogue_lists_rows_with_sources(run: Run, what: str) -> None:
    status, out, _ = run("catalog", what, "--json")
    rows = answer(out)[what]
    assert status == 0
    assert len(rows) >= 5
    assert all(row.get("source") or row.get("sources") for row in rows)
    assert {tuple(row) for row in rows} == {tuple(rows[0])}
    assert run("catalog", what)[0] == 0


def test_people_get_a_table(run: Run) -> None:
    for arguments in (["fit", *SMALL], ["fit", *TIGHT], ["largest", "--gpu", "h100-sxm"], ["batch", *SMALL]):
        status, out, err = run(*arguments)
        assert (status, err) == (0, "")
        assert len(out.splitlines()) > 1
        with pytest.raises(ValueError, match="Expecting"):
            json.loads(out)


# Exit status.


def test_require_fit_ends_with_one_unless_it_fits(run: Run) -> None:
    assert run("fit", *SMALL, "--checkpointing", "full", "--require-fit")[0] == 0
    assert run("fit", *TIGHT, "--require-fit")[0] == 1
    status, out, _ = run("fit", *TIGHT, "--require-fit", "--json")
    assert (status, answer(out)["verdict"]) == (1, "oom")
    assert run("fit", *TIGHT)[0] == 0


def test_an_edge_is_not_a_fit(run: Run) -> None:
    arguments = ["fit", "--model", "llama-3-8b", "--gpus", "8", "--gpu", "h100-sxm", "--framework", "hf",
                 "--seq-len", "8192", "--require-fit", "--json"]  # fmt: skip
    status, out, _ = run(*arguments)
    assert (answer(out)["verdict"], status) == ("edge", 1)


def commands() -> list[str]:
    return [c.name or c.callback.__name__ for c in cli.app.registered_commands if c.callback]  # type: ignore[attr-defined]


def example(run: Run, command: str) -> list[str]:
    status, out, _ = run(command, "--help")
    assert status == 0
    shown = " ".join(out.split())
    assert "Example: planner" in shown, f"{command} --help shows no example"
    return shlex.split(shown.split("Example: planner ")[1])


@pytest.mark.parametrize("command", commands())
def test_the_example_of_every_help_runs(run: Run, tmp_path: Path, command: str) -> None:
    (tmp_path / "case.json").write_text('{"model": "llama-3.2-1b"}', encoding="utf-8")
    (tmp_path / "runs.jsonl").write_text('{"id": "mine"}', encoding="utf-8")
    arguments = example(run, command)
    assert arguments[0] == command
    if command == "report":  # writes a PDF: tests/report has that
        arguments = [*arguments[: arguments.index("--pdf")], "--html", "plan.html"]
    assert run(*arguments)[0] == 0


def test_every_command_is_in_the_list(run: Run) -> None:
    status, out, _ = run("--help")
    assert status == 0
    assert set(commands()) >= {"fit", "largest", "batch", "sequence", "explain", "catalog", "report"}
    assert all(command in out for command in commands())


# Wrong input: every problem, where it is, and the nearest valid value.


def test_an_unknown_gpu_names_the_nearest(run: Run) -> None:
    problems = refused(run, "fit", "--model", "llama-3-8b", "--gpu", "h100-sxn", "--gpus", "8")
    assert problems["cluster.gpu"]["nearest"] == "h100-sxm"


def test_every_problem_is_told_at_once(run: Run) -> None:
    problems = refused(
        run, "fit", "--gpu", "h200-sxn", "--model", "lama-3-8b", "--optimizer", "adamm", "--checkpointing", "ful",
        "--framework", "torchtitann", "--set", "recipe.loss=none", "--precision", "bf17",
    )  # fmt: skip
    assert set(problems) >= {"cluster.gpu", "model"}
    problems = refused(
        run, "fit", *SMALL, "--optimizer", "adamm", "--checkpointing", "ful", "--set", "recipe.loss=none",
        "--precision", "bf17", "--set", "plan.offload.params=disk",
    )  # fmt: skip
    assert set(problems) == {
        "recipe.optimizer", "recipe.checkpointing", "recipe.loss", "recipe.precision.preset", "plan.offload.params",
    }  # fmt: skip
    assert all(p["nearest"] for p in problems.values())


def test_every_broken_rule_is_told_at_once(run: Run) -> None:
    problems = refused(run, "fit", *SMALL, "--set", "plan.tp=3", "--set", "plan.pp=5", "--set", "plan.dp_shard=7")
    assert set(problems) >= {"plan", "plan.tp", "plan.pp"}


@pytest.mark.parametrize(
    ("settings", "field", "nearest"),
    [
        (["plan.tp=3"], "plan.tp", "2"),
        (["plan.dp_shard=3", "plan.data_parallel=fsdp2"], "plan", "dp_shard = 8"),
        (["plan.pp=3"], "plan.pp", "2"),
        (["plan.zero=4"], "plan.zero", "3"),
        (["plan.zero=1", "plan.data_parallel=fsdp2"], "plan.zero", "3, or data_parallel = zero"),
        (["plan.micro_batch=0"], "plan.micro_batch", "1"),
        (["plan.micro_batch=1.5"], "plan.micro_batch", "2"),
        (["plan.micro_batch=\"4\""], "plan.micro_batch", "4"),
        (["plan.micro_batch=1e308"], "plan.micro_batch", None),
        (["plan.micro_batch=NaN"], "plan.micro_batch", None),
        (["plan.tq=2"], "plan.tq", "plan.tp"),
        (["recipe.global_batch=7"], "recipe.global_batch", "8"),
        (["recipe.precision.optimizer_state=int8"], "recipe.precision.optimizer_state", "optimizer = adamw8bit"),
        (["recipe.seq_len=-1"], "recipe.seq_len", "1"),
        (["plan.ep=2"], "plan.ep", "1"),
        (["plan=x"], "plan", None),
        (["model=[]"], "model", None),
        (["nonsense"], "--set", "--set plan.tp=4"),
        (["=4"], "--set", "--set plan.tp=4"),
    ],
)  # fmt: skip
def test_a_wrong_field_is_named_with_the_nearest_value(
    run: Run, settings: list[str], field: str, nearest: str | None
) -> None:
    sets = [word for one in settings for word in ("--set", one)]
    problems = refused(run, "fit", *SMALL, *sets)
    assert field in problems
    if nearest is not None:
        assert problems[field]["nearest"] == nearest


@pytest.mark.parametrize(
    "arguments",
    [
        ["fit", "--gpus", "eight"], ["fit", "--nonsense"], ["nonsense"], ["fit", "no-such-file.json"], ["fit", "."],
        ["largest"], ["largest", "--gpu", "h100-sxm", "--gpus", "0"], ["largest", "--gpu", "h100-sxm", "--gpus", "-8"],
        ["largest", "--gpu", "nothing-like-it"], ["catalog", "planets"], ["report", "--model", "llama-3-8b"],
        ["fit", *SMALL, "--gpus", "99999999999"], ["batch"], ["sequence", "--model", "0B"], ["fit"],
        ["fit", "--model", "-5B"], ["fit", "--model", "1e400"], ["fit", "--model", "org/model"],
        ["fit", "--model", "../../etc/passwd"], ["fit", "--model", "x" * 10_000], ["explain"],
    ],
)  # fmt: skip
def test_a_wrong_command_line_is_told(run: Run, arguments: list[str]) -> None:
    status, out, err = run(*arguments)
    assert status in (2, 3)
    assert out == ""
    assert 0 < len(err) < 2000
    status, out, _ = run(*arguments, "--json")
    assert status in (2, 3)
    assert answer(out)["error"]["problems"]


HOSTILE: dict[str, str | bytes] = {
    "empty": "",
    "not json": "hello",
    "a list": "[1, 2]",
    "a number": "7",
    "null": "null",
    "cut off": '{"model_type": "llama", "hidden_size": 40',
    "text for numbers": '{"model_type": "llama", "hidden_size": "4096", "num_hidden_layers": "thirty-two"}',
    "NaN": '{"model_type": "llama", "hidden_size": NaN, "num_hidden_layers": 32, "num_attention_heads": 32}',
    "infinity": '{"model_type": "llama", "hidden_size": Infinity, "num_hidden_layers": -Infinity}',
    "1e308": '{"model_type": "llama", "hidden_size": 1e308, "num_hidden_layers": 1e308, "vocab_size": 1e308}',
    "many digits": '{"model_type": "llama", "hidden_size": ' + "9" * 5000 + "}",
    "huge whole number": '{"model_type": "llama", "hidden_size": 99999999999999999999, "num_hidden_layers": 32}',
    "negative": '{"model_type": "llama", "hidden_size": -4096, "num_hidden_layers": 0, "num_attention_heads": -1}',
    "zero heads": '{"model_type": "llama", "hidden_size": 4096, "num_hidden_layers": 2, "num_attention_heads": 0}',
    "true": '{"model_type": "llama", "hidden_size": true, "num_hidden_layers": false}',
    "objects": '{"model_type": {"a": 1}, "hidden_size": [4096]}',
    "unknown architecture": '{"model_type": "mamba2", "hidden_size": 4096}',
    "other heads": '{"model_type": "llama", "hidden_size": 4096, "intermediate_size": 1, "num_hidden_layers": 1,'
    ' "num_attention_heads": 32, "num_key_value_heads": 5, "vocab_size": 1}',
    "deep": "[" * 100_000 + "]" * 100_000,
    "deep inside": '{"model_type": "llama", "x": ' + '{"a": ' * 500 + "1" + "}" * 501,
    "not UTF-8": b'{"model_type": "\xff\xfe"}',
    "NUL": b"\x00" * 100,
}


@pytest.mark.parametrize("name", sorted(HOSTILE))
def test_a_hostile_config_is_told_not_traced_back(run: Run, tmp_path: Path, name: str) -> None:
    text = HOSTILE[name]
    data = text.encode("utf-8") if isinstance(text, str) else text
    (tmp_path / "config.json").write_bytes(data)
    problems = refused(run, "fit", "--model", "config.json", "--gpu", "h100-sxm")
    assert all(field.startswith("model") for field in problems)
    assert all(len(p["problem"]) < 500 for p in problems.values())


@pytest.mark.parametrize("name", sorted(set(HOSTILE) - {"empty"}))
def test_a_hostile_case_file_is_told_not_traced_back(run: Run, tmp_path: Path, name: str) -> None:
    text = HOSTILE[name]
    (tmp_path / "case.json").write_bytes(text.encode("utf-8") if isinstance(text, str) else text)
    refused(run, "fit", "case.json")
    refused(run, "fit", "-", given=text)


def test_a_file_of_50_megabytes_is_refused_at_once(run: Run, tmp_path: Path) -> None:
    big = tmp_path / "config.json"
    with big.open("wb") as file:
        file.write(b'{"model_type": "llama", "x": "')
        file.truncate(50_000_000)
    assert "model" in refused(run, "fit", "--model", "config.json")
    refused(run, "fit", "config.json")


def test_a_deep_toml_is_refused(run: Run, tmp_path: Path) -> None:
    (tmp_path / "case.toml").write_text("a = " + "[" * 50_000, encoding="utf-8")
    refused(run, "fit", "case.toml")


# Files and standard input.


def test_a_case_comes_from_json_toml_or_standard_input(run: Run, tmp_path: Path) -> None:
    (tmp_path / "case.json").write_text('{"model": "llama-3.2-1b", "cluster": {"gpus": 8}}', encoding="utf-8")
    (tmp_path / "case.toml").write_text('model = "llama-3.2-1b"\n[cluster]\ngpus = 8\n', encoding="utf-8")
    found = [
        answer(run("fit", "case.json", "--json")[1]),
        answer(run("fit", "case.toml", "--json")[1]),
        answer(run("fit", "-", "--json", given='{"model": "llama-3.2-1b", "cluster": {"gpus": 8}}')[1]),
        answer(run("fit", "-", "--json", given='model = "llama-3.2-1b"\ncluster.gpus = 8\n')[1]),
    ]
    assert all(one == found[0] for one in found)


def test_what_is_set_wins_over_options_and_the_file(run: Run, tmp_path: Path) -> None:
    (tmp_path / "case.json").write_text('{"model": "gpt2", "plan": {"micro_batch": 2}}', encoding="utf-8")
    _, out, _ = run("fit", "case.json", "--micro-batch", "3", "--json")
    assert answer(out)["plan"]["micro_batch"] == 3
    _, out, _ = run("fit", "case.json", "--micro-batch", "3", "--set", "plan.micro_batch=4", "--json")
    assert answer(out)["plan"]["micro_batch"] == 4


def test_a_newer_file_is_refused_and_says_so(run: Run) -> None:
    problems = refused(run, "fit", "-", given='{"schema": "headroom.case/2", "model": "gpt2", "unheard": {"of": 1}}')
    assert list(problems) == ["schema"]
    assert "newer version" in problems["schema"]["problem"]
    for said in ("headroom.case/0", "headroom.case/x", "another.case/1", "7"):
        problems = refused(run, "fit", "-", given=json.dumps({"schema": said, "model": "gpt2"}))
        assert "newer" not in problems["schema"]["problem"]
    assert run("fit", "-", given='{"schema": "headroom.case/1", "model": "gpt2"}')[0] == 0


def test_every_stack_answers_to_its_names(run: Run) -> None:
    for stack in stacks().values():
        for name in (stack.id, f"{stack.id}@2099-01", *stack.aliases):
            status, out, _ = run("fit", "--model", "gpt2", "--gpus", "1", "--framework", name, "--json")
            assert status == 0
            assert answer(out)["recipe"]["framework"] == stack.id


# The program itself.


def program(*arguments: str, given: str = "") -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "PYTHONPATH": str(ROOT), "HF_HUB_OFFLINE": "1", "PYTHONWARNINGS": "error"}
    command = [sys.executable, "-m", "planner", *arguments]
    return subprocess.run(command, input=given, capture_output=True, text=True, env=env, cwd="/", check=False)


@pytest.mark.parametrize(
    ("status", "arguments", "given"),
    [
        (0, ["fit", *SMALL, "--json"], ""),
        (0, ["fit", "-", "--json"], '{"model": "llama-3.2-1b"}'),
        (1, ["fit", *TIGHT, "--require-fit", "--json"], ""),
        (2, ["fit", *TIGHT, "--gpu", "nothing", "--json"], ""),
        (2, ["fit", "--nonsense", "--json"], ""),
    ],
)
def test_the_program_ends_with_the_contracts_status(status: int, arguments: list[str], given: str) -> None:
    done = program(*arguments, given=given)
    assert done.returncode == status
    assert done.stderr == ""
    found = answer(done.stdout)
    assert ("error" in found) == (status >= 2)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="a device that is always full")
@pytest.mark.parametrize("arguments", [["catalog"], ["catalog", "--json"], ["fit", *SMALL], ["--help"]])
def test_an_output_that_cannot_be_written_is_told(arguments: list[str]) -> None:
    with Path("/dev/full").open("w", encoding="utf-8") as full:
        done = started(arguments, stdout=full)
    assert (done.returncode, "Traceback" in done.stderr) == (2, False)
    assert "standard output" in done.stderr


@pytest.mark.parametrize("arguments", [["catalog"], ["catalog", "--json"], ["fit", *TIGHT, "--require-fit"]])
def test_nobody_who_reads_is_no_answer_about_the_fit(arguments: list[str]) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    done = started(arguments, stdout=writing)
    os.close(writing)
    assert (done.returncode, done.stderr) == (128 + 13, "")


@pytest.mark.parametrize("arguments", [["fit", "-"], ["predict", "-"], ["evidence", "-"]])
def test_a_closed_standard_input_is_told(arguments: list[str]) -> None:
    script = "import os, sys; os.close(0); os.execv(sys.executable, [sys.executable, '-m', 'planner', *sys.argv[1:]])"
    done = started(arguments, program=("-c", script), stdout=subprocess.PIPE)
    assert (done.returncode, "Traceback" in done.stderr) == (2, False)
    assert "-: It is closed" in done.stderr


@pytest.mark.parametrize("arguments", [["--lang", "zh"], ["--json"], ["--lang", "zh", "--json"]])
@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
def test_an_output_without_our_letters_gets_them_escaped(arguments: list[str], encoding: str) -> None:
    done = started(["fit", *SMALL, *arguments], stdout=subprocess.PIPE, PYTHONIOENCODING=encoding)
    assert (done.returncode, done.stderr) == (0, "")
    if "--json" in arguments:
        assert answer(done.stdout)["verdict"] == "fits"


def started(
    arguments: list[str], stdout: Any, program: Sequence[str] = ("-m", "planner"), **more: str
) -> subprocess.CompletedProcess[str]:
    """The program with an output of its own."""
    env = {**os.environ, "PYTHONPATH": str(ROOT), "HF_HUB_OFFLINE": "1", **more}
    command = [sys.executable, *program, *arguments]
    return subprocess.run(
        command, stdin=subprocess.DEVNULL, stdout=stdout, stderr=subprocess.PIPE, text=True, encoding="utf-8",
        env=env, cwd="/", check=False,
    )  # fmt: skip


def test_a_home_of_nobody_is_a_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HEADROOM_HOME", "~no-such-user/data")
    assert paths.user_data() == tmp_path / "~no-such-user" / "data"
