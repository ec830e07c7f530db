"""The campaigns of a night, in their order, each with the time that it may take."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Campaign:
    """A verb of the Makefile with its `ARGS` and variables; `minutes` is its limit on two cores."""

    name: str
    tries: str
    verb: str
    minutes: int
    arguments: str = ""
    variables: Mapping[str, str] = field(default_factory=dict)

    def command(self, seed: int) -> list[str]:
        """Return what a shell would be given, word by word: variables stand before `make`."""
        names = {"SEED": str(seed), **self.variables}
        arguments = [f"ARGS={self.arguments}"] if self.arguments else []
        return ["env", *(f"{name}={value}" for name, value in names.items()), "make", self.verb, *arguments]


CAMPAIGNS = (
    Campaign("test", "all but the long tests", "test", 90, "--durations-file tests/durations.txt"),
    Campaign("taps", "real taps, databases, Meltano, the page in a browser", "taps", 120),
    Campaign("interop", "real stores, catalogs, readers and orchestrators, with kills", "interop", 240),
    Campaign("crash", "kills at every step; 300 at random; half an hour without an end", "crash", 360),
    Campaign("proof", "the same kills on other tools", "proof", 300),
    Campaign("bench", "the benchmark with its peers", "bench", 180),
    Campaign(
        "kills", "300 random kills each on MinIO, Azurite and fake-gcs-server", "interop", 240,
        "-k 'test_kills and not catalogs'", {"KILLS": "300"},
    ),
    Campaign(
        "soak", "two hours without an end; the service killed 50 times", "crash", 240,
        "-k 'goes_on_and_on or killed_again_and_again'", {"SOAK_MINUTES": "120", "SERVICE_KILLS": "50"},
    ),
)  # fmt: skip
