"""A kind cluster on this machine: `make kind-up`, `make kind-down`.

engine.py      which container engine: the user's own, or a private one from Debian's packages
node_image.py  the nodes' image, assembled where no image registry can be reached
cluster.py     one control plane and three workers in three zones; images loaded into them
leftovers.py   restores sysctls and packet filter rules
steps.py       the steps, how long they take, which are done already
"""
