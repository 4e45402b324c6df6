"""Chinese wherever the planner speaks: commands, problems, chains, charts, pages, and a report on paper."""

from __future__ import annotations

import datetime
import io
import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from PIL import Image
from streamlit.testing.v1 import AppTest

import planner
from planner import answers, cli, explain, i18n, show
from planner.charts import largest as largest_chart
from planner.charts import memory, theme
from planner.errors import BadInput, PlannerError
from planner.report import content, render
from planner.spec import catalog, presets
from planner.spec.form import CaseForm, fields

ROOT = Path(__file__).resolve().parents[2]
HAN = re.compile("[\u4e00-\u9fff]")
SENTENCE = re.compile(r"\b[a-z]{2,} [a-z]{2,} [a-z]{2,}\b")
CASE = {"model": "llama-3-8b", "cluster": {"gpu": "h100-sxm", "gpus": 2}, "recipe": {"seq_len": 8192}}
DATE = datetime.date(2026, 11, 30)

needs_poppler = pytest.mark.skipif(shutil.which("pdftotext") is None, reason="no poppler-utils")


@pytest.fixture(autouse=True)
def _english_afterwards() -> Iterator[None]:
    yield
    i18n.use(i18n.DEFAULT)


@pytest.fixture
def chinese() -> None:
    i18n.use("zh")


def english(text: str) -> list[str]:
    """Runs of three and more English words in a text; names of fields and catalogue rows are no words."""
    return SENTENCE.findall(re.sub(r"Hugging Face|planner fit case|[\w.-]+ = [\w.-]+|--set \S+", " ", text))


# Commands


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str]:
    """A command in this process: its status and what it printed."""
    with pytest.raises(SystemExit) as ended:
        cli.main(list(arguments))
    said = capsys.readouterr()
    return int(ended.value.code or 0), said.out + said.err


@pytest.fixture
def plain_console(monkeypatch: pytest.MonkeyPatch) -> None:
    """Answers go where the test can read them, unbroken and without colours."""
    for name in ("out", "err"):
        console = show.Console(stderr=name == "err", soft_wrap=True, highlight=False, no_color=True, width=300)
        monkeypatch.setattr(show, name, console)


COMMANDS = {
    "fit": ("fit", "--model", "llama-3-70b", "--gpus", "8", "--gpu", "h100-sxm"),
    "fit with a pipeline": ("fit", "--model", "llama-3-70b", "--gpus", "16", "--gpu", "h100-sxm", "--set", "plan.pp=2"),
    "largest": ("largest", "--gpus", "8", "--gpu", "h100-sxm", "--rule-of-thumb"),
    "batch": ("batch", "--model", "llama-3.2-1b", "--gpu", "h100-sxm"),
    "sequence": ("sequence", "--model", "llama-3.2-1b", "--gpu", "h100-sxm"),
    "explain": ("explain", "llama-3.2-1b", "logits", "--gpu", "h100-sxm"),
    **{f"catalog {what}": ("catalog", what) for what in ("gpus", "nodes", "models", "recipes", "prices")},
}


@pytest.mark.usefixtures("plain_console")
@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_speaks_chinese(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    status, said = run(capsys, *COMMANDS[name], "--lang", "zh-CN")
    assert status == 0
    assert HAN.search(said)
    if not name.startswith("catalog"):
        assert english(said) == []


def test_no_cell_of_a_narrow_table_is_cut(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(show, "out", show.Console(width=80, no_color=True))
    _, said = run(capsys, *COMMANDS["largest"], "--lang", "zh")
    assert "\u2026" not in said


@pytest.mark.usefixtures("plain_console")
@pytest.mark.parametrize("name", ["fit", "largest", "batch", "explain"])
def test_json_has_the_same_keys_and_numbers_in_both_languages(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    both = [json.loads(run(capsys, *COMMANDS[name], "--json", "--lang", lang)[1]) for lang in ("en", "zh")]

    def bare(tree: Any) -> Any:
        if isinstance(tree, dict):
            return {k: bare(v) for k, v in tree.items()}
        if isinstance(tree, list):
            return [bare(v) for v in tree]
        return "" if isinstance(tree, str) else tree

    assert bare(both[0]) == bare(both[1])
    assert both[0] != both[1]


@pytest.mark.usefixtures("plain_console")
@pytest.mark.parametrize("language", ["xx", "", "fr", "../zh"])
def test_an_unknown_language_is_told_with_those_there_are(language: str, capsys: pytest.CaptureFixture[str]) -> None:
    for command in ("catalog", "fit"):
        status, said = run(capsys, command, "--lang", language, "--json")
        (problem,) = json.loads(said)["error"]["problems"]
        assert status == 2
        assert problem["field"] == "--lang"
        assert problem["nearest"] == "en, zh"


@pytest.mark.usefixtures("plain_console")
@pytest.mark.parametrize(
    "arguments",
    [
        ("fit", "--nope"), ("fit", "--gpus", "x"), ("fit", "--gpus"), ("nope",), ("explain",), ("fit", "a", "b"),
        ("explain", "x", "--depth", "99"), ("fit", "--set", "x"), ("largest",), ("report",), ("catalog", "nope"),
        ("fit", "no-such-file.json"), ("fit", "--model", "./none.json"), ("fit", "--model", "nothing-like-it"),
        ("explain", "llama-3.2-1b", "wieghts"), ("fit", "--model", "llama-3-8b", "--gpus", "9"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_said_in_chinese(arguments: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    status, said = run(capsys, arguments[0], "--lang=zh", *arguments[1:])
    assert status == 2
    assert HAN.search(said)
    assert english(said) == []


# Problems


WRONG: list[dict[str, Any]] = [
    {"cluster": {"gpu": "h100-sxm", "gpus": 0}}, {"cluster": {"gpus": "8"}}, {"cluster": 3}, {"name": 5},
    {"cluster": {"gpu": "a100-sxm-80", "node": "dgx-h100"}}, {"cluster": {"gpu": "h100-sxm", "gpus": 12}},
    {"cluster": {"node": "dgx-h100", "nodes": 2, "gpus": 3}}, {"recipe": {"seq_len": 0}}, {"name": "x" * 300},
    {"recipe": {"seq_len": 10**12}}, {"recipe": {"seq_len": 1.5}}, {"recipe": {"dropout": "a"}}, {"recipe": []},
    {"recipe": {"task": "nope"}}, {"recipe": {"peft": {"targets": []}, "task": "lora"}}, {"recipe": {"dropout": 2}},
    {"recipe": {"global_batch": 7}}, {"plan": {"tp": 3}}, {"plan": {"sequence_parallel": "yes"}}, {"model": None},
    {"schema": "headroom.case/9"}, {"schema": "other"}, {"what": 1}, {"model": {"name": "40B", "hidden_size": 5}},
    {"model": '{"model_type": "llama"}'}, {"model": "{"}, {"model": '{"model_type": "mamba"}'}, {"model": "1e30"},
    {"model": {"model_type": "llama", "hidden_size": -1, "vocab_size": 1e9, "num_attention_heads": "many"}},
    {"plan": {"data_parallel": "ddp", "dp_shard": 8}}, {"plan": {"offload": {"optimizer": "cpu"}, "zero": 0}},
    {"recipe": {"precision": {"optimizer_state": "int8"}}}, {"plan": {"ep": 2}}, {"model": 5}, {"model": [1]},
]  # fmt: skip


@pytest.mark.usefixtures("chinese")
@pytest.mark.parametrize("wrong", WRONG, ids=[json.dumps(w)[:60] for w in WRONG])
def test_every_problem_of_a_case_is_said_in_chinese(wrong: dict[str, Any]) -> None:
    base = {"model": "llama-3-8b", "cluster": {"gpu": "h100-sxm", "gpus": 8}}
    with pytest.raises(PlannerError) as told:
        planner.load_case({**base, **wrong}, files=False)
    for problem in told.value.problems:
        assert HAN.search(problem.problem), problem
        assert english(f"{problem.problem} {problem.nearest}") == [], problem


def test_every_field_of_a_case_refuses_every_kind_in_our_words() -> None:
    """Whatever pydantic calls the error, what is read comes from the tables."""
    kinds: list[Any] = [True, 1, -1, 1.5, "x", [], {}, [1], {"a": 1}, float("nan"), 10**30]
    for field in fields(CaseForm):
        for value in kinds:
            tree: Any = value
            for part in reversed(field.split(".")):
                tree = {part: tree}
            said: dict[str, list[str]] = {}
            for language in ("en", "zh"):
                i18n.use(language)
                try:
                    planner.load_case({"model": "llama-3-8b", **tree}, files=False)
                except PlannerError as error:
                    said[language] = [p.problem for p in error.problems]
            assert not any("nput should" in one for one in said.get("en", ())), (field, value)
            assert all(HAN.search(one) for one in said.get("zh", ())), (field, value)


def test_a_problem_that_was_kept_follows_the_reader() -> None:
    with pytest.raises(BadInput) as told:
        planner.load_case({**CASE, "plan": {"tp": 3}})
    before = str(told.value)
    i18n.use("zh")
    assert str(told.value) != before
    assert HAN.search(told.value.problems[0].problem)
    i18n.use("en")
    assert str(told.value) == before


# What is kept between evaluations


def test_a_kept_model_a_kept_gpu_and_a_kept_case_follow_the_reader() -> None:
    model, gpu = presets.model("40B"), catalog.accelerator("l40s")
    case = planner.load_case({"model": "40B", "cluster": {"gpu": "l40s", "gpus": 8}})
    shown = (model.notes, gpu.memory_usable.because, case.assumed)
    i18n.use("zh")
    again = (presets.model("40B").notes, catalog.accelerator("l40s").memory_usable.because, case.assumed)
    assert not {str(one) for one in shown} & {str(one) for one in again}
    assert all(HAN.search(str(one)) for one in again)


def test_an_answer_is_the_same_whatever_language_was_used_before() -> None:
    found = planner.evaluate(planner.load_case(CASE))
    first = answers.fit(found)
    i18n.use("zh")
    chinese = answers.fit(found)
    fresh = answers.fit(planner.evaluate(planner.load_case(CASE)))
    assert chinese == fresh != first
    i18n.use("en")
    assert answers.fit(found) == first


@pytest.mark.usefixtures("chinese")
def test_reasons_in_every_chain_are_chinese_or_cited() -> None:
    """A reason without a source is ours; one with a source is a citation and stays as it was written."""
    raws = [
        CASE,
        {**CASE, "recipe": {"task": "qlora", "framework": "hf"}},
        {**CASE, "recipe": {"framework": "megatron-lm"}, "plan": {"pp": 2}},
    ]
    for raw in raws:
        found = planner.evaluate(planner.load_case(raw))
        for root in (found.memory.device, found.memory.high, *found.memory.moments.values(), found.host.needed):
            ours = [q for q in explain.walk(root) if q.because and not q.source]
            assert not [q for q in ours if not HAN.search(str(q.because))]


@pytest.mark.usefixtures("chinese")
def test_an_explanation_names_things_in_chinese_beside_their_code() -> None:
    device = planner.evaluate(planner.load_case(CASE)).memory.device
    assert explain.text(device, 1).startswith("device (设备显存占用) = ")
    assert explain.tree(device, 1)["label"] == "设备显存占用"
    assert "项之和" in explain.text(device, 2)


# Charts


@pytest.mark.usefixtures("chinese")
def test_charts_draw_chinese() -> None:
    """A family that vl-convert does not know draws no text at all: a picture with its words has more dark pixels."""
    memory._breakdown.cache_clear()  # whatever a test before this one has made of the tables
    fit = answers.fit(planner.evaluate(planner.load_case(CASE)))
    spec, rows = memory.breakdown_spec(), memory.breakdown_rows(fit)
    svg = theme.svg(spec, rows)
    assert "峰值时单张 GPU 的设备显存" in svg
    assert "Noto Sans SC" in svg

    def dark(picture: bytes) -> int:
        return sum(Image.open(io.BytesIO(picture)).convert("L").histogram()[:110])

    drawn = dark(theme.png(spec, rows))
    unknown = theme.with_data(spec, rows, font="No Such Family")
    silent = theme._converter().vegalite_to_png(unknown, scale=2.0, allowed_base_urls=[])
    assert drawn > dark(silent) + 2000


@pytest.mark.usefixtures("chinese")
def test_every_chart_is_said_in_a_chinese_sentence() -> None:
    fit = answers.fit(planner.evaluate(planner.load_case(CASE)))
    families = answers.largest(planner.largest_model({"gpu": "h100-sxm", "gpus": 8}))
    for text in (memory.breakdown_alt(fit), memory.moments_alt(fit), largest_chart.alt_text(families)):
        assert HAN.search(text)
        assert english(text) == []


# Pages


PAGES = sorted(p.name for p in (ROOT / "views").glob("[a-z]*.py"))


def visit(page: str, **link: str) -> AppTest:
    app = AppTest.from_file(str(ROOT / "app.py"), default_timeout=60)
    app.query_params.update(link)
    app.run()
    app.switch_page(f"views/{page}")
    app.run()
    assert not app.exception, [one.value for one in app.exception]
    return app


@pytest.mark.parametrize("page", PAGES)
def test_every_page_speaks_chinese(page: str) -> None:
    app = visit(page, lang="zh")
    titles = [one.value for one in app.markdown if one.value.startswith("#")]
    assert any(HAN.search(title) for title in titles)
    labels = [w.label for w in [*app.selectbox, *app.number_input, *app.button, *app.text_area] if w.label]
    assert not [label for label in labels if not HAN.search(label)]
    notes = [one.value for kind in ("error", "warning", "info", "success") for one in getattr(app, kind)]
    assert [english(note) for note in notes] == [[]] * len(notes)
    assert app.query_params["lang"] in ("zh", ["zh"])


def test_the_switch_changes_the_page_and_the_link() -> None:
    app = visit("fit.py")
    english_label = app.number_input(key="recipe.seq_len").label
    app.get_by_key("language").set_value("zh")
    app.run()
    assert not app.exception
    assert app.number_input(key="recipe.seq_len").label == "序列长度" != english_label
    assert app.query_params["lang"] in ("zh", ["zh"])
    app.get_by_key("language").set_value("en")
    app.run()
    assert app.number_input(key="recipe.seq_len").label == english_label


def test_problems_on_the_page_follow_the_switch() -> None:
    app = visit("fit.py", **{"plan.tp": "3", "plan.nope": "1"})
    before = [one.value for one in [*app.error, *app.warning]]
    app.get_by_key("language").set_value("zh")
    app.run()
    after = [one.value for one in [*app.error, *app.warning]]
    assert len(before) == len(after) > 1
    assert all(HAN.search(one) for one in after)
    assert [english(one) for one in after] == [[]] * len(after)


def test_a_link_in_an_unknown_language_is_told() -> None:
    app = visit("fit.py", lang="xx")
    assert "**lang**" in app.warning[0].value
    assert "en, zh" in app.warning[0].value


# The report


@pytest.fixture(scope="module")
def paper() -> tuple[Any, bytes]:
    """A report made in Chinese and printed by someone who speaks English."""
    i18n.use("zh")
    report = content.report(planner.evaluate(planner.load_case(CASE)), date=DATE)
    i18n.use("en")
    return report, render.pdf(report)


def tool(folder: Path, data: bytes, name: str, *options: str) -> str:
    (folder / "report.pdf").write_bytes(data)
    command = [name, *options[:-1], str(folder / "report.pdf"), *options[-1:]]
    return subprocess.run(command, capture_output=True, check=True).stdout.decode("utf-8")


def squeezed(text: str) -> str:
    return re.sub(r"\s+", "", text)


def test_the_page_says_its_language(paper: tuple[Any, bytes]) -> None:
    page = render.html(paper[0])
    assert '<html lang="zh-CN">' in page
    assert "url(" not in page
    assert "2026年11月30日" in page
    prose = re.sub(r"<(style|script|pre|table).*?</\1>|<[^>]*>", " ", page, flags=re.S)
    assert english(prose) == []


@pytest.mark.pdf
@needs_poppler
def test_chinese_is_found_in_the_pdf(paper: tuple[Any, bytes], tmp_path: Path) -> None:
    report, data = paper
    text = squeezed(tool(tmp_path, data, "pdftotext", "-"))
    said = [report.title, report.question, report.verdict_text, *report.answer, *(s.title for s in report.sections)]
    said += ["峰值时单张GPU的设备显存", "一个训练步内的已分配显存", "优化器状态", "第1页，共"]
    assert not [phrase for phrase in said if squeezed(phrase) not in text]


@pytest.mark.pdf
@needs_poppler
def test_every_font_of_a_chinese_pdf_is_ours_embedded_and_subset(paper: tuple[Any, bytes], tmp_path: Path) -> None:
    lines = _fonts(tmp_path, paper[1])
    assert any("Noto-Sans-SC" in line for line in lines)
    for line in lines:
        assert re.match(r"[A-Z]{6}\+(Noto-Sans-SC|DejaVu)", line), line
        assert "JP" not in line
        assert line.split()[-5:-2] == ["yes", "yes", "yes"], line


def _fonts(folder: Path, data: bytes) -> list[str]:
    (folder / "report.pdf").write_bytes(data)
    done = subprocess.run(["pdffonts", str(folder / "report.pdf")], capture_output=True, check=True)
    return done.stdout.decode("utf-8").splitlines()[2:]


@pytest.mark.pdf
@needs_poppler
def test_no_chinese_page_is_blank(paper: tuple[Any, bytes], tmp_path: Path) -> None:
    (tmp_path / "report.pdf").write_bytes(paper[1])
    where = str(tmp_path / "page")
    subprocess.run(["pdftoppm", "-r", "40", "-gray", "-png", str(tmp_path / "report.pdf"), where], check=True)
    pages = sorted(tmp_path.glob("page-*.png"))
    assert len(pages) >= 6
    for page in pages:
        shades = Image.open(io.BytesIO(page.read_bytes())).convert("L").histogram()
        assert sum(shades[:150]) > 200, page.name


@pytest.mark.pdf
@needs_poppler
def test_a_chinese_name_in_an_english_report_has_our_font_too(tmp_path: Path) -> None:
    report = content.report(planner.evaluate(planner.load_case({**CASE, "name": "训练计划一期"})), date=DATE)
    lines = _fonts(tmp_path, render.pdf(report))
    assert any("Noto-Sans-SC" in line for line in lines)
    assert not [line for line in lines if "CJK" in line]


@pytest.mark.pdf
def test_only_our_own_fonts_are_read() -> None:
    _, urls = render._weasyprint()
    fetcher = render._own_fonts(urls)
    ours = sorted((ROOT / "assets/fonts").glob("*.ttf"))
    assert len(ours) == 2
    for path in ours:
        assert fetcher.fetch(path.as_uri()).read(4) == b"\x00\x01\x00\x00"
    for address in ("file:///etc/hostname", f"{ours[0].as_uri()}/../OFL.txt", "http://127.0.0.1:9/x.ttf", "data:,x"):
        with pytest.raises(ValueError, match="no font of ours"):
            fetcher.fetch(address)
