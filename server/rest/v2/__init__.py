"""The second version of the API: topics, produce, and consumer instances."""
