r"""Starts a command inside a sandbox: namespaces, Landlock and seccomp, in that order.

A separate program, run with `python -I -S`: it confines itself, then becomes the command. It uses only the
standard library, and as little of it as possible, because its start delays every command.

    launcher.py [OPTION ...] -- PROGRAM [ARGUMENT ...]

    --namespaces        a private view of the file system, in namespaces of its own
    --nestable          no Landlock rules on files, which would forbid further mounts, so that
                        commands started inside can be confined again
    --landlock          Landlock rules; without this or --namespaces, nothing is confined
    --write PATH        the command can write below it
    --write-tmpdir      the same for the folder in $TMPDIR
    --read-only PATH    read-only, although below a writable folder; without --namespaces, nothing new can
                        be created in the folders around it either
    --hide PATH         looks empty to the command; without --namespaces, only the names are visible
    --keep PATH         stays visible although its folder is private or hidden
    --tmp PATH          what the command sees as /tmp, /var/tmp and /dev/shm; needs --namespaces
    --read PATH         if given, the command can read only below such paths, and --keep has no effect
    --network off       a private network that reaches nothing; without --namespaces, no network sockets
    --port N            TCP connections to this port only
    --no-unix-sockets   the command cannot create Unix sockets: they lead to unconfined programs
    --unset NAME        a variable that the command does not get
    --only NAMES        the command gets only these variables, separated by spaces
    --quiet             no standard input; errors go where the output goes
    --from-environment NAME   read further options, separated by \x1f, from this variable, which the
                        command does not get; if it is not set, nothing is started
"""

import ctypes
import os
import sys

TYPE_CHECKING = False  # the module `typing` alone takes as long to load as all the rest
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import NoReturn

_SYS = ctypes.CDLL(None, use_errno=True)
_SYS.syscall.restype = ctypes.c_long

# System calls with the same number on every architecture.
_MOUNT_SETATTR, _CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 442, 444, 445, 446

_NEWNS, _NEWIPC, _NEWUSER, _NEWNET = 0x20000, 0x8000000, 0x10000000, 0x40000000
_NOSUID, _NODEV, _NOEXEC, _BIND, _REC, _PRIVATE = 2, 4, 8, 4096, 16384, 1 << 18
_ATTR_RDONLY, _AT_RECURSIVE, _AT_EMPTY_PATH = 1, 0x8000, 0x1000

_SET_NO_NEW_PRIVS, _SET_SECCOMP, _CAPBSET_DROP, _SET_SECUREBITS = 38, 22, 24, 28
_LAST_CAPABILITY = 63
_NO_ROOT = 0b101111  # NOROOT and NO_SETUID_FIXUP, both locked; KEEP_CAPS locked off
_SYS_ADMIN, _PERFMON = 21, 38  # with these, root can read other processes' memory
_SETFCAP = 31

TEMPORARY = ("/tmp", "/var/tmp", "/dev/shm")  # noqa: S108 (replaced by a private folder)
RUNTIME = ("/run", "/var/run")
# Below /run: what programs need to resolve names and, on NixOS, to run at all.
_RUNTIME_KEPT = ("current-system", "booted-system", "wrappers", "opengl-driver", "systemd/resolve")

# Landlock's rights on files. Those that the kernel does not know are left out.
_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR = 1, 2, 4, 8
_CHANGE_DIR = sum(1 << bit for bit in range(4, 13))  # remove, and make every kind of file
_REFER, _TRUNCATE, _IOCTL_DEV = 1 << 13, 1 << 14, 1 << 15
_CONNECT_TCP = 2
_SCOPES = 0b11  # abstract Unix sockets and signals of processes outside
_PATH_RULE, _PORT_RULE = 1, 2


_FLAGS = ("namespaces", "nestable", "landlock", "no-unix-sockets", "write-tmpdir", "quiet")


class Failure(Exception):
    """The command cannot be confined as required, so it is not started."""


class Options:
    """The command line."""

    def __init__(self, arguments: list[str]) -> None:
        self.flags: set[str] = set()
        self.lists: dict[str, list[str]] = {}
        rest = iter(arguments)
        for word in rest:
            if word == "--":
                break
            if word[2:] in _FLAGS:
                self.flags.add(word[2:])
            else:
                self.lists.setdefault(word[2:], []).append(next(rest))
        self.command = list(rest)

    def all(self, name: str) -> list[str]:
        return self.lists.get(name, [])

    def one(self, name: str) -> str | None:
        return self.lists[name][-1] if name in self.lists else None


def landlock_abi() -> int:
    """The kernel's version of Landlock; 0 without it."""
    if not sys.platform.startswith("linux"):
        return 0
    return max(0, _SYS.syscall(_CREATE_RULESET, None, ctypes.c_size_t(0), 1))


def main(arguments: list[str]) -> None:
    """Become the command, or exit with 126 and a message."""
    options = Options(arguments)
    folder = os.getcwd()
    try:
        _add_from_environment(options)
        if "write-tmpdir" in options.flags and os.environ.get("TMPDIR"):
            temporary = os.path.realpath(os.environ["TMPDIR"])
            options.lists.setdefault("write", []).append(temporary)
        if "namespaces" in options.flags:
            _enter_namespaces(options)
            _change_folder(folder)
        if "namespaces" in options.flags or "landlock" in options.flags:
            _give_up_privileges(options.flags)
        if "landlock" in options.flags:
            _apply_landlock(options)
        _apply_seccomp(options)
    except (OSError, Failure) as error:
        _fail(f"go-ent: the command was not started, because it cannot be confined: {error}")
    environment = _environment(options)
    if "quiet" in options.flags:
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(1, 2)
    program = options.command[0]
    try:
        os.execve(program, options.command, environment)  # noqa: S606 (the confined command)
    except OSError as error:
        _fail(f"go-ent: cannot start {program!r}: {error.strerror}")


def _add_from_environment(options: Options) -> None:
    name = options.one("from-environment")
    if name is None:
        return
    if name not in os.environ:
        raise Failure(f"{name} is not set, so its working folder is unknown")
    words = os.environ.pop(name)
    further = Options([*(words.split("\x1f") if words else ()), "--"])
    options.flags |= further.flags
    for key, values in further.lists.items():
        options.lists.setdefault(key, []).extend(values)


def _fail(message: str) -> "NoReturn":
    sys.stderr.write(f"{message}\n")
    sys.exit(126)


def _environment(options: Options) -> dict[str, str]:
    environment = dict(os.environ)
    only = options.one("only")
    if only is not None:
        names = frozenset(only.split())
        environment = {name: value for name, value in environment.items() if name in names}
    for name in options.all("unset"):
        environment.pop(name, None)
    return environment


def _change_folder(folder: str) -> None:
    """Change to the same path in the new view of the file system."""
    try:
        os.chdir(folder)
    except OSError as error:
        raise Failure(
            f"the folder {folder!r} is not visible in the sandbox: {error.strerror}"
        ) from error


# --- Namespaces: a private view of the file system ---


def _enter_namespaces(options: Options) -> None:
    uid, gid = os.geteuid(), os.getegid()
    network = _NEWNET if options.one("network") == "off" else 0
    _checked(_SYS.unshare(_NEWUSER | _NEWNS | _NEWIPC | network), "unshare")
    _write("/proc/self/setgroups", "deny")
    _write("/proc/self/uid_map", f"{uid} {uid} 1")
    _write("/proc/self/gid_map", f"{gid} {gid} 1")
    _mount(None, "/", None, _REC | _PRIVATE)
    if network:
        _raise_loopback()
    _arrange(options)


def _arrange(options: Options) -> None:
    """Mount the view: private folders first, then what is hidden or stays visible, then who may write."""
    writable = [path for path in _outermost(options.all("write")) if os.path.exists(path)]
    readable = [path for path in options.all("read") if path not in (*TEMPORARY, *RUNTIME)]
    shown = {
        path for path in (*(readable or options.all("keep")), *writable) if os.path.exists(path)
    }
    hidden = {*options.all("hide"), *(_unlisted(_outermost(readable)) if readable else ())}
    held = {path: (_open_unmoved if path in writable else _open)(path) for path in shown}
    private = _mount_private(options.one("tmp"))
    _cover(private, hidden=hidden, held=held)
    for path in writable:
        _bind_to_itself(path)
    _set_read_only(_open("/"), recursive=True)
    temporary = (root for root in private if root in TEMPORARY)
    for path in writable:
        _set_writable(_open_unmoved(path))
    for path in (*temporary, "/proc", "/dev"):
        _set_writable(_open(path))
    closed = [path for path in options.all("read-only") if os.path.exists(path)]
    # What is mounted on cannot be renamed: else a new `.git` could take the place of the closed one.
    for path in sorted({folder for each in closed for folder in _dotted(each, writable)}, key=len):
        _bind(path, path)
    for path in closed:
        _bind(path, path)
        _set_read_only(_open(path))


def _unlisted(readable: list[str], folder: str = "/") -> list[str]:
    """The paths to hide so that only `readable` can be read; private folders contain nothing of others."""
    found: list[str] = []
    private = (*TEMPORARY, *RUNTIME)
    for name in os.listdir(folder):
        path = folder.rstrip("/") + "/" + name
        if path in private or any(_is_below(path, each) for each in readable):
            continue
        if any(_is_below(root, path) for root in private):
            found += _unlisted(readable, path)
        else:
            found.append(path)
    return found


def _cover(private: list[str], *, hidden: set[str], held: dict[str, int]) -> None:
    """Hide paths, and show those held open again, from the outermost inwards."""
    gone = dict.fromkeys(private, True)  # by folder: whether its content is hidden
    for path in sorted(hidden | held.keys(), key=len):
        around = max((each for each in gone if _is_below(path, each)), key=len, default="")
        if path in hidden:
            if os.path.lexists(path):  # otherwise it is hidden with the folder around it
                _hide(path)
                gone[path] = True
        elif gone.get(around):
            _mount_held(held[path], path)
            gone[path] = False
    for descriptor in held.values():
        os.close(descriptor)


def _mount_private(tmp: str | None) -> list[str]:
    """Replace the folders where other programs leave sockets and files, and return them."""
    if tmp is None:
        return []
    temporary, runtime = _folders(TEMPORARY), _folders(RUNTIME)
    kept = [f"{root}/{name}" for root in runtime for name in _RUNTIME_KEPT]
    resolver = os.path.realpath("/etc/resolv.conf")
    if any(_is_below(resolver, root) for root in runtime):
        kept.append(resolver)
    held = {path: _open(path) for path in kept if os.path.exists(path)}
    source = _open(tmp)
    for root in temporary:
        _bind(f"/proc/self/fd/{source}", root)
    for root in runtime:
        _mount("tmpfs", root, "tmpfs", _NOSUID | _NODEV, "mode=755,size=1m")
    _mount_terminals()
    for path, descriptor in held.items():
        _mount_held(descriptor, path)
        os.close(descriptor)
    os.close(source)
    return [*temporary, *runtime]


def _mount_terminals() -> None:
    """Mount private terminals: the user's could be read and written by path."""
    if not os.path.isdir("/dev/pts"):
        return
    options = "newinstance,ptmxmode=0666,mode=620"
    _mount("devpts", "/dev/pts", "devpts", _NOSUID | _NOEXEC, options)
    if not os.path.islink("/dev/ptmx"):
        _bind("/dev/pts/ptmx", "/dev/ptmx")


def _folders(paths: tuple[str, ...]) -> list[str]:
    return [path for path in paths if os.path.isdir(path) and not os.path.islink(path)]


def _open(path: str) -> int:
    return os.open(path, os.O_PATH | os.O_CLOEXEC)


def _mount_held(descriptor: int, path: str) -> None:
    """Show again what was at the path before its folder was replaced."""
    source = f"/proc/self/fd/{descriptor}"
    if not os.path.lexists(path):
        path = os.path.realpath(path)  # a link on the way may lead to a covered folder
        if os.path.isdir(source):
            os.makedirs(path, exist_ok=True)
        else:
            os.makedirs(os.path.dirname(path), exist_ok=True)
            os.close(os.open(path, os.O_WRONLY | os.O_CREAT, 0o600))
    _bind(source, path)


def _hide(path: str) -> None:
    if os.path.isdir(path) and not os.path.islink(path):
        _mount("tmpfs", path, "tmpfs", _NOSUID | _NODEV, "mode=700,size=64k")
    elif not os.path.islink(path):
        _bind(os.devnull, path)


def _open_unmoved(path: str) -> int:
    """Open a path that contained no links; a worker may have put one there meanwhile."""
    descriptor = _open(path)
    if os.readlink(f"/proc/self/fd/{descriptor}") != path:
        raise Failure(f"{path!r} has become a link, or lies behind one")
    return descriptor


def _bind_to_itself(path: str) -> None:
    descriptor = _open_unmoved(path)
    place = f"/proc/self/fd/{descriptor}"
    _bind(place, place)
    os.close(descriptor)


def _dotted(path: str, writable: list[str]) -> list[str]:
    """The folders around a path inside a writable one, from the first whose name begins with a dot."""
    top = max((each for each in writable if _is_below(path, each)), key=len, default=path)
    names = path[len(top) :].strip("/").split("/")[:-1]
    first = next((at for at, name in enumerate(names) if name.startswith(".")), len(names))
    return ["/".join((top, *names[: at + 1])) for at in range(first, len(names))]


def _bind(source: str, target: str) -> None:
    _mount(source, target, None, _BIND | _REC)


def _mount(
    source: str | None, target: str, kind: str | None, flags: int, data: str | None = None
) -> None:
    words = [None if each is None else os.fsencode(each) for each in (source, target, kind)]
    options = None if data is None else os.fsencode(data)
    result = _SYS.mount(*words, ctypes.c_ulong(flags), options)
    _checked(result, f"mount on {target!r}")


class _MountAttributes(ctypes.Structure):
    _fields_ = tuple((name, ctypes.c_uint64) for name in ("set", "clear", "propagation", "userns"))


def _set_read_only(mounted: int, *, recursive: bool = False) -> None:
    _set_attributes(mounted, _MountAttributes(set=_ATTR_RDONLY), recursive=recursive)


def _set_writable(mounted: int) -> None:
    _set_attributes(mounted, _MountAttributes(clear=_ATTR_RDONLY), recursive=False)


def _set_attributes(mounted: int, attributes: _MountAttributes, *, recursive: bool) -> None:
    """Change the attributes of the mount at the descriptor, and close it."""
    path = os.readlink(f"/proc/self/fd/{mounted}")
    result = _SYS.syscall(
        _MOUNT_SETATTR,
        mounted,
        b"",
        _AT_EMPTY_PATH | (_AT_RECURSIVE if recursive else 0),
        ctypes.byref(attributes),
        ctypes.c_size_t(ctypes.sizeof(attributes)),
    )
    _checked(result, f"mount attributes of {path!r}")
    os.close(mounted)


def _outermost(paths: list[str]) -> list[str]:
    """The paths that are not below others: one mount is enough for both."""
    found: list[str] = []
    for path in sorted(set(paths), key=len):
        if not any(_is_below(path, each) for each in found):
            found.append(path)
    return found


def _is_below(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder.rstrip("/") + "/")


def _write(path: str, text: str) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(descriptor, text.encode())
    finally:
        os.close(descriptor)


def _raise_loopback() -> None:
    """Switch on the loopback device of the new network."""
    import fcntl  # noqa: PLC0415 (only without a network)
    import socket  # noqa: PLC0415 (the same)

    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        up_and_running = (
            b"lo".ljust(16, b"\0") + (0x1 | 0x40).to_bytes(2, sys.byteorder) + bytes(22)
        )
        fcntl.ioctl(any_socket, 0x8914, up_and_running)  # SIOCSIFFLAGS


# --- Privileges ---


def _give_up_privileges(flags: set[str]) -> None:
    """Prevent programs from gaining rights, and from being root inside."""
    _checked(_SYS.prctl(_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "no_new_privs")
    if "namespaces" not in flags:
        lost = {_SYS_ADMIN, _PERFMON}
    else:
        # Without this capability, root cannot be itself in a nested namespace.
        is_root = "nestable" in flags and os.geteuid() == 0
        kept = {_SETFCAP} if is_root else set[int]()
        lost = set(range(_LAST_CAPABILITY + 1)) - kept
    for capability in lost:
        _SYS.prctl(_CAPBSET_DROP, capability, 0, 0, 0)  # fails if the kernel lacks it
    if _SETFCAP in lost:
        _SYS.prctl(_SET_SECUREBITS, _NO_ROOT, 0, 0, 0)
        header = (ctypes.c_uint32 * 2)(0x20080522, 0)
        nothing = (ctypes.c_uint32 * 6)()
        _checked(_SYS.capset(ctypes.byref(header), ctypes.byref(nothing)), "capset")


# --- Landlock ---


class _Ruleset(ctypes.Structure):
    _fields_ = tuple((name, ctypes.c_uint64) for name in ("files", "network", "scoped"))


class _PathRule(ctypes.Structure):
    _layout_ = "ms"  # what `_pack_` implies: Python 3.14 warns without it, older ones ignore it
    _pack_ = 1
    _fields_ = (("access", ctypes.c_uint64), ("folder", ctypes.c_int32))


class _PortRule(ctypes.Structure):
    _fields_ = (("access", ctypes.c_uint64), ("port", ctypes.c_uint64))


def _apply_landlock(options: Options) -> None:
    abi = landlock_abi()
    if not abi:
        raise Failure("this kernel has no Landlock")
    write = _WRITE_FILE | _CHANGE_DIR
    write |= _REFER if abi >= 2 else 0
    write |= _TRUNCATE if abi >= 3 else 0
    read = _EXECUTE | _READ_FILE | _READ_DIR
    limits_writing = "nestable" not in options.flags
    readable = [] if "namespaces" in options.flags else options.all("read")
    hidden = _hidden_by_landlock(options) if limits_writing else []
    limits_reading = bool(readable or hidden)
    ports = options.all("port")
    if ports and abi < 4:
        raise Failure(
            "this kernel's Landlock cannot limit ports; `sandbox.network` needs Linux 6.7"
        )
    rules = _Ruleset(
        files=(write if limits_writing else 0) | (read if limits_reading else 0),
        network=_CONNECT_TCP if ports else 0,
        scoped=_SCOPES if abi >= 6 else 0,
    )
    if not (rules.files or rules.network or rules.scoped):
        return
    size = 24 if abi >= 6 else 16 if abi >= 4 else 8
    ruleset = _checked(
        _SYS.syscall(_CREATE_RULESET, ctypes.byref(rules), ctypes.c_size_t(size), 0), "Landlock"
    )
    if limits_reading:
        if readable:
            readable = _apart([os.path.realpath(path) for path in readable], hidden)
        else:
            _allow(ruleset, "/", _READ_DIR)
            readable = [*_beside(hidden), *_kept_of(hidden, options.all("keep"))]
        for path in readable:
            _allow(ruleset, path, read)
    for path in _writable_by_landlock(options, hidden) if rules.files else ():
        _allow(ruleset, path, rules.files, _open_unmoved)
    if limits_writing:
        _allow_devices(ruleset, options, rules.files)
    for port in ports:
        rule = _PortRule(_CONNECT_TCP, int(port))
        _checked(_SYS.syscall(_ADD_RULE, ruleset, _PORT_RULE, ctypes.byref(rule), 0), "port rule")
    _checked(_SYS.syscall(_RESTRICT_SELF, ruleset, 0), "Landlock")
    os.close(ruleset)


def _allow_devices(ruleset: int, options: Options, access: int) -> None:
    for path in TEMPORARY if options.one("tmp") else ():
        _allow(ruleset, path, access)
    _allow(ruleset, "/dev", access & ~_CHANGE_DIR & ~_REFER)  # nothing new there


def _hidden_by_landlock(options: Options) -> list[str]:
    """The paths that Landlock has to hide, without mounts."""
    if "namespaces" in options.flags:
        return []
    return [os.path.realpath(path) for path in options.all("hide") if os.path.lexists(path)]


def _writable_by_landlock(options: Options, hidden: list[str]) -> list[str]:
    """The writable paths; without mounts, folders around read-only paths are split into their entries."""
    writable = options.all("write")
    if "namespaces" in options.flags:
        return writable
    return _apart(writable, [*options.all("read-only"), *hidden])


def _apart(paths: list[str], closed: list[str]) -> list[str]:
    """The paths; for one that contains something closed, everything beside that."""
    found: list[str] = []
    for path in paths:
        inside = [each for each in closed if _is_below(each, path)]
        if path not in inside:
            found += _beside(inside, path) if inside else [path]
    return found


def _kept_of(hidden: list[str], kept: list[str]) -> list[str]:
    real = [os.path.realpath(path) for path in kept]
    inside = [path for path in real if path not in hidden]
    return [path for path in inside if any(_is_below(path, each) for each in hidden)]


def _beside(hidden: list[str], folder: str = "/") -> list[str]:
    """Everything that is neither hidden nor around it: Landlock has no rules that deny.

    Links are left out, because a rule would open their targets.
    """
    try:
        names = os.listdir(folder)
    except OSError:
        names = []
    begin = folder.rstrip("/") + "/"
    found = [
        begin + name
        for name in names
        if not any(_is_below(each, begin + name) for each in hidden)
        and not os.path.islink(begin + name)
    ]
    onward = {each[len(begin) :].partition("/")[0] for each in hidden if each.startswith(begin)}
    for name in onward:
        if begin + name not in hidden:
            found += _beside(hidden, begin + name)
    return found


def _allow(ruleset: int, path: str, access: int, opened: "Callable[[str], int]" = _open) -> None:
    try:
        place = opened(path)
    except OSError:
        return  # a missing path needs no rule
    if not os.path.isdir(path):
        access &= _EXECUTE | _READ_FILE | _WRITE_FILE | _TRUNCATE
    rule = _PathRule(access, place)
    if access:
        _checked(_SYS.syscall(_ADD_RULE, ruleset, _PATH_RULE, ctypes.byref(rule), 0), "path rule")
    os.close(place)


# --- seccomp ---

_AF_UNIX, _AF_INET, _AF_INET6, _AF_NETLINK = 1, 2, 10, 16
_STREAM, _DGRAM, _TYPES = 1, 2, 0xF  # the rest of a type are flags
_TCP = 6
_FASTOPEN = 0x20000000  # a flag by which sending connects, bypassing Landlock's rules for ports
# By machine: the audit architecture, and the numbers of socket(), socketpair(), sendto(), sendmsg()
# and sendmmsg().
_MACHINES = {
    "x86_64": (0xC000003E, 41, 53, 44, 46, 307),
    "aarch64": (0xC00000B7, 198, 199, 206, 211, 269),
}
_IO_URING_SETUP = 425
_ALLOW, _REFUSE, _MISSING = 0x7FFF0000, 0x00050000 | 13, 0x00050000 | 38  # EACCES, ENOSYS
_LOAD, _EQUAL, _AT_LEAST, _HAS_BIT, _AND, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x54, 0x06
_FIRST, _SECOND, _THIRD, _FOURTH = 16, 24, 32, 40  # where a call's arguments are
_ALLOWED, _REFUSED = (_RETURN, 0, 0, _ALLOW), (_RETURN, 0, 0, _REFUSE)


class _Instruction(ctypes.Structure):
    _fields_ = (
        ("code", ctypes.c_uint16),
        ("yes", ctypes.c_uint8),
        ("no", ctypes.c_uint8),
        ("value", ctypes.c_uint32),
    )


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_uint16), ("instructions", ctypes.POINTER(_Instruction)))


def _apply_seccomp(options: Options) -> None:
    """Refuse sockets, and io_uring, which could create and use them past this filter."""
    no_unix = "no-unix-sockets" in options.flags
    no_network = options.one("network") == "off"
    tcp_alone = options.one("port") is not None  # Landlock checks the ports of TCP only
    if not (no_unix or no_network or tcp_alone):
        return
    machine = os.uname().machine
    if machine not in _MACHINES:
        raise Failure(f"go-ent has no seccomp filter for {machine!r}")
    architecture, socket_call, pair_call, *sending = _MACHINES[machine]
    sockets = [(_LOAD, 0, 0, _FIRST), (_EQUAL, 0, 1, _AF_UNIX), _REFUSED if no_unix else _ALLOWED]
    if no_network and "namespaces" not in options.flags:
        sockets += [_REFUSED]
    elif no_network or tcp_alone:  # a namespace confines these, but not those of virtual machines
        sockets += [(_EQUAL, 0, 1, _AF_NETLINK), _ALLOWED]
        sockets += [(_EQUAL, 2, 0, _AF_INET), (_EQUAL, 1, 0, _AF_INET6), _REFUSED]
    sends: list[tuple[int, int, int, int]] = []
    if tcp_alone:
        for call, flags in zip(sending, (_FOURTH, _THIRD, _FOURTH), strict=True):
            sends += [(_EQUAL, 0, 4, call), (_LOAD, 0, 0, flags)]
            sends += [(_HAS_BIT, 0, 1, _FASTOPEN), _REFUSED, _ALLOWED]
        sockets += [(_LOAD, 0, 0, _SECOND), (_AND, 0, 0, _TYPES), (_EQUAL, 1, 0, _STREAM), _REFUSED]
        sockets += [(_LOAD, 0, 0, _THIRD), (_EQUAL, 2, 0, 0), (_EQUAL, 1, 0, _TCP), _REFUSED]
    # A pair stays connected, except one for datagrams, which can be sent anywhere.
    pairs = [(_LOAD, 0, 0, _SECOND), (_AND, 0, 0, _TYPES), (_EQUAL, 0, 1, _DGRAM), _REFUSED]
    lines = [
        (_LOAD, 0, 0, 4),
        (_EQUAL, 1, 0, architecture),
        (_RETURN, 0, 0, _MISSING),  # another architecture's calls have other numbers
        (_LOAD, 0, 0, 0),
        (_AT_LEAST, 0, 1, 0x40000000),
        (_RETURN, 0, 0, _MISSING),  # x32, the same
        (_EQUAL, 0, 1, _IO_URING_SETUP),
        (_RETURN, 0, 0, _MISSING),
        *([(_EQUAL, 0, len(pairs) + 1, pair_call), *pairs, _ALLOWED] if no_unix else []),
        *sends,
        *((_EQUAL, 1, 0, socket_call), _ALLOWED),
        *(*sockets, _ALLOWED),
    ]
    instructions = (_Instruction * len(lines))(*(_Instruction(*line) for line in lines))
    program = _Program(len(lines), instructions)
    _checked(_SYS.prctl(_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "no_new_privs")
    _checked(_SYS.prctl(_SET_SECCOMP, 2, ctypes.byref(program), 0, 0), "seccomp")


def _checked(result: int, what: str) -> int:
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, f"{what}: {os.strerror(code)}")
    return result


if __name__ == "__main__":
    main(sys.argv[1:])
