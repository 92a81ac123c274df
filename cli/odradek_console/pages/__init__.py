"""One module per page: handlers that collect the data of a template."""
