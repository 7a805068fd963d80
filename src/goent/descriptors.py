"""Raises how many files this process may have open. Standard library only."""

import resource
from contextlib import suppress

MOST = 65_536  # more than any go-ent needs; "unlimited" is refused by some kernels


def raise_descriptor_limit() -> None:
    """To the hard limit. The usual 1,024 are used up by one user who opens connections to us."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MOST if hard == resource.RLIM_INFINITY else min(hard, MOST)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with suppress(OSError, ValueError):  # then it works with what there is
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
