"""Views, views of views, look-ups, sessions and windows that close; PostgreSQL is the source, and the oracle."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from .postgresql import postgresql, reader
from .realtaps import Project

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]

TABLES = """
create table customers (id int primary key, country text);
insert into customers select n, (array['de', 'fr', null, 'ÎI'])[n % 4 + 1] from generate_series(1, 90) n;
create table orders (id int primary key, customer int, at timestamptz, amount numeric(20, 6));
insert into orders select n, nullif(n % 100, 0), timestamptz '2024-03-31 00:59:59.999999+01' + n * interval '7 minutes',
  n * -1.10 from generate_series(1, 1000) n;
"""
CHANGES = [
    """
update orders set at = timestamptz '2024-04-05 00:00+00' + id * interval '1 second', amount = amount + 0.000001
  where id in (5, 40, 400, 999);
insert into orders select n, n % 7, timestamptz '2024-04-05 01:00+00' + n * interval '1 minute', 0.000001
  from generate_series(1001, 1200) n;
""",
    """
update orders set customer = 2, at = '2024-04-06 00:00+00' where id = 1100;
insert into orders values (2000, null, '2024-04-06 09:30+00', null);
""",
]
HOURLY = """
select to_char(date_bin('1 hour', at, '1970-01-01 00:00+00') at time zone 'UTC', 'YYYY-MM-DD HH24:MI'),
  coalesce(country, '-'), count(*), coalesce(sum(amount)::text, '-')
from orders left join customers c on c.id = customer group by 1, 2
"""
COUNTRIES = f"select c, count(*), sum(n) from ({HOURLY}) as h (w, c, n, total) group by 1"
VISITS = """
with rows as (select o.*, coalesce(country, '-') as c from orders o left join customers on customers.id = customer),
  gaps as (select *, at - lag(at) over (partition by c order by at) > interval '28 minutes' as breaks from rows),
  numbered as (select *, count(*) filter (where breaks) over (partition by c order by at) as number from gaps)
select c, to_char(min(at) at time zone 'UTC', 'YYYY-MM-DD HH24:MI'), count(*), count(distinct customer),
  coalesce(percentile_cont(0.5) within group (order by amount::float8)::numeric(20, 4)::text, '-')
from numbered group by c, number
"""
SPREAD = """
select coalesce(country, '-'), count(distinct date_trunc('hour', at at time zone 'UTC')), count(distinct amount),
  coalesce(percentile_cont(0.9) within group (order by amount::float8)::numeric(20, 4)::text, '-')
from orders left join customers c on c.id = customer group by 1
"""
OVER = "select to_char((max(at) - interval '90 minutes') at time zone 'UTC', 'YYYY-MM-DD HH24:MI') from orders"
SHOWN = (
    "select strftime(h at time zone 'UTC', '%Y-%m-%d %H:%M') as h, coalesce(country, '-') as country, n, "
    "coalesce(cast(cast(total as decimal(38, 6)) as varchar), '-') as total from {}"
)

SHOWN_VISITS = (
    "select coalesce(country, '-') as c, strftime(since at time zone 'UTC', '%Y-%m-%d %H:%M') as s, n, customers, "
    "coalesce(cast(cast(middle as decimal(20, 4)) as varchar), '-') as middle from visits"
)
SHOWN_SPREAD = (
    "select coalesce(country, '-') as c, hours, amounts, coalesce(cast(cast(most as decimal(20, 4)) as varchar), '-') "
    "as most from spread"
)


def shown(project: Project, query: str) -> list[list[str]]:
    done = project.command("sql", "p", "--json", query)
    assert done.code == 0, done.err
    return sorted([str(value) for value in json.loads(line).values()] for line in done.out.splitlines())


@pytest.mark.parametrize("tap", ["meltanolabs-tap-postgres", "pipelinewise-tap-postgres"])
def test_views_of_a_database(tap: str, tmp_path: Path) -> None:
    """Rows come, change and move between windows: each view is what PostgreSQL says, and a closed window stays."""
    with postgresql() as server:
        server.sql(TABLES)
        project = reader(tap, server, tmp_path)

        def pipeline(table: str, **more: object) -> dict[str, object]:
            source = {"tap": str(project.tap), "config": project.config, "select": [f"public-{table}"]}
            return {"source": source, "destination": {"bucket": "lake", "load_method": "upsert"}} | more

        joined = "SELECT s.*, c.country FROM stream s LEFT JOIN crm.`public-customers` c ON c.id = s.customer"
        hourly = "SELECT window(at, '1 hour').start AS h, country, count(*) AS n, sum(amount) AS total "
        views = {
            "hourly": {"sql": f"{hourly} FROM `public-orders` GROUP BY h, country", "lateness": "30m"},
            "countries": "SELECT country, count(n) AS hours, sum(n) AS n FROM hourly GROUP BY country",
            "visits": "SELECT country, session_window(at, '28 minutes').start AS since, count(*) AS n, count(DISTINCT "
            "customer) AS customers, median(amount) AS middle FROM `public-orders` GROUP BY 1, 2",
            "spread": "SELECT country, count(DISTINCT date_trunc('hour', at)) AS hours, count(DISTINCT amount) AS "
            "amounts, percentile(amount, 0.9) AS most FROM `public-orders` GROUP BY country",
        }
        incremental = {"replication_method": "INCREMENTAL", "replication_key": "at", "transform": joined}
        pipelines = {
            "crm": pipeline("customers", streams={"*": {"replication_method": "FULL_TABLE"}}),
            "p": pipeline("orders", streams={"*": incremental}, views=views),
        }
        (project.folder / "bridge.yaml").write_text(yaml.safe_dump({"pipelines": pipelines}))
        assert project.command("run", "crm").code == 0
        closed: list[list[str]] = []
        until = ""
        for changes in ("", *CHANGES):
            server.sql(changes)
            done = project.command("run", "p")
            assert done.code == 0, done.err
            wanted = sorted(server.sql(HOURLY))
            assert shown(project, SHOWN.format("hourly")) == wanted
            assert shown(project, "select coalesce(country, '-'), hours, n from countries") == sorted(
                server.sql(COUNTRIES)
            )
            assert shown(project, SHOWN_VISITS) == sorted(server.sql(VISITS))
            assert shown(project, SHOWN_SPREAD) == sorted(server.sql(SPREAD))
            over = server.sql(OVER)[0][0]
            closed += [row for row in wanted if until < row[0] <= over]
            assert shown(project, SHOWN.format("hourly_closed")) == sorted(closed)
            until = over
        assert len(closed) > 300
        verified = project.command("views", "verify", "p")
        assert verified.code == 0, verified.out
