"""A permission question as text: what is hidden in it is seen, and what is left out is counted."""

import pytest

from goent.domain.question_text import always_rule, excerpt, fit_rows, one_line, visible_text


@pytest.mark.parametrize(
    ("hidden", "seen"),
    [
        ("echo a" + " " * 1700 + "; b", "echo a⟨1,700 blanks⟩; b"),
        ("echo a" + "\t " * 100 + "; b", "echo a⟨200 blanks⟩; b"),
        ("echo a" + "\n" * 60 + "b", "echo a\n⟨59 empty lines⟩\nb"),
        ("echo a\n" + "  \n" * 60 + "b", "echo a\n⟨60 empty lines⟩\nb"),
        ("echo a\r\x1b[2Kb\x00", "echo a\\r\\x1b[2Kb\\x00"),
        ("a\u202eb\u200bc\u2028d", "a\\u202eb\\u200bc\\u2028d"),
        ("a" + "\xa0" * 90 + "b", "a⟨90 x \\xa0⟩b"),
        ("a" + "\u2800" * 2 + "\u3164b", "a\\u2800\\u2800\\u3164b"),
        ("a\ud800b", "a\\ud800b"),
    ],
)
def test_what_does_not_print_is_spelled_out(hidden: str, seen: str) -> None:
    assert visible_text(hidden) == seen


@pytest.mark.parametrize(
    "plain",
    ["make test", "a.py\n@@ -1 +1 @@\n-\tx\n+        y\n\n\n", "touch 'größe 日本 🎉'", ""],
)
def test_plain_text_stays_as_it_is(plain: str) -> None:
    assert visible_text(plain) == plain


def test_an_excerpt_has_head_and_tail_and_counts_the_rest() -> None:
    text = "begin " + "x" * 2000 + " end"
    short = excerpt(text, 300, "press v")
    assert short.startswith("begin ") and short.endswith(" end")
    assert f"⟨… {len(text) - 300:,} more characters; press v …⟩" in short
    assert excerpt("short", 300) == "short"


@pytest.mark.parametrize(
    "text",
    [
        "begin\n" + "\n".join(f"line {n}" for n in range(500)) + "\nend",
        "begin" + "x" * 20_000 + "end",
        "begin\n" + "x" * 20_000 + "\nend",
        "begin" + "x" * 5000 + "\n" * 5 + "y" * 5000 + "end",
    ],
)
def test_what_fits_into_a_terminal_has_head_and_tail(text: str) -> None:
    shown = fit_rows(text, 80, 20, "press v")
    assert shown.startswith("begin") and shown.endswith("end")
    assert "more characters; press v" in shown
    assert sum(max(1, -(-len(line) // 80)) for line in shown.split("\n")) <= 20
    head, _, rest = shown.partition("\n⟨… ")
    count, _, tail = rest.partition(" more characters; press v …⟩\n")
    assert len(head) + len(tail) + int(count.replace(",", "")) == len(text)


def test_a_line_of_a_list_ends_with_the_end() -> None:
    line = one_line("echo begin\n" + "x" * 500 + "; touch pwned", 60)
    assert line.startswith("echo begin ⏎ x") and line.endswith("; touch pwned")
    assert len(line) <= 60 and "more…" in line


def test_an_always_names_its_rule() -> None:
    assert always_rule("bash", ["make -q"]) == 'allow bash "make -q" for this worker'
    assert always_rule("edit", ["a", "b"]) == 'allow edit "a", "b" for this worker'
    assert always_rule("edit", []) == ""
    long = always_rule("bash", ["a" * 5000 + "; touch pwned"])
    assert long.endswith('; touch pwned" for this worker') and "more characters" in long
