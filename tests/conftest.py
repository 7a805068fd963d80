import os
import signal
from collections.abc import Generator
from pathlib import Path

import pytest
from anyio._core import _eventloop
from hypothesis import HealthCheck, settings
from needed_programs import needs_opencode
from ordinary_user import run_again

from goent.providers import call_plan

# The vendors' SDKs bring sniffio, by which a fixture that outlives its test makes `anyio.run` in
# another one believe that it is inside a loop. Without it anyio asks asyncio itself.
_eventloop.sniffio = None  # pyright: ignore[reportPrivateImportUsage]

# How long an example takes tells of the machine, not of us.
settings.register_profile("any-pace", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("any-pace")

# Begun in the background by a shell, we are deaf to Ctrl-C, and so would be all that we start.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Folders whose files take long, for they start processes: begun first, none of them is the last to
# end while the other cores have nothing left to do.
LONG = ("faults", "drivers", "attacks", "peers", "e2e", "evals", "cli", "fuzz", "testing")


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    """For fixtures of any scope."""
    return "asyncio"


@pytest.fixture(scope="module")
def soon_asked_again() -> Generator[None]:
    """A provider that has failed is asked as often as ever, within a second or so."""
    with pytest.MonkeyPatch.context() as changed:
        changed.setattr(call_plan, "GROWTH", 0.1)
        yield


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """A test of what the user's other processes can do is not run as root."""
    if os.geteuid() != 0 or pyfuncitem.get_closest_marker("ordinary_user") is None:
        return None
    limit = pyfuncitem.get_closest_marker("timeout")
    said = run_again(pyfuncitem.nodeid, limit.args[0] - 5 if limit else 100)
    if said is not None:
        pytest.fail(f"as an ordinary user:\n{said}", pytrace=False)
    return True


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--quick", action="store_true", help="only what needs no OpenCode")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    if not config.getoption("--quick") or not collection_path.name.startswith("test_"):
        return None
    return needs_opencode(collection_path) or None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: _turn(item.path))


def _turn(path: Path) -> int:
    folder = path.relative_to(Path(__file__).parent).parts[0]
    return LONG.index(folder) if folder in LONG else len(LONG)
