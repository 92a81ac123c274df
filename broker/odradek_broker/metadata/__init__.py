"""The cluster's metadata: records of the metadata log, the image they make, and its changes."""
