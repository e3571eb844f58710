"""Parts of `mmdb bench feature`: heads on frozen layers, with what they share and without."""
