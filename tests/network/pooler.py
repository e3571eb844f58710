"""A PgBouncer between clients and a server."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from psycopg.conninfo import conninfo_to_dict

from tests.server_user import as_user, server_owner

PROGRAM = shutil.which("pgbouncer", path=f"{os.environ['PATH']}:/usr/sbin")
_SETTINGS = """
[databases]
{dbname} = host={host} port={port} dbname={dbname}
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {own_port}
unix_socket_dir =
auth_type = scram-sha-256
auth_file = {users}
pool_mode = {mode}
default_pool_size = {size}
max_client_conn = 1000
ignore_startup_parameters = extra_float_digits
"""


@contextmanager
def pooled(url: str, mode: str = "transaction", size: int = 3) -> Iterator[str]:
    """Yield the URL by which a pooler leads to a database.

    Args:
        url: with a host, a user and a password.
        size: sessions with the server, which clients share.
    """
    given = {"port": 5432, **conninfo_to_dict(url)}
    with closing(socket.create_server(("127.0.0.1", 0))) as free:
        port = free.getsockname()[1]
    owner = server_owner()
    with TemporaryDirectory(prefix="mmdb-pooler-") as made:
        folder = Path(made)
        users = folder / "users.txt"
        users.write_text(f'"{given["user"]}" "{given["password"]}"\n')
        about = given | {"own_port": port, "users": users, "mode": mode, "size": size}
        (folder / "settings.ini").write_text(_SETTINGS.format(**about))
        for path in (folder, *folder.iterdir()):
            os.chown(path, owner.pw_uid, owner.pw_gid)
        command = [str(PROGRAM), str(folder / "settings.ini")]
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, **as_user(owner)
        )
        try:
            assert process.stdout is not None
            for line in process.stdout:
                if "process up" in line:
                    break
            # What it says later must not fill the pipe.
            threading.Thread(target=process.stdout.read, daemon=True).start()
            yield (
                f"postgresql://{given['user']}:{given['password']}@127.0.0.1:{port}"
                f"/{given['dbname']}"
            )
        finally:
            process.terminate()
            process.wait()
            if process.stdout is not None:
                process.stdout.close()
