"""Machines on one: network namespaces with their own addresses, on a switch whose links are slow, lossy or cut.

Each host has a TAP device, and a thread here carries the frames between them: Linux's own netem, which would delay and
lose them, is not in every kernel. This process is on the network as well, so a test can reach the hosts.
"""

from __future__ import annotations

import fcntl
import heapq
import os
import random
import re
import select
import shutil
import signal
import struct
import subprocess
import threading
import time
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from itertools import combinations
from pathlib import Path

_TUN = "/dev/net/tun"
_TUNSETIFF, _TAP, _NO_HEADER = 0x400454CA, 0x0002, 0x1000
_NAME = re.compile(r"singer-(\d+)-\w+")
_MTU = 9000
_FRAMES = 64
"""Frames taken of one host before another has its turn."""
OUTSIDE = "outside"
"""The host that is this process."""


def obstacle() -> str | None:
    """Why this user cannot make networks here; None if it can."""
    if missing := [program for program in ("ip", "unshare") if not shutil.which(program)]:
        return f"{missing[0]} is not installed: apt install iproute2 util-linux"
    name = f"singer-{os.getpid()}-trial"
    made = subprocess.run(["ip", "netns", "add", name], capture_output=True, text=True, check=False)
    subprocess.run(["ip", "netns", "delete", name], capture_output=True, check=False)
    if made.returncode:
        return f"no network namespaces for this user: {made.stderr.strip()}"
    try:
        os.close(os.open(_TUN, os.O_RDWR))
    except OSError as error:
        return f"no TAP devices for this user: {error}"
    return None


@dataclass(frozen=True)
class Host:
    """A machine. What is started with `words` before its command runs there."""

    name: str
    address: str
    namespace: str = ""

    @property
    def words(self) -> list[str]:
        return ["ip", "netns", "exec", self.namespace]


@dataclass
class Link:
    """How two hosts hear each other, in both directions."""

    delay: float = 0.0
    """Seconds."""
    loss: float = 0.0
    """The share of frames that get lost."""
    cut: bool = False


@dataclass
class _Port:
    fd: int
    mac: bytes
    name: str = field(compare=False, default="")


class Network:
    """Some hosts, until the end of the block. Then all of their processes are killed, also if the test failed."""

    def __init__(self, names: list[str], seed: int = 0) -> None:
        self.hosts: dict[str, Host] = {}
        self._names, self._random = names, random.Random(seed)
        self._ports: list[_Port] = []
        self._links = {frozenset(pair): Link() for pair in combinations([OUTSIDE, *names], 2)}
        self._late: list[tuple[float, int, int, bytes]] = []
        self._count = 0
        self._stack = ExitStack()

    def __enter__(self) -> Network:
        _sweep()
        with self._stack:
            for number, name in enumerate([OUTSIDE, *self._names], 1):
                self._add(name, number)
            awake, self._wake = os.pipe()
            self._stack.callback(os.close, awake)
            carrier = threading.Thread(target=self._carry, args=(awake,), name="switch", daemon=True)
            carrier.start()
            self._stack.callback(carrier.join)
            self._stack.callback(os.close, self._wake)
            self._stack = self._stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def __getitem__(self, name: str) -> Host:
        return self.hosts[name]

    def link(self, one: str, other: str) -> Link:
        """The link between two hosts. Changes count at once."""
        return self._links[frozenset((one, other))]

    def links_of(self, name: str) -> list[Link]:
        """All links of a host but that to this process, by which a test looks on."""
        return [link for ends, link in self._links.items() if name in ends and OUTSIDE not in ends]

    def heal(self) -> None:
        """Make all links fast, whole and there."""
        for link in self._links.values():
            link.delay, link.loss, link.cut = 0.0, 0.0, False

    def _add(self, name: str, number: int) -> None:
        pid = os.getpid()
        device, mac = f"sb{pid}n{number}", bytes([2, 0, 0, 0, 0, number])
        host = Host(name, f"198.18.{pid % 250}.{number}", f"singer-{pid}-{number}" if name != OUTSIDE else "")
        fd = os.open(_TUN, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        self._stack.callback(os.close, fd)
        fcntl.ioctl(fd, _TUNSETIFF, struct.pack("16sH14x", device.encode(), _TAP | _NO_HEADER))
        within = []
        if host.namespace:
            _run("ip", "netns", "add", host.namespace)
            self._stack.callback(_remove, host.namespace)
            _run("ip", "link", "set", device, "netns", host.namespace)
            within = ["-netns", host.namespace]
            _run("ip", *within, "link", "set", "lo", "up")
        _run("ip", *within, "link", "set", device, "address", mac.hex(":"), "mtu", str(_MTU))
        _run("ip", *within, "address", "add", f"{host.address}/24", "dev", device)
        _run("ip", *within, "link", "set", device, "up")
        self.hosts[name] = host
        self._ports.append(_Port(fd, mac, name))

    def _carry(self, awake: int) -> None:
        poll, ports = select.poll(), {port.fd: port for port in self._ports}
        for fd in (awake, *ports):
            poll.register(fd, select.POLLIN)
        while True:
            wait = max(0.0, self._late[0][0] - time.monotonic()) * 1000 if self._late else None
            for fd, _ in poll.poll(wait):
                if fd == awake:
                    return
                self._take(ports[fd])
            now = time.monotonic()
            while self._late and self._late[0][0] <= now:
                _, _, fd, frame = heapq.heappop(self._late)
                _send(fd, frame)

    def _take(self, port: _Port) -> None:
        for _ in range(_FRAMES):
            try:
                frame = os.read(port.fd, 1 << 16)
            except OSError:  # there is no more
                return
            for other in self._ports:
                if other is not port and (frame[0] & 1 or frame[:6] == other.mac):
                    self._pass_on(self.link(port.name, other.name), other.fd, frame)

    def _pass_on(self, link: Link, fd: int, frame: bytes) -> None:
        if link.cut or (link.loss and self._random.random() < link.loss):
            return
        if link.delay:
            self._count += 1
            heapq.heappush(self._late, (time.monotonic() + link.delay, self._count, fd, frame))
        else:
            _send(fd, frame)


def _send(fd: int, frame: bytes) -> None:
    with suppress(OSError):  # its host takes no more now: a frame is lost, as on any network
        os.write(fd, frame)


def _run(*words: str) -> None:
    subprocess.run(words, check=True, capture_output=True)


def _remove(namespace: str) -> None:
    """Kill what runs in a namespace, and delete it."""
    pids = subprocess.run(["ip", "netns", "pids", namespace], capture_output=True, text=True, check=False).stdout
    for pid in pids.split():
        with suppress(ProcessLookupError):
            os.kill(int(pid), signal.SIGKILL)
    subprocess.run(["ip", "netns", "delete", namespace], check=False, capture_output=True)


def _sweep() -> None:
    """Delete what test processes left that were killed."""
    listed = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True, check=True).stdout
    for line in listed.splitlines():
        name = line.split()[0] if line.strip() else ""
        if (match := _NAME.fullmatch(name)) and not Path(f"/proc/{match[1]}").exists():
            _remove(name)
