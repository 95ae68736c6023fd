"""Tools for looking inside models and builds. No stage of a build imports them."""
