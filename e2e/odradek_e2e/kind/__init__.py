"""A kind cluster on this machine: `make kind-up`, `make kind-down`.

engine.py      which container engine: the user's own, or a private one from Debian's packages
node_image.py  the nodes' image, assembled where no image registry is reached
cluster.py     one control plane and three workers in three zones; images loaded into them
leftovers.py   sysctls and packet filter rules as they were before
steps.py       what is to be done, how long it takes, what is done already
"""
