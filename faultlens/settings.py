"""What an installation says of itself, by environment variables that begin with FAULTLENS_."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Final, Literal

from pydantic import Field, SecretStr, ValidationError
from pydantic_settings import BaseSettings, SettingsConfigDict

from faultlens.errors import ConfigurationError

PREFIX: Final = "FAULTLENS_"
# What a launcher tells a training script (faultlens/progress.py), and no setting of the program.
_FOR_TRAINING: Final = frozenset(
    {
        "FAULTLENS_PROGRESS",
        "FAULTLENS_PROGRESS_FD",
        "FAULTLENS_JOB_ID",
        "FAULTLENS_ATTEMPT",
        "FAULTLENS_CHECKPOINT_STEP",
        "FAULTLENS_CHECKPOINT_PATH",
        "FAULTLENS_EXCLUDE_NODES",
    }
)


def data_directory() -> Path:
    """Return where this user's programs keep their data (XDG base directories; Application Support on macOS)."""
    home = Path.home()
    if sys.platform == "darwin":
        return home / "Library" / "Application Support"
    return Path(os.environ.get("XDG_DATA_HOME") or home / ".local" / "share")


def default_store() -> str:
    """Return the DSN of the embedded store that is used when nobody says otherwise."""
    return f"chdb://{data_directory() / 'faultlens' / 'store'}"


class Settings(BaseSettings):
    """The settings; each is the variable FAULTLENS_<NAME>. Secrets are masked wherever they are shown."""

    model_config = SettingsConfigDict(env_prefix=PREFIX, env_ignore_empty=True, frozen=True, extra="ignore")

    cluster: str | None = Field(default=None, max_length=200, description="what this cluster is called in events")
    store: str = Field(default_factory=default_store, description="where answers are kept")
    store_password: SecretStr | None = Field(default=None, description="password of the store's user on a server")
    store_password_file: Path | None = Field(default=None, description="file whose first line is that password")
    store_ca: Path | None = Field(default=None, description="PEM file of the authorities that the store is trusted by")
    store_certificate: Path | None = Field(default=None, description="PEM file of our own certificate for the store")
    store_key: Path | None = Field(default=None, description="PEM file of that certificate's key")
    objectives: Path | None = Field(default=None, description="a site's own objectives, a file or a folder of them")
    policy: Path | None = Field(default=None, description="a site's own remediation policy")
    mail_password: SecretStr | None = Field(default=None, description="password of the user that mails are sent as")
    mail_password_file: Path | None = Field(default=None, description="file whose first line is that password")
    gpu_hour_price: float | None = Field(default=None, ge=0, description="what a GPU-hour costs, for reports")
    currency: str = Field(default="USD", max_length=8, description="the currency of that price")
    job_state: Path | None = Field(
        default=None, description="a folder that all nodes see, where launchers leave a job's last checkpoint"
    )
    brokers: str | None = Field(default=None, description="Kafka's host:port list; without it everything is embedded")
    kafka_security: Literal["plaintext", "ssl", "sasl_plaintext", "sasl_ssl"] = Field(
        default="plaintext", description="how the brokers are spoken to"
    )
    kafka_mechanism: Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"] = Field(
        default="SCRAM-SHA-512", description="how we log in to the brokers, where `kafka_security` begins with sasl"
    )
    kafka_user: str | None = Field(default=None, description="our user, or the client id at the OpenID provider")
    kafka_password: SecretStr | None = Field(default=None, description="password of that user, or the client's secret")
    kafka_password_file: Path | None = Field(default=None, description="file whose first line is that password")
    kafka_token_url: str | None = Field(default=None, description="the OpenID provider's token endpoint (OAUTHBEARER)")
    kafka_token_scope: str | None = Field(default=None, description="the scope to ask a token for (OAUTHBEARER)")
    kafka_ca: Path | None = Field(default=None, description="PEM file of the authorities that brokers are trusted by")
    kafka_certificate: Path | None = Field(default=None, description="PEM file of our own certificate")
    kafka_key: Path | None = Field(default=None, description="PEM file of that certificate's key")
    kafka_key_password: SecretStr | None = Field(default=None, description="password of that key")

    def password(self) -> str:
        """Return the store's password, empty if none is set; ConfigurationError if its file cannot be read."""
        return secret(self, "store_password")


def secret(settings: Settings, name: str) -> str:
    """Return a secret that is set as such or by its file, empty if neither; ConfigurationError if that is no use."""
    given: SecretStr | None = getattr(settings, name)
    if given is not None:
        return given.get_secret_value()
    file: Path | None = getattr(settings, f"{name}_file")
    if file is None:
        return ""
    try:
        return file.read_text(encoding="utf-8").partition("\n")[0].rstrip("\r")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"{PREFIX}{name.upper()}_FILE: {file} cannot be read: {_reason(error)}") from None


def load_settings() -> Settings:
    """Return the settings of this process's environment; ConfigurationError names the variable that is wrong."""
    try:
        return Settings()
    except ValidationError as error:
        first = error.errors(include_input=False, include_url=False)[0]
        name = "_".join(str(part) for part in first["loc"]).upper()
        raise ConfigurationError(f"{PREFIX}{name.removeprefix(PREFIX)}: {first['msg']}") from None


def unknown_variables(names: list[str]) -> list[str]:
    """Return those of `names` that begin with FAULTLENS_ but are no setting: most likely misspelt."""
    known = {f"{PREFIX}{name.upper()}" for name in Settings.model_fields} | _FOR_TRAINING
    return sorted(name for name in names if name.startswith(PREFIX) and name not in known)


def _reason(error: OSError | UnicodeDecodeError) -> str:
    return error.strerror or str(error) if isinstance(error, OSError) else "it is not UTF-8"
