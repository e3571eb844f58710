"""`mmdb bench`: what this machine and this database do, measured side by side with plain PyTorch."""
