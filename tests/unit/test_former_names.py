"""Modules that were public and moved are still imported by the names that they had."""

from __future__ import annotations

import importlib
import subprocess
import sys

import pytest


@pytest.mark.parametrize(
    ("former", "present", "name"),
    [
        ("bridge.spark_source", "bridge.read.spark_source", "SingerSource"),
        ("bridge.orchestrate.dbt", "bridge.serve.orchestrate.dbt", "sources"),
        ("bridge.spark.archive_maker", "bridge.load.spark.jvm.archive_maker", "make"),
    ],
)
def test_a_former_name_has_the_same_things(former: str, present: str, name: str) -> None:
    """A class is one class, whichever name it is imported by."""
    assert getattr(importlib.import_module(former), name) is getattr(importlib.import_module(present), name)


def test_a_program_is_started_by_its_former_name() -> None:
    """As in the build of an image; here the maker is only asked for its code."""
    code = "import runpy; print(runpy._get_module_details('bridge.spark.archive_maker')[2].co_filename)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip().endswith("bridge/load/spark/jvm/archive_maker.py")


def test_other_names_are_not_found() -> None:
    """A misspelt module is an ImportError as ever."""
    with pytest.raises(ModuleNotFoundError, match=r"bridge\.sparks"):
        importlib.import_module("bridge.sparks")
