"""The commands. Each reads what was given, asks the planner, and prints a table or, with --json, one object."""

from __future__ import annotations

import contextlib
import errno
import io
import itertools
import json
import os
import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Annotated, Any, BinaryIO

import typer

import planner
from planner import answers, cases, errors, explain, i18n, show, thumb
from planner.errors import BadInput, MissingDependency, PlannerError, Problem, nearest, system, unknown
from planner.evidence.records import Line, lines
from planner.i18n import Phrase, Said, phrase, t
from planner.spec.build import merged
from planner.spec.case import Case

ANSWERED, DOES_NOT_FIT, WRONG_INPUT, MISSING = 0, 1, 2, 3
#: whoever read the output has gone, as after `| head -1`: the status of a program that SIGPIPE ends
UNREAD = 128 + 13
MOST_TOLD = 20  # lines without a record that `evidence --json` tells the reason of
#: the output could not be written: a full disk, a full quota, a device that fails
_UNWRITTEN = (errno.ENOSPC, errno.EDQUOT, errno.EIO)

app = typer.Typer(
    name="planner",
    help="Headroom: what GPUs can train, whether a run fits, and why.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

CaseArg = Annotated[str | None, typer.Argument(help="A case file (JSON or TOML), or - for standard input.")]
Json = Annotated[bool, typer.Option("--json", help="One JSON object instead of a table.")]



def speak(language: str) -> str:
    """Use that language from here on; one that has no table is a wrong input."""
    i18n.use(errors.language("--lang", language))
    return i18n.current()


Lang = Annotated[
    str, typer.Option("--lang", help="Language of what people read: en or zh.", callback=speak, is_eager=True)
]
Set = Annotated[list[str] | None, typer.Option("--set", help="Any field: --set plan.tp=4. Repeatable.")]
ModelOpt = Annotated[
    str | None, typer.Option("--model", help="A catalogue name, a config.json, a size (40B) or a Hugging Face id.")
]
Gpu = Annotated[str | None, typer.Option("--gpu", help="GPU by catalogue name, for example h100-sxm.")]
Gpus = Annotated[int | None, typer.Option("--gpus", help="How many GPUs in all.")]
NodeOpt = Annotated[str | None, typer.Option("--node", help="Node by catalogue name, for example dgx-h100.")]
Nodes = Annotated[int | None, typer.Option("--nodes", help="How many nodes.")]
Framework = Annotated[str | None, typer.Option("--framework", help="Training stack, for example torchtitan.")]
SeqLen = Annotated[int | None, typer.Option("--seq-len", help="Tokens a sequence.")]
MicroBatch = Annotated[int | None, typer.Option("--micro-batch", help="Sequences per GPU and pass.")]
Precision = Annotated[str | None, typer.Option("--precision", help="Preset, for example autocast-bf16.")]
Optimizer = Annotated[str | None, typer.Option("--optimizer", help="adamw, adamw8bit, sgd, lion, adafactor.")]
Checkpointing = Annotated[str | None, typer.Option("--checkpointing", help="none, full, selective-op, every-k ...")]
Task = Annotated[str | None, typer.Option("--task", help="pretrain, full-ft, lora or qlora.")]
Loss = Annotated[str | None, typer.Option("--loss", help="full-logits, fused-ce, chunked-ce, fused-linear-ce ...")]

#: option name -> field of a case
OPTIONS = {
    "model": "model", "gpu": "cluster.gpu", "gpus": "cluster.gpus", "node": "cluster.node", "nodes": "cluster.nodes",
    "framework": "recipe.framework", "seq_len": "recipe.seq_len", "micro_batch": "plan.micro_batch",
    "precision": "recipe.precision", "optimizer": "recipe.optimizer", "checkpointing": "recipe.checkpointing",
    "task": "recipe.task", "loss": "recipe.loss",
}  # fmt: skip


def scalar(text: str) -> Any:
    """The value of --set: JSON where it is JSON, else the text itself."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def raw_case(case: str | None, settings: list[str] | None, **options: Any) -> dict[str, Any]:
    """The file form from a file, options and --set, later ones winning."""
    if case == "-":
        tree = cases.read(_standard_input("case").read(cases.MOST_BYTES + 1), t("command.standard-input"))
    else:
        tree = _opened(case) if case else {}
    changes = {OPTIONS[k]: v for k, v in options.items() if v is not None}
    problems = []
    for one in settings or []:
        field, equals, value = one.partition("=")
        if not equals or not field.strip():
            problems.append(Problem("--set", phrase("problem.not-assignment", text=repr(one)), "--set plan.tp=4"))
            continue
        changes[field.strip()] = scalar(value)
    if problems:
        raise BadInput(problems)
    return merged(tree, changes)


def _opened(path: str) -> dict[str, Any]:
    """The case in a file: JSON, TOML, or a report that carries it."""
    kind = Path(path).suffix.lower()
    if kind not in (".pdf", ".html") or not _is_file(path):
        return cases.read_file(path)
    from planner.report import render

    data = Path(path).read_bytes()
    return render.case_from_pdf(data) if kind == ".pdf" else render.case_from_html(data.decode("utf-8", "replace"))


def _is_file(name: str) -> bool:
    try:
        return Path(name).is_file()
    except (OSError, ValueError):  # a name no file can have
        return False


def _standard_input(field: str) -> BinaryIO:
    """The bytes of standard input; whoever started this may have closed it."""
    if sys.stdin is None:
        raise BadInput(Problem(field, phrase("problem.file", path="-", because=Phrase("system.EBADF"))))
    return sys.stdin.buffer


def emit(answer: dict[str, Any], indent: int | None = 2) -> None:
    """One JSON object on standard output, no NaN and no Infinity; escaped where the output cannot hold its letters."""
    text = json.dumps(answer, ensure_ascii=False, indent=indent, allow_nan=False)
    try:
        text.encode(getattr(sys.stdout, "encoding", None) or "utf-8")
    except UnicodeEncodeError:
        text = json.dumps(answer, indent=indent, allow_nan=False)
    typer.echo(text)


@app.command(epilog="Example: planner fit --model llama-3-8b --gpus 8 --gpu h100-sxm --framework hf --seq-len 8192")
def fit(
    case: CaseArg = None, model: ModelOpt = None, gpu: Gpu = None, gpus: Gpus = None, node: NodeOpt = None,
    nodes: Nodes = None, framework: Framework = None, task: Task = None, seq_len: SeqLen = None,
    micro_batch: MicroBatch = None, precision: Precision = None, optimizer: Optimizer = None,
    checkpointing: Checkpointing = None, loss: Loss = None, settings: Set = None,
    require_fit: Annotated[bool, typer.Option("--require-fit", help="Exit with 1 unless the verdict is fits.")] = False,
    as_json: Json = False, lang: Lang = "en",
) -> None:  # fmt: skip
    """Does this exact case fit, and with how much headroom?"""
    made = cases.case(
        raw_case(
            case, settings, model=model, gpu=gpu, gpus=gpus, node=node, nodes=nodes, framework=framework, task=task,
            seq_len=seq_len, micro_batch=micro_batch, precision=precision, optimizer=optimizer,
            checkpointing=checkpointing, loss=loss,
        )
    )  # fmt: skip
    found = planner.evaluate(made)
    if as_json:
        emit(answers.fit(found))
    else:
        show.fit(found)
    if require_fit and found.overall != "fits":
        raise typer.Exit(DOES_NOT_FIT)


@app.command(epilog="Example: planner largest --gpus 8 --gpu h100-sxm --json")
def largest(
    gpu: Gpu = None, gpus: Gpus = None, node: NodeOpt = None, nodes: Nodes = None, settings: Set = None,
    rule_of_thumb: Annotated[
        bool, typer.Option("--rule-of-thumb", help="The founding article's formulas beside the answers.")
    ] = False,
    as_json: Json = False, lang: Lang = "en",
) -> None:  # fmt: skip
    """The largest model these GPUs can train, one answer for each recipe family."""
    stated = raw_case(None, settings, gpu=gpu, gpus=gpus, node=node, nodes=nodes)
    cluster = stated.pop("cluster", None) or {}
    if not isinstance(cluster, dict) or not (cluster.get("gpu") or cluster.get("node")):
        raise BadInput(Problem("--gpu", Phrase("problem.no-gpu"), "--gpu h100-sxm --gpus 8"))
    found = planner.largest_model(cluster, dict(_dotted(stated)))
    rules = thumb.rules(cluster, found) if rule_of_thumb else None
    if as_json:
        emit(answers.largest(found, rules))
        return
    show.largest(found)
    if rules:
        show.rules(rules)


def _dotted(tree: dict[str, Any], prefix: str = "") -> list[tuple[str, Any]]:
    found: list[tuple[str, Any]] = []
    for key, value in tree.items():
        found += _dotted(value, f"{prefix}{key}.") if isinstance(value, dict) else [(f"{prefix}{key}", value)]
    return found


@app.command(epilog="Example: planner batch --model llama-3-8b --gpus 8 --gpu h100-sxm --checkpointing full")
def batch(
    case: CaseArg = None, model: ModelOpt = None, gpu: Gpu = None, gpus: Gpus = None, node: NodeOpt = None,
    nodes: Nodes = None, framework: Framework = None, task: Task = None, seq_len: SeqLen = None,
    precision: Precision = None, optimizer: Optimizer = None, checkpointing: Checkpointing = None, loss: Loss = None,
    settings: Set = None, as_json: Json = False, lang: Lang = "en",
) -> None:  # fmt: skip
    """The largest micro-batch, in sequences per GPU and pass."""
    made = cases.case(
        raw_case(
            case, settings, model=model, gpu=gpu, gpus=gpus, node=node, nodes=nodes, framework=framework, task=task,
            seq_len=seq_len, precision=precision, optimizer=optimizer, checkpointing=checkpointing, loss=loss,
        )
    )  # fmt: skip
    _limit("micro_batch", planner.largest_micro_batch(made), as_json)


@app.command(epilog="Example: planner sequence --model llama-3-8b --gpus 8 --gpu h100-sxm --checkpointing full")
def sequence(
    case: CaseArg = None, model: ModelOpt = None, gpu: Gpu = None, gpus: Gpus = None, node: NodeOpt = None,
    nodes: Nodes = None, framework: Framework = None, task: Task = None, micro_batch: MicroBatch = None,
    precision: Precision = None, optimizer: Optimizer = None, checkpointing: Checkpointing = None, loss: Loss = None,
    settings: Set = None, as_json: Json = False, lang: Lang = "en",
) -> None:  # fmt: skip
    """The longest sequence, in tokens."""
    made = cases.case(
        raw_case(
            case, settings, model=model, gpu=gpu, gpus=gpus, node=node, nodes=nodes, framework=framework, task=task,
            micro_batch=micro_batch, precision=precision, optimizer=optimizer, checkpointing=checkpointing, loss=loss,
        )
    )  # fmt: skip
    _limit("seq_len", planner.longest_sequence(made), as_json)


def _limit(name: str, found: Any, as_json: bool) -> None:
    if as_json:
        emit(answers.limit(name, found))
    else:
        show.limit(name, found)


@app.command("explain", epilog="Example: planner explain case.json allocated --depth 4")
def explain_(
    case: Annotated[str, typer.Argument(help="A case file, - for standard input, or a model's name.")],
    quantity: Annotated[str, typer.Argument(help="Its name: device, allocated, weights, loss ...")] = "device",
    gpu: Gpu = None, gpus: Gpus = None, framework: Framework = None, seq_len: SeqLen = None,
    micro_batch: MicroBatch = None, precision: Precision = None, checkpointing: Checkpointing = None,
    settings: Set = None,
    depth: Annotated[int, typer.Option("--depth", help="How far down the chain.", min=0, max=60)] = 30,
    as_json: Json = False, lang: Lang = "en",
) -> None:  # fmt: skip
    """The chain of formulas, values, units and sources behind a number."""
    named = case != "-" and not _is_file(case)
    made = cases.case(
        raw_case(
            None if named else case, settings, model=case if named else None, gpu=gpu, gpus=gpus, framework=framework,
            seq_len=seq_len, micro_batch=micro_batch, precision=precision, checkpointing=checkpointing,
        )
    )  # fmt: skip
    chosen = _quantity(made, quantity)
    if as_json:
        emit(explain.tree(chosen, depth))
    else:
        show.explanation(chosen, depth)


def _quantity(made: Case, name: str) -> Any:
    found = planner.evaluate(made)
    memory = found.memory
    roots = [memory.device, memory.headroom, memory.high, memory.low, memory.least, found.host.needed, found.params]
    roots += list(memory.moments.values())
    for root in roots:
        if hit := explain.find(root, name):
            return hit
    known = sorted({n for root in roots for n in explain.names(root)})
    raise unknown("quantity", name, known)


@app.command("catalog", epilog="Example: planner catalog gpus --json")
def catalog_(
    what: Annotated[str, typer.Argument(help="gpus, nodes, models, recipes or prices.")] = "gpus",
    as_json: Json = False,
    lang: Lang = "en",
) -> None:
    """What is known, with sources and what is unconfirmed."""
    from planner import listing

    rows = listing.rows(what)
    if as_json:
        emit({what: rows})
    else:
        show.catalog(what, rows)


@app.command(epilog="Example: planner predict runs.jsonl")
def predict(
    records: Annotated[str, typer.Argument(help="Run records, one JSON object a line, or - for standard input.")],
    as_json: Annotated[bool, typer.Option("--json", help="The same: it is always one JSON object a line.")] = True,
    lang: Lang = "en",
) -> None:
    """What the planner says of each run record: its own memory figure with a band, the verdict, what was assumed."""
    from planner.evidence import predict as evidence

    with _records(records) as stream:
        for answer in evidence.answers(lines(stream)):
            emit(answer, indent=None)


def _records(name: str) -> BinaryIO:
    """A file of run records, or standard input."""
    if name == "-":
        return _standard_input("records")
    try:
        if Path(name).exists() and not Path(name).is_file():
            raise BadInput(Problem("records", phrase("problem.not-a-file", path=name), "-"))  # it may never end
        return Path(name).open("rb")
    except (OSError, ValueError) as error:
        because = system(error) if isinstance(error, OSError) else str(error)
        raise BadInput(Problem("records", phrase("problem.file", path=name, because=because), "-")) from None


def _readable(found: Iterable[Line], unread: list[Line]) -> Iterator[Line]:
    """The lines that are records; the others are put aside."""
    for line in found:
        if line.record is None:
            unread.append(line)
        else:
            yield line


@app.command("evidence", epilog="Example: planner evidence --leave-out")
def evidence_(
    records: Annotated[str | None, typer.Argument(help="Your own run records; without, the shipped ones.")] = None,
    leave_out: Annotated[
        bool, typer.Option("--leave-out", help="Each framework and family without the coefficients fitted to it.")
    ] = False,
    as_json: Json = False, lang: Lang = "en",
) -> None:  # fmt: skip
    """How far predictions are from measured runs: coverage, error, bias, bands, verdicts."""
    from planner.evidence import accuracy, rows, table

    found: list[Line] = []
    unread: list[Line] = []
    with contextlib.nullcontext() if records is None else _records(records) as stream:
        every = rows.shipped() if stream is None else lines(stream)
        if leave_out:  # read more than once
            every = iter(found := list(every))
        made = accuracy.accuracy(rows.rows(_readable(every, unread)))
    without = {key: accuracy.left_out(found, key) for key in ("framework", "family")} if leave_out else {}
    if as_json:
        first = [{"line": line.number, "reason": i18n.said(line.problem)} for line in unread[:MOST_TOLD]]
        emit({**table.as_json(made, without), "unread": {"n": len(unread), "first": first}})
    else:
        show.accuracy(made, without, unread)


@app.command(epilog="Example: planner report case.json --pdf plan.pdf --html plan.html")
def report(
    case: CaseArg = None, model: ModelOpt = None, gpu: Gpu = None, gpus: Gpus = None, node: NodeOpt = None,
    nodes: Nodes = None, framework: Framework = None, task: Task = None, seq_len: SeqLen = None,
    micro_batch: MicroBatch = None, precision: Precision = None, optimizer: Optimizer = None,
    checkpointing: Checkpointing = None, loss: Loss = None, settings: Set = None,
    pdf: Annotated[Path | None, typer.Option("--pdf", help="Write the report as PDF.")] = None,
    html: Annotated[Path | None, typer.Option("--html", help="Write the report as one HTML file.")] = None,
    as_json: Json = False, lang: Lang = "en",
) -> None:  # fmt: skip
    """The capacity report of a case, as PDF or HTML, with the case attached."""
    if pdf is None and html is None:
        raise BadInput(Problem("report", Phrase("problem.no-output"), "--pdf plan.pdf"))
    named = [Path(p).absolute() for p in (pdf, html, case if case != "-" else None) if p is not None]
    if len(set(named)) < len(named):
        twice = phrase("problem.same-file", path=str(named[0]))
        raise BadInput(Problem("report", twice, "--pdf plan.pdf --html plan.html"))
    made = cases.case(
        raw_case(
            case, settings, model=model, gpu=gpu, gpus=gpus, node=node, nodes=nodes, framework=framework, task=task,
            seq_len=seq_len, micro_batch=micro_batch, precision=precision, optimizer=optimizer,
            checkpointing=checkpointing, loss=loss,
        )
    )  # fmt: skip
    from planner.report import content, render

    machine = {"gpu": made.cluster.accelerator.id, "gpus": int(made.cluster.gpus), **(made.stated.get("cluster") or {})}
    written = content.report(planner.evaluate(made), planner.largest_model(machine))
    files = []
    for path, make in ((html, render.html), (pdf, render.pdf)):
        if path is None:
            continue
        data = make(written)
        _write(path, data if isinstance(data, bytes) else data.encode("utf-8"))
        files.append(str(path))
    if as_json:
        emit({"files": files, "verdict": written.verdict})
    else:
        show.written(files)


@app.command(epilog="Example: planner trace case.json --capacity 79GiB --memory-viz step.pickle")
def trace(
    case: CaseArg = None, model: ModelOpt = None, gpu: Gpu = None, gpus: Gpus = None, node: NodeOpt = None,
    nodes: Nodes = None, framework: Framework = None, task: Task = None, seq_len: SeqLen = None,
    micro_batch: MicroBatch = None, precision: Precision = None, optimizer: Optimizer = None,
    checkpointing: Checkpointing = None, loss: Loss = None, settings: Set = None,
    module: Annotated[
        str | None, typer.Option("--module", help="Your own code instead of the model: package.module:constructor.")
    ] = None,
    replay: Annotated[
        str | None, typer.Option("--replay", help="Allocator segments: native or expandable (the case's by default).")
    ] = None,
    capacity: Annotated[
        str | None, typer.Option("--capacity", help="Hold the allocator to that much memory, for example 79.2GiB.")
    ] = None,
    memory_viz: Annotated[
        Path | None, typer.Option("--memory-viz", help="Write the run for pytorch.org/memory_viz.")
    ] = None,
    fresh: Annotated[bool, typer.Option("--fresh", help="Trace again, whatever the cache holds.")] = False,
    as_json: Json = False, lang: Lang = "en",
) -> None:  # fmt: skip
    """Memory of the real model code, operation by operation, without a GPU."""
    from planner import show_trace
    from planner.trace import answer, shapes, visual

    raw = raw_case(
        case, settings, model=model, gpu=gpu, gpus=gpus, node=node, nodes=nodes, framework=framework, task=task,
        seq_len=seq_len, micro_batch=micro_batch, precision=precision, optimizer=optimizer,
        checkpointing=checkpointing, loss=loss,
    )  # fmt: skip
    if memory_viz is not None:
        _writable(memory_viz, case, "--memory-viz", "step.pickle")
    asked = answer.question(raw, module)
    mode = answer.mode_of(asked.case, replay)
    held = None if capacity is None else answer.size("--capacity", capacity)
    tell = None if as_json else show_trace.progress()
    found = answer.trace(asked, mode, held, tell, fresh)
    if memory_viz is not None and (log := found.log) is not None:
        _write(memory_viz, visual.snapshot(log, found.settings()), "--memory-viz")
    if as_json:
        emit(shapes.as_json(found))
        return
    show_trace.trace(found)
    if memory_viz is not None:
        show.written([str(memory_viz)])


def _writable(path: Path, case: str | None, field: str, near: str) -> None:
    """Say before the work, not after it, that a file cannot be written or would overwrite the case."""
    if case not in (None, "-") and path.absolute() == Path(str(case)).absolute():
        raise BadInput(Problem(field, phrase("problem.same-file", path=path), near))
    try:
        refused = errno.EISDIR if path.is_dir() else 0 if path.absolute().parent.is_dir() else errno.ENOENT
    except (OSError, ValueError):
        return  # writing tells
    if refused:
        because = system(OSError(refused, os.strerror(refused)))
        raise BadInput(Problem(field, phrase("problem.file", path=path, because=because), near))


def _write(path: Path, data: bytes, field: str = "report") -> None:
    try:
        path.write_bytes(data)
    except OSError as error:
        raise BadInput(Problem(field, phrase("problem.file", path=path, because=system(error)))) from None


def main(arguments: list[str] | None = None) -> None:
    """The program `planner`: runs a command and ends with its exit status; a wrong input is told, never traced back."""
    given = sys.argv[1:] if arguments is None else arguments
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # letters that it cannot hold are escaped, not fatal
            stream.reconfigure(errors="backslashreplace")
    i18n.use(_stated(given))
    try:
        status = app(args=given, standalone_mode=False)
    except MissingDependency as error:
        _tell(error, given, MISSING)
    except PlannerError as error:
        _tell(error, given, WRONG_INPUT)
    except typer.Exit as ended:
        sys.exit(ended.exit_code)
    except SystemExit:  # typer's and rich's answer to a closed pipe
        sys.exit(UNREAD)
    except OSError as error:
        if error.errno not in _UNWRITTEN or error.filename is not None:
            raise
        _tell_unwritten(error)
    except typer.Abort:
        sys.exit(WRONG_INPUT)
    except Exception as error:
        if type(error).__module__.split(".")[0] not in ("click", "typer"):
            raise
        _tell(BadInput(_unread(error)), given, WRONG_INPUT)
    else:
        sys.exit(status if isinstance(status, int) else ANSWERED)


def _stated(given: list[str]) -> str:
    """The language that the words of a command line state, for what is wrong with those words themselves."""
    words = " ".join(given).replace("--lang=", "--lang ").split()
    return next((after for word, after in itertools.pairwise(words) if word == "--lang"), i18n.DEFAULT)


def _unread(error: Any) -> Problem:
    """What is wrong with a command line, from what the library that reads it says."""
    said = error.format_message() if hasattr(error, "format_message") else str(error)
    name = getattr(error, "option_name", None) or "/".join(getattr(getattr(error, "param", None), "opts", ()))
    what, near = _what(type(error).__name__, name, getattr(error, "param", None), said)
    near = next(iter(getattr(error, "possibilities", None) or ()), near)
    return Problem(t("command.line"), what, near)


def _what(kind: str, name: str, param: Any, said: str) -> tuple[Said, str]:
    """An error of that kind in our words, and what helps."""
    usage = "planner --help"
    match kind:
        case "NoSuchOption":
            return phrase("problem.command.no-option", name=name), usage
        case "MissingParameter":
            return phrase("problem.command.missing", name=name), usage
        case "BadOptionUsage":
            return phrase("problem.command.no-value", name=name), usage
        case "BadParameter":
            return phrase("problem.command.value", name=name, needed=_needed(param)), usage
    inside = re.sub(r"^.*?['(](?!s\))|[')]\.?$", "", said)
    if said.startswith("No such command"):
        commands = [one.name or str(getattr(one.callback, "__name__", "")) for one in app.registered_commands]
        return phrase("problem.command.no-command", name=inside), nearest(inside, commands) or usage
    if said.startswith("Got unexpected"):
        return phrase("problem.command.extra", names=inside), usage
    return said, usage


def _needed(option: Any) -> Phrase:
    """What an option takes."""
    low, high = getattr(option, "min", None), getattr(option, "max", None)
    kind = getattr(getattr(option, "type_descriptor", None), "annotation", int)
    if low is not None and high is not None:
        return phrase("needed.between", low=low, high=high)
    return Phrase("needed.integer" if kind is int else "needed.text")


def _tell_unwritten(error: OSError) -> None:
    """Say that the output cannot be written, and leave nothing that Python would try to write at its end."""
    sys.stdout = Path(os.devnull).open("w", encoding="utf-8")  # noqa: SIM115 - open until the end
    problem = phrase("problem.file", path=t("command.standard-output"), because=system(error))
    show.problems(BadInput(Problem(t("command.line"), problem)))
    sys.exit(WRONG_INPUT)


def _tell(error: PlannerError, given: list[str], status: int) -> None:
    if "--json" in given:
        emit({"error": {"problems": [p.to_dict() for p in error.problems]}})
    else:
        show.problems(error)
    sys.exit(status)

