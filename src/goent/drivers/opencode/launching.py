"""What do all OpenCode processes of ours have in common, by whichever method they are used?

The generated configuration with the gate's token in it, the environment without keys, the program.
"""

from collections.abc import Sequence
from pathlib import Path
from urllib.parse import urlsplit

from msgspec import UNSET
from msgspec.structs import replace

from goent.config.instructions import instructions
from goent.config.trust.survey import check_opencode
from goent.domain.ports import Gate
from goent.domain.settings import Settings
from goent.domain.workspaces import FOLDERS
from goent.drivers.environment import Surroundings
from goent.drivers.opencode.binary import find_ripgrep
from goent.drivers.opencode.catalogue import Catalogue
from goent.drivers.opencode.content import (
    WARM_PROVIDER,
    Content,
    GuardOptions,
    generate,
    held_backends,
)
from goent.drivers.opencode.environment import pretend_installed, with_program, worker_environment
from goent.drivers.opencode.guard import PLUGIN
from goent.git.trust import fetch_acts


def gated_content(around: Surroundings, gate: Gate, *, token: str) -> Content:
    """The configuration by which every model whose key we hold is called through the gate.

    Commands run by a shell that confines them.
    """
    settings, environ = around.settings(), around.environ()
    held = held_backends(settings, environ)
    addresses = {name: gate.base_url(name) for name in (*held, WARM_PROVIDER)}
    content = generate(settings, held=held, addresses=addresses, token=token)
    options = GuardOptions(url=gate.guard_url, token=token)
    shell = around.sandbox.shell()
    return replace(
        content, plugin=((PLUGIN.as_uri(), options),), shell=str(shell) if shell else UNSET
    )


def gate_port(gate: Gate) -> int | None:
    """Where the gate listens."""
    return urlsplit(gate.guard_url).port


def shared_roots(around: Surroundings) -> tuple[Path, ...]:
    """Where the workers of a shared process work: in the project, or in folders of their own."""
    own = tuple(around.state_dir / name for name in FOLDERS.values())
    for folder in own:
        folder.mkdir(0o700, parents=True, exist_ok=True)
    project = around.settings().project
    return (*dict.fromkeys((project, *around.sandbox.writes(project))), *own)


def start_folder(around: Surroundings) -> Path:
    """Where every OpenCode process of ours starts, whatever directory it is to work in.

    Bun, which OpenCode is built on, obeys the nearest `tsconfig.json` from the folder that a process
    is in upwards: its `paths` name another file for whatever OpenCode imports, our guard among it.
    No switch turns that off. So a process is never in somebody's repository, and finds ours first.
    """
    folder = around.state_dir / "opencode-start"
    folder.mkdir(0o700, parents=True, exist_ok=True)
    nearest = folder / "tsconfig.json"
    if not nearest.exists():
        nearest.write_text("{}\n")
    return folder


def check_trusted(around: Surroundings, *folders: Path) -> None:
    """Raise `NotTrusted` if an OpenCode that works there would run what nobody has allowed.

    That is also what its git would run: OpenCode asks it about every folder. Looked at each time: a worker may have put it there since.
    """
    settings = around.settings()
    whole = settings.opencode.project_config and settings.opencode.profile == "user"
    for folder in dict.fromkeys((*folders, start_folder(around))):
        check_opencode(
            folder, settings.project, around.environ(), whole=whole, more=fetch_acts(folder)
        )


def known_models(around: Surroundings, content: Content) -> Catalogue:
    """What a process with this configuration has to know of the world's models."""
    folder = around.state_dir / "opencode-models"
    return Catalogue(backends=content.enabled_providers, folder=folder)


def process_environment(
    around: Surroundings, content: Content, *, program: Path, cwd: Path
) -> dict[str, str]:
    """All variables of a process that starts in `cwd`; a hermetic one gets its home."""
    settings, environ = around.settings(), around.environ()
    home = around.state_dir / "opencode-home"
    if settings.opencode.profile == "hermetic":
        home.mkdir(0o700, parents=True, exist_ok=True)
        pretend_installed(home / ".config" / "opencode")
    env = worker_environment(settings, environ, content, cwd=cwd, home=home)
    return with_program(env, find_ripgrep(program, environ))


def project_instructions(cwd: Path, settings: Settings) -> Sequence[Path]:
    """What the project tells every agent, where OpenCode is kept from reading it by itself."""
    if settings.opencode.project_config and settings.opencode.profile == "user":
        return ()
    return instructions((cwd, settings.project), project=settings.project).files[:1]
