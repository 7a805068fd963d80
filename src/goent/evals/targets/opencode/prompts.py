"""How is a case put to OpenCode? Roles become a system prompt and texts, files become links."""

from collections.abc import Iterable
from pathlib import Path

from goent.domain.types import Value
from goent.evals.suites import Case

READ_FIRST = "Read these files before you begin; they say how the work is to be done:"


class Asked(Value, frozen=True, kw_only=True):
    """The last thing said is `text`, and `before` is what came ahead of it; `links` are the files named."""

    text: str
    system: str = ""
    before: tuple[str, ...] = ()
    links: tuple[Path, ...] = ()


def asked(case: Case, system_prompt: str) -> Asked:
    """The target's own system prompt comes first. A file is named, never pasted."""
    systems = [said.text for said in case.input if said.role == "system"]
    spoken = [said for said in case.input if said.role != "system"]
    texts = [_with_links(said.text, said.files) for said in spoken]
    last = texts.pop() if texts else ""
    before = [f"[{said.role}]\n{text}" for said, text in zip(spoken, texts, strict=False)]
    if case.guidelines:
        before.insert(0, _with_links(READ_FIRST, case.guidelines))
    files = (path for said in case.input for path in said.files)
    return Asked(
        text=last,
        system="\n\n".join(filter(None, (system_prompt, *systems))),
        before=tuple(f"{text}\n\n" for text in before),
        links=tuple(dict.fromkeys((*case.guidelines, *files))),
    )


def _with_links(text: str, files: Iterable[Path]) -> str:
    return "\n".join((text, *(f"[{path.name}]({path.as_uri()})" for path in files)))
