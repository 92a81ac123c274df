"""The black-box suite: tests that know a bootstrap address and nothing else.

    make blackbox                    both engines, one after the other, and the differences
    make blackbox ENGINE=apache      one of them
    make blackbox SECURITY=sasl_ssl  the same with TLS, a user of SCRAM and ACLs
    make blackbox BOOTSTRAP=h:9092   any cluster, with CLIENT_CONFIG=FILE for TLS and SASL;
                                     its settings should be those of
                                     odradek_e2e.blackbox.SETTINGS, or some tests wait longer

A test must pass on Apache Kafka, whose behaviour is the expected result. The tests are those of
broker_tests/clients that need only an address (`shared`).
"""
