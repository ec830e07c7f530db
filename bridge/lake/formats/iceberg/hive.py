"""pyiceberg's client of Hive's metastore as runs need it: safe commits, limited waits, a connection for each thread.

Call `prepare_hive` before a catalog is opened. It changes pyiceberg's module for this process.
"""

from __future__ import annotations

from contextlib import suppress
from threading import local
from typing import Any
from urllib.parse import urlparse

from hive_metastore.ThriftHiveMetastore import Client
from hive_metastore.ttypes import CheckLockRequest, LockState, MetaException, NoSuchLockException
from pyiceberg.catalog.hive import PROP_METADATA_LOCATION, PROP_PREVIOUS_METADATA_LOCATION, _HiveClient
from pyiceberg.exceptions import CommitFailedException
from thrift.protocol import TBinaryProtocol
from thrift.transport import TSocket, TTransport

_PATIENCE = 60.0
"""Seconds that a metastore may take to accept a connection, and to answer a request."""

_CHANGED = "The table has been modified"
"""How Hive refuses a change of a table that does not have the expected parameter: HIVE-26882, HIVE-28121."""


class _Conditional(Client):  # type: ignore[misc]
    """Replaces a table's metadata only if nobody else did so since it was read.

    pyiceberg relies on Hive's lock, which ends while a run sleeps. A metastore before Hive 2.3.10 ignores the
    condition: there a run can be overtaken only between the look at its lock and the change, which follows at once.
    """

    _lock_id: int | None = None

    def lock(self, rqst: Any) -> Any:
        """Ask for the lock under which the next change is made."""
        response = super().lock(rqst)
        self._lock_id = response.lockid
        return response

    def check_lock(self, rqst: Any) -> Any:
        """Look at a lock, also while it waits for its turn. Raises `CommitFailedException` if Hive has ended it."""
        try:
            return super().check_lock(rqst)
        except NoSuchLockException as error:
            raise CommitFailedException("the lock of the table ended before the commit") from error

    def unlock(self, rqst: Any) -> None:
        """Give a lock back, unless Hive has ended it: the change is made or refused by then."""
        with suppress(NoSuchLockException):
            super().unlock(rqst)

    def alter_table_with_environment_context(
        self, dbname: str, tbl_name: str, new_tbl: Any, environment_context: Any
    ) -> None:
        """Change the table. Raises `CommitFailedException` if somebody else was first."""
        if previous := new_tbl.parameters.get(PROP_PREVIOUS_METADATA_LOCATION):
            expected = {"expected_parameter_key": PROP_METADATA_LOCATION, "expected_parameter_value": previous}
            environment_context.properties |= expected
        self._check_own_lock()
        try:
            super().alter_table_with_environment_context(dbname, tbl_name, new_tbl, environment_context)
        except MetaException as error:
            if _CHANGED in str(error):
                raise CommitFailedException(str(error)) from error
            raise

    def _check_own_lock(self) -> None:
        if self._lock_id is None:
            return
        state = self.check_lock(CheckLockRequest(lockid=self._lock_id)).state
        if state != LockState.ACQUIRED:
            raise CommitFailedException(f"the lock of the table is not ours: {LockState._VALUES_TO_NAMES[state]}")


class _OwnConnections(local, _HiveClient):
    """A connection for each thread, as tables are committed in parallel, and thrift's connection serves one at a time.

    Python makes the attributes anew, from the same arguments, when another thread first uses them.
    """

    def _init_thrift_transport(self) -> Any:
        url = urlparse(self._uri)
        socket = TSocket.TSocket(url.hostname, url.port)
        socket.setTimeout(_PATIENCE * 1000)
        if self._kerberos_auth:
            return TTransport.TSaslClientTransport(socket, host=url.hostname, service=self._kerberos_service_name)
        return TTransport.TBufferedTransport(socket)

    def _client(self) -> Client:
        client = _Conditional(TBinaryProtocol.TBinaryProtocol(self._transport))
        if self._ugi:
            client.set_ugi(*self._ugi)
        return client


def prepare_hive() -> None:
    """Replace pyiceberg's connection to Hive's metastore by our own."""
    from pyiceberg.catalog import hive

    hive._HiveClient = _OwnConnections  # type: ignore[misc]
