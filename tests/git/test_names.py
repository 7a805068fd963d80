import subprocess

import pytest

from goent.git.git_command import shell_quoted

NAMES = [
    *(b"plain.txt", b"with space", b"it's", b'"quoted"', b"$HOME `id`", b"back\\slash", b"-x"),
    *(b"new\nline\ttab", b"\xff\xe9", "ä ö".encode(), b"\x01\x7f7", b"'\n\\0"),
]


@pytest.mark.parametrize("name", NAMES)
def test_a_shell_reads_just_this_name_from_one_line(name: bytes):
    written = shell_quoted(name)
    assert "\n" not in written
    command = ["bash", "-c", f"printf %s {written}"]
    assert subprocess.run(command, capture_output=True, check=True).stdout == name
