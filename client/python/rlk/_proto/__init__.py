"""Generated from proto/rlk/v1 by generate.sh; not part of the public API."""
