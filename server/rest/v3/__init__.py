"""The third version of the API: administration, and produce by streams."""
