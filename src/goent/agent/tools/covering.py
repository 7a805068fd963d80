"""What does a yes for the whole session cover, when it is given to a command?

Its first words, if the command is a single simple one; of anything else only itself. Where the shell
could do more than is written (substitutions, redirections, lists) or the program runs what it is
given (`env`, `xargs`, `python -c`), the first words say nothing about the rest.
"""

import re

from goent.agent.ports import Need

UNCONFINED = "[unconfined] "
_QUOTED = re.compile(r"'[^']*'|\"[^\"$`\\!]*\"")
_MORE = re.compile(r"[;&|<>$`\\(){}#!\n\r'\"]")
_WORD = re.compile(r"[A-Za-z0-9_./+-]+")
_RUNS_ANYTHING = re.compile(
    "(ba|da|z|k|fi)?sh|env|sudo|su|doas|xargs|nice|nohup|timeout|time|eval|exec|source|[.]|command"
    "|builtin|watch|ssh|find|parallel|setsid|chroot|unshare|strace|gdb|script|trap|awk|sed|perl|ruby"
    "|php|rm|dd|curl|wget|docker|podman|kubectl|coproc|busybox|flock|nsenter|pkexec|stdbuf|tmux|screen"
)
_IS_MANY = re.compile(  # the second word says which
    "git|npm|npx|pnpm|yarn|bun|deno|node|cargo|go|make|just|task|pip3?|uvx?|poetry|pdm|hatch|python[0-9.]*"
    "|helm|gh|glab|terraform|dotnet|mvn|gradle|apt|apt-get|brew|systemctl"
)


def need_of(command: str, *, unconfined: bool) -> Need:
    command = command.strip()
    if unconfined:
        words = UNCONFINED + command
        return Need(permission="bash", patterns=(words,), always=(words,), exact=True)
    first = first_words(command)
    if first is None:
        return Need(permission="bash", patterns=(command,), always=(command,), exact=True)
    return Need(permission="bash", patterns=(command,), always=(f"{first} *",))


def first_words(command: str) -> str | None:
    """What tells which program is run; None if nothing short does."""
    bare = _QUOTED.sub("q", command)
    if _MORE.search(bare):
        return None
    program, *others = bare.split()[:2] or [""]
    name = program.rpartition("/")[2]
    if _RUNS_ANYTHING.fullmatch(name) or not _WORD.fullmatch(program):
        return None
    if not command.startswith(program):  # it stands in quotes
        return None
    if not _IS_MANY.fullmatch(name):
        return program
    if others and _WORD.fullmatch(others[0]) and not others[0].startswith("-"):
        return f"{program} {others[0]}" if f"{program} {others[0]}" in command else None
    return None if others else program
