"""Which settings of a project would do something, and what is left while nobody has allowed them?

What only chooses among the user's own models, or makes things tighter, holds at once: rules of
routing, names, limits, smaller budgets, stricter permissions. What starts a program, sends something
to an address, names a variable, widens a permission or raises a budget waits for a person's yes.
"""

from collections.abc import Iterable, Iterator, Sequence
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Final

from goent.config.known import known_backend
from goent.config.tree import Items, Node, Table
from goent.config.trust.materials import Unlooked, named_files, setting
from goent.config.trust.nodes import (
    Keys,
    at,
    is_false,
    is_null,
    is_true,
    put,
    same,
    table_at,
    text_of,
    texts_of,
    without,
)
from goent.config.trust.records import Approvals
from goent.domain.local_servers import local_server
from goent.domain.trust import Act, ActKind, Material, act
from goent.domain.types import Value

PRESETS: Final = ("readonly", "ask", "edit", "auto")  # from the narrowest
NARROW: Final = "ask"  # what the project may choose where the user has chosen nothing
# Where workers ask before they edit, if nothing else is said.
SAFE_ISOLATION: Final = ("auto", "shared", "dedicated")
ADDRESS: Final = ("base_url", "api_key_env", "local")
SERVER: Final = ("serve_url", "serve_password_env")
PRICES: Final = ("price", "cost_per_1m_tokens", "cost")  # one spelling of today, and older ones
LIMITS: Final = ("per_task", "per_day", "per_project")


class _Proposal(Value, frozen=True, kw_only=True):
    """An act, and the settings that are left out while it is not allowed."""

    act: Act
    settings: tuple[Keys, ...]


class Sifted(Value, frozen=True, kw_only=True):
    """What holds of a file, and what of it waits; `acts` are all, waiting or not."""

    table: Table
    acts: tuple[Act, ...] = ()
    withheld: tuple[Act, ...] = ()


def sift_general(own: Table, users: Table, project: Path, approved: Approvals) -> Sifted:
    """`own` is what the project says, `users` what the user's own file says."""
    sifted = _sift(own, _general(own, users, project), approved)
    if any(each.key == "permissions.rules" for each in sifted.withheld):
        rules = _with_denials(own, users)
        permissions = Table(place=own.place, entries={"rules": rules})
        extended = put(sifted.table, "permissions", permissions)
        return Sifted(table=extended, acts=sifted.acts, withheld=sifted.withheld)
    return sifted


def sift_providers(own: Table, users: Table, approved: Approvals) -> Sifted:
    """The same for `providers.yaml`."""
    return _sift(own, _providers(own, users), approved)


def _sift(table: Table, proposals: Iterable[_Proposal], approved: Approvals) -> Sifted:
    found = tuple(proposals)
    waiting = [each for each in found if not approved.cover(each.act)]
    for proposal in waiting:
        for path in proposal.settings:
            table = without(table, path)
    return Sifted(
        table=table,
        acts=tuple(each.act for each in found),
        withheld=tuple(each.act for each in waiting),
    )


def _taken_back(own: Table, users: Table, *above: str) -> Iterator[_Proposal]:
    """An explicit `null` brings the default back, whatever the user has set."""
    for key, node in own.entries.items():
        theirs, path = users.entries.get(key), (*above, key)
        if isinstance(node, Table) and isinstance(theirs, Table):
            yield from _taken_back(node, theirs, *path)
        elif is_null(node) and text_of(node) and theirs and not is_null(theirs):
            says = f"your own setting {'.'.join(path)} is reset to its default"
            yield _proposal(path, node, "permission", says)


def _general(own: Table, users: Table, project: Path) -> Iterator[_Proposal]:
    yield from _taken_back(own, users)
    for name, agent in table_at(own, "agents").entries.items():
        if not same(agent, at(users, "agents", name)):
            words = texts_of(at(agent, "command"))
            yield _program(
                ("agents", name),
                agent,
                project,
                words,
                f"agent {name!r} runs `{' '.join(words)}`",
                names=(name,),
            )
    yield from _opencode(own, users, project)
    yield from _permissions(own, users)
    yield from _budget(own, users)
    writable = at(own, "agent", "writable")
    if writable and not same(writable, at(users, "agent", "writable")):
        yield _proposal(
            ("agent", "writable"),
            writable,
            "permission",
            f"commands of go-ent's own agent can write to {_listed(texts_of(writable))} in your home",
        )
    yield from _sandbox(own, users)
    yield from _isolation(own, users)


def _isolation(own: Table, users: Table) -> Iterator[_Proposal]:
    """One that replaces the user's, or in which workers edit unasked because no preset is set."""
    isolation, theirs = at(own, "isolation"), at(users, "isolation")
    if isolation is None or same(isolation, theirs):
        return
    says = f"workers use the isolation {text_of(isolation)!r}"
    if theirs:
        yield _proposal(
            ("isolation",), isolation, "permission", f"{says} instead of your {text_of(theirs)!r}"
        )
        return
    preset, chosen = at(own, "permissions", "preset"), at(users, "permissions", "preset")
    bounded = chosen or (preset and _is_narrow(preset, chosen))
    if text_of(isolation) not in SAFE_ISOLATION and not bounded:
        edits = "where they edit files without asking, unless a preset is set"
        yield _proposal(("isolation",), isolation, "permission", f"{says}, {edits}")


def _opencode(own: Table, users: Table, project: Path) -> Iterator[_Proposal]:
    def said(key: str) -> Node | None:
        node = at(own, "opencode", key)
        return None if node is None or same(node, at(users, "opencode", key)) else node

    if command := said("command"):
        yield _program(
            ("opencode", "command"),
            command,
            project,
            (text_of(command),),
            f"{text_of(command)!r} is started as OpenCode, also by `go-ent doctor`",
        )
    if config := said("config_path"):
        yield _program(
            ("opencode", "config_path"),
            config,
            project,
            (text_of(config),),
            f"OpenCode and go-ent read {text_of(config)!r} instead of your own opencode.json: its "
            "providers, addresses, plugins and MCP servers",
        )
    if (flag := said("project_config")) and not is_false(flag):
        yield _proposal(
            ("opencode", "project_config"),
            flag,
            "opencode",
            "OpenCode follows the project's own opencode.json and .opencode/: agents, commands, tools, "
            "MCP servers, permissions",
        )
    profile, chosen = said("profile"), at(users, "opencode", "profile")
    if profile and chosen and text_of(profile) != "hermetic":
        yield _proposal(
            ("opencode", "profile"),
            profile,
            "opencode",
            f"OpenCode runs with the profile {text_of(profile)!r} instead of your {text_of(chosen)!r}",
        )
    if server := [key for key in SERVER if said(key)]:
        url = text_of(at(own, "opencode", "serve_url"))
        password = text_of(at(own, "opencode", "serve_password_env"))
        key = f", which gets the password in ${password}" if password else ""
        section = table_at(own, "opencode")
        told = {each: section.entries[each] for each in server}
        yield _proposal(
            ("opencode", "serve_url"),
            Table(place=section.place, entries=told),
            "address",
            f"workers with the method serve run on the server at {url or 'your address'}{key}; it "
            "sees their tasks and files",
            also=tuple(("opencode", each) for each in server),
        )


def _sandbox(own: Table, users: Table) -> Iterator[_Proposal]:
    """Whatever a project says of the sandbox: even a tighter one can be meant to break a check."""
    block, theirs = at(own, "sandbox"), at(users, "sandbox")
    if block is None or same(block, theirs):
        return
    if not isinstance(block, Table):
        yield _proposal(("sandbox",), block, "permission", "workers run without a sandbox")
        return
    for key, node in block.entries.items():
        if not same(node, at(users, "sandbox", key)):
            value = _listed(texts_of(node)) or text_of(node)
            yield _proposal(
                ("sandbox", key), node, "permission", f"{_SANDBOX.get(key, key)}: {value}"
            )


_SANDBOX: Final = {
    "level": "the sandbox of workers is at most",
    "writable": "commands of workers can also write to",
    "read": "workers can read",
    "readable": "workers can also read",
    "network": "workers can use the network",
}


def _permissions(own: Table, users: Table) -> Iterator[_Proposal]:
    preset, chosen = at(own, "permissions", "preset"), at(users, "permissions", "preset")
    if preset and not _is_narrow(preset, chosen):
        yield _proposal(
            ("permissions", "preset"),
            preset,
            "permission",
            f"workers run with the preset {text_of(preset)!r}: {_IN_WORDS.get(text_of(preset), 'unknown')}",
        )
    rules, theirs = at(own, "permissions", "rules"), at(users, "permissions", "rules")
    if rules and not same(rules, theirs) and (theirs or not _only_denies(rules)):
        yield _proposal(
            ("permissions", "rules"), rules, "permission", _rules_in_words(rules, users)
        )


_IN_WORDS: Final = {
    "ask": "they ask before they edit files or run commands",
    "edit": "they edit files without asking",
    "auto": "they edit files, run commands and fetch pages without asking",
}


def _budget(own: Table, users: Table) -> Iterator[_Proposal]:
    for key in LIMITS:
        limit, theirs = at(own, "budget", key), at(users, "budget", key)
        if limit and theirs and not _is_at_most(limit, theirs):
            yield _proposal(
                ("budget", key),
                limit,
                "spending",
                f"the budget {key} is ${text_of(limit)} instead of your ${text_of(theirs)}",
            )
    hard, direct = at(own, "budget", "hard"), at(own, "budget", "direct")
    if hard and is_true(at(users, "budget", "hard")) and not is_true(hard):
        yield _proposal(
            ("budget", "hard"), hard, "spending", "budgets only warn, where yours refuse"
        )
    if direct and text_of(direct) != "refuse":
        yield _proposal(
            ("budget", "direct"),
            direct,
            "spending",
            "workers whose calls go-ent cannot meter can start despite a hard budget",
        )


def _providers(own: Table, users: Table) -> Iterator[_Proposal]:
    yield from _taken_back(own, users)
    users_own = {
        text_of(at(theirs, "provider")) for theirs in table_at(users, "providers").entries.values()
    }
    for name, entry in table_at(own, "providers").entries.items():
        if not isinstance(entry, Table):
            continue
        theirs = at(users, "providers", name)
        renamed = theirs and not same(at(entry, "provider"), at(theirs, "provider"))
        backend = text_of(at(entry, "provider"))
        # Such a backend has an address that nobody wrote down.
        usual = local_server(backend) is not None and backend not in users_own
        if any(key in entry.entries for key in ADDRESS) or renamed or usual:
            model = text_of(at(entry, "model"))
            yield _proposal(
                ("providers", name),
                entry,
                "address",
                _address_in_words(name, entry, backend),
                names=(name, backend, f"{backend}/{model}"),
            )
            continue
        for key in PRICES:
            price = at(entry, key)
            if price and not same(price, at(theirs, key)):
                yield _proposal(
                    ("providers", name, key),
                    price,
                    "spending",
                    f"the project's own prices for {name!r} count against your budgets",
                )
    probe = at(own, "health", "probe")
    if probe and not is_false(probe) and not is_true(at(users, "health", "probe")):
        yield _proposal(
            ("health", "probe"),
            probe,
            "address",
            "providers are probed in the background, with your keys",
        )


def _address_in_words(name: str, entry: Table, backend: str) -> str:
    url, variable = text_of(at(entry, "base_url")), text_of(at(entry, "api_key_env"))
    known = known_backend(backend)
    names = (variable,) if variable else known.variables if known else ()
    key = f", with your key in {_listed(f'${each}' for each in names)}" if names else ""
    server = local_server(backend)
    where = url or (server.base_url if server else f"the address of {backend!r}")
    return f"{name!r} sends tasks and files to {where}{key}"


def _program(
    path: Keys,
    node: Node,
    project: Path,
    words: Sequence[str],
    says: str,
    names: tuple[str, ...] = (),
) -> _Proposal:
    """A program, together with the project's files that its words name."""
    try:
        files = named_files(words, project, project)
    except Unlooked as error:
        refused = Act(
            file=node.place.file, key=".".join(path), kind="program", says=str(error), digest=""
        )
        return _Proposal(act=refused, settings=(path,))
    return _proposal(path, node, "program", says, names=names, files=files)


def _proposal(  # noqa: PLR0913 (what an act and its settings are)
    path: Keys,
    node: Node,
    kind: ActKind,
    says: str,
    *,
    names: tuple[str, ...] = (),
    files: Sequence[Material] = (),
    also: tuple[Keys, ...] = (),
) -> _Proposal:
    key = ".".join(path)
    made_of = act(
        file=node.place.file,
        key=key,
        kind=kind,
        says=says,
        materials=(setting(key, node), *files),
        names=names,
    )
    return _Proposal(act=made_of, settings=also or (path,))


def _with_denials(own: Table, users: Table) -> Items:
    """The user's rules, and after them the project's that close something."""
    theirs, rules = at(users, "permissions", "rules"), at(own, "permissions", "rules")
    before = theirs.items if isinstance(theirs, Items) else ()
    denials = filter(_denies, rules.items) if isinstance(rules, Items) else ()
    return Items(place=own.place, items=(*before, *denials))


def _only_denies(rules: Node) -> bool:
    return isinstance(rules, Items) and all(map(_denies, rules.items))


def _denies(rule: Node) -> bool:
    return text_of(at(rule, "action")) == "deny"


def _rules_in_words(rules: Node, users: Table) -> str:
    items = rules.items if isinstance(rules, Items) else ()
    told = _listed(
        f"{text_of(at(rule, 'action'))} {text_of(at(rule, 'tool'))} {text_of(at(rule, 'pattern')) or '*'!r}"
        for rule in items
    )
    instead = " instead of your own rules" if at(users, "permissions", "rules") else ""
    return f"these permission rules apply{instead}: {told or 'none'}"


def _is_at_most(limit: Node, theirs: Node) -> bool:
    try:
        return Decimal(text_of(limit)) <= Decimal(text_of(theirs))
    except InvalidOperation:
        return False


def _is_narrow(preset: Node, chosen: Node | None) -> bool:
    """Whether it is no wider than what the user chose, or than a choice of theirs would be."""
    bound = text_of(chosen) or NARROW
    if text_of(preset) not in PRESETS or bound not in PRESETS:
        return False
    return PRESETS.index(text_of(preset)) <= PRESETS.index(bound)


def _listed(words: Iterable[str]) -> str:
    return ", ".join(words)
