"""A change of a text, as a person is shown it."""

import difflib

NO_NEWLINE = "\\ No newline at end of file"


def unified(before: str, after: str) -> str:
    """The changed lines and a little around them, without a header.

    A line ends with a line feed and with nothing else, so that a change of other ends is seen.
    """
    ends = before.endswith("\n") == after.endswith("\n") or not before or not after
    old, new = (_lines(text, told=not ends) for text in (before, after))
    return "\n".join([*difflib.unified_diff(old, new, lineterm="")][2:])


def _lines(text: str, *, told: bool) -> list[str]:
    lines = text.split("\n")
    if not lines[-1]:
        return lines[:-1]
    return [*lines[:-1], f"{lines[-1]}\n{NO_NEWLINE}"] if told else lines
