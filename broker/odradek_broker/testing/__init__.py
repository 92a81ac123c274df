"""Testing mode: faults and time on request, for `odradek.testing`.

Only a broker that is started with `--testing-control PATH` has it: no setting, file or variable can
switch it on. PATH is a Unix socket that only the user of the process can open. Nothing of this
package is imported otherwise.

    mode       the ports that testing mode replaces (clock, disk) and the faults, together
    faults     holds back, delays or fails requests before their handlers see them
    answers    responses with a chosen error code, for APIs whose errors are per item
    control    the socket: one JSON object per line
"""
