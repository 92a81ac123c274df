#!/bin/bash
# The nodes' network, where kind's own daemon is not to be had: for each node a route to the pods
# of every other node (all nodes are on one bridge), and a CNI configuration that gives a pod an
# address of its node. NetworkPolicies are accepted and not enforced.
set -u

outside=(POSTROUTING -s "$POD_SUBNET" ! -d "$POD_SUBNET" -m addrtype ! --dst-type LOCAL -j MASQUERADE)
iptables -w -t nat -C "${outside[@]}" 2>/dev/null || iptables -w -t nat -A "${outside[@]}"

write_cni() { # pod CIDR
    local file=/etc/cni/net.d/10-kindnet.conflist
    cat >/etc/cni/net.d/.new <<EOF
{"cniVersion": "0.3.1", "name": "kindnet", "plugins": [
  {"type": "ptp", "mtu": 1500, "ipam": {
    "type": "host-local", "dataDir": "/run/cni-ipam-state",
    "routes": [{"dst": "0.0.0.0/0"}], "ranges": [[{"subnet": "$1"}]]}},
  {"type": "portmap", "capabilities": {"portMappings": true}}
]}
EOF
    cmp -s /etc/cni/net.d/.new "$file" || mv /etc/cni/net.d/.new "$file"
}

columns='N:.metadata.name,C:.spec.podCIDR,A:.status.addresses[?(@.type=="InternalIP")].address'
while true; do
    kubectl get nodes --watch --no-headers -o "custom-columns=$columns" |
        while read -r node cidr address; do
            if [ "$cidr" = "<none>" ] || [ "$address" = "<none>" ]; then
                continue
            elif [ "$node" = "$NODE_NAME" ]; then
                write_cni "$cidr"
            else
                ip route replace "$cidr" via "$address"
            fi
        done
    sleep 2 # the watch ended: the API server is away, or was restarted
done
