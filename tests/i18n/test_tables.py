"""One table a language: the same keys and placeholders, nothing left in English, and no phrase left in the code."""

from __future__ import annotations

import ast
import re
import string
from collections.abc import Iterator
from pathlib import Path

import pytest

from planner import i18n, terms
from planner.i18n import Phrase, phrase, t

ROOT = Path(__file__).resolve().parents[2]
OTHERS = [language for language in i18n.languages() if language != i18n.DEFAULT]

#: values that are the same in every language: names, units, and patterns without a word
SAME = re.compile(
    r"NCCL|ZeRO|Headroom|CPU|GiB|GB|[\W\d_]*|\{\w+(:\w+)?\}( (GiB|GB|B|GB/s|%))?|\{\w+\} [–×] \{\w+\}"
    r"|recipe\.\S+ = \S+|\{\"model_type\".*"
)
#: runs of Latin words that a Chinese sentence may hold: names, commands, options
NAMES = re.compile(
    r"dp_replicate x dp_shard x tp x cp x pp|planner \w+( case\.json)?|Hugging Face( ID)?|flash attention"
    r"|expandable segments|CUDA [a-z]+|FSDP2?|nvidia-smi"
)
HAN = re.compile("[\u4e00-\u9fff]")


@pytest.fixture(autouse=True)
def _english_afterwards() -> Iterator[None]:
    yield
    i18n.use(i18n.DEFAULT)


def placeholders(text: str) -> list[tuple[str, str]]:
    """Name and kind of each placeholder; a text that is no pattern (an example in braces) has none."""
    try:
        return sorted((name, spec or "") for _, name, spec, _ in string.Formatter().parse(text) if name is not None)
    except ValueError:
        return []


def test_there_is_chinese() -> None:
    assert "zh" in OTHERS


@pytest.mark.parametrize("language", OTHERS)
def test_every_table_has_the_same_keys(language: str) -> None:
    assert sorted(i18n.table(language)) == sorted(i18n.table(i18n.DEFAULT))


@pytest.mark.parametrize("language", OTHERS)
def test_every_phrase_has_the_same_placeholders(language: str) -> None:
    english, other = i18n.table(i18n.DEFAULT), i18n.table(language)
    assert not [key for key in english if placeholders(english[key]) != placeholders(other[key])]


def test_nothing_is_left_in_english() -> None:
    english, chinese = i18n.table("en"), i18n.table("zh")
    assert not [(k, v) for k, v in chinese.items() if v == english[k] and not SAME.fullmatch(v)]


def test_no_chinese_phrase_holds_an_english_sentence() -> None:
    found = {key: NAMES.sub(" ", re.sub(r"\{.*?\}", "·", text)) for key, text in i18n.table("zh").items()}
    assert not [(k, v) for k, v in found.items() if re.search(r"[A-Za-z]{2,}(?: [A-Za-z]{2,}){2,}", v)]


def test_chinese_uses_its_own_punctuation() -> None:
    han = "[\u4e00-\u9fff]"
    wrong = re.compile(rf"{han}[,;:?!]|[,;:?!]{han}|{han}\.(?!\w)|\([^)]*{han}")
    assert not [(k, v) for k, v in i18n.table("zh").items() if wrong.search(v)]


def test_phrases_use_the_words_of_the_glossary() -> None:
    rows = terms.terms()
    shared = [key for key in i18n.table("zh") if key.startswith("part.") and key.removeprefix("part.") in rows]
    assert len(shared) > 8
    assert not [key for key in shared if i18n.table("zh")[key] != rows[key.removeprefix("part.")].zh]


# How a phrase is said


def test_a_phrase_speaks_the_language_of_its_reader() -> None:
    kept = phrase("near.either", one="tp = 2", other=Phrase("near.id"))
    assert str(kept) == "tp = 2, or an id as in its address"
    i18n.use("zh")
    assert str(kept) == "tp = 2，或 与其网址一致的 ID"


@pytest.mark.parametrize("written", ["zh", "zh-CN", "zh_CN", "ZH-cn", "cn", "zh-Hans-CN"])
def test_chinese_has_many_spellings(written: str) -> None:
    i18n.use(written)
    assert i18n.current() == "zh"


@pytest.mark.parametrize("written", ["", "xx", "../en", "english", "z", "\x00", "zh" * 1000])
def test_what_is_no_language_is_english(written: str) -> None:
    assert i18n.canonical(written) is None
    i18n.use(written)
    assert i18n.current() == "en"


def test_numbers_and_dates_are_written_as_the_language_does() -> None:
    assert i18n.written(1234567, "number") == "1,234,567"
    assert i18n.written(0.1234, "percent") == "12.3%"
    assert i18n.written("2026-11-30", "date") == "November 30, 2026"
    i18n.use("zh")
    assert i18n.written("2026-11-30", "date") == "2026年11月30日"
    assert t("problem.config.large", most=1000000) == "文本超过 1,000,000 字节。"
    with pytest.raises(ValueError, match="colour"):
        i18n.written(1, "colour")


def test_a_value_cannot_reach_into_an_object() -> None:
    with pytest.raises(KeyError):
        i18n._Plain().vformat("{a.__class__}", (), {"a": 1})


# Nothing is said past the tables


def calls(tree: ast.AST) -> Iterator[tuple[ast.Call, str]]:
    """Calls whose words people read: problems, warnings, and everything put on a page."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        match node.func:
            case ast.Name(id="Problem" | "Warning" as name):
                yield node, name
            case ast.Attribute(value=ast.Name(id="st"), attr=name):
                yield node, f"st.{name}"


def words(node: ast.expr) -> Iterator[str]:
    """The literal text of an argument, whether alone or in an f-string; not what is inside further calls."""
    match node:
        case ast.Constant(value=str(text)):
            yield text
        case ast.JoinedStr(values=parts):
            yield " ".join(p.value for p in parts if isinstance(p, ast.Constant))
        case ast.BinOp(left=left, right=right) | ast.IfExp(body=left, orelse=right):
            yield from words(left)
            yield from words(right)
        case ast.BoolOp(values=values) | ast.List(elts=values) | ast.Tuple(elts=values):
            for one in values:
                yield from words(one)


#: examples of what to type, which are no sentences
TYPED = re.compile(r"--\w|planner --help|^[\w.]+ = \w+$|^\{|^meta-llama/")


def literals(source: str) -> list[tuple[int, str]]:
    """(line, text) of each phrase that stands in the code."""
    return [
        (node.lineno, text)
        for node, _ in calls(ast.parse(source))
        for argument in (*node.args, *(k.value for k in node.keywords))
        for text in words(argument)
        if re.search(r"[A-Za-z]{2,}[,:;]? [A-Za-z]{2,}", text) and not TYPED.search(text)
    ]


def test_no_phrase_stands_in_the_code() -> None:
    files = [ROOT / "app.py", *ROOT.glob("planner/**/*.py"), *ROOT.glob("views/*.py")]
    wrong = [
        f"{path.relative_to(ROOT)}:{line} {text}"
        for path in files
        for line, text in literals(path.read_text(encoding="utf-8"))
    ]
    assert not wrong, "move it to planner/locale:\n" + "\n".join(wrong)


@pytest.mark.parametrize(
    ("code", "seen"),
    [
        ('Problem("model", "no model is named.")', True),
        ('Problem("model", f"{x} is not known.")', True),
        ('st.info("Nothing was lost")', True),
        ('st.button("Press me", help=t("x"))', True),
        ('Problem("--gpu", t("x"), "--gpu h100-sxm --gpus 8")', False),
        ('st.markdown(t("app.title"))', False),
        ('st.text_input(t("x"), key="some.key")', False),
    ],
)
def test_the_rule_itself(code: str, seen: bool) -> None:
    assert bool(literals(code)) == seen
