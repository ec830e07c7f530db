"""When a pipeline runs, and when it is compared with its source."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated, ClassVar, Literal

from bridge.settings.values.checked import parsed
from bridge.settings.values.cron import check_cron, check_timezone
from bridge.settings.values.section import Section


class Schedule(Section):
    """When the pipeline runs: by `singer-bridge serve`, or by cron after `schedule install`."""

    cron: Annotated[str, parsed(check_cron)]
    """Five fields: minute, hour, day, month, weekday, with `jan`, `mon-fri`, `*/15`, `1,15`; or `@daily` and the
    like."""
    timezone: Annotated[str | None, parsed(check_timezone)] = None
    """The time zone of `cron`, such as `Europe/Paris`. Default: the machine's."""
    catch_up: Literal["once", "skip"] = "once"
    """Runs that were due while `serve` was down. `once`: one run makes up for all of them. `skip`: `serve` waits
    for the next one."""


class Reconcile(Section):
    """When the pipeline is compared with its source, as `singer-bridge reconcile` does: by `singer-bridge serve`, or by
    cron after `schedule install`."""

    schedule: Annotated[str, parsed(check_cron)]
    """When, as `cron` of the pipeline's `schedule`. A time at which `serve` was down is left out."""
    timezone: Annotated[str | None, parsed(check_timezone)] = None
    """The time zone of `schedule`. Default: the machine's."""
    keys: bool = False
    """Compare only keys and replication keys, not all values."""
    apply: bool = False
    """Make the tables as the source is."""

    WAIT: ClassVar[timedelta] = timedelta(hours=1)
    """How long a comparison that is to be applied waits for a run."""

    @property
    def flags(self) -> tuple[str, ...]:
        """The flags with which `singer-bridge reconcile` does it."""
        keys = ("--keys",) if self.keys else ()
        return (*keys, "--apply", "--wait", f"{self.WAIT // timedelta(hours=1)}h") if self.apply else keys

    @property
    def times(self) -> Schedule:
        """The schedule of the comparisons."""
        return Schedule(cron=self.schedule, timezone=self.timezone, catch_up="skip")
