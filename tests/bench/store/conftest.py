"""What pytest is not to import here."""

# MMLib stores these files and imports them by their bare names; two of them import MMLib.
collect_ignore_glob = ["mmlib_*.py"]
