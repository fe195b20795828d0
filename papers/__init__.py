"""One folder a source: `claims.toml` says what it claims, `reproduce.py` what this code finds."""
