"""`destination` on Azure: what goes together, and that a token is shown nowhere."""

from __future__ import annotations

from bridge.settings.effective import effective, to_yaml
from tests.unit.settings.settings_files import Load, pipeline_text, refused

SAS = "sv=2026-01-01&sp=rwdlac&sig=dmVyeS1zZWNyZXQ%3D"


def _text(*keys: str) -> str:
    lines = pipeline_text(destination="azure:").replace("./lake", "az://lake/team")
    return lines + "".join(f"        {key}\n" for key in keys)


def test_a_token_is_a_secret(settings: Load) -> None:
    """A SAS token, from a variable or not, is hidden like the tap's secrets: whole, and its signature."""
    for written in ("${TOKEN}", SAS):
        pipeline = settings(_text("account: contoso", f'sas_token: "{written}"'), {"TOKEN": SAS}).pipeline(None)
        assert SAS in pipeline.secrets
        shown = "".join(to_yaml(*effective(pipeline, every=True))) + repr(pipeline.destination.store_options)
        assert "dmVyeS1zZWNyZXQ" not in shown
        assert pipeline.destination.store_options.sas_token == SAS  # type: ignore[union-attr]


def test_iceberg_asks_for_the_address_that_its_engines_know(settings: Load) -> None:
    """Iceberg's metadata names files by their URI, and no engine of Iceberg knows `az://`."""
    text = pipeline_text(destination="format: iceberg").replace("./lake", "az://lake/team")
    error = refused(lambda: settings(text).pipeline(None))
    assert "Iceberg's engines do not know az://" in error.message
    assert "abfss://" in error.hint
