"""Tokens: three rights, read from a file, and no token in any message."""

from __future__ import annotations

from pathlib import Path

import pytest

from ctta.errors import BadData, MissingData, NotAllowed, NoToken
from ctta.serve.tokens import Right, Tokens, read_tokens, require

SECRET = "3f9d8c61c0a24b71"


def written(folder: Path, text: str) -> Path:
    file = folder / "tokens"
    file.write_text(text, encoding="utf-8")
    return file


def test_a_file_gives_every_token_its_right(tmp_path: Path) -> None:
    text = f"# cameras\nask   a{SECRET}\n\nteach t{SECRET}  # the gate\nadmin x{SECRET}\n"
    tokens = read_tokens(written(tmp_path, text))
    assert not tokens.open
    assert tokens.right_of(f"Bearer a{SECRET}") is Right.ASK
    assert tokens.right_of(f"bearer  t{SECRET}") is Right.TEACH
    assert tokens.right_of(f"Bearer x{SECRET}") is Right.ADMIN


@pytest.mark.parametrize(
    "header",
    [None, "", "Bearer", "Bearer ", "Bearer wrong", f"Basic {SECRET}", SECRET, f"Bearer {SECRET}x", "Bearer é\udcff"],
)
def test_anything_else_is_refused_without_an_echo(header: str | None) -> None:
    with pytest.raises(NoToken) as refused:
        Tokens({SECRET: Right.ADMIN}).right_of(header)
    assert SECRET not in str(refused.value) and "wrong" not in str(refused.value)


def test_without_tokens_everybody_administers() -> None:
    assert Tokens().open
    assert Tokens().right_of(None) is Right.ADMIN


def test_a_larger_right_includes_the_smaller_ones() -> None:
    for held in Right:
        for needed in Right:
            if held.value >= needed.value:
                require(held, needed)
            else:
                with pytest.raises(NotAllowed, match=needed.name.lower()):
                    require(held, needed)


@pytest.mark.parametrize(("header", "got"), [(None, "none"), ("Bearer ", "none"), ("Bearer other", "an unknown one")])
def test_a_request_without_a_known_token_is_told_what_it_sent(header: str | None, got: str) -> None:
    with pytest.raises(NoToken, match=rf"Got {got}\.$"):
        Tokens({"a" * 16: Right.ASK}).right_of(header)


@pytest.mark.parametrize(
    ("text", "match"),
    [
        ("", "has no token"),
        ("# nothing\n", "has no token"),
        (f"rule {SECRET}", "Line 1"),
        (f"ask\nask {SECRET}", "Line 1"),
        (f"ask {SECRET} extra", "Line 1"),
        ("ask short", "line 1"),
        (f"ask {SECRET}é", "line 1"),
        (f"ask {SECRET}\nadmin {SECRET}", "line 2"),
    ],
)
def test_a_file_that_is_wrong_says_where_and_shows_no_token(tmp_path: Path, text: str, match: str) -> None:
    with pytest.raises(BadData, match=match) as refused:
        read_tokens(written(tmp_path, text))
    assert SECRET not in str(refused.value)


def test_a_file_that_is_missing_or_no_text(tmp_path: Path) -> None:
    with pytest.raises(MissingData):
        read_tokens(tmp_path / "none")
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(BadData, match="UTF-8"):
        read_tokens(tmp_path / "binary")
