"""Options for libraries with a connection of their own, so that they reach a store as we do."""

from __future__ import annotations

from urllib.parse import urlsplit

from bridge.lake.storage.s3.clients import clients
from bridge.settings.values.stores import S3Options


def object_store_options(bucket: str, options: S3Options) -> dict[str, str]:
    """The `storage_options` of delta-rs and Polars: server, region, and boto3's current keys."""
    connection = clients(options)
    credentials = connection.session.get_credentials()
    keys = credentials.get_frozen_credentials() if credentials else None
    server, region = connection.patient.meta.endpoint_url, connection.patient.meta.region_name
    amazon = (urlsplit(server).hostname or "").endswith(".amazonaws.com")
    virtual = amazon if options.path_style is None else not options.path_style
    result = {
        "aws_region": region or "us-east-1",
        "aws_access_key_id": keys and keys.access_key,
        "aws_secret_access_key": keys and keys.secret_key,
        "aws_session_token": keys and keys.token,
        "aws_virtual_hosted_style_request": str(virtual).lower(),
        "aws_conditional_put": "etag",
        "aws_server_side_encryption": options.sse or ("aws:kms" if options.kms_key_id else None),
        "aws_sse_kms_key_id": options.kms_key_id,
    }
    if not amazon:
        host = server.replace("://", f"://{bucket}.", 1) if virtual else server
        result |= {"aws_endpoint_url": host, "aws_allow_http": str(server.startswith("http:")).lower()}
    return {name: value for name, value in result.items() if value}
