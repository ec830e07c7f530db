"""The connections to a store. boto3 looks for credentials: environment, profile, role of the machine."""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any
from urllib.parse import urlsplit

import boto3
from botocore.config import Config
from botocore.credentials import (
    AssumeRoleCredentialFetcher,
    CredentialProvider,
    CredentialResolver,
    DeferredRefreshableCredentials,
)
from botocore.exceptions import NoCredentialsError
from botocore.session import Session as CoreSession

from bridge.settings.values.stores import S3Options

_CONNECTIONS = 32


@dataclass(frozen=True, slots=True)
class Clients:
    """The clients with which one process talks to a store."""

    once: Any
    """Sends each request once: for conditional puts, which must know the outcome of each."""
    patient: Any
    """Tries up to 8 times."""
    session: Any
    """Has the credentials of both."""


def clients(options: S3Options) -> Clients:
    """The connections of this process; cheap after the first call."""
    # A connection must not cross a fork, and the environment that boto3 reads may change.
    environment = tuple(sorted((name, value) for name, value in os.environ.items() if name.startswith("AWS_")))
    return _clients(options, os.getpid(), *environment)


@lru_cache(maxsize=8)
def _clients(options: S3Options, *process: object) -> Clients:  # noqa: ARG001 - they tell one process from another
    core = CoreSession(profile=options.profile)
    if options.region:
        core.set_config_variable("region", options.region)
    if options.role_arn:
        core.register_component("credential_provider", CredentialResolver([_Role(core, options)]))
    session = boto3.Session(botocore_session=core)
    attempts: dict[str, Any] = {"mode": "adaptive"}
    if "AWS_MAX_ATTEMPTS" not in os.environ:
        attempts["total_max_attempts"] = 8
    create = partial(session.client, "s3", endpoint_url=options.endpoint_url)
    return Clients(
        once=create(config=_config(options, {"total_max_attempts": 1}, connect=5, read=10)),
        patient=create(config=_config(options, attempts, connect=10, read=60)),
        session=session,
    )


def _config(options: S3Options, retries: dict[str, Any], *, connect: int, read: int) -> Config:
    # "auto": path style for a given endpoint, virtual hosts for Amazon's own.
    style = {None: "auto", True: "path", False: "virtual"}[options.path_style]
    return Config(
        signature_version="s3v4",
        s3={"addressing_style": style},
        retries=retries,
        connect_timeout=connect,
        read_timeout=read,
        max_pool_connections=_CONNECTIONS,
        # Many stores refuse the checksums that boto3 has added to each request since 1.36.
        request_checksum_calculation="when_required",
        response_checksum_validation="when_required",
        user_agent_extra="singer-bridge",
    )


class _Role(CredentialProvider):  # type: ignore[misc]
    """The credentials of a role, assumed with those that boto3 finds, and renewed before they expire."""

    METHOD = CANONICAL_NAME = "custom-singer-bridge-role"

    def __init__(self, session: CoreSession, options: S3Options) -> None:
        super().__init__(session)
        self._options = options
        self._own = session.get_component("credential_provider")

    def load(self) -> DeferredRefreshableCredentials:
        own = self._own.load_credentials()
        if own is None:
            raise NoCredentialsError
        fetcher = AssumeRoleCredentialFetcher(
            partial(self.session.create_client, endpoint_url=_own_sts(self._options.endpoint_url)),
            own,
            self._options.role_arn,
            extra_args={"RoleSessionName": "singer-bridge"},
        )
        return DeferredRefreshableCredentials(fetcher.fetch_credentials, self.METHOD)


def _own_sts(endpoint_url: str | None) -> str | None:
    """The address for roles: a store that is not Amazon's has that service at its own address."""
    if not endpoint_url or (urlsplit(endpoint_url).hostname or "").endswith(".amazonaws.com"):
        return None
    return endpoint_url
