"""Methods against exact truth."""
