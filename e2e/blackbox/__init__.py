"""The black-box suite: tests that know a bootstrap address and nothing else.

    make blackbox                    both engines, one after the other, and what differs
    make blackbox ENGINE=apache      one of them
    make blackbox BOOTSTRAP=h:9092   any cluster; its settings should be those of
                                     odradek_e2e.blackbox.SETTINGS, or some tests wait longer

A test must pass on Apache Kafka: what it does is the expected result. Most tests are those of
broker_tests/clients, which are written for both engines; `shared` takes over the ones that need no
more than an address. What is here besides is what those do not cover.
"""
