"""Reports as files: a page, a picture, JSON."""
