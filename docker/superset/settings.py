"""Superset's settings in the container; secrets come from files."""

import os
from pathlib import Path

SECRET_KEY = Path(os.environ["SUPERSET_KEY_FILE"]).read_text().strip()
SQLALCHEMY_DATABASE_URI = f"sqlite:///{os.environ['SUPERSET_HOME']}/superset.db"
WTF_CSRF_ENABLED = True
TALISMAN_ENABLED = False  # TLS ends before it: see docs/docker.md
RATELIMIT_STORAGE_URI = "memory://"  # one process serves
