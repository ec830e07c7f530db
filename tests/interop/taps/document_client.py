"""Asks a server of MongoDB's protocol by pymongo. Run by the Python of a venv that has it.

Argument: a URL. stdin: a Python expression a line, of `shop`, a database, `bson` and `datetime`; stdout: each value, as
canonical extended JSON.
"""

from __future__ import annotations

import datetime
import sys
from typing import Any

import bson
import pymongo
from bson import json_util


def main(url: str) -> None:
    """Print the value of each line."""
    client: pymongo.MongoClient[Any] = pymongo.MongoClient(url, datetime_conversion="DATETIME_AUTO")
    names = {"shop": client.shop, "bson": bson, "datetime": datetime}
    for line in sys.stdin:
        value = eval(line, names)
        value = list(value) if isinstance(value, pymongo.cursor.Cursor) else value
        print(json_util.dumps(value if isinstance(value, int | list) else None))


if __name__ == "__main__":
    main(sys.argv[1])
