"""What a project's files would do if they were followed, and what of it a person has allowed."""

import hashlib
import json
from collections.abc import Iterable
from typing import Literal

from goent.domain.types import Value

ActKind = Literal[
    "program", "address", "permission", "spending", "plugin", "opencode", "git", "evaluation"
]


class Material(Value, frozen=True, kw_only=True):
    """One thing that an act is made of: a setting, or a file with the digest of its content."""

    name: str
    digest: str


class Act(Value, frozen=True, kw_only=True):
    """One thing that a project's files would do. `digest` stands for exactly this content.

    `says` is for a person. `names` are providers and agents that do not exist without it. An act
    without a digest cannot be allowed: nobody can say what it is made of.
    """

    file: str
    key: str
    kind: ActKind
    says: str
    digest: str
    names: tuple[str, ...] = ()
    materials: tuple[Material, ...] = ()

    @property
    def place(self) -> str:
        """As messages name it: the file, and the setting in it."""
        return f"{self.file}: {self.key}" if self.key else self.file


def digest(content: bytes) -> str:
    """What stands for exactly this content."""
    return hashlib.sha256(content).hexdigest()


def act(
    *,
    file: str,
    key: str = "",
    kind: ActKind,
    says: str,
    materials: Iterable[Material] = (),
    names: tuple[str, ...] = (),
) -> Act:
    """An act whose digest stands for what it is and what it is made of, wherever that lies."""
    parts = tuple(materials)
    told = [kind, key, *(text for part in parts for text in (part.name, part.digest))]
    return Act(
        file=file,
        key=key,
        kind=kind,
        says=says,
        digest=digest(json.dumps(told).encode()),
        names=names,
        materials=parts,
    )


def in_few_words(acts: "tuple[Act, ...]", most: int = 3) -> str:
    """The places of some acts, and how many more there are."""
    places = list(dict.fromkeys(act.place for act in acts))
    more = f", and {len(places) - most} more" if len(places) > most else ""
    return ", ".join(places[:most]) + more


def withheld_in_words(acts: "tuple[Act, ...]") -> tuple[str, ...]:
    """One line for what is ignored until the user trusts it; none if nothing is."""
    if not acts:
        return ()
    return (f"ignored until you trust it: {in_few_words(acts)}; see `go-ent trust`",)
