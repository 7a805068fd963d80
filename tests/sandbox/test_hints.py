"""What a hint makes of the words of programs that cannot be had everywhere."""

from pathlib import Path

import pytest

from goent.domain.sandbox_port import NetworkAccess, SandboxLevelName, SandboxSettings
from goent.sandbox.confinement import Confinement
from goent.sandbox.sandbox_hints import HintContext, explain_refusal

HOME, PROJECT = Path("/home/u"), Path("/home/u/project")
DOCKER = "Cannot connect to the Docker daemon at unix:///var/run/docker.sock. Is it running?"
DENIED = "permission denied while trying to connect to the Docker daemon socket at unix:///var/run/docker.sock"
CARGO = """\
Caused by:
  failed to create directory `/home/u/.cargo/registry/index`
Caused by:
  Read-only file system (os error 30)"""


def said(
    output: str,
    *,
    level: SandboxLevelName = "namespace",
    network: NetworkAccess = "all",
    writable: str = "",
) -> str:
    opened = tuple(map(Path, writable.split()))
    confined = Confinement(level=level, writable=(PROJECT, *opened))
    environ = {"HOME": str(HOME), "SSH_AUTH_SOCK": "/run/user/7/agent"}
    settings = SandboxSettings(writable=opened, network=network)
    return explain_refusal(
        HintContext(confinement=confined, settings=settings, environ=environ, home=HOME), output
    )


@pytest.mark.parametrize("output", [DOCKER, DENIED])
def test_docker_is_refused_by_name_with_what_it_means(output: str) -> None:
    hint = said(output)
    assert "`sandbox: {writable: [/var/run/docker.sock]}`" in hint and "as root" in hint
    assert said(DOCKER, writable="/var/run/docker.sock") == ""  # it does not run


@pytest.mark.parametrize(
    ("output", "words"),
    [
        (CARGO, "`sandbox: {writable: [~/.cargo/registry, ~/.cargo/git]}`"),
        ("Could not open a connection to your authentication agent.", "[/run/user/7/agent]}`"),
        ("git@x: Permission denied (publickey).", "[/run/user/7/agent]}`"),
        ('sudo: The "no new privileges" flag is set', "cannot gain privileges"),
        ("bash: line 1: kill: (7) - Operation not permitted", "only what it started itself"),
        ("error: could not write config file .git/config: Device or resource busy", "`.git`"),
        ("error: remote unpack failed: unable to create temporary object directory", "write only"),
        ("sh: 1: cannot create /home/u/.cache/x/f: Read-only file system", "[~/.cache/x]}`"),
        ("/bin/sh: 1: cannot create /home/u/f: Read-only file system", "can write only below"),
        ("touch: cannot touch '/home/u/.bashrc': Read-only file system", "can write only below"),
        ("cp: cannot create '/home/u/.ssh/x': Permission denied", "can write only below"),
        ("touch: cannot touch '/etc/x': Read-only file system", "can write only below"),
        ("open '/home/u/.config/go-ent/config.yaml': EROFS", "can write only below"),
        (f"cat: /{'a' * 300}/x: Permission denied", "can write only below"),
    ],
)
def test_a_hint_names_what_the_words_are_about(output: str, words: str) -> None:
    hint = said(output)
    assert words in hint, hint
    assert hint.count("go-ent's sandbox") == 1 and "\n" not in hint and len(hint) < 300


def test_the_network_is_named_only_where_it_is_closed() -> None:
    output = "curl: (6) Could not resolve host: example.org"
    assert said(output) == ""
    assert "`sandbox: {network: all}`" in said(output, network="off")
    moved = "OSError: [Errno 18] Invalid cross-device link: 'a' -> 'b'"
    assert said(moved) == "" and "between folders" in said(moved, network="gateway")


@pytest.mark.parametrize("output", ["", "1 failed, 3 passed", "error[E0308]: mismatched types"])
def test_what_was_not_refused_gets_no_hint(output: str) -> None:
    assert said(output) == ""
