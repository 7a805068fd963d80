"""The entry for the registry of ACP agents: does it say what is true?"""

import os
import re
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree as ET

import msgspec
import pytest
from msgspec import Struct

import goent

FOLDER = Path(__file__).parent.parent / "registry"
HELLO = b'{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":1}}\n'


class Uvx(Struct, forbid_unknown_fields=True):
    package: str
    args: list[str]


class Distribution(Struct, forbid_unknown_fields=True):
    uvx: Uvx


class Entry(Struct, forbid_unknown_fields=True):
    id: str
    name: str
    version: str
    description: str
    authors: list[str]
    license: str
    distribution: Distribution


@pytest.fixture
def entry() -> Entry:
    [path] = FOLDER.glob("*/agent.json")
    entry = msgspec.json.decode(path.read_bytes(), type=Entry)
    assert path.parent.name == entry.id
    return entry


def test_the_entry_names_this_version(entry: Entry):
    assert entry.version == goent.__version__
    assert re.fullmatch(r"\d+\.\d+\.\d+", entry.version)
    assert entry.distribution.uvx.package == f"go-ent=={goent.__version__}"


@pytest.mark.spec("A13")
def test_the_command_of_the_entry_starts_without_a_key_and_offers_a_way_to_log_in(
    entry: Entry, tmp_path: Path
):
    program = str(Path(sys.executable).parent / "go-ent")
    done = subprocess.run(
        [program, *entry.distribution.uvx.args],
        input=HELLO,
        env={"PATH": os.environ["PATH"], "HOME": str(tmp_path)},
        cwd=tmp_path,
        capture_output=True,
        check=True,
    )
    told = msgspec.json.decode(done.stdout)["result"]
    assert told["agentInfo"]["name"] == entry.id
    assert told["agentInfo"]["version"] == entry.version
    assert {method["type"] for method in told["authMethods"]} & {"agent", "terminal"}


def test_the_icon_is_small_square_and_of_the_colour_around_it(entry: Entry):
    icon = ET.parse(FOLDER / entry.id / "icon.svg").getroot()
    assert (icon.get("width"), icon.get("height"), icon.get("viewBox")) == ("16", "16", "0 0 16 16")
    colours = {e.get(name) for e in icon.iter() for name in ("fill", "stroke")} - {None}
    assert colours == {"none", "currentColor"}
