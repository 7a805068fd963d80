"""Sifts a project's settings: what holds immediately, and what waits for the user's approval.

Settings that only choose among the user's own models, or tighten something, apply immediately:
routing rules, names, limits, smaller budgets, stricter permissions. Settings that start a program, send
data to an address, name a variable, widen a permission or raise a budget wait for approval.
"""

from collections.abc import Iterable, Iterator, Sequence
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Final

from goent.config.provider_settings import known_backend
from goent.config.settings_tree import Items, Node, Scalar, Table
from goent.config.trust_materials import (
    UnreadableMaterial,
    named_file_materials,
    plain_values,
    setting_material,
)
from goent.config.trust_records import Approvals
from goent.domain.local_servers import local_server
from goent.domain.settings import Act, ActKind, Material, make_act
from goent.domain.types import Value

KeyPath = tuple[str, ...]


def is_true(node: Node | None) -> bool:
    return isinstance(node, Scalar) and node.is_true


def is_null(node: Node | None) -> bool:
    return isinstance(node, Scalar) and node.kind == "null"


def is_false(node: Node) -> bool:
    return text_of(node).lower() in ("false", "no", "off")


def same_values(one: Node | None, other: Node | None) -> bool:
    return one is not None and other is not None and plain_values(one) == plain_values(other)


def node_at(node: Node | None, *keys: str) -> Node | None:
    for key in keys:
        node = node.entries.get(key) if isinstance(node, Table) else None
    return None if is_null(node) else node


def table_at(node: Node, key: str) -> Table:
    found = node_at(node, key)
    return found if isinstance(found, Table) else Table(place=node.place)


def text_of(node: Node | None) -> str:
    return node.text if isinstance(node, Scalar) else ""


def texts_of(node: Node | None) -> tuple[str, ...]:
    if isinstance(node, Items):
        return tuple(map(text_of, node.items))
    return (text_of(node),) if node else ()


def without_path(table: Table, path: KeyPath) -> Table:
    head, *rest = path
    entry = table.entries.get(head)
    if entry is None:
        return table
    kept = {key: node for key, node in table.entries.items() if key != head}
    if rest and isinstance(entry, Table):
        kept[head] = without_path(entry, tuple(rest))
    return Table(place=table.place, entries=kept)


def with_entries(table: Table, key: str, more: Table) -> Table:
    before = table_at(table, key)
    entries = {**before.entries, **more.entries}
    return Table(
        place=table.place,
        entries={**table.entries, key: Table(place=before.place, entries=entries)},
    )


PRESETS_BY_WIDTH: Final = ("readonly", "ask", "edit", "auto")  # from the narrowest
WIDEST_UNAPPROVED_PRESET: Final = "ask"  # for the project, if the user has chosen none
# Where workers ask before they edit, unless a preset is set.
ASKING_ISOLATIONS: Final = ("auto", "shared", "dedicated")
ADDRESS_KEYS: Final = ("base_url", "api_key_env", "local")
SERVER_KEYS: Final = ("serve_url", "serve_password_env")
PRICE_KEYS: Final = ("price", "cost_per_1m_tokens", "cost")  # today's spelling, and older ones
BUDGET_KEYS: Final = ("per_task", "per_day", "per_project")


class _Proposal(Value, frozen=True, kw_only=True):
    """An act, and the settings that are left out until it is approved."""

    act: Act
    settings: tuple[KeyPath, ...]


class SiftedSettings(Value, frozen=True, kw_only=True):
    """The settings of a file that apply; `withheld` are those of all `acts` that wait for approval."""

    table: Table
    acts: tuple[Act, ...] = ()
    withheld: tuple[Act, ...] = ()


def sift_general(own: Table, users: Table, project: Path, approved: Approvals) -> SiftedSettings:
    """Sift `config.yaml`: `own` is the project's file, `users` the user's."""
    sifted = _sift(own, _general_proposals(own, users, project), approved)
    if any(each.key == "permissions.rules" for each in sifted.withheld):
        rules = _with_denials(own, users)
        permissions = Table(place=own.place, entries={"rules": rules})
        extended = with_entries(sifted.table, "permissions", permissions)
        return SiftedSettings(table=extended, acts=sifted.acts, withheld=sifted.withheld)
    return sifted


def sift_providers(own: Table, users: Table, approved: Approvals) -> SiftedSettings:
    """Sift `providers.yaml`."""
    return _sift(own, _provider_proposals(own, users), approved)


def _sift(table: Table, proposals: Iterable[_Proposal], approved: Approvals) -> SiftedSettings:
    found = tuple(proposals)
    waiting = [each for each in found if not approved.covers(each.act)]
    for proposal in waiting:
        for path in proposal.settings:
            table = without_path(table, path)
    return SiftedSettings(
        table=table,
        acts=tuple(each.act for each in found),
        withheld=tuple(each.act for each in waiting),
    )


def _reset_proposals(own: Table, users: Table, *above: str) -> Iterator[_Proposal]:
    """An explicit `null` resets a setting of the user's to its default."""
    for key, node in own.entries.items():
        theirs, path = users.entries.get(key), (*above, key)
        if isinstance(node, Table) and isinstance(theirs, Table):
            yield from _reset_proposals(node, theirs, *path)
        elif is_null(node) and text_of(node) and theirs and not is_null(theirs):
            says = f"your own setting {'.'.join(path)} is reset to its default"
            yield _make_proposal(path, node, "permission", says)


def _general_proposals(own: Table, users: Table, project: Path) -> Iterator[_Proposal]:
    yield from _reset_proposals(own, users)
    for name, agent in table_at(own, "agents").entries.items():
        if not same_values(agent, node_at(users, "agents", name)):
            words = texts_of(node_at(agent, "command"))
            yield _program_proposal(
                ("agents", name),
                agent,
                project,
                words,
                f"agent {name!r} runs `{' '.join(words)}`",
                names=(name,),
            )
    yield from _opencode_proposals(own, users, project)
    yield from _permission_proposals(own, users)
    yield from _budget_proposals(own, users)
    writable = node_at(own, "agent", "writable")
    if writable and not same_values(writable, node_at(users, "agent", "writable")):
        yield _make_proposal(
            ("agent", "writable"),
            writable,
            "permission",
            f"commands of go-ent's own agent can write to {_comma_list(texts_of(writable))} in your home",
        )
    yield from _sandbox_proposals(own, users)
    yield from _isolation_proposals(own, users)


def _isolation_proposals(own: Table, users: Table) -> Iterator[_Proposal]:
    """An isolation that replaces the user's, or lets workers edit without asking."""
    isolation, theirs = node_at(own, "isolation"), node_at(users, "isolation")
    if isolation is None or same_values(isolation, theirs):
        return
    says = f"workers use the isolation {text_of(isolation)!r}"
    if theirs:
        yield _make_proposal(
            ("isolation",), isolation, "permission", f"{says} instead of your {text_of(theirs)!r}"
        )
        return
    preset, chosen = node_at(own, "permissions", "preset"), node_at(users, "permissions", "preset")
    bounded = chosen or (preset and _is_narrow(preset, chosen))
    if text_of(isolation) not in ASKING_ISOLATIONS and not bounded:
        edits = "where they edit files without asking, unless a preset is set"
        yield _make_proposal(("isolation",), isolation, "permission", f"{says}, {edits}")


def _opencode_proposals(own: Table, users: Table, project: Path) -> Iterator[_Proposal]:
    def said(key: str) -> Node | None:
        node = node_at(own, "opencode", key)
        return None if node is None or same_values(node, node_at(users, "opencode", key)) else node

    if command := said("command"):
        yield _program_proposal(
            ("opencode", "command"),
            command,
            project,
            (text_of(command),),
            f"{text_of(command)!r} is started as OpenCode, also by `go-ent doctor`",
        )
    if config := said("config_path"):
        yield _program_proposal(
            ("opencode", "config_path"),
            config,
            project,
            (text_of(config),),
            f"OpenCode and go-ent read {text_of(config)!r} instead of your own opencode.json: its "
            "providers, addresses, plugins and MCP servers",
        )
    if (flag := said("project_config")) and not is_false(flag):
        yield _make_proposal(
            ("opencode", "project_config"),
            flag,
            "opencode",
            "OpenCode follows the project's own opencode.json and .opencode/: agents, commands, tools, "
            "MCP servers, permissions",
        )
    profile, chosen = said("profile"), node_at(users, "opencode", "profile")
    if profile and chosen and text_of(profile) != "hermetic":
        yield _make_proposal(
            ("opencode", "profile"),
            profile,
            "opencode",
            f"OpenCode runs with the profile {text_of(profile)!r} instead of your {text_of(chosen)!r}",
        )
    if server := [key for key in SERVER_KEYS if said(key)]:
        url = text_of(node_at(own, "opencode", "serve_url"))
        password = text_of(node_at(own, "opencode", "serve_password_env"))
        key = f", which gets the password in ${password}" if password else ""
        section = table_at(own, "opencode")
        told = {each: section.entries[each] for each in server}
        yield _make_proposal(
            ("opencode", "serve_url"),
            Table(place=section.place, entries=told),
            "address",
            f"workers with the method serve run on the server at {url or 'your address'}{key}; it "
            "sees their tasks and files",
            also=tuple(("opencode", each) for each in server),
        )


def _sandbox_proposals(own: Table, users: Table) -> Iterator[_Proposal]:
    """Every change to the sandbox: even a tighter one may be meant to break a check."""
    block, theirs = node_at(own, "sandbox"), node_at(users, "sandbox")
    if block is None or same_values(block, theirs):
        return
    if not isinstance(block, Table):
        yield _make_proposal(("sandbox",), block, "permission", "workers run without a sandbox")
        return
    for key, node in block.entries.items():
        if not same_values(node, node_at(users, "sandbox", key)):
            value = _comma_list(texts_of(node)) or text_of(node)
            yield _make_proposal(
                ("sandbox", key), node, "permission", f"{_SANDBOX_WORDS.get(key, key)}: {value}"
            )


_SANDBOX_WORDS: Final = {
    "level": "the sandbox of workers is at most",
    "writable": "commands of workers can also write to",
    "read": "workers can read",
    "readable": "workers can also read",
    "network": "workers can use the network",
}


def _permission_proposals(own: Table, users: Table) -> Iterator[_Proposal]:
    preset, chosen = node_at(own, "permissions", "preset"), node_at(users, "permissions", "preset")
    if preset and not _is_narrow(preset, chosen):
        yield _make_proposal(
            ("permissions", "preset"),
            preset,
            "permission",
            f"workers run with the preset {text_of(preset)!r}: {_PRESET_WORDS.get(text_of(preset), 'unknown')}",
        )
    rules, theirs = node_at(own, "permissions", "rules"), node_at(users, "permissions", "rules")
    if rules and not same_values(rules, theirs) and (theirs or not _only_denies(rules)):
        yield _make_proposal(
            ("permissions", "rules"), rules, "permission", _rules_text(rules, users)
        )


_PRESET_WORDS: Final = {
    "ask": "they ask before they edit files or run commands",
    "edit": "they edit files without asking",
    "auto": "they edit files, run commands and fetch pages without asking",
}


def _budget_proposals(own: Table, users: Table) -> Iterator[_Proposal]:
    for key in BUDGET_KEYS:
        limit, theirs = node_at(own, "budget", key), node_at(users, "budget", key)
        if limit and theirs and not _is_at_most(limit, theirs):
            yield _make_proposal(
                ("budget", key),
                limit,
                "spending",
                f"the budget {key} is ${text_of(limit)} instead of your ${text_of(theirs)}",
            )
    hard, direct = node_at(own, "budget", "hard"), node_at(own, "budget", "direct")
    if hard and is_true(node_at(users, "budget", "hard")) and not is_true(hard):
        yield _make_proposal(
            ("budget", "hard"), hard, "spending", "budgets only warn, where yours refuse"
        )
    if direct and text_of(direct) != "refuse":
        yield _make_proposal(
            ("budget", "direct"),
            direct,
            "spending",
            "workers whose calls go-ent cannot meter can start despite a hard budget",
        )


def _provider_proposals(own: Table, users: Table) -> Iterator[_Proposal]:
    yield from _reset_proposals(own, users)
    users_own = {
        text_of(node_at(theirs, "provider"))
        for theirs in table_at(users, "providers").entries.values()
    }
    for name, entry in table_at(own, "providers").entries.items():
        if not isinstance(entry, Table):
            continue
        theirs = node_at(users, "providers", name)
        renamed = theirs and not same_values(
            node_at(entry, "provider"), node_at(theirs, "provider")
        )
        backend = text_of(node_at(entry, "provider"))
        # A local server has an address although no file gives one.
        usual = local_server(backend) is not None and backend not in users_own
        if any(key in entry.entries for key in ADDRESS_KEYS) or renamed or usual:
            model = text_of(node_at(entry, "model"))
            yield _make_proposal(
                ("providers", name),
                entry,
                "address",
                _address_text(name, entry, backend),
                names=(name, backend, f"{backend}/{model}"),
            )
            continue
        for key in PRICE_KEYS:
            price = node_at(entry, key)
            if price and not same_values(price, node_at(theirs, key)):
                yield _make_proposal(
                    ("providers", name, key),
                    price,
                    "spending",
                    f"the project's own prices for {name!r} count against your budgets",
                )
    probe = node_at(own, "health", "probe")
    if probe and not is_false(probe) and not is_true(node_at(users, "health", "probe")):
        yield _make_proposal(
            ("health", "probe"),
            probe,
            "address",
            "providers are probed in the background, with your keys",
        )


def _address_text(name: str, entry: Table, backend: str) -> str:
    url, variable = text_of(node_at(entry, "base_url")), text_of(node_at(entry, "api_key_env"))
    known = known_backend(backend)
    names = (variable,) if variable else known.variables if known else ()
    key = f", with your key in {_comma_list(f'${each}' for each in names)}" if names else ""
    server = local_server(backend)
    where = url or (server.base_url if server else f"the address of {backend!r}")
    return f"{name!r} sends tasks and files to {where}{key}"


def _program_proposal(
    path: KeyPath,
    node: Node,
    project: Path,
    words: Sequence[str],
    says: str,
    names: tuple[str, ...] = (),
) -> _Proposal:
    """A command, together with the project's files that it names."""
    try:
        files = named_file_materials(words, project, project)
    except UnreadableMaterial as error:
        refused = Act(
            file=node.place.file, key=".".join(path), kind="program", says=str(error), digest=""
        )
        return _Proposal(act=refused, settings=(path,))
    return _make_proposal(path, node, "program", says, names=names, files=files)


def _make_proposal(  # noqa: PLR0913 (what an act and its settings are)
    path: KeyPath,
    node: Node,
    kind: ActKind,
    says: str,
    *,
    names: tuple[str, ...] = (),
    files: Sequence[Material] = (),
    also: tuple[KeyPath, ...] = (),
) -> _Proposal:
    key = ".".join(path)
    made_of = make_act(
        file=node.place.file,
        key=key,
        kind=kind,
        says=says,
        materials=(setting_material(key, node), *files),
        names=names,
    )
    return _Proposal(act=made_of, settings=also or (path,))


def _with_denials(own: Table, users: Table) -> Items:
    """The user's rules, followed by the project's denials."""
    theirs, rules = node_at(users, "permissions", "rules"), node_at(own, "permissions", "rules")
    before = theirs.items if isinstance(theirs, Items) else ()
    denials = filter(_denies, rules.items) if isinstance(rules, Items) else ()
    return Items(place=own.place, items=(*before, *denials))


def _only_denies(rules: Node) -> bool:
    return isinstance(rules, Items) and all(map(_denies, rules.items))


def _denies(rule: Node) -> bool:
    return text_of(node_at(rule, "action")) == "deny"


def _rules_text(rules: Node, users: Table) -> str:
    items = rules.items if isinstance(rules, Items) else ()
    told = _comma_list(
        f"{text_of(node_at(rule, 'action'))} {text_of(node_at(rule, 'tool'))} {text_of(node_at(rule, 'pattern')) or '*'!r}"
        for rule in items
    )
    instead = " instead of your own rules" if node_at(users, "permissions", "rules") else ""
    return f"these permission rules apply{instead}: {told or 'none'}"


def _is_at_most(limit: Node, theirs: Node) -> bool:
    try:
        return Decimal(text_of(limit)) <= Decimal(text_of(theirs))
    except InvalidOperation:
        return False


def _is_narrow(preset: Node, chosen: Node | None) -> bool:
    """Whether the preset is no wider than the user's, or than what needs no approval."""
    bound = text_of(chosen) or WIDEST_UNAPPROVED_PRESET
    if text_of(preset) not in PRESETS_BY_WIDTH or bound not in PRESETS_BY_WIDTH:
        return False
    return PRESETS_BY_WIDTH.index(text_of(preset)) <= PRESETS_BY_WIDTH.index(bound)


def _comma_list(words: Iterable[str]) -> str:
    return ", ".join(words)
