"""`mmdb bench`: what this machine and this database do, beside plain PyTorch."""
