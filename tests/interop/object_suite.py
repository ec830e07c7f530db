"""What a store behind `ObjectStorage` must pass: the suite of each store, and files that are rewritten and read."""

from __future__ import annotations

from tests.contract.test_rewrite import (  # noqa: F401 - what it promises of every store
    test_a_file_is_rewritten,
    test_a_file_that_somebody_deleted,
    test_a_lost_file_of_the_same_bytes,
    test_a_readable_file_is_aborted_whole,
    test_a_readable_file_is_read_before_it_is_published,
    test_nobody_moves_a_change_without_rewrites,
    test_walk_and_empty_folders,
    test_what_is_not_there_is_missing,
)
from tests.interop.store_suite import *  # noqa: F403
