"""The broker's side of SASL: one file per mechanism, message in → message out."""
