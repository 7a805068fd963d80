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
from goent.config.tree import Items, Node, Scalar, Table
from goent.config.trust.materials import Unlooked, named_files, plain, setting
from goent.config.trust.records import Approvals
from goent.domain.trust import Act, ActKind, Material, act
from goent.domain.types import Value

PRESETS: Final = ("readonly", "ask", "edit", "auto")  # from the narrowest
NARROW: Final = "ask"  # what the project may choose where the user has chosen nothing
ADDRESS: Final = ("base_url", "api_key_env")
SERVER: Final = ("serve_url", "serve_password_env")
PRICES: Final = ("price", "cost_per_1m_tokens", "cost")  # one spelling of today, and older ones
LIMITS: Final = ("per_task", "per_day", "per_project")
Keys = tuple[str, ...]


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
        extended = _put(sifted.table, "permissions", permissions)
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
            table = _without(table, path)
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
        elif _is_null(node) and _text(node) and theirs and not _is_null(theirs):
            says = f"your own setting {'.'.join(path)} is taken back"
            yield _proposal(path, node, "permission", says)


def _general(own: Table, users: Table, project: Path) -> Iterator[_Proposal]:
    yield from _taken_back(own, users)
    for name, agent in _table(own, "agents").entries.items():
        if not _same(agent, _at(users, "agents", name)):
            words = _texts(_at(agent, "command"))
            yield _program(
                ("agents", name),
                agent,
                project,
                words,
                f"the agent {name!r} is the program `{' '.join(words)}`, started for its workers",
                names=(name,),
            )
    yield from _opencode(own, users, project)
    yield from _permissions(own, users)
    yield from _budget(own, users)
    writable = _at(own, "agent", "writable")
    if writable and not _same(writable, _at(users, "agent", "writable")):
        yield _proposal(
            ("agent", "writable"),
            writable,
            "permission",
            f"commands of go-ent's own agent may write in {_listed(_texts(writable))} of your home",
        )
    isolation, theirs = _at(own, "isolation"), _at(users, "isolation")
    if isolation and theirs and not _same(isolation, theirs):
        yield _proposal(
            ("isolation",),
            isolation,
            "permission",
            f"workers work by isolation {_text(isolation)!r} instead of your {_text(theirs)!r}",
        )


def _opencode(own: Table, users: Table, project: Path) -> Iterator[_Proposal]:
    def said(key: str) -> Node | None:
        node = _at(own, "opencode", key)
        return None if node is None or _same(node, _at(users, "opencode", key)) else node

    if command := said("command"):
        yield _program(
            ("opencode", "command"),
            command,
            project,
            (_text(command),),
            f"the program {_text(command)!r} is started as OpenCode, also by `go-ent doctor`",
        )
    if config := said("config_path"):
        yield _program(
            ("opencode", "config_path"),
            config,
            project,
            (_text(config),),
            f"OpenCode and go-ent read {_text(config)!r} instead of your own opencode.json: its "
            "providers, addresses, plugins and MCP servers",
        )
    if (flag := said("project_config")) and not _is_false(flag):
        yield _proposal(
            ("opencode", "project_config"),
            flag,
            "opencode",
            "OpenCode follows the project's own opencode.json and .opencode/: agents, commands, tools, "
            "MCP servers, permissions",
        )
    profile, chosen = said("profile"), _at(users, "opencode", "profile")
    if profile and chosen and _text(profile) != "hermetic":
        yield _proposal(
            ("opencode", "profile"),
            profile,
            "opencode",
            f"OpenCode runs with the profile {_text(profile)!r} instead of your {_text(chosen)!r}",
        )
    if server := [key for key in SERVER if said(key)]:
        url = _text(_at(own, "opencode", "serve_url"))
        password = _text(_at(own, "opencode", "serve_password_env"))
        key = f", which is given the password in ${password}" if password else ""
        section = _table(own, "opencode")
        told = {each: section.entries[each] for each in server}
        yield _proposal(
            ("opencode", "serve_url"),
            Table(place=section.place, entries=told),
            "address",
            f"workers by the method serve run on the server at {url or 'your address'}{key}, and "
            "it sees their tasks and files",
            also=tuple(("opencode", each) for each in server),
        )


def _permissions(own: Table, users: Table) -> Iterator[_Proposal]:
    preset, chosen = _at(own, "permissions", "preset"), _at(users, "permissions", "preset")
    if preset and not _is_narrow(preset, chosen):
        yield _proposal(
            ("permissions", "preset"),
            preset,
            "permission",
            f"workers work under {_text(preset)!r}: {_IN_WORDS.get(_text(preset), 'what that is')}",
        )
    rules, theirs = _at(own, "permissions", "rules"), _at(users, "permissions", "rules")
    if rules and not _same(rules, theirs) and (theirs or not _only_denies(rules)):
        yield _proposal(
            ("permissions", "rules"), rules, "permission", _rules_in_words(rules, users)
        )


_IN_WORDS: Final = {
    "ask": "they ask before they change files or run commands",
    "edit": "they change files without asking",
    "auto": "they change files, run commands and fetch pages without asking",
}


def _budget(own: Table, users: Table) -> Iterator[_Proposal]:
    for key in LIMITS:
        limit, theirs = _at(own, "budget", key), _at(users, "budget", key)
        if limit and theirs and not _is_at_most(limit, theirs):
            yield _proposal(
                ("budget", key),
                limit,
                "spending",
                f"the budget {key} is ${_text(limit)} instead of your ${_text(theirs)}",
            )
    hard, direct = _at(own, "budget", "hard"), _at(own, "budget", "direct")
    if hard and _is_true(_at(users, "budget", "hard")) and not _is_true(hard):
        yield _proposal(
            ("budget", "hard"), hard, "spending", "budgets warn only, where yours refuse"
        )
    if direct and _text(direct) != "refuse":
        yield _proposal(
            ("budget", "direct"),
            direct,
            "spending",
            "workers whose calls go-ent cannot count may start under a hard budget",
        )


def _providers(own: Table, users: Table) -> Iterator[_Proposal]:
    yield from _taken_back(own, users)
    for name, entry in _table(own, "providers").entries.items():
        if not isinstance(entry, Table):
            continue
        theirs = _at(users, "providers", name)
        renamed = theirs and not _same(_at(entry, "provider"), _at(theirs, "provider"))
        if any(key in entry.entries for key in ADDRESS) or renamed:
            backend = _text(_at(entry, "provider"))
            model = _text(_at(entry, "model"))
            yield _proposal(
                ("providers", name),
                entry,
                "address",
                _address_in_words(name, entry, backend),
                names=(name, backend, f"{backend}/{model}"),
            )
            continue
        for key in PRICES:
            price = _at(entry, key)
            if price and not _same(price, _at(theirs, key)):
                yield _proposal(
                    ("providers", name, key),
                    price,
                    "spending",
                    f"the prices that {name!r} is counted by in budgets are the project's",
                )
    probe = _at(own, "health", "probe")
    if probe and not _is_false(probe) and not _is_true(_at(users, "health", "probe")):
        yield _proposal(
            ("health", "probe"),
            probe,
            "address",
            "every provider is asked for its models now and then, with your keys",
        )


def _address_in_words(name: str, entry: Table, backend: str) -> str:
    url, variable = _text(_at(entry, "base_url")), _text(_at(entry, "api_key_env"))
    known = known_backend(backend)
    names = (variable,) if variable else known.variables if known else ()
    key = f", with your key in {_listed(f'${each}' for each in names)}" if names else ""
    where = url or f"the address of {backend!r}"
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
    theirs, rules = _at(users, "permissions", "rules"), _at(own, "permissions", "rules")
    before = theirs.items if isinstance(theirs, Items) else ()
    denials = filter(_denies, rules.items) if isinstance(rules, Items) else ()
    return Items(place=own.place, items=(*before, *denials))


def _only_denies(rules: Node) -> bool:
    return isinstance(rules, Items) and all(map(_denies, rules.items))


def _denies(rule: Node) -> bool:
    return _text(_at(rule, "action")) == "deny"


def _rules_in_words(rules: Node, users: Table) -> str:
    items = rules.items if isinstance(rules, Items) else ()
    told = _listed(
        f"{_text(_at(rule, 'action'))} {_text(_at(rule, 'tool'))} {_text(_at(rule, 'pattern')) or '*'!r}"
        for rule in items
    )
    instead = " instead of your own rules" if _at(users, "permissions", "rules") else ""
    return f"workers work under these rules{instead}: {told or 'none'}"


def _is_at_most(limit: Node, theirs: Node) -> bool:
    try:
        return Decimal(_text(limit)) <= Decimal(_text(theirs))
    except InvalidOperation:
        return False


def _is_true(node: Node | None) -> bool:
    return isinstance(node, Scalar) and node.is_true


def _is_null(node: Node | None) -> bool:
    return isinstance(node, Scalar) and node.kind == "null"


def _is_false(node: Node) -> bool:
    return _text(node).lower() in ("false", "no", "off")


def _is_narrow(preset: Node, chosen: Node | None) -> bool:
    """Whether it is no wider than what the user chose, or than a choice of theirs would be."""
    bound = _text(chosen) or NARROW
    if _text(preset) not in PRESETS or bound not in PRESETS:
        return False
    return PRESETS.index(_text(preset)) <= PRESETS.index(bound)


def _same(one: Node | None, other: Node | None) -> bool:
    return one is not None and other is not None and plain(one) == plain(other)


def _at(node: Node | None, *keys: str) -> Node | None:
    for key in keys:
        node = node.entries.get(key) if isinstance(node, Table) else None
    return None if _is_null(node) else node


def _table(node: Node, key: str) -> Table:
    found = _at(node, key)
    return found if isinstance(found, Table) else Table(place=node.place)


def _text(node: Node | None) -> str:
    return node.text if isinstance(node, Scalar) else ""


def _texts(node: Node | None) -> tuple[str, ...]:
    if isinstance(node, Items):
        return tuple(map(_text, node.items))
    return (_text(node),) if node else ()


def _listed(words: Iterable[str]) -> str:
    return ", ".join(words)


def _without(table: Table, path: Keys) -> Table:
    head, *rest = path
    entry = table.entries.get(head)
    if entry is None:
        return table
    kept = {key: node for key, node in table.entries.items() if key != head}
    if rest and isinstance(entry, Table):
        kept[head] = _without(entry, tuple(rest))
    return Table(place=table.place, entries=kept)


def _put(table: Table, key: str, more: Table) -> Table:
    before = _table(table, key)
    entries = {**before.entries, **more.entries}
    return Table(
        place=table.place,
        entries={**table.entries, key: Table(place=before.place, entries=entries)},
    )
