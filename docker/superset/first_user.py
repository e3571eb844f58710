"""Gives Superset its first user, or renews that user's password.

The command for it would take the password as an argument, which other processes see.
"""

from __future__ import annotations

import os
from pathlib import Path

from superset.app import create_app


def main() -> None:
    """Make the user `admin` with the password that SUPERSET_PASSWORD_FILE holds."""
    application = create_app()
    with application.app_context():
        from superset.extensions import security_manager

        password = Path(os.environ["SUPERSET_PASSWORD_FILE"]).read_text().strip()
        user = security_manager.find_user("admin")
        if user:
            security_manager.reset_password(user.id, password)
        else:
            role = security_manager.find_role("Admin")
            security_manager.add_user("admin", "Ann", "Admin", "admin@localhost", role, password)


if __name__ == "__main__":
    main()
