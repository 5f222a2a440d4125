"""Config comments, help texts, descriptions, and pages avoid phrases that a regular expression can find."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from tokenize import COMMENT, tokenize

from lightning_rl import exploration, policies
from lightning_rl.callbacks.metric_names import METRICS
from lightning_rl.cli import VERBS
from lightning_rl.config.descriptions import argument_docs

ROOT = Path(__file__).parents[1]
PHRASES = {
    "negate the verb": r"(?<!there )\b(is|are|was|were) no (?!longer|more|less|better|worse|fewer|larger|later)\w+",
    "archaic": r"\b(anew|afresh|seldom|for ever|mend(s|ed)?|but for|nobody|somebody|whoever|go(es)? on|lies? in)\b",
    "say your, its, a custom": r"\bof (its|their|your|one's) own\b(?! \w{4,})",
    "also, even, as many": r", (too|neither|either)\b(?! few)|\bso many\b",
}
NO_NOUN = {"begin with the noun or the verb": r"^(of|as|over|by|beside|than|those) "}


def short_texts() -> Iterator[tuple[str, str]]:
    for file in (ROOT / "conf").rglob("*.yaml"):
        yield from ((str(file), each) for each in re.findall(r"(?:^| )# (.+)", file.read_text(encoding="utf-8"), re.M))
    for cls in [getattr(module, name) for module in (policies, exploration) for name in module.__all__]:
        documented = argument_docs(cls) if isinstance(cls, type) else {}
        yield from ((f"{cls.__name__}: {name}", text) for name, text in documented.items() if name != "keywords")
    yield from METRICS.items()
    yield from ((name, (verb.__doc__ or "").splitlines()[0]) for name, verb in VERBS.items())
    for file in (ROOT / "lightning_rl" / "cli").glob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            match node:
                case ast.keyword(arg="help" | "epilog", value=ast.Constant(value=text)):
                    yield str(file), str(text)


def code_texts() -> Iterator[tuple[str, str]]:
    """Docstrings, messages, and comments of the package."""
    for file in (ROOT / "lightning_rl").rglob("*.py"):
        with file.open("rb") as stream:
            yield from ((f"{file}:{t.start[0]}", t.string) for t in tokenize(stream.readline) if t.type == COMMENT)
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                yield f"{file}:{node.lineno}", node.value


def code_arguments() -> Iterator[tuple[str, str]]:
    """Descriptions of the arguments of the package's functions and classes."""
    for file in (ROOT / "lightning_rl").rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef | ast.ClassDef) and "Args:" in (text := ast.get_docstring(node) or ""):
                described = re.findall(r"^ +\*{0,2}\w+(?:, \*{0,2}\w+)*: (.+)$", text.partition("Args:")[2], re.M)
                yield from ((f"{file}:{node.name}", each) for each in described)


def sentences(page: str) -> Iterator[tuple[str, str]]:
    """Sentences of paragraphs and list items, without code, tables, and headings."""
    prose = re.sub(r"```.*?```|<!--.*?-->|^[|#>!].*?$", "\n\n", (ROOT / page).read_text("utf-8"), flags=re.S | re.M)
    for block in re.split(r"\n\s*\n|\n *(?:[-*]|\d+\.) ", prose):
        plain = re.sub(r"\]\([^)]*\)|[\[*]", "", re.sub(r"`[^`]*`", "code", " ".join(block.split())))
        yield from ((page, each) for each in re.split(r"(?<=[.:;?!])\s", plain))


def test_short_texts_begin_with_what_they_describe() -> None:
    texts, wrong = list(short_texts()), {**PHRASES, **NO_NOUN}
    assert len(texts) > 500
    assert [(why, *text) for text in texts for why, phrase in wrong.items() if re.search(phrase, text[1])] == []


def test_texts_of_the_code_avoid_archaic_phrases() -> None:
    texts = list(code_texts())
    phrases = {why: phrase for why, phrase in PHRASES.items() if "custom" not in why}  # "of its own" has its uses here
    assert len(texts) > 20_000
    assert [(why, *text) for text in texts for why, phrase in phrases.items() if re.search(phrase, text[1])] == []


def test_descriptions_of_arguments_begin_with_a_noun() -> None:
    texts = list(code_arguments())
    assert len(texts) > 2000
    assert [text for text in texts if re.match("(of|as|over|by|beside|than|those|with|in|for|from|to) ", text[1])] == []


def test_sentences_of_pages_have_at_most_forty_words() -> None:
    pages = {"README.md", *(str(file.relative_to(ROOT)) for file in (ROOT / "docs").rglob("*.md"))}
    texts = [sentence for page in sorted(pages) for sentence in sentences(page)]
    assert len(texts) > 1000 and [text for text in texts if len(text[1].split()) > 40] == []
    assert [(why, *text) for text in texts for why, phrase in PHRASES.items() if re.search(phrase, text[1])] == []
