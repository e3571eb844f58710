"""Models from and to files and folders."""
