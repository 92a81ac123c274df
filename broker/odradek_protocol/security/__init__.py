"""TLS and SASL as both sides of a connection need them; no sockets, no broker code.

stores       key stores and trust stores (PEM, PKCS12) → ssl.SSLContext
jaas         `sasl.jaas.config` → options
scram        the formulas and messages of SCRAM
sasl_client  the client's side of each mechanism: token in, token out
settings     all of it from Java-style properties
"""
