"""Unmodified clients and frameworks of others, at pinned versions, against both engines.

    make ecosystem                               # every case on both engines
    make ecosystem CASE=sarama,kcat ENGINE=embedded

`registry` lists the cases; `contract` says what every client has to do and looks at the result with
another client; `build` gets programs from Go modules into the cache; `table`
writes the results into docs/how-to/clients.md. The programs are in `programs/`.
"""
