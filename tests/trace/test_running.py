"""The worker: what it answers, how it fails, that it ends, and what is kept of it."""

from __future__ import annotations

import gzip
import json
import os
import time
from pathlib import Path
from typing import Any

import pytest

from planner.cli import main
from planner.errors import BadInput, MissingDependency
from planner.trace import run
from planner.trace.answer import Question, answer, question, trace

TINY = {
    "model_type": "llama", "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2,
    "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 256,
}  # fmt: skip
CASE: dict[str, Any] = {
    "cluster": {"gpu": "h100-sxm", "gpus": 1}, "model": TINY, "recipe": {"seq_len": 128, "precision": "bf16-pure"},
}  # fmt: skip


@pytest.fixture(autouse=True)
def _home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HEADROOM_HOME", str(tmp_path / "home"))


def alive(process: int) -> bool:
    """Whether there is such a process, a zombie included."""
    return Path(f"/proc/{process}").exists()


def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, body: str) -> Question:
    """A user's own module, in a file beside them."""
    text = "import os, signal\nimport torch\nfrom torch import nn\n\n" + body
    (tmp_path / "theirs.py").write_text(text, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    return question(CASE, "theirs:make")


def failure(asked: Question) -> str:
    with pytest.raises(run.TraceFailed) as told:
        run.trace(asked.request(log=False))
    (problem,) = told.value.problems
    return str(problem)


def test_a_trace_is_compared_and_replayed_and_the_second_comes_from_the_cache() -> None:
    asked = question(CASE)
    stages: list[str] = []
    found = run.trace(asked.request(), lambda stage, share: stages.append(stage))
    assert {"import", "build", "trace"} <= set(stages)
    made = answer(asked, found, "native", None)
    assert made.comparison.difference == pytest.approx(0, abs=0.02)  # blocks of 512 B weigh in a model this small
    assert sum(t.traced for t in made.comparison.terms) == found["peak_bytes"]
    assert sum(t.closed or 0 for t in made.comparison.terms) == pytest.approx(made.comparison.closed_then or 0)
    assert made.replay is not None
    assert made.replay.max_reserved >= found["peak_bytes"]
    assert [one["layer"] for one in found["layers"]] == ["model.layers.0", "model.layers.1", "outside"]
    assert sum(one["params"] for one in found["layers"]) == found["params"]
    assert run.trace(asked.request())["from_cache"]


def test_a_spoiled_cache_is_traced_anew() -> None:
    asked = question(CASE).request(log=False)
    run.trace(asked)
    (kept,) = Path(os.environ["HEADROOM_HOME"], "traces").glob("*.json.gz")
    packed = [gzip.compress(text) for text in (b"no json", b"[]", b'{"peak_bytes": 1}')]
    for spoiled in (b"no gzip", *packed, b""):
        kept.write_bytes(spoiled)
        assert run.recall(asked) is None


def test_cancelling_leaves_no_process() -> None:
    running = run.Running(question(CASE).request())
    process = running._process.pid
    assert alive(process)
    running.cancel()
    assert not alive(process)
    with pytest.raises(run.Cancelled):
        running.result()


def test_a_worker_ends_when_nobody_listens_any_more() -> None:
    running = run.Running(question(CASE).request())
    assert running._process.stdin is not None
    running._process.stdin.close()
    assert running._process.wait(60) is not None
    running.cancel()


STARTS = """
import subprocess, time

def make():
    child = subprocess.Popen(["sleep", "300"])
    open("child", "w").write(str(child.pid) + "\\n")
    {then}
"""


@pytest.mark.parametrize("then", ["time.sleep(300)", "os.fork() or time.sleep(300); return nn.Embedding(9, 4)",
                                  "os.kill(os.getpid(), signal.SIGSEGV)", "return 7"])  # fmt: skip
@pytest.mark.parametrize("end", ["cancel", "input"])
def test_what_a_users_module_starts_ends_with_the_worker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, then: str, end: str
) -> None:
    asked = module(tmp_path, monkeypatch, STARTS.replace("{then}", then))
    running = run.Running(asked.request(log=False))
    written = tmp_path / "child"
    until(lambda: written.exists() and written.read_text().endswith("\n"))
    if end == "input":
        assert running._process.stdin is not None
        running._process.stdin.close()
    else:
        if not then.startswith("time.sleep"):
            until(running.poll)
        running.cancel()
    child = Path(f"/proc/{int(written.read_text())}/stat")
    until(lambda: not child.exists() or ") Z " in child.read_text())
    running.cancel()


def until(holds: Any) -> None:
    """Wait until that holds, a minute at most."""
    last = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < last
        time.sleep(0.05)


def test_a_users_module_is_traced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = module(tmp_path, monkeypatch, """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(100, 32)
        self.head = nn.Linear(32, 100)

    def forward(self, ids):
        return self.head(self.table(ids))

def make():
    return Net()
""")
    found = run.trace(asked.request(log=False))
    assert found["params"] == 100 * 32 + 32 * 100 + 100
    assert answer(asked, found, "native", None).comparison.closed is None


LOOKS = """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(9, 4)

    def forward(self, ids):
        found = self.table(ids)
        return found if found.sum() > 0 else -found

def make():
    return Net()
"""


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (LOOKS, "looks at values"),
        ("def make():\n    os.kill(os.getpid(), signal.SIGSEGV)\n", "ended by itself"),
        ("def make():\n    raise MemoryError('no more')\n", "out of memory"),
        ("def make():\n    return 7\n", "not a torch module"),
        ("def make(width):\n    return nn.Linear(width, 4)\n", "must be callable without arguments: missing"),
        ("make = 7\n", "--module: theirs:make is of the type int"),
        ("def make(:\n", "--module: theirs:make cannot be had"),
        ("import sys\n\ndef make():\n    return sys.stdin.read() or 7\n", "gave int"),
        ("def make():\n    raise RuntimeError('their own words')\n", "their own words"),
    ],
)  # fmt: skip
def test_code_that_cannot_be_traced_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, body: str, words: str
) -> None:
    assert words in failure(module(tmp_path, monkeypatch, body))


@pytest.mark.parametrize("optimizer", ["sgd-momentum", "adamw"])
def test_the_fused_optimizer_takes_no_real_memory(optimizer: str) -> None:
    """torch runs what it cannot fake on real tensors: the step of this 2.2B model would take 17 GiB."""
    wide = {**TINY, "vocab_size": 262144, "hidden_size": 4096, "num_attention_heads": 32}
    recipe = {**CASE["recipe"], "optimizer": optimizer, "optimizer_impl": "fused"}
    found = run.trace(question({**CASE, "model": wide, "recipe": recipe}).request(log=False))
    assert found["params"] > 2e9
    assert found["memory_of_worker_gib"] < 1


UNFAKED = """
from torch.library import custom_op

@custom_op("theirs::twice", mutates_args=())
def twice(x: torch.Tensor) -> torch.Tensor:
    return x * 2

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(9, 4)

    def forward(self, ids):
        return twice(self.table(ids))

def make():
    return Net()
"""


def test_an_operation_that_torch_cannot_fake_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "theirs" in failure(module(tmp_path, monkeypatch, UNFAKED))


def test_a_type_that_transformers_lacks_is_named() -> None:
    assert "no-such-type" in failure(question({**CASE, "model": {"model_type": "no-such-type", "hidden_size": 64}}))


def test_a_configuration_that_transformers_refuses_says_why() -> None:
    odd = {"model_type": "llama", **TINY, "hidden_size": 66, "num_attention_heads": 4, "head_dim": None}
    assert "66" in failure(Question(question(CASE).case, config=odd))


@pytest.mark.parametrize(
    "config",
    [
        {"model_type": "bert", "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 99,
         "intermediate_size": 128},
        {"model_type": "vit", "architectures": ["ViTForImageClassification"], "hidden_size": 64,
         "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 128, "image_size": 32},
    ],
    ids=["encoder", "vision"],
)  # fmt: skip
def test_an_architecture_without_formulas_is_traced_without_them(config: dict[str, Any]) -> None:
    asked = question({**CASE, "model": config})
    found = run.trace(asked.request(log=False))
    made = answer(asked, found, "native", None)
    assert made.comparison.closed is None
    assert found["peak_bytes"] > 0
    assert [one["layer"] for one in found["layers"]][-1] == "outside"


@pytest.mark.parametrize("named", ["theirs", "theirs:", ":make", "../theirs:make", ".theirs:make", "a.py:b c", ""])
def test_a_name_that_can_be_no_module_is_told_before_anything_is_run(named: str) -> None:
    with pytest.raises(BadInput) as told:
        question(CASE, named)
    assert [(p.field, p.nearest) for p in told.value.problems] == [("--module", "package.module:constructor")]


@pytest.mark.parametrize(
    ("key", "value"),
    [("num_hidden_layers", 0), ("num_hidden_layers", -3), ("num_hidden_layers", 10**6), ("hidden_size", "64"),
     ("num_key_value_heads", 3), ("attention_dropout", 1.5), ("vocab_size", 10**12)],
)  # fmt: skip
def test_a_configuration_of_no_sound_model_is_refused_before_it_is_traced(key: str, value: object) -> None:
    with pytest.raises(BadInput) as told:
        question({**CASE, "model": {**TINY, key: value}})
    assert [p.field for p in told.value.problems] == [f"model.{key}"]


def test_what_the_formulas_cannot_read_is_named_beside_the_trace() -> None:
    asked = question({**CASE, "model": {**TINY, "hidden_act": "relu6"}})
    made = answer(asked, run.trace(asked.request()), "native", None)
    assert "relu6" in " ".join(str(note) for note in made.notes)
    with pytest.raises(run.TraceFailed) as told:
        trace(question({**CASE, "model": {**TINY, "hidden_act": "frob"}}), "native")
    assert "model.hidden_act" in [p.field for p in told.value.problems]


def test_everything_that_cannot_be_traced_is_said_at_once() -> None:
    case = {
        "cluster": {"gpu": "h100-sxm", "gpus": 16}, "model": "llama-3-8b",
        "recipe": {"framework": "megatron-lm", "optimizer": "adafactor"}, "plan": {"pp": 2, "tp": 2},
    }  # fmt: skip
    with pytest.raises(BadInput) as told:
        question(case).request()
    fields = [problem.field for problem in told.value.problems]
    assert {"plan.pp", "plan.data_parallel", "recipe.optimizer", "recipe.framework"} <= set(fields)


def test_without_torch_the_line_that_installs_it_is_told(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(run, "missing", lambda: ["torch"])
    with pytest.raises(MissingDependency):
        run.trace(question(CASE).request(), fresh=True)
    with pytest.raises(SystemExit) as ended:
        main(["trace", "--model", "llama-3-8b", "--json", "--fresh"])
    assert ended.value.code == 3
    assert "pip install torch" in json.loads(capsys.readouterr().out)["error"]["problems"][0]["nearest"]


def test_the_command_gives_the_contracts_keys(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, picture = tmp_path / "case.json", tmp_path / "step.pickle"
    path.write_text(json.dumps(CASE), encoding="utf-8")
    said = spoken(capsys, ["trace", str(path), "--replay", "expandable", "--memory-viz", str(picture)])
    contract = {"peak_gib", "peak_phase", "peak_op", "by_category_gib", "closed_form_gib", "difference", "reserved_gib",
                "seconds", "layers"}  # fmt: skip
    assert contract <= set(said)
    assert picture.stat().st_size > 10_000
    small = spoken(capsys, ["trace", str(path), "--capacity", "1MiB"])
    assert small["fits"] is False
    assert small["oom"]["tried_gib"] > 0


def spoken(capsys: pytest.CaptureFixture[str], words: list[str]) -> dict[str, Any]:
    """The JSON that a command answers."""
    with pytest.raises(SystemExit) as ended:
        main([*words, "--json"])
    assert ended.value.code in (0, None)
    said: dict[str, Any] = json.loads(capsys.readouterr().out)
    return said


@pytest.mark.parametrize(
    "option",
    [["--replay", "natve"], ["--capacity", "a lot"], ["--capacity", "-3GiB"], ["--capacity", "9" * 5000],
     ["--memory-viz", "no/such/folder/step.pickle"], ["--memory-viz", "."], ["--module", "theirs"]],
)  # fmt: skip
def test_a_wrong_option_is_told(option: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["trace", "--model", "llama-3-8b", *option, "--json"])
    assert ended.value.code == 2
    assert json.loads(capsys.readouterr().out)["error"]["problems"][0]["field"] == option[0]


def test_the_case_is_not_overwritten(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "case.json"
    path.write_text(json.dumps(CASE), encoding="utf-8")
    with pytest.raises(SystemExit) as ended:
        main(["trace", str(path), "--memory-viz", str(path)])
    assert ended.value.code == 2
    assert "--memory-viz" in capsys.readouterr().err
    assert json.loads(path.read_text(encoding="utf-8")) == CASE
