"""What a benchmark record is: 11 columns, about 400 bytes a line, a pure function of the seed and the block number.

The columns imitate a table of an online shop: unique keys, keys that repeat with a long tail, low-cardinality codes,
money with two digits, names outside ASCII, free text. Compression and dictionary encoding then meet what they meet in
real data; constant or uniformly random columns would flatter or punish them.

The date-time carries no offset and no fraction: of the usual spellings it is the only one that DataSpoc Pipe 0.2.0
survives, and every other system reads it as UTC.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from itertools import accumulate
from random import Random
from typing import Any

import orjson

STREAM = "orders"
BLOCK_RECORDS = 10_000
"""Records between two STATEs, and the unit of generation: block b holds the records [b * 10,000, (b + 1) * 10,000)."""

_START = datetime(2024, 1, 1)
_EXTRACTION = datetime(2026, 1, 1)
_FIRST = "Zoë Liam Noah Émile Ana María Jürgen Chloé Søren Łukasz Olivia Aisha Wei Yuki Ravi Fatima Ingrid João Mia Sam"
_LAST = (
    "Müller García Nguyễn Smith Jensen Kowalski Rossi Dubois O'Brien Tanaka Singh Khan Öztürk Novák Silva Larsen Lee"
)
_WORDS = (
    "the parcel was left with a neighbour because nobody answered customer asked for an invoice in another name please "
    "call before delivery gift wrapping requested colour differs from picture return label sent refund pending second "
    "attempt tomorrow morning fragile keep upright signature required discount code applied twice checked by support"
)
_STREETS = "Hauptstraße|Rue de l'Église|Main Street|Calle Mayor|Storgatan|Via Roma|Parkweg|High Street|Ulica Długa"
_CITIES = "Berlin DE|Lyon FR|Austin US|Sevilla ES|Malmö SE|Torino IT|Utrecht NL|Leeds GB|Gdańsk PL|Kraków PL|Porto PT"
_TAGS = "gift express fragile b2b returned voucher preorder bulk subscription marketplace clearance warranty"
_STATUSES = ["paid", "shipped", "delivered", "cancelled", "returned"]
_STATUS_WEIGHTS = list(accumulate([20, 25, 45, 6, 4]))


def _nullable(kind: str, **more: Any) -> dict[str, Any]:
    return {"type": ["null", kind], **more}


_ADDRESS = {name: _nullable("string") for name in ("street", "city", "country", "postcode")}
SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "id": {"type": "integer"},
        "account_id": _nullable("integer"),
        "name": _nullable("string"),
        "email": _nullable("string"),
        "status": _nullable("string"),
        "amount": _nullable("number"),
        "active": _nullable("boolean"),
        "updated_at": _nullable("string", format="date-time"),
        "address": _nullable("object", properties=_ADDRESS),
        "tags": _nullable("array", items=_nullable("string")),
        "note": _nullable("string"),
    },
}
"""The JSON Schema of the stream: a struct, an array and a date-time among scalars; only the key is never null."""


def schema_line() -> bytes:
    """The SCHEMA message."""
    message = {"type": "SCHEMA", "stream": STREAM, "schema": SCHEMA, "key_properties": ["id"]}
    return orjson.dumps({**message, "bookmark_properties": ["updated_at"]}) + b"\n"


def state_line(records: int) -> bytes:
    """The STATE after that many records."""
    bookmark = {"replication_key": "updated_at", "replication_key_value": _moment(records - 1)}
    return orjson.dumps({"type": "STATE", "value": {"bookmarks": {STREAM: bookmark}}}) + b"\n"


def block_lines(seed: int, block: int) -> list[bytes]:
    """The RECORD lines of one block; the same seed and block give the same bytes on every machine."""
    records = _records(Random(f"{seed}:{block}"), block * BLOCK_RECORDS)
    return [
        orjson.dumps({"type": "RECORD", "stream": STREAM, "record": record, "time_extracted": _extracted(record["id"])})
        + b"\n"
        for record in records
    ]


def _extracted(number: int) -> str:
    """A tap that yields a thousand records a second stamps each of them."""
    return (_EXTRACTION + timedelta(milliseconds=number)).isoformat(timespec="milliseconds") + "Z"


def _moment(number: int) -> str:
    """Never falls as the number grows, several records share a second: a replication key as databases have them."""
    return (_START + timedelta(seconds=number * 4 // 5)).isoformat()


def _records(rng: Random, first: int) -> Iterator[dict[str, Any]]:
    count, tags = BLOCK_RECORDS, _TAGS.split()
    names = rng.choices(_FIRST.split(), k=count), rng.choices(_LAST.split(), k=count)
    statuses = rng.choices(_STATUSES, cum_weights=_STATUS_WEIGHTS, k=count)
    addresses = rng.choices(_addresses(rng), k=count)
    notes = _notes(rng)
    for index in range(count):
        number, given, family = first + index, names[0][index], names[1][index]
        yield {
            "id": number + 1,
            "account_id": int(200_000 * rng.random() ** 3),
            "name": f"{given} {family}",
            "email": f"{given}.{family}.{number:x}@example.com".lower(),
            "status": statuses[index],
            "amount": round(rng.lognormvariate(3.6, 0.9), 2),
            "active": rng.random() < 0.83,
            "updated_at": _moment(number),
            "address": addresses[index],
            "tags": tags[int(rng.random() ** 2 * 12) :][: int(rng.random() * 4)],
            "note": notes[int(rng.random() * len(notes))],
        }


def _addresses(rng: Random) -> list[dict[str, str] | None]:
    """A few thousand addresses a block, one in a hundred unknown."""
    streets, cities = (_STREETS.split("|"), [entry.rsplit(" ", 1) for entry in _CITIES.split("|")])
    made: list[dict[str, str] | None] = [None] * 20
    for _ in range(2_000):
        city, country = rng.choice(cities)
        street = f"{rng.choice(streets)} {rng.randrange(1, 240)}"
        made.append({"street": street, "city": city, "country": country, "postcode": str(rng.randrange(10000, 99999))})
    return made


def _notes(rng: Random) -> list[str | None]:
    """Half-unique free text of two to eight words; one in ten is null."""
    words = _WORDS.split()
    made: list[str | None] = [" ".join(rng.choices(words, k=rng.randrange(2, 9))) for _ in range(4_500)]
    return [*made, *[None] * 500]
